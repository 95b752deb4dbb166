"""Examine some single readings of a long trace one by one, and average all readings over pieces.

Alignment, the spectrum of noise, rounding and the ends of a range need single readings, but far fewer than a long trace
has. So whole stretches are taken, evenly spread: the middles of idle windows, marks, and stretches about the ends of
spans from the first to the last. Results that depend on every reading are sums over the whole trace.

These sums are over pieces that the estimators never split. The estimators need to know whether a reading is before or
after a few moments: the ends of spans and of idle windows, and these ends moved by the uncertainty of the clock and by
the settling of the filter. A reading that holds such a moment is a piece by itself, so a sum over pieces equals the sum
over single readings. The whole trace is also divided evenly.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import BLOCK, SETTLE_TAU, in_step, margin_s, merged, touches
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.profile import ends_of
from rig.analysis.timing.readings import Pool, Readings, Supply, Volts, in_order, mean_volts, numbers, sagging, volts_of
from rig.analysis.timing.timebase import Timebase
from rig.recording.columns.stored import GridTicks, Stored
from rig.recording.traces.conversion import PLAUSIBLE, to_watts
from rig.recording.traces.traces import COLUMNS, Trace
from rig.types import Bools, Floats, Indices

Seconds = Callable[[NDArray[np.int64]], Floats]
"""A function from ticks of the meter to run seconds on the device's time, in the same shape."""
IDLE_WINDOWS, SPREAD = 4, 16
"""Single readings are taken at no more than ``IDLE_WINDOWS`` idle windows and ``SPREAD`` spans, evenly spread."""
GOLDEN = 0.618034
"""The inner place, as a fraction of its span, grows by this (modulo 1) from span to span, so that no place recurs."""


def stretches(trace: Trace, meter: Timebase, activity: Activity, at_once: int) -> tuple[Floats, Activity]:
    """Return disjoint windows with at most ``at_once`` readings in all, and the activity within these windows.

    The windows have the same length before they are joined. They are about the middles of idle windows, the first and
    the last mark, the ends of the trace, and the begin, the end and an inner place of some spans. ``meter`` places
    readings by brackets. Raises ``DataError`` if the last reading is not after the first.
    """
    n = len(trace.value)
    first_s, last_s = meter.seconds(np.asarray(trace.start_tick[np.array([0, n - 1])])).tolist()
    in_order(trace.rail.name, np.array([first_s, last_s]))
    period_s = (last_s - first_s) / (n - 1)
    every_s = activity.every_s()
    on, off = (spans := _evenly(every_s[np.argsort(every_s[:, 0], kind="stable")], SPREAD)).T
    within = on + np.mod(GOLDEN * np.arange(len(on)), 1.0) * (off - on)
    idle_s = merged(np.clip(activity.idle_s, first_s, last_s))
    at_s = np.concatenate([
        _evenly(idle_s, IDLE_WINDOWS).mean(axis=1), _evenly(activity.marks_s, 2).ravel(), spans.ravel(), within,
        [first_s, last_s],
    ])  # fmt: skip
    half_s = 0.5 * at_once / len(at_s) * period_s
    windows = merged(np.clip(at_s[:, None] + np.array([-half_s, half_s]), first_s, last_s + period_s))
    return windows, _only(activity, windows)


def single(trace: Trace, meter: Timebase, windows_s: Floats) -> Trace:
    """Return the readings that begin in the disjoint windows as a trace in memory, each with its ticks."""
    return trace.parts(before(trace.start_tick, meter.seconds, windows_s.ravel()).reshape(-1, 2))


def thinned(trace: Trace, at_once: int) -> Trace:
    """Return a long trace of a counter with about ``at_once`` of its readings; return other traces unchanged."""
    n = len(trace.value)
    if n <= at_once or trace.rail.kind != "cumulative":
        return trace
    kept = np.append(np.arange(0, n - 1, -(-n // at_once)), n - 1)
    return replace(trace, **{name: getattr(trace, name)[kept] for name in COLUMNS}, uniform=False)


def before(ticks: NDArray[np.int64], seconds: Seconds, moments_s: Floats, *, also_at: bool = False) -> Indices:
    """Return how many of the rising ticks, shape (n,), are before each of the sorted moments, shape (k,).

    With ``also_at``, ticks at the moment count too.
    """
    n, side = len(ticks), "right" if also_at else "left"
    if not isinstance(ticks, Stored):
        lies = np.less_equal if also_at else np.less
        return first_not(lambda k: np.asarray(lies(seconds(ticks[k]), moments_s)), n, len(moments_s))
    found, done = np.full(len(moments_s), n), 0
    for a in range(0, n, BLOCK):
        at_s = seconds(ticks[a : a + BLOCK])
        upto = int(np.searchsorted(moments_s, at_s[-1], "left" if also_at else "right"))
        found[done:upto] = a + np.searchsorted(at_s, moments_s[done:upto], side)
        done = max(done, upto)
    return found


def first_not(holds: Callable[[Indices], Bools], n: int, size: int) -> Indices:
    """Return the first number below ``n`` for which a condition no longer holds, or n, shape (size,).

    ``holds`` returns for numbers, shape (size,), whether the condition is true. It is true up to some number, and never
    after.
    """
    low, high = np.zeros(size, dtype=np.int64), np.full(size, n, dtype=np.int64)
    while np.any(low < high):
        middle = np.minimum((low + high) // 2, n - 1)
        true = holds(middle) & (low < high)
        low, high = np.where(true, middle + 1, low), np.where(true, high, np.minimum(middle, high))
    return low


def _evenly(windows: Floats, most: int) -> Floats:
    return np.asarray(windows[np.unique(np.linspace(0, len(windows) - 1, min(len(windows), most)).astype(int))])


def _only(activity: Activity, windows: Floats) -> Activity:
    """Return the activity that begins and ends in windows, without phases that have none there."""

    def held(spans: Floats) -> Bools:
        return np.asarray(touches(windows, spans[:, 0], spans[:, 0]) & touches(windows, spans[:, 1], spans[:, 1]))

    phases = {
        name: Phase(p.windows_s[use], p.inferences[use], p.executions[use], p.issue[use])
        for name, p in activity.phases.items()
        if (use := held(p.windows_s)).any()
    }
    warmup_s, marks_s = (w[held(w)] for w in (activity.warmup_s, activity.marks_s))
    return replace(activity, phases=phases, warmup_s=warmup_s, marks_s=marks_s)


# ---- every reading, in means ------------------------------------------------------------------


def moments_s(r: Readings, activity: Activity, sigma_s: float, host_sigma_s: float) -> Floats:
    """Return the moments that the estimators need, shape (k,), in any order.

    ``r`` are single readings of the trace. ``sigma_s`` is the uncertainty of the ends of spans on the meter's clock,
    ``host_sigma_s`` that of idle windows. The level beside a span is read from the nearest reading outside of it, so
    the outer ends of these readings are moments too.
    """
    tau_s = r.tau_s
    on, off = activity.every_s().T
    reach, settled = margin_s(sigma_s, tau_s), margin_s(0.0, tau_s)
    quiet = activity.idle_s + np.array([2.0 * host_sigma_s + SETTLE_TAU * tau_s, -2.0 * host_sigma_s])
    inner = (on + (2.0 * sigma_s + SETTLE_TAU * tau_s), off - 2.0 * sigma_s)
    beside = (on + reach[0] - r.period_s, off + reach[1] + r.period_s)
    return np.concatenate([*beside, on + reach[0], on, *inner, off, off + settled[1], off + reach[1], quiet.ravel()])


def span_sigma_s(r: Readings, activity: Activity, sigma_s: float) -> float:
    """Return the uncertainty of the ends of spans among the readings; ``sigma_s`` is from the map of the clocks.

    The result includes the step of the stamps. As far as spans are in step with the readings, it also includes the time
    between apertures, in which ends stay hidden.
    """
    on_s = activity.active_s()[:, 0]
    unseen_s = 0.0 if r.counter else max(r.period_s - r.aperture_s, 0.0) * in_step(on_s, r.period_s)
    return math.hypot(sigma_s, 0.5 * activity.step_s, 0.5 * unseen_s)


def cuts_of(trace: Trace, seconds: Seconds, moments: Floats, evenly: int) -> Indices:
    """Return the indices of readings at which pieces begin: 0 first, the number of all readings last.

    Pieces end at ``moments``, and at places that divide the trace into at most ``evenly`` equal parts.
    """
    n = len(trace.value)
    moments = np.unique(moments)
    # a reading that holds a moment is a piece of its own
    first = before(trace.end_tick, seconds, moments, also_at=True)
    last = before(trace.start_tick, seconds, moments)
    return np.unique(np.concatenate([[0, n], first, last, np.arange(0, n, -(-n // evenly))]))


class Beside(Struct, frozen=True):
    """A trace of volts and its clock, and the clock of the amperes."""

    trace: Trace
    timebase: Timebase
    own: Timebase

    def of(self, amperes: Trace, like: Readings, a: int, b: int) -> tuple[Supply, Bools, Bools]:
        """Return the supply at the readings ``a`` to ``b``, which of its values are known, and which are overloads."""
        supply = like.supply
        assert supply is not None
        if self._on_one_grid(amperes):
            part = self.trace.part(a, b)
            return replace(supply, volts=part.value, sag=None), numbers(part.value), part.overload
        more = 0 if supply.sag is None else int(4.0 * supply.window_s / like.period_s) + 2
        first, last = max(a - more, 0), min(b + more, len(amperes.value))
        part = amperes.part(first, last)
        start, end = (self.own.seconds(t) for t in (part.start_tick, part.end_tick))
        start = end if amperes.rail.kind == "point" else start
        n, reach_s, seconds = len(self.trace.value), 4.0 * supply.window_s, self.timebase.seconds
        low, high = before(self.trace.start_tick, seconds, np.array([start[0] - reach_s, end[-1] + reach_s]))
        shown = volts_of(self.trace.part(max(int(low) - 2, 0), min(int(high) + 2, n)), self.timebase)
        volts, known, over = mean_volts(shown, start, end)
        sag = None
        if supply.sag is not None:
            own = Volts(amperes.rail, start, end, part.value, numbers(part.value), part.overload)
            volts, sag = sagging(shown, volts, own, supply.sag)
        mine = slice(a - first, b - first)
        sag = sag and replace(sag, lever=sag.lever[mine])
        return replace(supply, volts=volts[mine], sag=sag), known[mine], over[mine]

    def _on_one_grid(self, amperes: Trace) -> bool:
        both = (self.trace, amperes)
        ticks = [(t.clock, t.rail.kind, t.start_tick, t.end_tick) for t in both if isinstance(t.start_tick, GridTicks)]
        return len(ticks) == 2 and ticks[0] == ticks[1]


def pooled(
    trace: Trace, like: Readings, seconds: Seconds, cuts: Indices, beside: Beside | None = None, block: int = BLOCK
) -> Readings:
    """Return the whole trace as means over the pieces between ``cuts``.

    ``like`` are single readings of the trace, on the same time. Their conversion and ends of ranges apply to all.
    ``beside`` are the volts that the trace names. A piece that holds a reading at the end of the range counts as an
    overload as a whole. Raises ``DataError`` for readings that are not in order of time.
    """
    starts, sums = zip(*_blocks(trace, like, seconds, cuts, beside, block), strict=True)
    start, total = np.concatenate(starts), {name: np.concatenate([of[name] for of in sums]) for name in sums[0]}
    last = np.append(start[1:], len(trace.value)) - 1
    held = np.maximum(total["weight"], 1e-300)
    watts = total["watts"] / held
    supply = like.supply and replace(
        like.supply,
        amperes=total["amperes"] / held,
        volts=total["volts"] / held,
        sag=like.supply.sag and replace(like.supply.sag, lever=total["lever"] / held),
    )
    return replace(
        like,
        start_s=seconds(trace.start_tick[start]),
        end_s=seconds(trace.end_tick[last]),
        watts=watts,
        raw=watts,
        ok=total["many"] > 0.0,
        overload=total["clipped"],
        supply=supply,
        pool=Pool(last + 1.0 - start, total["many"], total["weight"], like.aperture_s),
    )


def in_pieces(r: Readings, moments: Floats, near_s: Floats, evenly: int) -> Readings:
    """Return steady readings as means over pieces.

    Pieces end at places that divide the readings into at most ``evenly`` equal parts. A reading that holds one of
    ``moments`` is a piece of its own, and so is each reading in the disjoint sorted windows ``near_s``.
    """
    n, at = len(r.watts), np.searchsorted(r.end_s, moments, "right")
    begins = np.append(touches(near_s, r.start_s, r.end_s), [False, False])
    begins[1:] |= begins[:-1]
    for begin in (at, at + 1, slice(0, n, -(-n // evenly))):
        begins[begin] = True
    start = np.flatnonzero(begins[:n])
    many = np.diff(np.append(start, n)).astype(np.float64)
    watts, end_s = np.add.reduceat(r.watts, start) / many, r.end_s[np.append(start[1:], n) - 1]
    like = replace(r, start_s=r.start_s[start], end_s=end_s, watts=watts, raw=watts, ok=r.ok[start])
    return replace(like, overload=r.overload[start], pool=Pool(many, many, many, r.aperture_s))


def _blocks(
    trace: Trace, like: Readings, seconds: Seconds, cuts: Indices, beside: Beside | None, block: int
) -> Iterator[tuple[Indices, dict[str, Floats]]]:
    """Yield the begins of the pieces of a block, and sums over them by name; a block ends where a piece ends."""
    n, last_s, ends, top = len(trace.value), -np.inf, ends_of(like.raw), trace.rail.range_max
    bounds = np.unique(np.searchsorted(cuts, np.append(np.arange(0, n, block), n)))
    for first, end in itertools.pairwise(bounds.tolist()):
        start, a, b = cuts[first:end], int(cuts[first]), int(cuts[end])
        stored = np.asarray(trace.value[a:b])
        raw = stored.astype(np.float64)
        ok = None if stored.min() >= -PLAUSIBLE and stored.max() <= PLAUSIBLE else numbers(raw)
        weight = None
        if not trace.uniform:
            on_s, off_s = (seconds(t[a:b]) for t in (trace.start_tick, trace.end_tick))
            in_order(trace.rail.name, on_s, last_s)
            last_s = float(on_s[-1])
            if trace.rail.kind != "point":
                weight = (off_s - on_s) / max(like.aperture_s, 1e-300)
                ok = (numbers(raw) if ok is None else ok) & (weight > 0.0)
        clipped = trace.overload[a:b] | np.isin(raw, ends)
        if top is not None:
            clipped |= raw >= top
        if beside is None:
            of = {"watts": to_watts(raw if ok is None else np.where(ok, raw, 0.0), trace.rail.conversion)}
        else:
            supply, known, over = beside.of(trace, like, a, b)
            ok, clipped = known if ok is None else ok & known, clipped | over
            of = _products(trace, supply, raw, ok)
        sums = _sums(of, start - a, len(raw), ok, weight)
        yield start, sums | {"clipped": np.logical_or.reduceat(clipped, start - a)}


def _products(trace: Trace, supply: Supply, raw: Floats, ok: Bools) -> dict[str, Floats]:
    """Return the terms of the sums over amperes and volts, by name, for each reading."""
    amperes, volts = np.where(ok, raw, 0.0), np.where(ok, supply.volts, 0.0)
    lever = np.zeros(len(raw)) if supply.sag is None else supply.sag.lever
    watts = to_watts(amperes, trace.rail.conversion, volts)
    return {"watts": watts, "amperes": amperes, "volts": volts, "lever": lever}


def _sums(of: dict[str, Floats], start: Indices, n: int, ok: Bools | None, weight: Floats | None) -> dict[str, Floats]:
    """Return sums by name over pieces that begin at ``start``; ``weight`` are lengths of readings, if they differ."""
    if ok is None and weight is None:
        many = np.diff(np.append(start, n)).astype(np.float64)
        return {name: np.add.reduceat(x, start) for name, x in of.items()} | {"many": many, "weight": many}
    good = np.ones(n) if ok is None else ok.astype(np.float64)
    each = good if weight is None else weight * good
    weighted = {name: x * each for name, x in of.items()} | {"many": good, "weight": each}
    return {name: np.add.reduceat(x, start) for name, x in weighted.items()}
