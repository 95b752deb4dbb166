"""Power by plain methods: each reading is valid for an interval, and these intervals are summed over windows."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from reports.audit.clocks import line
from reports.audit.folder.reading import Run, blocks, finite, refuse, traces
from rig.recording.traces.traces import Trace
from rig.types import Floats

TINY = 1e-300
"""Replaces 0 as a divisor."""
HOLE = 3.0
"""If the next reading begins more than this many usual distances later, readings between the two are missing."""
NEIGHBOURS = 0.9539
"""The median absolute difference of two Gaussian numbers with standard deviation 1."""
PRODUCT = 5e-4
"""The largest relative difference of mean current times mean voltage from mean power."""
VOLTS_MOST = 50_000_000


@dataclass(frozen=True)
class Readings:
    """Consecutive readings of one rail, in seconds of the run and watts.

    A reading was taken from ``begin`` to ``end``, and counts from ``left`` to ``right``. All are float64 of shape (n,);
    ``overload`` is 1 for a clipped reading, else 0.
    """

    begin: Floats
    end: Floats
    left: Floats
    right: Floats
    watt: Floats
    overload: Floats


def readings(run: Run, trace: Trace, within: tuple[float, float] = (-np.inf, np.inf)) -> Iterator[Readings]:
    """Yield the readings of a rail in order, in blocks: all, or those between the two times ``within`` (s of the run).

    Raises ``StoreError`` for a rail from which no power can be computed.
    """
    usual, held, left = 0.0, np.empty((4, 0)), np.empty(0)
    for part in _watts(run, trace, within):
        held = np.concatenate([held, part], axis=1)
        begin, end, watt, over = held
        if len(begin) < 2:
            left = begin
            continue
        usual = usual or float(np.median(np.diff(begin)))
        near = np.diff(begin) <= HOLE * usual
        middle = (end[:-1] + begin[1:]) / 2
        left = np.append(left if left.size else begin[:1], np.where(near, middle, begin[1:]))
        right = np.where(near, middle, end[:-1])
        yield Readings(begin[:-1], end[:-1], left[:-1], right, watt[:-1], over[:-1])
        held, left = held[:, -1:], left[-1:]
    if held.size:
        begin, end, watt, over = held
        yield Readings(begin, end, left, end, watt, over)


def _watts(run: Run, trace: Trace, within: tuple[float, float]) -> Iterator[Floats]:
    """Yield the blocks of a rail from ``blocks``, converted to seconds and, by its kind and conversion, to watts."""
    clock, kind = line(run, trace.clock), trace.rail.kind
    rule = trace.rail.conversion
    volts = _volts(run, rule.supply_rail) if rule.supply_rail else None
    last = np.empty((4, 0))
    low, high = ((at - clock.at_s) / clock.s_per_tick for at in within)
    for block in blocks(trace, clock.origin, (low, high)):
        block[:2] *= clock.s_per_tick
        block[:2] += clock.at_s
        if kind == "cumulative":
            both = np.concatenate([last, block], axis=1)
            last = both[:, -1:]
            _, ends, joules, over = both
            yield np.array([ends[:-1], ends[1:], np.diff(joules) / np.diff(ends), over[1:]])
            continue
        begin, end, value, _ = block
        if kind == "point":
            begin[:] = end
        if rule.unit == "A":
            supply = rule.supply_v if volts is None else _at(volts, (begin + end) / 2)
            if supply is None:
                refuse(f"the rail {trace.rail.name}", "is a current without a voltage")
            value[:] = value * supply - value * value * rule.burden_ohm
        yield finite(block)


def _volts(run: Run, name: str) -> Floats:
    """Return the middle times and values of all readings of a rail of volts: float64 of shape (2, n)."""
    trace = traces(run).get(name)
    if trace is None:
        refuse(f"the rail of volts {name!r}", "is not recorded")
    clock, count, parts = line(run, trace.clock), 0, [np.empty((2, 0))]
    for begin, end, value, _ in blocks(trace, clock.origin):
        parts.append(np.array([clock.at_s + clock.s_per_tick * (begin + end) / 2, value]))
        count += len(value)
        if count > VOLTS_MOST:
            refuse(f"the rail {name}", f"has more than {VOLTS_MOST} readings of volts, too many for the auditor")
    if count < 2:
        refuse(f"the rail {name}", "has fewer than two readings of volts")
    return np.concatenate(parts, axis=1)


def _at(volts: Floats, when: Floats) -> Floats:
    """Interpolate volts linearly between readings; NaN if no reading is within 2.5 periods."""
    at, value = volts
    period = float(np.median(np.diff(at)))
    place = np.clip(np.searchsorted(at, when), 1, len(at) - 1)
    near = np.minimum(np.abs(when - at[place - 1]), np.abs(when - at[place]))
    return np.where(near <= 2.5 * period, np.interp(when, at, value), np.nan)


@dataclass(frozen=True)
class Sums:
    """Sums of a rail's readings over windows of shape (k, 2), s. All are float64 of shape (k,).

    ``energy_j`` and ``seen_s`` come from the parts of readings in a window. ``blind_j2`` is the variance of the energy
    between readings, where power changes at an unknown moment from one reading's value to the next one's.
    """

    energy_j: Floats
    seen_s: Floats
    blind_j2: Floats

    @property
    def mean_w(self) -> float:
        """Return the mean power in all windows together; NaN without readings."""
        seen = float(self.seen_s.sum())
        return float(self.energy_j.sum()) / seen if seen > 0 else np.nan


@dataclass(frozen=True)
class Facts:
    """Facts about all readings of a rail."""

    count: int
    first_s: float
    last_s: float
    period_s: float
    overload: int
    noise_w: float
    """The noise of one reading: the median difference of neighbours (of the noisiest block) over ``NEIGHBOURS``."""
    volts_step: float
    """For a current whose volts are read too: the relative error of their product.

    It is ``PRODUCT``. For volts that are read more slowly, their change between two readings is added."""


def facts_of(run: Run, trace: Trace) -> Facts:
    """Return the facts about the readings of a rail. Without readings, ``last_s`` is before ``first_s``."""
    count, first, last, period, overload, noise = 0, np.inf, -np.inf, 0.0, 0, 0.0
    for part in readings(run, trace):
        count, overload = count + len(part.watt), overload + int(part.overload.sum())
        first, last = min(first, float(part.begin[0])), float(part.end[-1])
        if len(part.watt) > 1:
            period = period or float(np.median(np.diff(part.begin)))
            noise = max(noise, float(np.median(np.abs(np.diff(part.watt)))) / NEIGHBOURS)
    supply = trace.rail.conversion.supply_rail
    return Facts(count, first, last, period, overload, noise, _volts_step(run, supply, period) if supply else 0.0)


def _volts_step(run: Run, supply: str, period_s: float) -> float:
    at, value = _volts(run, supply)
    if float(np.median(np.diff(at))) <= 1.5 * period_s:
        return PRODUCT
    return PRODUCT + float(np.percentile(np.abs(np.diff(value)), 90) / max(abs(float(value.mean())), TINY))


def sums(run: Run, trace: Trace, windows: Mapping[str, Floats], whole: Collection[str] = ()) -> dict[str, Sums]:
    """Sum the readings of a rail over each kind of windows, in one pass. The windows may overlap.

    For the kinds in ``whole``, only readings that are completely inside a window are summed.
    """
    on, off = np.concatenate(list(windows.values())).T
    bare = np.repeat([name in whole for name in windows], [len(own) for own in windows.values()])
    found = np.zeros((3, len(on)))
    for part in readings(run, trace, (float(on.min(initial=np.inf)), float(off.max(initial=-np.inf)))):
        touched = np.flatnonzero((off > part.left[0]) & (on < part.right[-1]))
        if not len(touched):
            continue
        begin, end = on[touched], off[touched]
        first, past = np.searchsorted(part.begin, begin), np.searchsorted(part.end, end, "right")
        begin = np.where(bare[touched], np.append(part.left, part.right[-1])[first], begin)
        end = np.where(bare[touched], np.append(part.left[0], part.right)[past], end)
        found[:, touched] += _inside(part, begin, np.maximum(begin, end))
    split = np.split(found, np.cumsum([len(own) for own in windows.values()])[:-1], axis=1)
    return {name: Sums(*own) for name, own in zip(windows, split, strict=True)}


def _inside(part: Readings, on: Floats, off: Floats) -> Floats:
    """Sum one block over windows: float64 of shape (3, k), in the order of ``Sums``."""
    width = part.right - part.left
    unsure = np.append(np.diff(part.watt) * np.maximum(part.begin[1:] - part.end[:-1], 0.0), 0.0)
    knots = np.stack([part.left, part.right], axis=1).ravel()
    found = []
    for amount in (part.watt * width, width, unsure**2 / 12):
        grown = np.concatenate([[0.0], np.cumsum(amount)])
        level = np.stack([grown[:-1], grown[1:]], axis=1).ravel()
        found.append(np.interp(off, knots, level) - np.interp(on, knots, level))
    return np.array(found)
