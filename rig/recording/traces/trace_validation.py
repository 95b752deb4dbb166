"""Check rails and their readings; each error names the value that does not fit.

The engine checks readings before they are written, and the reader before they are used.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.recording.columns.packing import columns_of
from rig.recording.disk.decoding import strict
from rig.recording.disk.size_limits import check_texts
from rig.recording.events import LIMIT
from rig.recording.traces.conversion import PLAUSIBLE
from rig.types import Accuracy, Bools, Chunk, Conversion, Floats, Rail

DENSEST, SPARSEST = 0.5, 20.0
"""At least half of the spacings are ``DENSEST`` periods or wider, and at least a tenth ``SPARSEST`` or narrower.

Lost readings make some spacings wider, but rarely nine in ten.
"""
BAD_READINGS, MOST_BAD = 0.01, 20
"""The largest share and the largest number of a trace's readings that may be left out for bad values or ticks."""


class Grid(msgspec.Struct, frozen=True):
    """When readings without stamps began and ended: the first tick, the ticks between begins, and the ticks in one
    reading.

    Fractions of a tick are allowed.
    """

    t0_tick: int | float
    period_tick: int | float
    aperture_tick: int | float


def check_chunk(rail: Rail, chunk: Chunk, last: Chunk | None) -> None:
    """Refuse readings that no reader could use; ``last`` is the rail's previous chunk.

    Raises ``TypeError``, ``ValueError`` or ``DataError``, which names the rail.
    """
    given = columns_of(chunk)
    for name, values in given.items():
        kinds, wanted = ("iuf", "numbers") if name == "value" else ("iu", "whole numbers, such as int64")
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
            array = isinstance(values, np.ndarray)
            what = f"{values.dtype} of shape {values.shape}" if array else type(values).__name__
            raise TypeError(f"{name} of rail {rail.name} is {what}, not a column of {wanted}")
        if len(values) != len(chunk.value):
            raise ValueError(f"rail {rail.name} has {len(chunk.value)} values and {len(values)} of {name}")
    if ("start_tick" in given) != ("end_tick" in given):
        raise TypeError(f"rail {rail.name} has readings with only one of start_tick and end_tick")
    if last is not None and (types := _types(chunk)) != (before := _types(last)):
        raise TypeError(f"rail {rail.name} came as {before} and then as {types}")
    if np.any(np.isinf(chunk.value)) or np.any(np.abs(chunk.value) > PLAUSIBLE):
        largest = chunk.value[np.nanargmax(np.abs(chunk.value))]
        raise ValueError(f"rail {rail.name} reads {largest:g}, beyond {PLAUSIBLE:g}: state an overload in Chunk.flags")
    if chunk.start_tick is not None and chunk.end_tick is not None and len(chunk.value):
        for name, low, high in (("start_tick", *_ends(chunk.start_tick)), ("end_tick", *_ends(chunk.end_tick))):
            if not -LIMIT < low <= high < LIMIT:
                raise ValueError(f"{name} of rail {rail.name} is outside +-2^62")
        check_ticks(rail, chunk.start_tick, chunk.end_tick, None)
        axis = chunk.end_tick if rail.kind in ("cumulative", "point") else chunk.start_tick
        if last is not None and last.start_tick is not None and last.end_tick is not None and len(last.value):
            axis = np.append((last.start_tick if axis is chunk.start_tick else last.end_tick)[-1], axis)
        if len(back := np.flatnonzero(np.diff(axis) <= 0)):
            tick = axis[back[0] + 1]
            raise ValueError(f"the readings of rail {rail.name} do not move forward in time: one is at tick {tick}")


def _types(chunk: Chunk) -> str:
    named = (("values", chunk.value), ("ticks", chunk.start_tick), ("flags", chunk.flags))
    return ", ".join(f"{name} of {values.dtype}" for name, values in named if values is not None)


def _ends(ticks: NDArray[Any]) -> tuple[int, int]:
    return int(ticks.min()), int(ticks.max())


def good_readings(rail: Rail, start: NDArray[Any], end: NDArray[Any], value: Floats) -> Bools | None:
    """Return which readings of a trace to keep, shape (n,), or None for all.

    A reading is left out if it is out of bounds, ends before it begins, or is out of order. If the share of bad
    readings is above ``BAD_READINGS``, or more than ``MOST_BAD`` are bad, none is left out.
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
        k = int(back[0])  # the earlier of the two is bad if it is also not before the third
        spike = k + 2 < len(left) and left[k] >= left[k + 2]
        keep[np.flatnonzero(keep)[k if spike else k + 1]] = False
    return keep if len(keep) - int(keep.sum()) <= most else None


def check_ticks(rail: Rail, start: NDArray[Any], end: NDArray[Any], tick_hz: float | None) -> None:
    """Raise ``DataError`` for readings that end before they begin, or whose spacing contradicts the declared rate.

    The spacing is wrong if, for example, the rate was declared in kHz instead of Hz. It is checked only for three
    readings or more, with a declared rate and a ``tick_hz``, and never for edges.
    """
    backward = end < start
    if np.any(backward):
        what, remedy = f"a reading of rail {rail.name} ends before it begins", "Check the trace for wrapped time stamps"
        raise DataError(what, field="end_tick", value=int(end[np.argmax(backward)]), remedy=remedy)
    if rail.kind == "edges" or rail.rate_hz <= 0 or tick_hz is None or len(end) < 3:
        return
    with np.errstate(all="ignore"):
        periods = np.diff(end) * (rail.rate_hz / tick_hz)
    dense, near = np.count_nonzero(periods >= DENSEST), np.count_nonzero(periods <= SPARSEST)
    if 2 * dense < len(periods) or 10 * near < len(periods):
        what = f"the readings of rail {rail.name} are {np.median(periods):.3g} times as far apart as its rate_hz says"
        remedy = "Correct rate_hz (0 when irregular), or the tick_hz of its clock"
        raise DataError(what, field="rate_hz", value=rail.rate_hz, remedy=remedy)


def check_edges(rail: Rail, value: NDArray[Any], start: NDArray[Any], end: NDArray[Any], uniform: bool) -> None:
    """Raise ``DataError`` for edges that lack ticks, have two different ticks or a bad level, or are out of order."""
    for field, bad, what in (
        ("start_tick", uniform, "have no ticks of their own"),
        ("value", np.any((value != 0) & (value != 1)), "hold a level that is neither 0 nor 1"),
        ("end_tick", np.any(start != end), "are no moments: begin and end differ"),
        ("start_tick", np.any(np.diff(start) <= 0), "do not move forward in time"),
    ):
        if bad:
            remedy = "Give the level after each edge, and its tick twice; see docs/reference/run-directory.md"
            raise DataError(f"the edges of rail {rail.name} {what}", field=field, value=rail.name, remedy=remedy)


def rail_from_json(data: Mapping[str, Any]) -> Rail:
    """Return a ``Rail`` from its JSON form; absent fields take their defaults.

    Raises ``ValueError`` for an unknown field, because it could mean something that would change a figure, and for a
    value that does not fit its field. Raises ``TypeError`` for JSON that is no object.
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


def described_rail(meta: Mapping[str, str], name: str) -> Rail:
    """Return the rail in the description of a trace.

    Raises ``StoreError`` for a description that is too long, and ``KeyError``, ``ValueError`` or ``TypeError`` for one
    with a wrong value.
    """
    check_texts(meta, name)
    return rail_from_json(strict(meta["rail"]))


def grid_of(meta: Mapping[str, str]) -> Grid:
    """Return the grid in the description of a trace. Raises ``ValueError`` or ``KeyError``."""
    grid = msgspec.convert(strict(meta["grid"]), Grid)
    ahead = 0 <= grid.period_tick < LIMIT and 0 <= grid.aperture_tick < LIMIT  # false for NaN, too
    if not (ahead and abs(grid.t0_tick) < LIMIT):
        raise ValueError(f"grid is {meta['grid']}")
    return grid
