"""Check samples, replies, spans and clock reads before they are written.

Each error names the value that does not fit. It is a ``ValueError`` or ``TypeError``, which the caller converts to an
error about the driver or the file.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.recording.columns.tables import SAMPLES
from rig.recording.disk.size_limits import TEXT_CHARACTERS
from rig.recording.events import LIMIT
from rig.types import Bracket, Progress, Sample, Span

FUTURE_NS = 1_000_000_000
"""A span on the host's clock may end at most this long (ns) after its answer came."""
_FLOAT = float(np.finfo(np.float64).max)
BOUNDS: Mapping[str, tuple[float, float]] = {
    "inferences": (1, 2**31 - 1), "duration_s": (0.0, _FLOAT), "rate_hz": (0.0, _FLOAT), "label_age_s": (0.0, _FLOAT),
    "seed": (-(2**63), 2**63 - 1),
}  # fmt: skip
"""The smallest and the largest value of each column. Other integers are within +-2^62; spans have separate rules."""


def bad_spans(
    on: NDArray[Any], off: NDArray[Any], executions: NDArray[Any], before_ns: NDArray[np.int64] | None = None
) -> list[tuple[int, str]]:
    """Return the row and the fault of each span that does not fit, from columns of shape (n,).

    For spans on the host's clock, ``before_ns`` are the host stamps of their answers. An absent value is NaN; it is no
    fault, because comparisons with NaN are false.
    """
    rules = [
        ((on <= -LIMIT) | (on >= LIMIT) | (off <= -LIMIT) | (off >= LIMIT), "has a tick outside +-2^62"),
        (off < on, "ends before it begins"),
        (executions < 1, "stands for less than one execution"),
    ]
    if before_ns is not None:
        rules.append((off > before_ns + FUTURE_NS, "ends more than 1 s after its answer"))
    return [(int(k), why) for bad, why in rules if bad.any() for k in np.flatnonzero(bad)]


def tick_of(value: object) -> int:
    """Return a tick or a time stamp as an integer. Raises ``TypeError`` or ``ValueError``."""
    try:
        tick = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{value!r} is not an integer") from None
    if not -LIMIT < tick < LIMIT:
        raise ValueError(f"{tick} is outside +-2^62")
    return tick


def check_text(text: str, name: str) -> None:
    """Raise ``ValueError`` with ``name`` for a text that cannot be stored in a column."""
    if len(text) > TEXT_CHARACTERS:
        raise ValueError(f"{name} has {len(text)} characters, of {TEXT_CHARACTERS} at most")
    text.encode()


def progress_row(progress: object) -> tuple[int, float, bytes]:
    """Return copies of tick, cost and solution. Raises ``TypeError`` or ``ValueError``."""
    if type(progress) is not Progress:
        raise TypeError(f"it holds a {type(progress).__name__}, not a Progress")
    return tick_of(progress.tick), float(progress.cost), bytes(memoryview(progress.solution))


def check_span(span: object) -> Span:
    """Return the span if its ticks are in order. Raises ``TypeError`` or ``ValueError``."""
    if type(span) is not Span:
        raise TypeError(f"it gave a {type(span).__name__}, not a Span")
    if tick_of(span.off_tick) < tick_of(span.on_tick):
        raise ValueError(f"the span from {span.on_tick} to {span.off_tick} ends before it begins")
    return span


def check_bracket(bracket: object, last: Sequence[int] | None) -> tuple[int, int, int]:
    """Return the row of a bracket; ``last`` is its clock's previous row. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(bracket, Bracket):
        raise TypeError(f"it gave a {type(bracket).__name__}, not a Bracket")
    row = (tick_of(bracket.before_ns), tick_of(bracket.tick), tick_of(bracket.after_ns))
    if row[2] < row[0]:
        raise ValueError(f"the bracket from {row[0]} to {row[2]} ns ends before it begins")
    if last is not None and went_back(last, row):
        raise ValueError(f"the clock went back from {last[1]} to {row[1]}")
    return row


def went_back(last: Sequence[int], row: Sequence[int]) -> bool:
    """Return whether a clock has a lower tick in ``row`` than in the earlier ``last`` (before_ns, tick, after_ns)."""
    return row[0] >= last[2] and row[1] < last[1]


def check_sample(sample: Sample) -> None:
    """Refuse a sample that no reader could use. Raises ``TypeError`` or ``ValueError``, which names the field."""
    if not (isinstance(sample.id, str) and sample.id):
        raise TypeError(f"id is {sample.id!r}, not a text")
    if not isinstance(sample.payload, np.ndarray):
        raise TypeError(f"payload is a {type(sample.payload).__name__}, not an array")
    if not isinstance(sample.target_cost, (int, float, np.number, type(None))):
        raise TypeError(f"target_cost is {sample.target_cost!r}, not a number")
    for name in ("id", "label", "cut_from"):
        if not isinstance(text := getattr(sample, name), str | None):
            raise TypeError(f"{name} is {text!r}, not a text")
        check_text(text or "", name)
    for name, (low, high) in BOUNDS.items():
        value = getattr(sample, name)
        if value is None and name not in ("inferences", "duration_s"):
            continue
        whole = SAMPLES[name] != "float64"
        if not isinstance(value, (int, np.integer) if whole else (int, float, np.number)):
            raise TypeError(f"{name} is {value!r}, not {'an integer' if whole else 'a number'}")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value!r}, not between {low:g} and {high:g}")
