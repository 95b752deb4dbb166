"""Read ``submission.toml``, which states what only the submitter knows, and write it with what recordings state."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rig.errors import DataError, reason, refused
from rig.recording.disk.files import not_stored, write_whole
from rig.recording.disk.size_limits import read_bounded
from rig.recording.events import Start
from rig.recording.submission import About
from rig.terminal import clean

FILE = "submission.toml"
MOST_BYTES = 1 << 20
MOST_CHARACTERS = 2_000
"""The longest text that the template takes from a recording."""


class Field(NamedTuple):
    """A field of the template: what it asks, the content that a recording gives, and what a comment beside it says."""

    asks: str
    known: Callable[[Start], Any] = lambda start: None
    beside: Callable[[Start], Any] = lambda start: None


_OF_DATA = ("source", "split", "seeds", "seed_kind")
FIELDS: Mapping[str, Field] = {
    "title": Field(
        "One line for the heading", lambda s: f"{s.device.name}: {s.workload.name}, {s.scenario.name}".strip(": ,")
    ),
    "organization": Field("Who submits", lambda s: s.lab),
    "contact": Field("Whom an auditor asks", beside=lambda s: s.operator),
    "date": Field("The day of the submission, YYYY-MM-DD", beside=lambda s: str(s.created_utc)[:10]),
    "availability": Field("Whether others can get the system: available, preview or research"),
    "system": Field("Outline of the architecture of the system", lambda s: s.device.description),
    "model": Field("Outline of the model or algorithm", lambda s: s.device.algorithm.outline),
    "tuning": Field("How it was trained and tuned", lambda s: s.device.algorithm.tuned),
    "split": Field(
        "The data and seeds on which it was trained and tuned, and how the test data were kept out",
        beside=lambda s: {k: v for k, v in s.workload.details.items() if k in _OF_DATA},
    ),
    "components": Field(
        "The active components that power covers, and why the others are left out",
        beside=lambda s: {m.name: {"rails": [r.name for r in m.rails], "omitted": m.omitted} for m in s.meters},
    ),
    "host": Field("What runs on the host, before and after the device", beside=lambda s: s.device.phases),
    "software": Field(
        "Where others find the software and documents that they need to repeat the result",
        beside=lambda s: s.device.versions | ({} if s.environment is None else {"commit": s.environment.commit}),
    ),
    "licence": Field("The licence under which the submission may be used"),
    "notes": Field("Anything else; may stay empty"),
}


def read_about(path: Path) -> tuple[About, bytes]:
    """Return the content of a ``submission.toml``, decoded and as it was written.

    Raises ``UsageError`` for a file that cannot be read, and ``DataError`` for one that is not TOML, for an unknown
    field, and for a value of the wrong type or size.
    """
    try:
        raw = read_bounded(path, MOST_BYTES)
    except OSError as error:
        remedy = "Write one with `rig submit SESSION... --init`, and name it with --about"
        raise refused("about", str(path), remedy, f"cannot read {path}: {reason(error)}") from error
    try:
        return msgspec.convert(tomllib.loads(raw.decode("utf-8-sig")), About), raw
    except (ValueError, RecursionError) as error:  # also for text that is not UTF-8 or not TOML
        what, _, where = str(error).partition(" - at ")
        field = where.strip("`$.") or "about"
        asked = f"Give one text. It asks: {FIELDS[field].asks}" if field in FIELDS else ""
        remedy = asked or f"Give texts only; the fields are {', '.join(FIELDS)}"
        raise DataError(f"{path}: {field}: {what}", field=field, value=str(path), remedy=remedy) from error


def write_template(path: Path, starts: Sequence[Start]) -> list[str]:
    """Write a commented ``submission.toml`` and return the fields that are left to fill in.

    Raises ``UsageError`` for a path that exists, ``StoreError`` for one that cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise refused("about", str(path), "Edit it, or name another file with --about", f"{path} exists already")
    known = {name: _text([field.known(start) for start in starts]) for name, field in FIELDS.items()}
    content, remedy = "".join(_lines(known, starts)), "Make room, correct the permissions, or name another --about FILE"
    write_whole(path, content.encode(), refuse=lambda place, what, own: not_stored(place, what, own or remedy))
    return [name for name, text in known.items() if not text and name != "notes"]


def _lines(known: Mapping[str, str], starts: Sequence[Start]) -> Iterator[str]:
    yield "# What only you know; `rig submit` copies it. An empty field fails the audit, except for notes.\n"
    yield "# What the recordings say is filled in: check it.\n"
    for name, field in FIELDS.items():
        beside = _text([field.beside(start) for start in starts])
        todo = "" if known[name] or name == "notes" else "  # TO FILL IN"
        said = f"# The recordings say: {beside}\n" if beside else ""
        yield f"\n# {field.asks}.\n{said}{name} = {json.dumps(known[name], ensure_ascii=False)}{todo}\n"


def _text(values: Sequence[Any]) -> str:
    """Return the distinct values as one line of text without control characters.

    Its JSON form is therefore also a basic string of TOML.
    """
    return clean("; ".join(dict.fromkeys(_words(v) for v in values if v)))[:MOST_CHARACTERS]


def _words(value: Any, inner: bool = False) -> str:
    """Return a value of a recording as words: items of a list with commas between, parts of an object after names."""
    if isinstance(value, Mapping):
        found = "; ".join(f"{str(key).replace('_', ' ')} {_words(part, True)}" for key, part in value.items())
        return f"({found})" if inner else found
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(part, True) for part in value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
