"""The checks by the rig's own code: a submission's pages are made again, and an import's originals imported again."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reports.audit.audit import Audit, shown
from reports.audit.evidence import Check, Outcome
from reports.audit.folder.reading import Run, blocks, clean, read_run, refuse, traces, walk
from reports.submission.leaderboard import EQUAL
from rig.errors import RigError
from rig.factories import build
from rig.importing.write import KEPT, write
from rig.plugins import load
from rig.recording.events import ChunkArrived, Note
from rig.terminal import tell

NUMBER, NAME = 32, "documents and pages, made again by the rig's own code and not the auditor's"
ALLOWED = "the same files and words; figures within a hundredth of their half-width, other numbers within a millionth"
SHOWN = 3
WHOLE = (1, 2)
"""The checks that a folder is complete and fits its hashes; the rig's own readers read only such folders."""
NOT_COMPARED = "pages not compared"
EQUALS = "submission.json and results.csv are equal; other versions or edits by hand changed the rest"
DIFFER = "submission.json or results.csv differs too, by less than the intervals of the figures as computed now"
UNEXPLAINED = "beyond what another version may change"
OWN = ("run_id", "created_utc", "argv", "environment", "as_recorded")
"""Fields of the start line in which two imports of the same files may differ."""
FILES = ("windows", "calibration")
"""Options of importers that name a file, which is kept in a folder of this name."""


def with_pages(one: Audit, folder: Path) -> Audit:
    """Return the audit of a submission with this check added. Return any other audit unchanged."""
    if one.kind != "submission":
        return one
    damaged = [c.name for c in one.failed if c.number in WHOLE]
    if one.quick or damaged:
        why = f"the folder fails the check {damaged[0]!r}" if damaged else "left out by --quick"
        return _with(one, NOT_COMPARED, "not applicable", why=why)
    try:
        return _compared(one, folder)
    except RigError as error:
        said = error.message
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:
        said = f"{type(error).__name__}: {error}"
    return _with(one, NOT_COMPARED, "failed", f"it cannot be made again: {clean(said)}")


def _compared(one: Audit, folder: Path) -> Audit:
    from rig.submission.make_again import made_again

    found = made_again(folder)
    if not found.others or not (found.pages or found.documents):
        faults, said = (*found.documents, *found.pages), "pages differ" if found.pages else EQUAL
        return _with(one, said, "failed" if faults else "passed", shown(faults, SHOWN) or "all is equal")
    others = clean(f"{NOT_COMPARED}: made with {', '.join(found.others)}")
    if found.unexplained:
        return _with(one, others, "failed", f"{others}; {UNEXPLAINED}: {shown(found.unexplained, SHOWN)}")
    what, texts = (DIFFER, found.documents) if found.documents else (EQUALS, found.pages)
    return _with(one, others, "warned", f"{others}; {what}: {shown(texts, SHOWN)}")


def _with(one: Audit, remade: str, outcome: Outcome, found: str = "", why: str = "") -> Audit:
    check = Check(NUMBER, NAME, outcome, found, ALLOWED, "a rule of this project", why)
    return replace(one, checks=(*one.checks, check), remade=remade)


def imported_again(run: Run) -> Iterator[str]:
    """Yield how an imported run differs from its originals, imported again.

    Raises ``RigError`` or ``OSError`` if the originals cannot be imported. An importer named by its path is never run.
    """
    from rig.submission.make_again import differences

    about: Any = run.whole.start.imported
    if ".py:" in about.format:
        refuse(about.format, "is somebody's own importer, which is never run")
    factory, folder = load("importers", about.format), run.path / KEPT
    kept = walk(folder)
    if run.stop is None or not {f"{KEPT}/{name}" for name in kept} <= run.stop.files.keys():
        refuse(KEPT, "holds files that no hash covers")
    tell(f"importing {run.path.name} again, to compare it with its originals", dim=True)
    files = {name.partition("/")[0]: name for name in kept}
    # any other file would be the auditor's own, and the audit would print of its content
    options = {k: str(folder / files.get(k, k) if k in FILES and v else v) for k, v in about.options.items()}
    found = build(factory, {"source": folder / about.source if about.source in kept else folder}, options)
    one = replace(found[0] if isinstance(found, list) else found, name=about.recording)
    with tempfile.TemporaryDirectory(prefix="audit-") as place:
        again = read_run(write(one, Path(place, "run"), about=msgspec.to_builtins(about), keep_identity=True))
        yield from (f"what it states, {text}" for text in differences(_stated(run), _stated(again)))
        for name, trace in traces(run).items():
            for there, here in zip(blocks(trace, 0), blocks(traces(again).get(name, trace), 0), strict=False):
                rows = min(there.shape[1], here.shape[1])
                # machines read the last bit of a decimal number differently
                far = np.flatnonzero(~np.isclose(there[:, :rows], here[:, :rows], 1e-15, 0.0).all(axis=0))
                if len(far):
                    first = f"{there[:3, far[0]].tolist()}, imported again {here[:3, far[0]].tolist()}"
                    yield f"{len(far)} of {rows} readings of {name} differ, first begin, end and value are {first}"


def _stated(run: Run) -> bytes:
    """Return as text what the lines, tables and traces of a run state, except its readings."""
    start = {key: value for key, value in msgspec.structs.asdict(run.whole.start).items() if key not in OWN}
    # other versions of an importer may read in other pieces, and word their notes in other ways
    lines = [line for line in run.whole.events if not isinstance(line, (ChunkArrived, Note))]
    told = [start, *lines, run.ended, [(one.clock, len(one.value)) for one in traces(run).values()]]
    told += [getattr(run.whole, name).to_pylist() for name in ("samples", "replies", "progress", "activity")]
    return msgspec.json.format(msgspec.json.encode(told), indent=1)
