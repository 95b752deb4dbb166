"""What a reader needs of a recording's lines and rows. What does not fit is refused by name, before use."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.errors import DataError, StoreError
from rig.recording.tables import ADDED
from rig.types import Pin, Rail, TraceKind

LIMIT = 2**62
"""Integers stay inside, so that the difference of any two fits 64 bits."""
DENSEST, SPARSEST = 0.5, 20.0
"""Periods that readings may be apart; nearly all may have been lost."""
REMEDY = "See docs/reference/run-directory.md for what it must hold"
Check = Callable[[Any], bool]


def _integer(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and -LIMIT < x < LIMIT


def _number(x: Any, least: float = -math.inf) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) and x >= least


def _text(x: Any) -> bool:
    return isinstance(x, str)


def _size(x: Any) -> bool:
    return _number(x, 0.0)


def _optional(check: Check) -> Check:
    return lambda x: x is None or check(x)


def _rows(width: int) -> Check:
    def check(x: Any) -> bool:
        return isinstance(x, list) and all(isinstance(r, list) and len(r) == width and all(map(_integer, r)) for r in x)

    return check


def _clock(x: Any) -> bool:
    if not isinstance(x, Mapping) or not _text(x.get("name")):
        return False
    return _number(x.get("tick_hz"), 1e-6) and x["tick_hz"] <= 1e15 and _size(x.get("tolerance", 0.0))


def _device(x: Any) -> bool:
    if not isinstance(x, Mapping) or not (x.get("clock") is None or _clock(x["clock"])):
        return False
    return _every(_text)(x.get("phases", []))


def _files(x: Any) -> bool:
    return isinstance(x, Mapping) and all(_text(v) and _inside(k) for k, v in x.items())


def _inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


def _every(check: Check) -> Check:
    return lambda x: isinstance(x, list) and all(map(check, x))


def _mapping(x: Any) -> bool:
    return isinstance(x, Mapping)


START: dict[str, tuple[Check, str]] = {
    "run_id": (_text, "a string"),
    "t0_ns": (_integer, "an integer"),
    "clocks": (_every(_clock), "a list of clocks, each with a name and a tick_hz from 1e-6 to 1e15"),
    "device": (_device, "an object whose clock is null or a clock, and whose phases are names"),
    "meters": (_every(_mapping), "a list of objects"),
    "scenario": (_mapping, "an object"),
    "workload": (_mapping, "an object"),
}
EVENTS: dict[str, dict[str, tuple[Check, str]]] = {
    "start": START,
    "brackets": {"clock": (_text, "a string"), "rows": (_rows(3), "rows of three integers")},
    "idle": {"on_ns": (_integer, "an integer"), "off_ns": (_integer, "an integer")},
    "marks": {"spans": (_rows(2), "rows of two integers")},
    "chunk": {
        "rail": (_text, "a string"),
        "readings": (lambda x: _integer(x) and x >= 0, "a count"),
        "arrived_ns": (_integer, "an integer"),
    },
    "stop": {"files": (_files, "an object of hashes by file name inside the directory")},
}


def check_event(event: Mapping[str, Any]) -> None:
    """Refuse an event that lacks a field, holds what cannot be one, or runs backwards; unknown types pass.

    Raises ``StoreError``, or ``DataError`` for time that goes backwards.
    """
    kind = event["type"]
    wanted = EVENTS.get(kind, {})
    if missing := [name for name in wanted if name not in event]:
        raise StoreError(f"the {kind} line lacks {', '.join(missing)}", field=kind, value=missing, remedy=REMEDY)
    for name, (check, what) in wanted.items():
        if not check(event[name]):
            raise StoreError(
                f"{name} of line {event['seq'] + 1} ({kind}) is not {what}",
                field=name,
                value=event[name],
                remedy=REMEDY,
            )
    pairs: Iterable[tuple[int, int]] = []
    if kind == "idle":
        pairs = [(event["on_ns"], event["off_ns"])]
    elif kind in ("brackets", "marks"):
        pairs = [(row[0], row[-1]) for row in event["rows" if kind == "brackets" else "spans"]]
    for on, off in pairs:
        if off < on:
            raise DataError(
                f"line {event['seq'] + 1} ({kind}) ends before it begins",
                field=kind,
                value=off - on,
                remedy="Check the clock that stamped it",
            )


def check_counters(events: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a clock whose counter went back between two brackets. Raises ``DataError``."""
    last: dict[str, list[int]] = {}
    for event in events:
        for row in event["rows"] if event["type"] == "brackets" else []:
            before = last.setdefault(event["clock"], row)
            if row[0] >= before[2] and row[1] < before[1]:
                raise DataError(
                    f"the clock {event['clock']!r} went back from {before[1]} to {row[1]}",
                    field="brackets",
                    value=event["clock"],
                    remedy="Unwrap its counter, and do not reset it during a run",
                )
            last[event["clock"]] = row


# ---- tables -------------------------------------------------------------------------------

NEVER_NULL = {
    "samples": ("id",),
    "replies": ("issue", "sample_id", "warmup"),
    "progress": ("issue", "sample_id", "tick", "cost"),
    "activity": ("issue", "sample_id", "layer", "counter"),
}
AT_LEAST_ONE = ("inferences", "executions")


def fitted_table(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """The columns that a reader needs, cast to their types, with their rules checked. Raises ``StoreError``."""
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
    if pa.types.is_integer(column.type) and name != "seed":
        span = pc.min_max(column).as_py()
        low, high = span["min"], span["max"]
        least = 1 if name in AT_LEAST_ONE else -LIMIT + 1
        if low is not None and not (least <= low and high < LIMIT):
            raise _bad(table, f"has a number out of bounds in the column {name}", low if low < least else high)


def _check_replies(columns: Mapping[str, pa.ChunkedArray]) -> None:
    on, off, phase = (columns[c].is_valid().to_numpy() for c in ("on_tick", "off_tick", "phase"))
    if np.any(on != off) or np.any(on & ~phase):
        raise _bad("replies", "has a span without both ticks and a phase", "on_tick")
    for text in columns["output"].drop_null().to_pylist():
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad("replies", f"has an output that is not JSON: {text[:40]!r}", text[:40]) from error


# ---- traces -------------------------------------------------------------------------------


def integers(column: pa.ChunkedArray, file: str, name: str) -> NDArray[np.int64]:
    """A column of ticks, shape (n,). Raises ``StoreError`` for nulls, fractions and what is out of bounds."""
    whole = pa.types.is_integer(column.type) and not column.null_count
    span = pc.min_max(column).as_py() if whole and len(column) else {"min": 0, "max": 0}
    if not (whole and span["min"] > -LIMIT and span["max"] < LIMIT):
        raise _bad(file, f"has a column {name} that is not integers throughout", name)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def check_ticks(rail: Rail, start: NDArray[Any], end: NDArray[Any], tick_hz: float | None) -> None:
    """Refuse readings that end before they begin, or whose spacing contradicts the declared rate, as kHz for

    Hz would; ``tick_hz`` None skips that. Raises ``DataError``.
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
    """Refuse edges that are none: without a tick each, of a level that is not 0 or 1, not one after the other.

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
    """A column of numbers, null as NaN, shape (n,). Raises ``StoreError`` for anything else."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise _bad(file, f"has a column {name} of {column.type}", name)
    return np.asarray(column.to_numpy(), dtype=np.float64)


RAIL: dict[str, Check] = {
    "name": lambda x: _text(x) and bool(x),
    "kind": lambda x: x in get_args(TraceKind),
    "rate_hz": _size,
    "aperture_s": _optional(_size),
    "filter_tau_s": _size,
    "resolution": _optional(_size),
    "range_max": _optional(_number),
    "gain_id": _optional(_text),
    "pin": lambda x: x is None or x in get_args(Pin),
    "pin_lag_s": _size,
}


def check_rail(rail: Rail) -> None:
    """Refuse a declaration that would silently mean something else. Raises ``ValueError``."""
    for name, check in RAIL.items():
        if not check(getattr(rail, name)):
            raise ValueError(f"{name} is {getattr(rail, name)!r}")
    conversion = rail.conversion
    if conversion.unit not in ("W", "A", "J", "V") or not _optional(_number)(conversion.supply_v):
        raise ValueError(f"conversion is {conversion}; the unit is W, A, J or V, the supply a number")
    if not _optional(_text)(conversion.supply_rail):
        raise ValueError(f"supply_rail is {conversion.supply_rail!r}")
    if conversion.supply_rail is not None and (conversion.unit != "A" or conversion.supply_v is not None):
        raise ValueError(f"supply_rail is of amperes without a supply_v, not {conversion}")
    if not _size(conversion.burden_ohm):
        raise ValueError(f"burden_ohm is {conversion.burden_ohm!r}")
    if (conversion.unit == "J") != (rail.kind == "cumulative"):
        raise ValueError(f"a cumulative trace counts joules and nothing else does: {rail.kind} in {conversion.unit}")
    if rail.kind != "edges" and (rail.pin is not None or rail.pin_lag_s):
        raise ValueError(f"pin is of rails of the kind edges, not {rail.kind}")
    if rail.accuracy is not None and not (_size(rail.accuracy.of_reading) and _size(rail.accuracy.offset)):
        raise ValueError(f"accuracy is {rail.accuracy}")


def grid_of(meta: Mapping[str, str]) -> tuple[float, float, float]:
    """First tick, ticks between readings, ticks within one. Raises ``ValueError`` or ``KeyError``."""
    grid = json.loads(meta["grid"])
    names = ("t0_tick", "period_tick", "aperture_tick")
    if not isinstance(grid, Mapping) or not all(_number(grid.get(n)) for n in names):
        raise ValueError(f"grid is {meta['grid']}")
    t0, period, aperture = (grid[n] for n in names)
    if period < 0 or aperture < 0:
        raise ValueError(f"grid is {meta['grid']}")
    return t0, period, aperture


def _bad(where: str, what: str, value: object) -> StoreError:
    return StoreError(f"{where} {what}", field=where, value=value, remedy=REMEDY)
