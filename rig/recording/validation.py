"""Checks of a recording's tables and traces, which refuse and name what does not fit before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.errors import DataError, StoreError
from rig.recording.bounded import TEXT_CHARACTERS, check_json
from rig.recording.events import LIMIT, REMEDY
from rig.recording.tables import ADDED
from rig.types import Accuracy, Conversion, Rail

DENSEST, SPARSEST = 0.5, 20.0
"""How many periods apart readings may be; the largest allows for the loss of nearly all readings."""


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
AT_LEAST_ONE = ("inferences", "executions")


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
        check_json(text.encode(), "an output in replies")
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad("replies", f"has an output that is not JSON: {text[:40]!r}", text[:40]) from error


# ---- traces -------------------------------------------------------------------------------


def integers(column: pa.ChunkedArray, file: str, name: str) -> NDArray[np.int64]:
    """Return a column of ticks, shape (n,).

    Raises ``StoreError`` for nulls, fractions, and values that are out of bounds.
    """
    whole = pa.types.is_integer(column.type) and not column.null_count
    span = pc.min_max(column).as_py() if whole and len(column) else {"min": 0, "max": 0}
    if not (whole and span["min"] > -LIMIT and span["max"] < LIMIT):
        raise _bad(file, f"has a column {name} that is not integers throughout", name)
    return np.asarray(column.to_numpy(), dtype=np.int64)


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
    return np.asarray(column.to_numpy(), dtype=np.float64)


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
    if grid.period_tick < 0 or grid.aperture_tick < 0:
        raise ValueError(f"grid is {meta['grid']}")
    return grid


def _bad(where: str, what: str, value: object) -> StoreError:
    return StoreError(f"{where} {what}", field=where, value=value, remedy=REMEDY)
