"""Submission folders and recordings that are altered and hashed again, for the tests of the auditor."""

import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.faults.forge import bind_again, hash_again, lines_of
from rig.recording.layout import sha256_of
from tests.support.run_by_hand import read_plainly, write_lines

GOLDEN = Path(__file__).parents[1] / "golden"
Json = dict[str, Any]


def unpacked(name: str, folder: Path) -> Path:
    """Return a golden recording, with its results in ``derived``."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    said = json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))["said"]
    for place, results in said.items():
        if isinstance(results, dict) and "quantities" in results:
            (folder / name / place / "derived").mkdir(exist_ok=True)
            (folder / name / place / "derived" / "results.json").write_text(json.dumps(results))
    return folder / name


def listed(folder: Path) -> None:
    """Write the manifest of a submission again."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    rows = [f"{sha256_of(folder / n)}  {n}\n" for n in names if not n.startswith("MANIFEST") and "derived/" not in n]
    (folder / "MANIFEST.sha256").write_text("".join(rows))


def edited(folder: Path, change: Callable[[Json], object]) -> None:
    """Change the description of a submission, and hash its files again."""
    document = json.loads((folder / "submission.json").read_text())
    change(document)
    (folder / "submission.json").write_text(json.dumps(document, indent=1) + "\n")
    listed(folder)


def row_edited(folder: Path, change: Callable[[Json], object]) -> None:
    """Change the first configuration of a submission, and hash its files again."""
    edited(folder, lambda document: change(document["configurations"][0]))


def altered(run: Path, change: Callable[[list[Json]], object], session: Path | None = None) -> None:
    """Change the lines of a run, and hash all of it again: chain, files, seal and session."""
    lines = lines_of(run)
    change(lines)
    hash_again(run, lines)
    if session is not None:
        bind_again(session)


def forged(session: Path, to: Path, edit: Callable[[str, list[Json], dict[str, pa.Table]], None]) -> Path:
    """Copy a session, with runs that ``edit`` changed, hashed, chained and sealed again.

    ``edit`` is given the name of each run, its lines, and its tables by file.
    """
    document, previous = json.loads((session / "session.json").read_text()), "0" * 64
    for bound in document["runs"]:
        name = bound["path"]
        shutil.copytree(session / name, to / name)
        events, tables = read_plainly(session / name)
        events[0]["session"] = (events[0].get("session") or {}) | {"previous": previous}
        before = dict(tables)
        edit(name, events, tables)
        for place, content in tables.items():
            if content is not before.get(place):
                with pa.ipc.new_stream(str(to / name / place), content.schema) as stream:
                    stream.write_table(content)
                events[-1]["files"][place] = sha256_of(to / name / place)
        write_lines(to / name, events)
        bound["events_sha256"] = previous = sha256_of(to / name / "events.jsonl")
    (to / "session.json").write_text(json.dumps(document))
    (to / "session.json.sha256").write_text(f"{sha256_of(to / 'session.json')}  session.json\n")
    return to
