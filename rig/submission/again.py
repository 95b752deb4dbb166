"""A submission is made again of its own sessions, and compared with what it says of them."""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import msgspec

from rig.recording.bounded import read_bounded
from rig.recording.layout import DERIVED
from rig.recording.submission import FILE, MANIFEST, SESSIONS, SIGNATURE, Claim, Submission, open_submission
from rig.submission import about as about_file
from rig.submission.folder import files_of
from rig.submission.made import made_of, made_with

DOCUMENTS = (FILE, "results.csv")
"""The files that no drawing of pictures and no template changes."""
PAGES = (".html", ".md")
RELATIVE = 1e-6
"""How far a number without an interval may move, beside itself. Another processor rounds otherwise."""
OF_HALF_WIDTH = 0.01
"""How far a figure and the ends of its interval may move, beside half of its interval."""
READ = 4
"""Digits from which a printed number may differ by one in its last: what hardly moved may be rounded otherwise."""
OWN = frozenset({MANIFEST, SIGNATURE, "derived/audit.json", "derived/audit.html"})
"""The files that no one makes again: what covers all others, and what an audit writes in its own place."""
MOST_BYTES = 1 << 28
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_SIZE = r"(\d{1,30}(?:\.\d{1,30})?(?:e-?\d{1,3})?)"
_PRINTED = re.compile(rf"(?<![\d.]){_SIZE}\s±\s{_SIZE}\s([%\w]{{1,9}})")
"""A figure and half of its interval with their unit, as pages have them."""
_PICTURE = re.compile(r"<svg |</svg>")


@dataclass(frozen=True)
class Again:
    """What differs between a submission and the same made again, and with which versions it was made otherwise."""

    documents: tuple[str, ...]
    """Of the description, the table, and the list of files."""
    pages: tuple[str, ...]
    """Of pages and metadata."""
    others: tuple[str, ...]
    unexplained: tuple[str, ...] = ()
    """What no other version explains: words, figures beyond the intervals that are computed now, files left over."""


def made_again(folder: Path) -> Again:
    """Make a submission again of its sessions and its ``submission.toml``, by the code of ``rig submit``.

    Each difference names the file, the line, what stands there, and what is made again. Raises what ``rig.submit``
    raises for a recording, and ``StoreError`` for a folder that is no submission.
    """
    found = open_submission(folder).document
    names = [name.removeprefix(f"{SESSIONS}/") for row in found.configurations for name in row.sessions]
    about, raw = about_file.read_about(folder / about_file.FILE)
    again = made_of(folder, names, msgspec.structs.replace(found, about=about, configurations=[]), raw)
    made, margins = again.files, _margins(again.document)
    recorded = files_of({name: folder / SESSIONS / name for name in names})
    held = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    listed = [f"{name} is missing" for name in sorted({*made, *recorded} - held)]
    left_over = [
        f"{name} is not made of the sessions"
        for name in sorted(held - {*made, *recorded} - OWN)
        if not (name.startswith(f"{SESSIONS}/") and DERIVED in name.split("/"))  # any reader may make these again
    ]
    listed += left_over
    differ = {
        name: [f"{name}, {text}" for text in differences(read_bounded(folder / name, MOST_BYTES), made[name], margins)]
        for name in (*DOCUMENTS, *sorted(set(made) - set(DOCUMENTS)))
        if name in held
    }
    documents = [text for name in DOCUMENTS for text in differ.pop(name, ())]
    pages = [text for texts in differ.values() for text in texts]
    here = {"neurorig": version("neurorig")} | made_with()
    there = dict.fromkeys(here, "not stated") | {"neurorig": found.rig_version} | found.made_with
    others = [f"{key} {there[key]}, here {here[key]}" for key in here if there[key] != here[key]]
    texts = {name: read_bounded(folder / name, MOST_BYTES) for name in made if name in held and name.endswith(PAGES)}
    printed = [f"{name}: {text}" for name in sorted(texts) for text in _printed_beyond(texts[name], made[name])]
    beyond = (*_beyond(found, again.document), *left_over, *printed)
    return Again((*documents, *listed), tuple(pages), tuple(others), beyond)


def _beyond(found: Submission, made: Submission) -> Iterator[str]:
    """What a description says that another version of the code, on the same recordings, would not."""
    if len(found.configurations) != len(made.configurations) or found.about != made.about:
        yield f"{FILE} has other rows, or says otherwise than {about_file.FILE}"
        return
    for row, again in zip(found.configurations, made.configurations, strict=True):
        for key in ("name", "scenario", "workload", "rules", "device", "class_", "verdict", "page", "sessions"):
            if getattr(row, key) != getattr(again, key):
                yield f"{FILE}: {key} is {getattr(row, key)!r}, made again {getattr(again, key)!r}"
        for key, claim in row.claims.items():
            yield from (f"{FILE}: {key}: {text}" for text in _claim_beyond(claim, again.claims.get(key)))


def _claim_beyond(claim: Claim, made: Claim | None) -> Iterator[str]:
    """Why a claim is not that of the recordings: its value lies outside of the interval, or an end by half of that."""
    if made is None or (claim.unit, claim.runs, len(claim.trials)) != (made.unit, made.runs, len(made.trials)):
        yield "no figure of this name, unit and number of runs is made of the sessions"
        return
    half = 0.0 if made.low is None or made.high is None else max(made.high - made.value, made.value - made.low)
    pairs = [(claim.value, made.value, half), (claim.low, made.low, half / 2), (claim.high, made.high, half / 2)]
    pairs += [(a, b, half * len(made.trials) ** 0.5) for a, b in zip(claim.trials, made.trials, strict=True)]
    for there, here, allowed in pairs:
        if there is not None and (here is None or not math.isclose(there, here, rel_tol=RELATIVE, abs_tol=allowed)):
            yield f"{there:.6g}, made again {'no interval' if here is None else f'{here:.6g} within {allowed:.2g}'}"


def _printed_beyond(found: bytes, made: bytes) -> Iterator[str]:
    """Figures with an interval on a page beside those of the same page made again, in order or, if not as many, any."""
    there, here = (
        [(float(v), float(half), unit) for v, half, unit in _PRINTED.findall(_plain(text))] for text in (found, made)
    )
    if here and not there:
        yield "no figure with an interval"
    for k, (value, half, unit) in enumerate(there):
        beside = here[k : k + 1] if len(there) == len(here) else here
        if not any(unit == u and abs(value - v) <= h and 2 * half >= h for v, h, u in beside):
            yield f"{value:g} ± {half:g} {unit}, and no such figure is made of the sessions"


def margin(value: float, low: float | None, high: float | None) -> float:
    """Return by how much a figure, or an end of its interval, may move and still be the same figure."""
    wide = high - low if low is not None and high is not None else 0.0
    return OF_HALF_WIDTH * wide / 2 if wide else RELATIVE * abs(value)


def _margins(document: Submission) -> dict[float, float]:
    """What a submission claims may move by, by the number itself."""
    return {
        number: margin(claim.value, claim.low, claim.high)
        for row in document.configurations
        for claim in row.claims.values()
        for number in (claim.value, claim.low, claim.high, *claim.trials)
        if number is not None
    }


def differences(found: bytes, made: bytes, margins: Mapping[float, float] = MappingProxyType({})) -> list[str]:
    """Return each line in which two texts differ by more than another processor's rounding.

    Words and whole numbers are equal. A number that stands in ``margins`` may differ by its margin, another by
    ``RELATIVE`` of itself or by one in the last of ``READ`` digits or more. In a picture it may also differ by one in
    its second decimal, which is a hundredth of a point. Of texts with different numbers of lines only the first
    difference is told.
    """
    if found == made:
        return []
    there, here = (content.decode("utf-8", "replace").split("\n") for content in (found, made))
    if len(there) == len(here):
        return list(_differences(there, here, margins))
    # the comma behind the last part of an object moves with what follows
    there, here = ([line.rstrip(",") for line in text] for text in (there, here))
    return list(itertools.islice(_differences(there, here, margins), 1))


def _differences(found: Sequence[str], made: Sequence[str], margins: Mapping[float, float]) -> Iterator[str]:
    drawn = False
    for number, (there, here) in enumerate(itertools.zip_longest(found, made), start=1):
        drawn = next((mark == "<svg " for mark in reversed(_PICTURE.findall(here or ""))), drawn)
        if there is None or here is None or not (there == here or _alike(there, here, drawn, margins)):
            yield f"line {number}: {_shown(there, here)}"


def _alike(there: str, here: str, drawn: bool, margins: Mapping[float, float]) -> bool:
    one, other = _NUMBER.split(there), _NUMBER.split(here)
    return len(one) == len(other) and all(
        a == b or _close(a, b, drawn, margins) for a, b in zip(one, other, strict=True)
    )


def _close(there: str, here: str, drawn: bool, margins: Mapping[float, float]) -> bool:
    """Whether two parts of texts are numbers, one of them not whole, that differ by no more than rounding does."""
    if (there.isdigit() and here.isdigit()) or not (_NUMBER.fullmatch(there) and _NUMBER.fullmatch(here)):
        return False
    allowed = margins.get(float(here), 0.0)
    places = [len(text.partition(".")[2]) for text in (there, here)]
    digits = len(here.replace(".", "").lstrip("0"))
    rounded = places[1] > 1 if drawn else places[0] == places[1] and digits >= READ
    if rounded and "e" not in (there + here).lower():
        allowed = max(allowed, 1.01 * 10.0 ** -places[1])
    return math.isclose(float(there), float(here), rel_tol=RELATIVE, abs_tol=allowed)


def _plain(page: bytes) -> str:
    """The text of a page without its tags."""
    return html.unescape(re.sub(r"<[^<>]*>", "\n", page.decode("utf-8", "replace")))


def _shown(there: str | None, here: str | None, most: int = 60) -> str:
    """The first part in which two lines differ, with a little of what stands before it."""
    if there is None or here is None:
        said, again = ("no line" if text is None else repr(text[:most]) for text in (there, here))
        return f"{said}, made again {again}"
    at = next((k for k, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))
    begin = max(0, at - most // 3)
    return f"{there[begin : begin + most]!r}, made again {here[begin : begin + most]!r}"
