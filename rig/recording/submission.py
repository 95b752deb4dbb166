"""The submission folder: its description in ``submission.json``, and the manifest of all its files.

The root hash of a submission is the SHA-256 of ``MANIFEST.sha256``. It covers every file except the signature of the
manifest and the folders called ``derived``.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct

from rig.errors import IntegrityError, StoreError
from rig.recording.disk.decoding import strict
from rig.recording.disk.size_limits import check_dense, check_json, read_bounded
from rig.recording.layout import DERIVED, is_recorded, sha256_of

FILE = "submission.json"
MANIFEST = "MANIFEST.sha256"
SIGNATURE = "MANIFEST.sha256.sig"
NAMESPACE = "neurorig-submission"
"""The namespace of a signature: its purpose. A signature for another purpose is not accepted."""
SESSIONS = "sessions"
PAGE = "report.html"
LINE = re.compile(r"([0-9a-f]{64})  ((?!/)(?!(?:[^\0]*/)?\.\.?(?:/|$))[^\0-\x1f\x7f\\\ud800-\udfff]+)")
"""One line of a manifest: a hash, and a path below the folder."""

Class = Literal["measured", "simulated", "imported", "estimated"]
Text = Annotated[str, Meta(max_length=10_000)]
Short = Annotated[str, Meta(max_length=500)]
Day = Annotated[str, Meta(pattern=r"^(\d{4}-\d{2}-\d{2})?$")]
Inside = Annotated[str, Meta(pattern=r"^sessions/(?!\.)[A-Za-z0-9._-]{1,200}$")]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only the submitter knows. Every field except ``notes`` must be filled in."""

    title: Short = ""
    """One line for the heading of the report."""
    organization: Short = ""
    """Who submits."""
    contact: Short = ""
    """Whom an auditor can ask."""
    date: Day = ""
    """The day of the submission, YYYY-MM-DD."""
    availability: Literal["", "available", "preview", "research"] = ""
    """Whether others can get the system: available now, soon (preview), or not (research)."""
    system: Text = ""
    """Outline of the architecture of the system."""
    model: Text = ""
    """Outline of the model or algorithm."""
    tuning: Text = ""
    """How it was trained and tuned."""
    split: Text = ""
    """The data and seeds on which it was trained and tuned, and how the test data were kept out."""
    components: Text = ""
    """The active components whose power is included, and why others are left out."""
    host: Text = ""
    """What runs on the host, before and after the device."""
    software: Text = ""
    """Where to find the software and the documents with which others can repeat the result."""
    licence: Text = ""
    """The licence under which the submission may be used."""
    notes: Text = ""
    """Anything else; may be empty."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One submitted figure: the mean over the sessions of its configuration."""

    value: float
    unit: Short
    low: float | None = None
    """Low end of the 95 % interval; null if no interval is stated."""
    high: float | None = None
    """High end of the 95 % interval."""
    trials: list[float]
    """The figure of each session, in the order of the sessions."""
    runs: Count
    """The number of runs behind the figure, over all sessions."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the leaderboard: one system in one configuration, at one task."""

    name: Short
    scenario: Short
    workload: Short
    rules: Short
    """The named set of rules of the recordings; empty if they have none."""
    device: Short
    class_: Class = msgspec.field(name="class")
    """The origin of the figures."""
    verdict: Literal["VALID", "INVALID"] | None
    """The verdict by the rules of the recordings; null if they have none."""
    page: Short
    """The file with the six sections of this configuration."""
    sessions: Annotated[list[Inside], Meta(min_length=1, max_length=10_000)]
    """The folders of its sessions or single runs, which are trials of the same configuration."""
    claims: Annotated[dict[str, Claim], Meta(max_length=100_000)]
    """The submitted figures, by their names in results.json."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of submission.json."""

    format: Literal[1]
    rig_version: Short
    made_with: dict[str, Short] = {}
    """Versions of the program and the packages that made the pages, by name."""
    name: Short
    """Name of the folder."""
    about: About
    configurations: Annotated[list[Configuration], Meta(min_length=1, max_length=10_000)]


class Opened(Struct, frozen=True):
    """A submission whose files match its manifest. Only an audit checks the signature."""

    path: Path
    document: Submission
    root: str
    """SHA-256 of the manifest."""


def missing(about: About) -> list[str]:
    """Return the fields that the submitter left empty but must fill in."""
    return [name for name in About.__struct_fields__ if name != "notes" and not getattr(about, name).strip()]


def manifest_of(hashes: Mapping[str, str]) -> bytes:
    """Return the manifest for hashes by path, in the form that ``sha256sum -c`` reads."""
    return "".join(f"{hashes[path]}  {path}\n" for path in sorted(hashes)).encode()


def is_submission(path: Path) -> bool:
    """Return whether a directory is a submission. Raises ``StoreError`` as ``is_recorded`` does."""
    return is_recorded(path, FILE)


def open_submission(path: Path) -> Opened:
    """Read a submission and verify every file against the manifest; folders called ``derived`` are ignored.

    Raises ``StoreError`` for a folder that cannot be read, and ``IntegrityError`` for a file that differs from the
    manifest, is missing, or is not listed.
    """
    try:
        text = read_bounded(path / MANIFEST)
        listed = _listed(path, text.decode())
        for name, expected in listed.items():
            _verify(path, name, expected)
        for file in path.rglob("*"):
            name = file.relative_to(path).as_posix()
            own = name in (MANIFEST, SIGNATURE) or DERIVED in file.relative_to(path).parts
            if not own and name not in listed and (file.is_symlink() or not file.is_dir()):
                _altered(path, f"{name} is not in the manifest")
        content = read_bounded(path / FILE)
        check_json(content, FILE)
        strict(content)
        document = msgspec.json.decode(content, type=Submission)
    except (OSError, ValueError, RecursionError) as error:
        what, remedy = f"the submission {path} cannot be read: {error}", "Ask the submitter for the whole folder"
        raise StoreError(what, field="submission", value=str(path), remedy=remedy) from error
    return Opened(path, document, hashlib.sha256(text).hexdigest())


def _listed(path: Path, text: str) -> dict[str, str]:
    listed: dict[str, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        found = LINE.fullmatch(line)
        if found is None or found[2] in listed:
            _altered(path, f"line {number} of {MANIFEST} is malformed or repeats a file: {line[:80]!r}")
        listed[found[2]] = found[1]
    if FILE not in listed:
        _altered(path, f"{MANIFEST} does not list {FILE}")
    return listed


def _verify(path: Path, name: str, expected: str) -> None:
    if not is_recorded(path, name):
        _altered(path, f"{name} is missing")
    check_dense((path / name).stat(), name)
    if sha256_of(path / name) != expected:
        _altered(path, f"{name} differs from the manifest")


def _altered(path: Path, what: str) -> NoReturn:
    remedy = "Ask the submitter for the folder again, and compare the root hash with the published one"
    raise IntegrityError(f"{path} was altered: {what}", field="submission", value=str(path), remedy=remedy)
