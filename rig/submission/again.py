"""A submission is made again of its own sessions, and compared with what it says of them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec

from rig.recording.bounded import read_bounded
from rig.recording.layout import DERIVED
from rig.recording.submission import FILE, MANIFEST, SESSIONS, SIGNATURE, open_submission
from rig.submission import about as about_file
from rig.submission.folder import files_of
from rig.submission.made import made_of, made_with

DOCUMENTS = (FILE, "results.csv")
"""The files that no drawing of pictures and no template changes."""
RELATIVE = 1e-6
"""How far apart two numbers may lie, beside the greater: another processor rounds otherwise in the last digits."""
OWN = frozenset({MANIFEST, SIGNATURE, "derived/audit.json", "derived/audit.html"})
"""The files that no one makes again: what covers all others, and what an audit writes in its own place."""
MOST_BYTES = 1 << 28
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_PICTURE = re.compile(r"<svg |</svg>")


@dataclass(frozen=True)
class Again:
    """What differs between a submission and the same made again, and with which versions it was made otherwise."""

    documents: tuple[str, ...]
    """Of the description, the table, and the list of files."""
    pages: tuple[str, ...]
    """Of pages and metadata."""
    others: tuple[str, ...]


def made_again(folder: Path) -> Again:
    """Make a submission again of its sessions and its ``submission.toml``, by the code of ``rig submit``.

    Each difference names the file, the line, what stands there, and what is made again. Raises what ``rig.submit``
    raises for a recording, and ``StoreError`` for a folder that is no submission.
    """
    found = open_submission(folder).document
    names = [name.removeprefix(f"{SESSIONS}/") for row in found.configurations for name in row.sessions]
    about, raw = about_file.read_about(folder / about_file.FILE)
    made = made_of(folder, names, msgspec.structs.replace(found, about=about, configurations=[]), raw).files
    recorded = files_of({name: folder / SESSIONS / name for name in names})
    held = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    listed = [f"{name} is missing" for name in sorted({*made, *recorded} - held)]
    listed += [
        f"{name} is not made of the sessions"
        for name in sorted(held - {*made, *recorded} - OWN)
        if not (name.startswith(f"{SESSIONS}/") and DERIVED in name.split("/"))  # any reader may make these again
    ]
    differ = {
        name: [f"{name}, {text}" for text in differences(read_bounded(folder / name, MOST_BYTES), made[name])]
        for name in (*DOCUMENTS, *sorted(set(made) - set(DOCUMENTS)))
        if name in held
    }
    documents = [text for name in DOCUMENTS for text in differ.pop(name, ())]
    pages = [text for texts in differ.values() for text in texts]
    here = {"neurorig": version("neurorig")} | made_with()
    there = dict.fromkeys(here, "not stated") | {"neurorig": found.rig_version} | found.made_with
    others = [f"{key} {there[key]}, here {here[key]}" for key in here if there[key] != here[key]]
    return Again((*documents, *listed), tuple(pages), tuple(others))


def differences(found: bytes, made: bytes) -> list[str]:
    """Return each line in which two texts differ by more than the rounding of a number.

    Words and whole numbers are equal; other numbers lie within ``RELATIVE`` of each other. In a picture they may also
    differ by one in their second decimal, which is a hundredth of a point. Of texts with different numbers of lines
    only the first difference is told.
    """
    if found == made:
        return []
    texts = [content.decode("utf-8", "replace").split("\n") for content in (found, made)]
    if len(texts[0]) == len(texts[1]):
        return list(_differences(*texts))
    # the comma behind the last part of an object moves with what follows
    bare = [[line.rstrip(",") for line in text] for text in texts]
    return list(itertools.islice(_differences(*bare), 1))


def _differences(found: Sequence[str], made: Sequence[str]) -> Iterator[str]:
    drawn = False
    for number, (there, here) in enumerate(itertools.zip_longest(found, made), start=1):
        drawn = next((mark == "<svg " for mark in reversed(_PICTURE.findall(here or ""))), drawn)
        if there is None or here is None or not (there == here or _alike(there, here, drawn)):
            yield f"line {number}: {_shown(there, here)}"


def _alike(there: str, here: str, drawn: bool) -> bool:
    one, other = _NUMBER.split(there), _NUMBER.split(here)
    return len(one) == len(other) and all(a == b or _close(a, b, drawn) for a, b in zip(one, other, strict=True))


def _close(there: str, here: str, drawn: bool) -> bool:
    """Whether two parts of texts are numbers, one of them not whole, that differ by no more than rounding does."""
    if (there.isdigit() and here.isdigit()) or not (_NUMBER.fullmatch(there) and _NUMBER.fullmatch(here)):
        return False
    places = len(here.partition(".")[2]) if drawn and "e" not in here.lower() else 0
    return math.isclose(
        float(there), float(here), rel_tol=RELATIVE, abs_tol=1.01 * 10.0**-places if places > 1 else 0.0
    )


def _shown(there: str | None, here: str | None, most: int = 60) -> str:
    """The first part in which two lines differ, with a little of what stands before it."""
    if there is None or here is None:
        said, again = ("no line" if text is None else repr(text[:most]) for text in (there, here))
        return f"{said}, made again {again}"
    at = next((k for k, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))
    begin = max(0, at - most // 3)
    return f"{there[begin : begin + most]!r}, made again {here[begin : begin + most]!r}"
