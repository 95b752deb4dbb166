"""The files that a submission makes from its sessions: description, table, pages and metadata, as bytes by path."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rig.analysis.sessions.one_bench_and_data import shared_recording
from rig.engine.record import environment
from rig.errors import DataError
from rig.plugins import load
from rig.recording.submission import FILE, SESSIONS, Submission
from rig.session.report import evaluated
from rig.submission import submission_toml
from rig.submission.configurations import Row, rows_of

MAKERS = ("numpy", "jinja2")
CRATE = "ro-crate-metadata.json"
SPECIFICATION = "https://w3id.org/ro/crate/1.1"


@dataclass(frozen=True)
class Made:
    """The rows of a submission, its description, and every file of it that is no recording."""

    document: Submission
    rows: tuple[Row, ...]
    files: Mapping[str, bytes]


def made_with() -> dict[str, str]:
    """Return the versions of the programs that make submissions here; with other versions, pages may differ."""
    here = environment()
    commit = f"{here.commit}{' with changes' if here.dirty else ''}" if here.commit else "none"
    return {"python": here.python or "", "commit": commit} | {name: version(name) for name in MAKERS}


def made_of(folder: Path, names: Sequence[str], head: Submission, about: bytes) -> Made:
    """Verify and evaluate the sessions ``names`` in a submission's folder, and make all files about them.

    ``head`` is the description, whose rows are ignored, and ``about`` the content of ``submission.toml``. The files
    depend only on these and on the recordings. Raises ``DataError`` for sessions that share a recording, and what
    ``rig.report`` raises for a recording.
    """
    read = [(name, evaluated(folder / SESSIONS / name)) for name in names]
    runs = ((f"{found.path}/{part.name}", part.run) for _, found in read for part in found.parts)
    if shared := shared_recording(runs):  # it would count as two measurements
        one, other, what = shared
        said = f"{one} and {other} hold one recording: their {what} are equal"
        remedy = "Hand in each recording once, and measure again for another trial"
        raise DataError(said, field="session", value=other, remedy=remedy)
    rows = rows_of(read)
    document = replace(head, configurations=[row.configuration for row in rows])
    pages: Mapping[str, bytes] = load("reports", "submission")(document, [(row.result, row.run) for row in rows])
    content = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    files = {**pages, FILE: content, submission_toml.FILE: about}
    files[CRATE] = _crate(document, sorted(name for name in files if "/" not in name))
    return Made(document, tuple(rows), files)


def _crate(document: Submission, files: Iterable[str]) -> bytes:
    """Return the metadata of a submission as RO-Crate 1.1, for archives; ``files`` are those at its root."""
    about = document.about
    folders = [folder for row in document.configurations for folder in row.sessions]
    rig = {"@id": "#neurorig", "@type": "SoftwareApplication", "name": "neurorig", "version": document.rig_version}
    root: dict[str, Any] = {
        "@id": "./", "@type": "Dataset", "name": about.title or document.name,
        "description": f"Submission of {len(document.configurations)} configurations by neurorig",
        "datePublished": about.date, "license": about.licence,
        "author": {"@id": "#submitter"} if about.organization else "",
        "hasPart": [{"@id": name} for name in (*files, *(f"{folder}/" for folder in folders))],
    }  # fmt: skip
    actions = [
        {
            "@id": f"#configuration-{k}", "@type": "CreateAction", "name": row.name, "instrument": {"@id": "#neurorig"},
            "result": [{"@id": f"{folder}/"} for folder in row.sessions],
        }
        for k, row in enumerate(document.configurations, 1)
    ]  # fmt: skip
    graph = [
        {"@id": CRATE, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": SPECIFICATION}},
        {key: value for key, value in root.items() if value},
        *({"@id": name, "@type": "File", "name": name} for name in files),
        *({"@id": f"{folder}/", "@type": "Dataset", "name": folder} for folder in folders),
        rig,
        *([{"@id": "#submitter", "@type": "Organization", "name": about.organization}] if about.organization else []),
        *actions,
    ]  # fmt: skip
    return json.dumps({"@context": f"{SPECIFICATION}/context", "@graph": graph}, indent=1).encode() + b"\n"
