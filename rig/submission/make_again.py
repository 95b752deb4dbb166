"""Make a submission again from its own sessions, and compare both."""

import html
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from rig.recording.disk.size_limits import read_bounded
from rig.recording.layout import DERIVED
from rig.recording.submission import FILE, MANIFEST, SESSIONS, SIGNATURE, Claim, Submission, open_submission
from rig.submission import submission_toml
from rig.submission.files_made import made_of, made_with
from rig.submission.folder import files_of

DOCUMENTS = (FILE, "results.csv")
"""The files that do not depend on pictures and templates."""
PAGES = (".html", ".md")
RELATIVE = 1e-6
"""The largest relative difference of a number without an interval, because processors round differently."""
OF_HALF_WIDTH = 0.01
"""The largest difference of a figure or of an end of its interval, relative to half of its interval."""
READ = 4
"""A printed number of at least this many digits may differ by one in its last digit, because of rounding."""
OWN = frozenset({MANIFEST, SIGNATURE, "derived/audit.json", "derived/audit.html"})
"""Files that are not made again: the manifest and signature, and what an audit writes."""
MOST_BYTES = 1 << 28
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_SIZE = r"(\d{1,30}(?:\.\d{1,30})?(?:e-?\d{1,3})?)"
_PRINTED = re.compile(rf"(?<![\d.]){_SIZE}\s±\s{_SIZE}\s([%\w]{{1,9}})")
"""A figure and half of its interval with their unit, as pages have them."""
_PICTURE = re.compile(r"<svg |</svg>")


@dataclass(frozen=True)
class Again:
    """Differences between a submission and its remake; ``others`` are the versions that differ."""

    documents: tuple[str, ...]
    """Differences of the description, the table, and the list of files."""
    pages: tuple[str, ...]
    """Differences of pages and metadata."""
    others: tuple[str, ...]
    unexplained: tuple[str, ...] = ()
    """Differences that no other version explains: words, figures beyond the new intervals, files left over."""


def made_again(folder: Path) -> Again:
    """Make a submission again from its sessions and its ``submission.toml``, by the code of ``rig submit``.

    A difference names the file, the line, its text in the submission, and the new text. Raises what ``made_of`` and
    ``read_about`` raise, and ``StoreError`` for a folder that is no submission.
    """
    found = open_submission(folder).document
    names = [name.removeprefix(f"{SESSIONS}/") for row in found.configurations for name in row.sessions]
    about, raw = submission_toml.read_about(folder / submission_toml.FILE)
    again = made_of(folder, names, replace(found, about=about, configurations=[]), raw)
    made, margins = again.files, _margins(again.document)
    recorded = files_of({name: folder / SESSIONS / name for name in names})
    held = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    listed = [f"{name} is missing" for name in sorted({*made, *recorded} - held)]
    left_over = [
        f"{name} does not come from the sessions"
        for name in sorted(held - {*made, *recorded} - OWN)
        if not (name.startswith(f"{SESSIONS}/") and DERIVED in name.split("/"))  # any reader can make these files
    ]
    listed += left_over
    bodies = {name: read_bounded(folder / name, MOST_BYTES) for name in sorted(held & set(made))}
    differ = {k: [f"{k}, {text}" for text in differences(body, made[k], margins)] for k, body in bodies.items()}
    documents = [text for name in DOCUMENTS for text in differ.pop(name, ())]
    pages = [text for texts in differ.values() for text in texts]
    here = {"neurorig": version("neurorig")} | made_with()
    there = dict.fromkeys(here, "not stated") | {"neurorig": found.rig_version} | found.made_with
    others = [f"{key} {there[key]}, here {here[key]}" for key in here if there[key] != here[key]]
    shown = [name for name in bodies if name.endswith(PAGES)]
    printed = [f"{name}: {text}" for name in shown for text in _printed_beyond(bodies[name], made[name])]
    beyond = (*_beyond(found, again.document), *left_over, *printed)
    return Again((*documents, *listed), tuple(pages), tuple(others), beyond)


def _beyond(found: Submission, made: Submission) -> Iterator[str]:
    """Yield each part of the description that no version of the code would write for the same recordings."""
    if len(found.configurations) != len(made.configurations) or found.about != made.about:
        yield f"{FILE} has other rows, or its text differs from {submission_toml.FILE}"
        return
    for row, again in zip(found.configurations, made.configurations, strict=True):
        for key in ("name", "scenario", "workload", "rules", "device", "class_", "verdict", "page", "sessions"):
            if getattr(row, key) != getattr(again, key):
                yield f"{FILE}: {key} is {getattr(row, key)!r}, made again {getattr(again, key)!r}"
        for key, claim in row.claims.items():
            yield from (f"{FILE}: {key}: {text}" for text in _claim_beyond(claim, again.claims.get(key)))


def _claim_beyond(claim: Claim, made: Claim | None) -> Iterator[str]:
    """Yield how a claim differs from the recordings, beyond what another version of the code may change.

    The value may differ by half of the new interval, an end by a quarter of the interval, and each of n trials by half
    of the interval times the root of n.
    """
    if made is None or (claim.unit, claim.runs, len(claim.trials)) != (made.unit, made.runs, len(made.trials)):
        yield "the sessions give no figure of this name, unit and number of runs"
        return
    half = 0.0 if made.low is None or made.high is None else max(made.high - made.value, made.value - made.low)
    ends = [("low end ", claim.low, made.low, half / 2), ("high end ", claim.high, made.high, half / 2)]
    trials = zip(claim.trials, made.trials, strict=True)
    each = [("trial ", there, here, half * len(made.trials) ** 0.5) for there, here in trials]
    for what, there, here, allowed in [("", claim.value, made.value, half), *ends, *each]:
        if there is not None and (here is None or not math.isclose(there, here, rel_tol=RELATIVE, abs_tol=allowed)):
            yield f"{what}{there:.6g}, made again {'none' if here is None else f'{here:.6g} within {allowed:.2g}'}"


def _printed_beyond(found: bytes, made: bytes) -> Iterator[str]:
    """Yield each figure with an interval that the remade page does not have.

    If both pages have as many figures, each is compared with the one in the same place.
    """
    pages = (html.unescape(re.sub(r"<[^<>]*>", "\n", page.decode("utf-8", "replace"))) for page in (found, made))
    there, here = ([(float(v), float(half), unit) for v, half, unit in _PRINTED.findall(text)] for text in pages)
    if here and not there:
        yield "no figure with an interval"
    for k, (value, half, unit) in enumerate(there):
        beside = here[k : k + 1] if len(there) == len(here) else here
        if not any(unit == u and abs(value - v) <= h and 2 * half >= h for v, h, u in beside):
            yield f"{value:g} ± {half:g} {unit}, but the sessions give no such figure"


def margin(value: float, low: float | None, high: float | None) -> float:
    """Return the largest difference of a figure, or of an end of its interval, that counts as rounding."""
    wide = high - low if low is not None and high is not None else 0.0
    return OF_HALF_WIDTH * wide / 2 if wide else RELATIVE * abs(value)


def _margins(document: Submission) -> dict[float, float]:
    """Return the margins of the claims in a submission, by the claimed number."""
    return {
        number: margin(claim.value, claim.low, claim.high)
        for row in document.configurations
        for claim in row.claims.values()
        for number in (claim.value, claim.low, claim.high, *claim.trials)
        if number is not None
    }


def differences(found: bytes, made: bytes, margins: Mapping[float, float] = MappingProxyType({})) -> list[str]:
    """Return each line in which two texts differ by more than another processor's rounding.

    Words and whole numbers must be equal. A number in ``margins`` may differ by its margin; any other number by
    ``RELATIVE`` of itself, or by one in its last digit if it has at least ``READ`` digits. In a picture, a number of
    two or more decimals may differ by one in its last digit. For texts with different numbers of lines, only the first
    difference is returned.
    """
    if found == made:
        return []
    there, here = (content.decode("utf-8", "replace").split("\n") for content in (found, made))
    if len(there) == len(here):
        return list(_differences(there, here, margins))
    # whether a comma follows a part of a JSON object depends on the next part
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
    same = (a == b or _close(a, b, drawn, margins) for a, b in zip(one, other, strict=True))
    return len(one) == len(other) and all(same)


def _close(there: str, here: str, drawn: bool, margins: Mapping[float, float]) -> bool:
    """Return whether two parts of texts are numbers, not both whole, that differ only by rounding."""
    if (there.isdigit() and here.isdigit()) or not (_NUMBER.fullmatch(there) and _NUMBER.fullmatch(here)):
        return False
    allowed = margins.get(float(here), 0.0)
    places = [len(text.partition(".")[2]) for text in (there, here)]
    digits = len(here.replace(".", "").lstrip("0"))
    rounded = places[1] > 1 if drawn else places[0] == places[1] and digits >= READ
    if rounded and "e" not in (there + here).lower():
        allowed = max(allowed, 1.01 * 10.0 ** -places[1])
    return math.isclose(float(there), float(here), rel_tol=RELATIVE, abs_tol=allowed)


def _shown(there: str | None, here: str | None, most: int = 60) -> str:
    """Return the first part in which two lines differ, with a little text before it."""
    if there is None or here is None:
        said, again = ("no line" if text is None else repr(text[:most]) for text in (there, here))
        return f"{said}, made again {again}"
    at = next((k for k, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))
    begin = max(0, at - most // 3)
    return f"{there[begin : begin + most]!r}, made again {here[begin : begin + most]!r}"
