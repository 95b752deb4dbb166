"""Checks of what a recording holds, which name what does not fit.

The engine and the recorder apply them before a value is written, and the reader before it is used. A value that does
not fit is a ``ValueError`` or ``TypeError`` here; the caller makes it the error of the driver or of the file. This
module does not import ``pyarrow.compute``, which would take time and memory in the middle of a recording.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.errors import DataError, StoreError
from rig.recording.bounded import TEXT_CHARACTERS, check_json
from rig.recording.columns import array_of
from rig.recording.events import LIMIT, REMEDY
from rig.recording.tables import ADDED, SAMPLES
from rig.types import Accuracy, Bools, Bracket, Chunk, Conversion, Floats, Rail, Sample, Span

DENSEST, SPARSEST = 0.5, 20.0
"""How many periods apart readings may be; the largest allows for the loss of nearly all readings."""
PLAUSIBLE = 1e12
"""The largest reading in W, A, J or V that is taken; beyond it the unit is mistaken or the driver broken."""
FUTURE_NS = 1_000_000_000
"""A span on the host's clock may not end later than so long after its answer."""
BAD_READINGS, MOST_BAD = 0.01, 20
"""How many readings of a trace, as a share and at most, may be left out because their values or ticks do not fit."""


class Grid(msgspec.Struct, frozen=True):
    """The positions of readings without ticks of their own, in ticks of the trace's clock; fractions are allowed."""

    t0_tick: int | float
    period_tick: int | float
    aperture_tick: int | float


# ---- tables -------------------------------------------------------------------------------

NEVER_NULL = {
    "samples": ("id",),
    "replies": ("issue", "sample_id", "warmup"),
    "progress": ("issue", "sample_id", "tick", "cost"),
    "activity": ("issue", "sample_id", "layer", "counter"),
}
_FLOAT = float(np.finfo(np.float64).max)
BOUNDS: Mapping[str, tuple[float, float]] = {
    "inferences": (1, 2**31 - 1), "duration_s": (0.0, _FLOAT), "rate_hz": (0.0, _FLOAT), "label_age_s": (0.0, _FLOAT),
    "seed": (-(2**63), 2**63 - 1),
}  # fmt: skip
"""The least and the largest value by column. Other integers lie inside +-2^62; spans have rules of their own."""
SPAN = ("on_tick", "off_tick", "executions")


def fitted_table(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """Return the columns that a reader needs, cast to their types, after a check of their rules.

    Raises ``StoreError``.
    """
    for late in ADDED.get(name, ()):
        if late not in table.column_names:
            table = table.append_column(late, pa.nulls(len(table), schema.field(late).type))
    if missing := [c for c in schema.names if c not in table.column_names]:
        raise _bad(name, f"lacks the columns {', '.join(missing)}", missing)
    columns = {}
    for field in schema:
        try:
            columns[field.name] = table[field.name].cast(field.type)
        except (pa.ArrowException, KeyError) as error:
            raise _bad(name, f"has a column {field.name} that is not {field.type}: {error}", field.name) from error
        _check_column(name, field.name, columns[field.name])
    if name == "replies":
        _check_replies(columns)
    return pa.table(columns, schema=schema)


def _check_column(table: str, name: str, column: pa.ChunkedArray) -> None:
    if name in NEVER_NULL[table] and column.null_count:
        raise _bad(table, f"has a null in the column {name}", name)
    if pa.types.is_string(column.type) and name != "output":
        longest = pc.max(pc.utf8_length(column)).as_py() or 0
        if longest > TEXT_CHARACTERS:
            raise _bad(table, f"has a text of {longest} characters in the column {name}", longest)
    bounded = name in BOUNDS or pa.types.is_integer(column.type)
    if not bounded or len(column) == column.null_count or (table == "replies" and name in SPAN):
        return
    values = array_of(column.drop_null())
    low, high = BOUNDS.get(name, (-LIMIT + 1, LIMIT - 1))
    if not (low <= values.min() and values.max() <= high):  # not so for NaN either
        raise _bad(table, f"has a number out of bounds in the column {name}", values.min())


def _check_replies(columns: Mapping[str, pa.ChunkedArray]) -> None:
    on, off, phase = (array_of(columns[c].is_valid()) for c in ("on_tick", "off_tick", "phase"))
    if np.any(on != off) or np.any(on & ~phase):
        raise _bad("replies", "has a span without both ticks and a phase", "on_tick")
    for text in columns["output"].drop_null().to_pylist():
        check_json(text.encode(), "an output in replies")
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad("replies", f"has an output that is not JSON: {text[:40]!r}", text[:40]) from error


def without_bad_spans(replies: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the replies without the spans that do not fit, and a sentence for each of these.

    The answers and their host stamps are kept.
    """
    on, off, times = (array_of(replies[c]) for c in SPAN)
    bad = {k: why for k, why in bad_spans(on, off, times) if replies["on_tick"][k].is_valid}
    if not bad:
        return replies, ()
    names = replies["sample_id"]
    for name in ("phase", *SPAN):
        values = replies[name].to_pylist()
        for k in bad:
            values[k] = None
        at = replies.schema.get_field_index(name)
        replies = replies.set_column(at, replies.schema.field(at), [pa.array(values, replies.schema.field(at).type)])
    return replies, tuple(f"the span of sample {names[k].as_py()}, which {why}" for k, why in bad.items())


def bad_spans(
    on: NDArray[Any], off: NDArray[Any], executions: NDArray[Any], before_ns: NDArray[np.int64] | None = None
) -> list[tuple[int, str]]:
    """Return the row and the reason of each span that does not fit, from columns of shape (n,).

    ``before_ns`` are the host stamps of the answers, for spans on the host's clock. Absent values are NaN, and no
    comparison with them finds a bad span.
    """
    rules = [
        ((on <= -LIMIT) | (on >= LIMIT) | (off <= -LIMIT) | (off >= LIMIT), "has a tick outside +-2^62"),
        (off < on, "ends before it begins"),
        (executions < 1, "stands for less than one execution"),
    ]
    if before_ns is not None:
        rules.append((off > before_ns + FUTURE_NS, "ends more than 1 s after its answer"))
    return [(int(k), why) for bad, why in rules if bad.any() for k in np.flatnonzero(bad)]


# ---- what drivers and workloads give ------------------------------------------------------


def tick_of(value: object) -> int:
    """Return a tick or a stamp as an integer. Raises ``TypeError`` or ``ValueError``."""
    try:
        tick = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{value!r} is not an integer") from None
    if not -LIMIT < tick < LIMIT:
        raise ValueError(f"{tick} is outside +-2^62")
    return tick


def check_span(span: object) -> Span:
    """Return a span whose ticks are in order. Raises ``TypeError`` or ``ValueError``."""
    if type(span) is not Span:
        raise TypeError(f"it gave a {type(span).__name__}, not a Span")
    if tick_of(span.off_tick) < tick_of(span.on_tick):
        raise ValueError(f"the span from {span.on_tick} to {span.off_tick} ends before it begins")
    return span


def check_bracket(bracket: object, last: Sequence[int] | None) -> tuple[int, int, int]:
    """Return the row of a bracket; ``last`` is that of its clock before. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(bracket, Bracket):
        raise TypeError(f"it gave a {type(bracket).__name__}, not a Bracket")
    row = (tick_of(bracket.before_ns), tick_of(bracket.tick), tick_of(bracket.after_ns))
    if row[2] < row[0]:
        raise ValueError(f"the bracket from {row[0]} to {row[2]} ns ends before it begins")
    if last is not None and went_back(last, row):
        raise ValueError(f"the clock went back from {last[1]} to {row[1]}")
    return row


def went_back(last: Sequence[int], row: Sequence[int]) -> bool:
    """Return whether a clock showed less in a later bracket (before_ns, tick, after_ns)."""
    return row[0] >= last[2] and row[1] < last[1]


def check_sample(sample: Sample) -> None:
    """Refuse a sample that no reader could use. Raises ``TypeError`` or ``ValueError``, which names the field."""
    if not (isinstance(sample.id, str) and sample.id):
        raise TypeError(f"id is {sample.id!r}, not a text")
    if not isinstance(sample.payload, np.ndarray):
        raise TypeError(f"payload is a {type(sample.payload).__name__}, not an array")
    if not (sample.label is None or isinstance(sample.label, str)):
        raise TypeError(f"label is {sample.label!r}, not a text")
    for name, (low, high) in BOUNDS.items():
        value = getattr(sample, name)
        if value is None and name not in ("inferences", "duration_s"):
            continue
        if pa.types.is_integer(SAMPLES.field(name).type) and not isinstance(value, int | np.integer):
            raise TypeError(f"{name} is {value!r}, not an integer")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value!r}, not between {low:g} and {high:g}")


def check_chunk(rail: Rail, chunk: Chunk, last: Chunk | None) -> None:
    """Refuse readings that no reader could use; ``last`` are the readings of the rail before.

    Raises ``TypeError`` or ``ValueError``, which names the rail.
    """
    columns = {name: getattr(chunk, name) for name in ("value", "start_tick", "end_tick", "flags")}
    given = {name: values for name, values in columns.items() if values is not None}
    for name, values in given.items():
        kinds = "iuf" if name == "value" else "iu"
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
            what = (
                f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            )
            raise TypeError(f"{name} of rail {rail.name} is {what}, not a column of numbers")
        if len(values) != len(chunk.value):
            raise ValueError(f"rail {rail.name} has {len(chunk.value)} values and {len(values)} of {name}")
    if ("start_tick" in given) != ("end_tick" in given):
        raise TypeError(f"rail {rail.name} has readings with only one of start_tick and end_tick")
    if last is not None and (types := _types(chunk)) != (before := _types(last)):
        raise TypeError(f"rail {rail.name} came as {before} and then as {types}")
    if np.any(np.isinf(chunk.value)) or np.any(np.abs(chunk.value) > PLAUSIBLE):
        raise ValueError(f"rail {rail.name} reads {_largest(chunk.value):g}, which is beyond {PLAUSIBLE:g}")
    if chunk.start_tick is not None and chunk.end_tick is not None and len(chunk.value):
        for name, low, high in (("start_tick", *_ends(chunk.start_tick)), ("end_tick", *_ends(chunk.end_tick))):
            if not -LIMIT < low <= high < LIMIT:
                raise ValueError(f"{name} of rail {rail.name} is outside +-2^62")
        check_ticks(rail, chunk.start_tick, chunk.end_tick, None)
        axis = chunk.end_tick if rail.kind in ("cumulative", "point") else chunk.start_tick
        if last is not None and last.start_tick is not None and last.end_tick is not None and len(last.value):
            axis = np.append((last.start_tick if axis is chunk.start_tick else last.end_tick)[-1], axis)
        if np.any(np.diff(axis) <= 0):
            raise ValueError(f"the readings of rail {rail.name} do not move forward in time")


def _types(chunk: Chunk) -> str:
    named = (("values", chunk.value), ("ticks", chunk.start_tick), ("flags", chunk.flags))
    return ", ".join(f"{name} of {values.dtype}" for name, values in named if values is not None)


def _largest(values: Floats) -> float:
    return float(values[np.argmax(np.where(np.isnan(values), 0.0, np.abs(values)))])


def _ends(ticks: NDArray[Any]) -> tuple[int, int]:
    return int(ticks.min()), int(ticks.max())


# ---- traces -------------------------------------------------------------------------------


def integers(column: pa.ChunkedArray, file: str, name: str) -> NDArray[np.int64]:
    """Return a column of ticks, shape (n,).

    Raises ``StoreError`` for nulls, fractions, and values that are out of bounds.
    """
    if not pa.types.is_integer(column.type) or column.null_count:
        raise _bad(file, f"has a column {name} that is not integers throughout", name)
    values = array_of(column)
    if len(values) and values.max() > np.iinfo(np.int64).max:
        raise _bad(file, f"has a column {name} that does not fit 64 bits", name)
    return np.asarray(values, dtype=np.int64)


def good_readings(rail: Rail, start: NDArray[Any], end: NDArray[Any], value: Floats) -> Bools | None:
    """Return which readings of a trace to keep, shape (n,), or None for all.

    A reading that is out of bounds, ends before it begins or stands out of order costs itself. If more than
    ``BAD_READINGS`` of them would have to be left out, all are kept, and the checks of the trace refuse it.
    """
    if not len(value):
        return None
    axis = end if rail.kind in ("cumulative", "point") else start
    small = np.fmax.reduce(value) <= PLAUSIBLE and np.fmin.reduce(value) >= -PLAUSIBLE  # fmax skips NaN
    inside = all(low > -LIMIT and high < LIMIT for low, high in (_ends(start), _ends(end)))
    if small and inside and not np.any(end < start) and not np.any(axis[1:] <= axis[:-1]):
        return None
    keep = ~(np.abs(value) > PLAUSIBLE) & (end >= start)
    for ticks in (start, end):
        keep &= (ticks > -LIMIT) & (ticks < LIMIT)
    most = min(MOST_BAD, int(BAD_READINGS * len(value)))
    for _ in range(most + 1):
        left = axis[keep]
        back = np.flatnonzero(left[1:] <= left[:-1])
        if not len(back):
            break
        k = int(back[0])  # the earlier of the two is at fault if it is also later than the next but one
        spike = k + 2 < len(left) and left[k] >= left[k + 2]
        keep[np.flatnonzero(keep)[k if spike else k + 1]] = False
    return keep if len(keep) - int(keep.sum()) <= most else None


def check_ticks(rail: Rail, start: NDArray[Any], end: NDArray[Any], tick_hz: float | None) -> None:
    """Refuse readings that end before they begin, or whose spacing contradicts the declared rate.

    The spacing shows, for example, a rate in kHz instead of Hz. It is not checked if ``tick_hz`` is None. Raises
    ``DataError``.
    """
    backward = end < start
    if np.any(backward):
        raise DataError(
            f"a reading of rail {rail.name} ends before it begins",
            field="end_tick",
            value=int(end[np.argmax(backward)]),
            remedy="Check the trace for wrapped time stamps",
        )
    if rail.kind == "edges" or rail.rate_hz <= 0 or tick_hz is None or len(end) < 3:
        return
    with np.errstate(all="ignore"):
        periods = np.diff(end) * (rail.rate_hz / tick_hz)
    if not (np.median(periods) >= DENSEST and np.quantile(periods, 0.1) <= SPARSEST):
        raise DataError(
            f"the readings of rail {rail.name} are {np.median(periods):.3g} times as far apart as its rate_hz says",
            field="rate_hz",
            value=rail.rate_hz,
            remedy="Correct rate_hz (0 when irregular), or the tick_hz of its clock",
        )


def check_edges(rail: Rail, value: NDArray[Any], start: NDArray[Any], end: NDArray[Any], uniform: bool) -> None:
    """Refuse edges without a tick each, with a level that is not 0 or 1, or out of order.

    Raises ``DataError``.
    """
    for field, bad, what in (
        ("start_tick", uniform, "have no ticks of their own"),
        ("value", np.any((value != 0) & (value != 1)), "hold a level that is neither 0 nor 1"),
        ("end_tick", np.any(start != end), "last: begin and end differ"),
        ("start_tick", np.any(np.diff(start) <= 0), "do not move forward in time"),
    ):
        if bad:
            raise DataError(
                f"the edges of rail {rail.name} {what}",
                field=field,
                value=rail.name,
                remedy="Give the level after each edge, and its tick twice; see docs/reference/run-directory.md",
            )


def reals(column: pa.ChunkedArray, file: str, name: str) -> NDArray[np.float64]:
    """Return a column of numbers, shape (n,), with null as NaN.

    Raises ``StoreError`` for anything else.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise _bad(file, f"has a column {name} of {column.type}", name)
    return np.asarray(array_of(column), dtype=np.float64)


def rail_from_json(data: Mapping[str, Any]) -> Rail:
    """Return a ``Rail`` from its JSON form; absent fields take their defaults.

    Raises ``ValueError`` for an unknown field, because it would change a figure without notice, and for a value that
    does not fit its field.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"the rail is a {type(data).__name__}, not an object")
    for part, type_ in ((data, Rail), (data.get("conversion"), Conversion), (data.get("accuracy"), Accuracy)):
        if unknown := set(part or ()) - {f.name for f in fields(type_)}:
            raise ValueError(f"the rail has no field {', '.join(sorted(unknown))}")
    rail = msgspec.convert(data, Rail)
    conversion = rail.conversion
    if conversion.supply_rail is not None and (conversion.unit != "A" or conversion.supply_v is not None):
        raise ValueError(f"supply_rail is only for a rail in amperes without supply_v, not for {conversion}")
    if (conversion.unit == "J") != (rail.kind == "cumulative"):
        raise ValueError(f"a rail is cumulative exactly when it is in joules: {rail.kind} in {conversion.unit}")
    if rail.kind != "edges" and (rail.pin is not None or rail.pin_lag_s):
        raise ValueError(f"pin is only for rails of the kind edges, not for {rail.kind}")
    return rail


def grid_of(meta: Mapping[str, str]) -> Grid:
    """Return the first tick, the ticks between readings, and the ticks within one reading.

    Raises ``ValueError`` or ``KeyError``.
    """
    grid = msgspec.json.decode(meta["grid"], type=Grid)
    ahead = 0 <= grid.period_tick < LIMIT and 0 <= grid.aperture_tick < LIMIT  # false for NaN, too
    if not (ahead and abs(grid.t0_tick) < LIMIT):
        raise ValueError(f"grid is {meta['grid']}")
    return grid


def _bad(where: str, what: str, value: object) -> StoreError:
    return StoreError(f"{where} {what}", field=where, value=value, remedy=REMEDY)
