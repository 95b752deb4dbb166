"""Power by plain methods: every reading stands for its stretch of time, and stretches are summed over windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reports.audit.clocks import line
from reports.audit.files import refuse
from reports.audit.reading import Run, Trace, blocks, traces
from rig.types import Floats

HOLE = 3.0
"""Where the next reading begins later than so many usual distances, the stretch between the two was not seen."""
NEIGHBOURS = 0.9539
"""The median of the absolute difference of two Gaussian numbers of deviation one."""
PRODUCT = 5e-4
"""By so much, relative, the product of mean current and mean voltage may differ from mean power."""
VOLTS_MOST = 50_000_000


@dataclass(frozen=True)
class Readings:
    """Consecutive readings of one rail, in seconds of the run and watts.

    ``begin`` and ``end`` is the time over which each was taken, ``left`` and ``right`` the time for which it stands.
    All are float64 of shape (n,); ``overload`` is the share of clipped readings as 0 or 1.
    """

    begin: Floats
    end: Floats
    left: Floats
    right: Floats
    watt: Floats
    overload: Floats


def readings(run: Run, trace: Trace) -> Iterator[Readings]:
    """The readings of a rail in blocks, in order. Raises ``StoreError`` for a rail of which no power can be made."""
    usual, held = 0.0, None
    for part in _watts(run, trace):
        begin, end, watt, over = part if held is None else (np.concatenate(p) for p in zip(held[:4], part, strict=True))
        if len(begin) < 2:
            held = (begin, end, watt, over, begin[:1])
            continue
        usual = usual or float(np.median(np.diff(begin)))
        near = begin[1:] - begin[:-1] <= HOLE * usual
        middle = (end[:-1] + begin[1:]) / 2
        left = np.concatenate([held[4] if held is not None else begin[:1], np.where(near, middle, begin[1:])])
        right = np.concatenate([np.where(near, middle, end[:-1]), end[-1:]])
        held = (begin[-1:], end[-1:], watt[-1:], over[-1:], left[-1:])
        yield Readings(*(a[:-1] for a in (begin, end, left, right, watt, over)))
    if held is not None and len(held[0]):
        begin, end, watt, over, left = held
        yield Readings(begin, end, left, end, watt, over)


def _watts(run: Run, trace: Trace) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
    """Begin, end, watts and overload of the readings of a rail, block by block, by its kind and conversion."""
    clock, kind = line(run, trace.clock), trace.rail.get("kind", "mean")
    rule = trace.rail.get("conversion", {})
    volts = _volts(run, rule["supply_rail"]) if rule.get("supply_rail") else None
    last: tuple[Floats, Floats] | None = None
    for block in blocks(trace, clock.origin):
        begin, end = (clock.at_s + clock.s_per_tick * t for t in (block.begin, block.end))
        value, over = block.value, block.overload.astype(np.float64)
        if kind == "cumulative":
            ends = np.concatenate([last[0], end]) if last else end
            joules = np.concatenate([last[1], value]) if last else value
            last = (ends[-1:], joules[-1:])
            yield ends[:-1], ends[1:], np.diff(joules) / np.diff(ends), over[len(over) - len(ends) + 1 :]
            continue
        if kind == "point":
            begin = end
        if rule.get("unit", "W") == "A":
            supply = rule.get("supply_v") if volts is None else _at(volts, (begin + end) / 2)
            if supply is None:
                refuse(trace.path.name, "is a current without a voltage")
            value = value * supply - value * value * rule.get("burden_ohm", 0.0)
        good = np.isfinite(value)
        yield begin[good], end[good], value[good], over[good]


def _volts(run: Run, name: str) -> tuple[Floats, Floats]:
    """All middles and values of a rail of volts."""
    trace = traces(run).get(name)
    if trace is None:
        refuse(f"the rail of volts {name!r}", "is not recorded")
    clock = line(run, trace.clock)
    parts, count = [], 0
    for block in blocks(trace, clock.origin):
        count += len(block.value)
        if count > VOLTS_MOST:
            refuse(trace.path.name, f"has more than {VOLTS_MOST} readings of volts, too many for the auditor")
        parts.append((clock.at_s + clock.s_per_tick * (block.begin + block.end) / 2, block.value))
    at, value = (np.concatenate([p[k] for p in parts]) if parts else np.empty(0) for k in range(2))
    if len(at) < 2:
        refuse(trace.path.name, "has fewer than two readings of volts")
    return at, value


def _at(volts: tuple[Floats, Floats], when: Floats) -> Floats:
    """Volts on a straight line between two readings; NaN further than two and a half periods from any."""
    at, value = volts
    period = float(np.median(np.diff(at)))
    place = np.clip(np.searchsorted(at, when), 1, len(at) - 1)
    near = np.minimum(np.abs(when - at[place - 1]), np.abs(when - at[place]))
    return np.where(near <= 2.5 * period, np.interp(when, at, value), np.nan)


@dataclass(frozen=True)
class Sums:
    """What a rail's readings say of windows of shape (k, 2), s: float64 of shape (k,).

    ``energy_j`` and ``seen_s`` are of the parts of readings inside; ``inside`` and ``inside_w`` count and add up the
    readings that lie wholly inside. ``blind_j2`` is the variance of the energy of what no reading saw: power
    changes there at any moment from that of one reading to that of the next.
    """

    energy_j: Floats
    seen_s: Floats
    inside: Floats
    inside_w: Floats
    blind_j2: Floats


@dataclass(frozen=True)
class Facts:
    """What a rail's readings are, as a whole."""

    count: int
    first_s: float
    last_s: float
    period_s: float
    overload: int
    noise_w: float
    """The noise of one reading: the median difference of neighbours, over that of Gaussian noise of deviation one."""
    volts_step: float = 0.0
    """For a current whose volts are read more slowly: by how much, relative, the volts move between two readings."""


def sums(run: Run, trace: Trace, windows: Floats) -> tuple[Sums, Facts]:
    """Sum the readings of a rail over windows, in one pass. The windows may overlap."""
    on, off = windows[:, 0], windows[:, 1]
    found = Sums(*(np.zeros(len(windows)) for _ in range(5)))
    facts = Facts(0, np.inf, -np.inf, 0.0, 0, 0.0)
    for part in readings(run, trace):
        _add(found, part, on, off)
        period = facts.period_s or (float(np.median(np.diff(part.begin))) if len(part.begin) > 1 else 0.0)
        noise = float(np.median(np.abs(np.diff(part.watt)))) / NEIGHBOURS if len(part.watt) > 1 else 0.0
        facts = replace(
            facts,
            count=facts.count + len(part.watt),
            first_s=min(facts.first_s, float(part.begin[0])),
            last_s=max(facts.last_s, float(part.end[-1])),
            period_s=period,
            overload=facts.overload + int(part.overload.sum()),
            noise_w=max(facts.noise_w, noise),
        )
    supply = trace.rail.get("conversion", {}).get("supply_rail")
    return found, replace(facts, volts_step=_volts_step(run, supply, facts.period_s) if supply else 0.0)


def _volts_step(run: Run, supply: str, period_s: float) -> float:
    at, value = _volts(run, supply)
    if float(np.median(np.diff(at))) <= 1.5 * period_s:
        return PRODUCT
    return PRODUCT + float(np.percentile(np.abs(np.diff(value)), 90) / max(abs(float(value.mean())), 1e-300))


def _add(found: Sums, part: Readings, on: Floats, off: Floats) -> None:
    """Add what one block says of the windows that it touches."""
    touched = np.flatnonzero((off > part.left[0]) & (on < part.right[-1]))
    if not len(touched):
        return
    a, b = on[touched], off[touched]
    knots = np.stack([part.left, part.right], axis=1).ravel()
    for total, rate in ((found.energy_j, part.watt), (found.seen_s, np.ones_like(part.watt))):
        grown = np.cumsum(rate * (part.right - part.left))
        level = np.stack([np.concatenate([[0.0], grown[:-1]]), grown], axis=1).ravel()
        total[touched] += np.interp(b, knots, level) - np.interp(a, knots, level)
    first, after = np.searchsorted(part.begin, a, "left"), np.searchsorted(part.end, b, "right")
    after = np.maximum(after, first)
    unsure = np.diff(part.watt) * np.maximum(part.begin[1:] - part.end[:-1], 0.0)
    found.inside[touched] += after - first
    for total, each in ((found.inside_w, part.watt), (found.blind_j2, unsure**2 / 12)):
        grown = np.concatenate([[0.0], np.cumsum(each)])
        total[touched] += grown[np.minimum(after, len(each))] - grown[np.minimum(first, len(each))]
