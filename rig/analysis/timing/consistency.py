"""Whether the readings of a rail fit the recorded time and the recorded spans.

A meter may lose readings without notice, deliver readings twice, or run at another rate than declared. Later readings
then have wrong times. Two things show this: readings after the end of the recording, and spans that are no longer where
the power in the trace rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.activity_signal import Edges, edges_of, inside, levelled, mean_signal, merged, touches
from rig.analysis.timing.readings import Readings
from rig.analysis.verdict import Check
from rig.types import Floats

GROUPS = 12
"""Stretches of spans that are looked at one by one."""
LEAST_SPANS = 4
"""In a stretch."""
LAGS_PER_SPAN = 8
CERTAINTY = 25.0
"""Twice the log-likelihood by which another place must fit better than the recorded one (five standard deviations)."""
SHOWN = 0.25
"""Share of the variance that spans must explain at another place; bursts inside long spans explain less."""
ELSEWHERE = 0.25
"""Part of what spans explain at the best place, below which they do not stand where they were recorded."""
APART = 2.0
"""Reading intervals by which stretches may be displaced against each other; a shape of its own displaces all alike."""
WORSE = 1.5
"""Times as much variance that the displacement of the others leaves unexplained, in a stretch that is displaced."""
RISES, SEEN = 0.1, 0.5
"""Part of the usual rise by which that of a stretch may differ, and of the range of the readings that it must reach."""
AFTER_END_S, AFTER_END_SHARE = 0.5, 0.01
"""Time after the last stamp of the host, absolute and of the run, that the last readings of a meter may cover."""


REMEDY = (
    "Check that the driver delivers every reading once and at the declared rate (rate_hz, tick_hz), and measure again"
)
"""What to do where a check fails."""


def after_end(readings: Readings, end_s: float) -> Iterator[Check]:
    """Yield a failed check if readings were taken after the recording had ended, on the run's time."""
    last_s = float(readings.end_s[-1])
    allowed_s = allowed_after_end_s(readings, end_s)
    if last_s - end_s > allowed_s:
        yield Check(
            f"readings of rail {readings.rail.name} after the end of the recording",
            f"{last_s - end_s:.3g} s",
            f"at most {allowed_s:.3g} s",
            False,
        )


def allowed_after_end_s(readings: Readings, end_s: float) -> float:
    """Return for how long a meter may go on after the end of the recording."""
    return AFTER_END_S + AFTER_END_SHARE * (end_s - float(readings.start_s[0]))


def displaced(readings: Readings, phases_s: Sequence[Floats]) -> Iterator[Check]:
    """Yield a failed check if stretches of spans fit the trace at another time than the recorded one.

    ``phases_s`` are the spans of each phase on the device's time, shapes (k, 2); each phase has a level of its own.
    Displacements are compared with their median, because if power changes within a span, all spans are displaced by
    the same time.
    """
    windows_s = np.concatenate([*phases_s, np.zeros((0, 2))])
    spans = merged(windows_s)
    count = min(GROUPS, len(spans) // LEAST_SPANS)
    if count < 3:
        return
    signal = _expected(readings, phases_s)
    groups = np.array_split(spans, count)
    fits = [f for group in groups if (f := _fit(readings, signal, group)) is not None]
    if len(fits) < 3:
        return
    usual_s = float(np.median([f.lag_s for f in fits]))
    bad = 0
    for f in fits:
        usual = float(np.interp(usual_s, f.lags_s, f.explained_at))
        apart = abs(f.lag_s - usual_s) > APART * readings.period_s and 1.0 - usual > WORSE * (1.0 - f.best)
        moved = f.better and apart
        elsewhere = f.better and f.explained < ELSEWHERE * f.best
        bad += moved or elsewhere
    if bad:
        yield Check(
            f"stretches of spans that rail {readings.rail.name} shows at another time",
            f"{bad} of {len(fits)}",
            "0",
            False,
        )


def doubtful(r: Readings, windows_s: Floats) -> bool:
    """Return whether means over spans and gaps leave a doubt that the spans stand where they were recorded.

    Spans that stand elsewhere, also a part of them, rise less above the gaps beside them. Other spans, whose power
    differs, do too, so this is only a reason to look closer.
    """
    spans = merged(windows_s)
    count = min(GROUPS, len(spans) // LEAST_SPANS)
    if r.counter or count < 3:
        return False
    within = inside(spans, r.start_s, r.end_s)
    gap = np.searchsorted(spans[:, 0], r.start_s)
    free = r.ok & ~touches(spans, r.start_s, r.end_s) & (gap > 0) & (gap < len(spans))
    held = r.ok & (within >= 0)
    many = [
        np.bincount(k, weights=r.many[use], minlength=len(spans))
        for k, use in ((within[held], held), (gap[free], free))
    ]
    of, at = (np.bincount(k, weights=(r.many * r.watts)[use], minlength=len(spans)) / np.maximum(n, 1.0)
              for k, use, n in ((within[held], held, many[0]), (gap[free], free, many[1])))  # fmt: skip
    seen = np.flatnonzero((many[0][1:-1] > 0) & (many[1][1:-1] > 0) & (many[1][2:] > 0)) + 1
    if len(seen) < count:
        return False
    rise = of[seen] - 0.5 * (at[seen] + at[seen + 1])
    each = np.array([np.median(part) for part in np.array_split(rise, count)])
    usual = float(np.median(each))
    low, high = np.quantile(r.watts[r.ok & (r.many >= np.median(r.many))], [0.05, 0.95])
    return bool(np.any(np.abs(each - usual) > RISES * abs(usual)) or abs(usual) < SEEN * (high - low))


@dataclass(frozen=True)
class _Fit:
    """A stretch: the lag at which its spans fit best, and the share of variance that they explain where they are."""

    lag_s: float
    explained: float
    best: float
    """The same at the best lag."""
    better: bool
    """The best lag shows the spans, and fits better than the recorded place by more than noise could."""
    lags_s: Floats
    explained_at: Floats
    """The share at each of the lags."""


def _expected(r: Readings, phases_s: Sequence[Floats]) -> Edges:
    """Return all phases as one signal, each at the level of its readings above that between spans."""
    trains = [edges_of(windows_s) for windows_s in phases_s]
    fill = np.sum([mean_signal(t, r.start_s, r.end_s, r.tau_s) for t in trains], axis=0)
    busy = np.flatnonzero(fill > 0.0)
    among = np.zeros(len(fill), bool)
    among[busy[0] if len(busy) else 0 : busy[-1] if len(busy) else 0] = True
    between = r.ok & among & (fill == 0.0)
    gap_w = float(np.mean(r.watts[between])) if np.any(between) else float(np.min(r.watts[r.ok], initial=0.0))
    used = r.ok & among
    return levelled(trains, r.start_s[used], r.end_s[used], r.watts[used] - gap_w, r.tau_s)


def _fit(r: Readings, signal: Edges, spans: Floats) -> _Fit | None:
    width_s = float(np.median(spans[:, 1] - spans[:, 0]))
    cycle_s = float(np.median(np.diff(spans[:, 0])))
    first, last = np.searchsorted(r.start_s, [spans[0, 0], spans[-1, 1]])  # what is drawn outside is another matter
    ok = r.ok[first:last]
    start_s, end_s, watts = r.start_s[first:last][ok], r.end_s[first:last][ok], r.watts[first:last][ok]
    if len(watts) < 4 * LEAST_SPANS or cycle_s < 4.0 * r.period_s or not np.ptp(watts) > 0.0:
        return None
    step_s = max(r.period_s, width_s / LAGS_PER_SPAN)
    steps = math.ceil(0.5 * cycle_s / step_s)
    lags_s = step_s * np.arange(-steps, steps + 1)
    near = (signal.at_s > spans[0, 0] - cycle_s) & (signal.at_s < spans[-1, 1] + cycle_s)
    edges = Edges(signal.at_s[near], signal.jump[near])
    start_s, end_s = ((t + lags_s[:, None]).ravel() for t in (start_s, end_s))
    explained = _explained(mean_signal(edges, start_s, end_s, r.tau_s).reshape(len(lags_s), -1), watts)
    best, here = int(np.argmax(explained)), float(explained[steps])
    gain = len(watts) * math.log(max(1.0 - here, 1e-12) / max(1.0 - float(explained[best]), 1e-12))
    most = float(explained[best])
    return _Fit(
        lag_s=float(lags_s[best]),
        explained=here,
        best=most,
        better=gain > CERTAINTY and most > SHOWN,
        lags_s=lags_s,
        explained_at=explained,
    )


def _explained(signals: Floats, watts: Floats) -> Floats:
    """Share of the variance of readings, shape (n,), that each signal explains, 0 to 1; shapes (m, n) and (m,).

    It is 0 for a signal that moves in the opposite direction.
    """
    above, watts = signals - signals.mean(axis=1, keepdims=True), watts - watts.mean()
    spread = np.sqrt(np.sum(above**2, axis=1) * float(watts @ watts))
    return np.asarray(np.maximum(above @ watts / np.where(spread > 0.0, spread, np.inf), 0.0) ** 2)
