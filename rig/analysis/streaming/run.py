"""One rail of a run directory, streamed: its spans and idle windows, and sums over its readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from rig.analysis.streaming.energies import bad, heard, in_order
from rig.analysis.streaming.sums import Sums, Watts, check_inside, grid_sums, parts_of, stamped_sums
from rig.analysis.timing.timebase import Timebase, fit_brackets, host_timebase
from rig.analysis.timing.timeline import activity_of, timebase_of
from rig.errors import DataError, UsageError
from rig.recording import trace_validation
from rig.recording.reader import Run
from rig.recording.stored import Batches, Stored
from rig.recording.traces import described
from rig.types import Bools, Floats, Rail

Told = Callable[[int, int], None]
ROWS = 1 << 16
"""How many readings are processed together; a second-level cache holds them, and their watts."""


@dataclass(frozen=True)
class RailFile:
    """The readings of one rail in their file.

    ``grid`` is None if each reading has its own ticks.
    """

    batches: Batches
    rail: Rail
    clock: str
    grid: trace_validation.Grid | None

    @property
    def name(self) -> str:
        """Return the path of the file in its recording."""
        return self.batches.file.name

    @property
    def readings(self) -> int:
        """Return how many readings the file holds."""
        return int(self.batches.row[-1])

    @cached_property
    def columns(self) -> dict[str, Stored]:
        """Return its columns of numbers, which are read when they are sliced."""
        return {name: Stored(self.batches, name) for name in self.batches.columns}


def rail_files(run: Run) -> dict[str, RailFile]:
    """Return every rail of a run by name. Raises ``StoreError`` for a trace without a valid description."""
    return {f.rail.name: f for f in map(_described, run.trace_files)}


def rail_file(run: Run, name: str | None) -> RailFile:
    """Return the rail called ``name``, or the only rail of power if ``name`` is empty.

    Raises ``UsageError`` and ``DataError``.
    """
    found = rail_files(run)
    power = {n: f for n, f in found.items() if f.rail.kind != "edges" and f.rail.conversion.unit != "V"}
    if name is None and len(power) == 1:
        return next(iter(power.values()))
    if name not in found:
        raise UsageError(
            f"{run.path.name} has the rails {', '.join(found) or 'none'}, "
            + ("none named" if name is None else f"no {name}"),
            field="rail",
            value=name,
            remedy=f"Say which: --rail {' | '.join(power) or '(none of this run is of power)'}",
        )
    return found[name]


def _described(batches: Batches) -> RailFile:
    name = batches.file.name
    with described(name):
        meta = {k.decode(): v.decode() for k, v in (batches.schema.metadata or {}).items()}
        rail, clock = trace_validation.described_rail(meta, name), meta["clock"]
        grid = None if "start_tick" in batches.schema.names else trace_validation.grid_of(meta)
        for column in ("value",) if grid else ("value", "start_tick", "end_tick"):
            trace_validation.check_numbers(Stored(batches, column), name, column)
    return RailFile(batches, rail, clock, grid)


def watts_of(rail: Rail) -> Watts:
    """Return how the readings of a rail become watts.

    Raises ``UsageError`` for a rail whose readings alone do not give power.
    """
    c = rail.conversion
    if rail.kind not in ("mean", "point") or c.unit not in ("W", "A") or c.supply_rail is not None:
        what = f"its readings are {rail.kind} in {c.unit}" + (
            f" with volts on {c.supply_rail}" if c.supply_rail else ""
        )
        raise UsageError(
            f"rail {rail.name} cannot be summed: {what}",
            field="rail",
            value=rail.name,
            remedy="Use `rig report`, or --rail with one that reads W, or A at a declared supply_v",
        )
    if c.unit == "W":
        return Watts()
    if not (c.supply_v and c.supply_v > 0):
        raise DataError(
            f"rail {rail.name} reads amperes and has no declared supply voltage",
            field="supply_v",
            value=c.supply_v,
            remedy="Declare the voltage of the rail in its conversion",
        )
    return Watts(volts=c.supply_v, burden_ohm=c.burden_ohm)


def timebase(run: Run, file: RailFile) -> Timebase:
    """Return the meter's clock by its brackets alone, as ``rig report`` knows it before it uses the trace."""
    brackets, t0_ns = run.brackets(file.clock), run.start.t0_ns
    if len(brackets) != 1 or file.grid is None:
        return host_timebase(t0_ns) if file.clock in ("host", "") else timebase_of(run, file.clock)
    table = run.arrivals(file.rail.name)
    table = table[(table[:, 0] > 0) & (table[:, 0] <= file.readings)]
    first, period, within = astuple(file.grid)
    arrivals = np.column_stack([first + period * (table[:, 0] - 1) + within, (table[:, 1] - t0_ns) * 1e-9])
    timebase_of(run, file.clock)  # called for its checks
    return fit_brackets(run.clocks()[file.clock], brackets, t0_ns, arrivals)


def own_windows(run: Run) -> tuple[list[str], Floats, float]:
    """Return the names and windows of a run's spans, warm-up, marks and idle, sorted by their begin.

    Windows have shape (k, 2), in run seconds. The third value is the uncertainty of the device's clock in seconds.
    Raises ``UsageError`` if the spans are marked on a pin.
    """
    if run.start.device.spans_on_pin:
        raise UsageError(
            "the spans of this run are marked on a pin, which must be read first",
            field="windows",
            remedy="Use `rig report`, or give --windows FILE",
        )
    clock = run.start.device.clock
    device = timebase_of(run, clock.name if clock else "host")
    activity = activity_of(run, device)
    named = {name: phase.windows_s for name, phase in activity.phases.items()}
    named |= {"warmup": activity.warmup_s, "mark": activity.marks_s, "idle": activity.idle_s}
    names = [name for name, windows in named.items() for _ in windows]
    windows_s = np.concatenate([np.zeros((0, 2)), *named.values()])
    order = np.argsort(windows_s[:, 0], kind="stable")
    return [names[k] for k in order], windows_s[order], device.sigma_s


def extent_s(file: RailFile, tb: Timebase) -> tuple[float, float]:
    """Return when the trace begins and ends, in run seconds.

    Each reading of a grid stands for its whole period.
    """
    if file.grid is not None:
        first, period_s = _grid(file, tb)
        return first, first + file.readings * period_s
    if not file.readings:
        return 0.0, 0.0
    ticks = [file.columns["start_tick"][0], file.columns["end_tick"][-1]]
    begin, end = tb.seconds(np.array(ticks, dtype=np.int64)).tolist()
    return begin, end


def run_sums(file: RailFile, tb: Timebase, windows_s: Floats, told: Told | None = None) -> Sums:
    """Return sums of a rail over windows in run seconds.

    Raises ``DataError`` for windows outside the trace.
    """
    watts = watts_of(file.rail)
    if file.grid is not None:
        first, period_s = _grid(file, tb)
        low, high = ((windows_s - first) / period_s).T
        check_inside(low, high, file.readings, extent_s(file, tb))
        blocks = heard(in_order(file.columns["value"].blocks(ROWS)), file.readings, told)
        parts = parts_of(np.maximum(low, 0.0), np.minimum(high, float(file.readings)))
        return grid_sums(parts, blocks, len(windows_s), 1.0 / period_s, watts, file.name)
    if file.rail.kind == "point":
        raise UsageError(
            f"rail {file.rail.name} holds single points with their own stamps, which have no length",
            field="rail",
            value=file.rail.name,
            remedy="Use `rig report`",
        )
    begin, end = extent_s(file, tb)
    per_s = file.readings / max(end - begin, 1e-300)
    low, high = ((windows_s - begin) * per_s).T
    check_inside(low, high, file.readings, (begin, end))
    return stamped_sums(windows_s, _stamped(file, tb, told), watts)


def _grid(file: RailFile, tb: Timebase) -> tuple[float, float]:
    """Begin of the first reading and seconds between readings; a point stands in the middle of its period."""
    first, period, within = astuple(file.grid) if file.grid else (0.0, 0.0, 0.0)
    if period <= 0:
        raise bad(Path(file.name), "states no time between its readings", period)
    if file.rail.kind == "point":
        first += within - 0.5 * period
    at = tb.seconds(np.array([first, first + period]))
    return float(at[0]), period * tb.rate / tb.clock.tick_hz


def _stamped(file: RailFile, tb: Timebase, told: Told | None) -> Iterator[tuple[Floats, Floats, NDArray[Any]]]:
    done, before = 0, -np.inf
    ticks, value = (file.columns["start_tick"], file.columns["end_tick"]), file.columns["value"]
    for first in range(0, file.readings, ROWS):
        part = slice(first, first + ROWS)
        start, end = (tb.seconds(column[part]) for column in ticks)
        if np.any(np.diff(start, prepend=before) <= 0) or np.any(end < start):
            raise bad(Path(file.name), f"does not move forward in time after reading {done}", done)
        before = float(start[-1])
        yield start, end, value[part]
        done += len(start)
        if told is not None:
            told(done, file.readings)


def declared(rail: Rail) -> Mapping[str, Any]:
    """Return what the meter declared of the rail."""
    c = rail.conversion
    return {"rail": rail.name, "kind": rail.kind, "unit": c.unit, "supply_v": c.supply_v, "burden_ohm": c.burden_ohm}


def overloads(file: RailFile) -> int:
    """Return how many readings the instrument flagged as overload or are at the end of its range."""
    return sum(int(np.count_nonzero(over)) for over in at_the_end(file))


def at_the_end(file: RailFile) -> Iterator[Bools]:
    """Yield which readings are flagged or at the end of the range, block by block; nothing if neither can be."""
    top, value, flags = file.rail.range_max, file.columns["value"], file.columns.get("flags")
    for first in range(0, file.readings if flags is not None or top is not None else 0, ROWS):
        part = slice(first, first + ROWS)
        over = np.zeros(min(ROWS, file.readings - first), bool)
        if top is not None:
            over |= value[part] >= top
        if flags is not None:
            over |= flags[part] != 0
        yield over
