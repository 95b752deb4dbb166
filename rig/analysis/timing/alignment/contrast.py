"""Compare a trace with spans at any shift in time, by sums of readings over each span and beside it.

Each span has a cell, which reaches into the gaps on both sides. The readings of a cell are fitted by two levels of its
own, one in the span and one beside it. A shift is judged only by the share of variance that these levels leave
unexplained. So the weight of a span does not depend on its power, and nothing is assumed about idle.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.timing.activity_signal import SETTLE_TAU, count_before, edges_of, mean_signal, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices

MOST_SPANS = 512
"""At most this many spans are compared; of more spans, an even selection."""
WHOLE = 0.8
"""Readings must cover this part of a span, and of the rest of its cell, to tell whether the span is there."""
MOST_READINGS = 64.0
"""In a likelihood, a cell counts as at most this many readings: other changes of power may last as long as spans."""
GUARD = 1.5
"""This many readings on each side of an edge are left out of the levels."""
BLURRED = 4.0
"""The time of an edge is uncertain by this many times its ``blur_s``, which measures how unlike a step it is."""
PLACES = 65
"""Number of places at which spans are sought, within a pitch (the time from one span to the next)."""
AT_ONCE = 262_144
"""At most this many places, or places times cells, are examined together."""


class Cells(Struct, frozen=True):
    """Spans with begin and end, and where their cells begin and end, in seconds; shapes (k,)."""

    on_s: Floats
    off_s: Floats
    begin_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.on_s)

    @property
    def width_s(self) -> float:
        """Return the lower quartile of the lengths of spans, in seconds."""
        return float(np.quantile(self.off_s - self.on_s, 0.25))

    def some(self, which: Indices | slice) -> Cells:
        """Return part of the spans."""
        return Cells(self.on_s[which], self.off_s[which], self.begin_s[which], self.end_s[which])

    def evenly(self, most: int) -> Indices:
        """Return the indices of at most ``most`` spans, evenly from the first to the last."""
        return np.unique(np.linspace(0, len(self) - 1, min(len(self), most)).round().astype(np.int64))


class Shown(Struct, frozen=True):
    """A trace and spans in it.

    ``at_s`` has the begin and the end of each of n readings in turn, shape (2 n,). ``sums`` are running sums before
    each reading and after the last, shape (3, n + 1): the number of readings, their watts (minus the mean) and the
    squares of these watts. Between two apertures half of the time belongs to each, unless readings are missing there.
    """

    at_s: Floats
    sums: Floats
    cells: Cells
    readings: Readings
    windows_s: Floats
    """All spans, of which ``cells`` may hold some."""

    @property
    def period_s(self) -> float:
        """Return the time from one reading to the next."""
        return self.readings.period_s

    @property
    def tau_s(self) -> float:
        """Return the time constant of the filter."""
        return self.readings.tau_s

    @property
    def places_s(self) -> Floats:
        """Return ``PLACES`` latenesses within half a pitch of spans, shape (m,)."""
        return np.linspace(-0.5, 0.5, PLACES) * float(np.median(np.diff(self.cells.on_s)))

    def moved(self, begin_late_s: Floats, end_late_s: Floats) -> Floats:
        """Return all spans, disjoint, with begins and ends moved by lateness given for the cells, shapes (k,)."""
        (on, off), c = self.windows_s.T, self.cells
        moved = [on + np.interp(on, c.on_s, begin_late_s), off + np.interp(off, c.off_s, end_late_s)]
        return merged(np.column_stack(moved))

    def some(self, which: Indices | slice) -> Shown:
        """Return the trace with part of the spans."""
        return replace(self, cells=self.cells.some(which))

    def between(self, on_s: Floats, off_s: Floats) -> Floats:
        """Return the sums between moments: three rows, each in the shape of the moments."""
        return self._upto(off_s) - self._upto(on_s)

    def watts(self, on_s: Floats, off_s: Floats) -> Floats:
        """Return mean watts between moments minus the mean of all readings, in the same shape; NaN without readings."""
        many, watts, _ = self.between(on_s, off_s)
        return np.asarray(np.where(many > 0.0, watts, np.nan) / np.where(many > 0.0, many, 1.0))

    def before(self, t_s: Floats) -> Floats:
        """Return the last border of a reading at or before each moment, in the same shape."""
        return np.asarray(self.at_s[np.maximum(np.searchsorted(self.at_s, t_s, side="right") - 1, 0)])

    def after(self, t_s: Floats) -> Floats:
        """Return the first border of a reading at or after each moment, in the same shape."""
        return np.asarray(self.at_s[np.minimum(np.searchsorted(self.at_s, t_s), len(self.at_s) - 1)])

    def part_of(self, on_s: Floats, off_s: Floats, share: Floats) -> Floats:
        """Return the times at which the first ``share`` of the readings between moments ends, all in the same shape."""
        (before, *_), (many, *_) = self._upto(on_s), self.between(on_s, off_s)
        upto, count = before + share * many, self.sums[0]
        k = np.clip(np.searchsorted(count, upto, side="right") - 1, 0, len(count) - 2)
        part = np.clip((upto - count[k]) / np.maximum(count[k + 1] - count[k], 1e-300), 0.0, 1.0)
        return np.asarray(self.at_s[2 * k] + part * (self.at_s[2 * k + 1] - self.at_s[2 * k]))

    def sums_of(self, late_s: Floats) -> tuple[Floats, Floats]:
        """Return the sums over spans and over their cells, each of shape (3, k, m), if spans are ``late_s`` late.

        ``late_s`` has shape (m,), or (k, m) for a lateness of each span.
        """
        c, late_s = self.cells, late_s + self.tau_s
        on, off, begin, end = (x[:, None] + late_s for x in (c.on_s, c.off_s, c.begin_s, c.end_s))
        return self.between(on, off), self.between(begin, end)

    def left(self, late_s: Floats) -> Floats:
        """Return the share of the variance that levels leave in each cell, shape (k, m); ``late_s`` as in ``sums_of``.

        The share is about 1 for a span that shows no rise, and above 1 for one that draws less than what is beside it.
        """
        late_s = np.broadcast_to(late_s, (len(self.cells), late_s.shape[-1]))
        step = max(AT_ONCE // len(self.cells), 1)
        parts = [self._left(late_s[:, a : a + step]) for a in range(0, late_s.shape[1], step)]
        return np.concatenate(parts, axis=1)

    def covered(self, late_s: Floats) -> Bools:
        """Return whether readings cover spans and what is beside them, shape (k, m); ``late_s`` as in ``sums_of``."""
        c, (inside, cell) = self.cells, self.sums_of(late_s)
        spans, cells = ((x / self.period_s)[:, None] for x in (c.off_s - c.on_s, c.end_s - c.begin_s))
        beside = cell[0] - inside[0]
        return np.asarray((inside[0] > WHOLE * spans) & (beside > WHOLE * (cells - spans)) & (beside >= 1.0))

    def doubt(self, late_s: Floats) -> Floats:
        """Return twice the negative log-likelihood of all spans at each place, with levels and noise, shape (m,).

        ``late_s`` is as in ``sums_of``.
        """
        c = self.cells
        inside, many = ((x / self.period_s) for x in (c.off_s - c.on_s, c.end_s - c.begin_s))
        # no power is constant: levels leave at least a thousandth of the variance. A reading that an edge splits leaves
        # a sixth of the squared rise on average
        least = np.maximum(1e-3, many / (3.0 * inside * np.maximum(many - inside, 1e-9)))
        left = np.clip(self.left(late_s), np.minimum(least, 1.0)[:, None], None)
        return np.asarray((np.minimum(many, MOST_READINGS)[:, None] * np.log(left)).sum(axis=0))

    def _left(self, late_s: Floats) -> Floats:
        c, (inside, cell) = self.cells, self.sums_of(late_s)
        beside = cell - inside
        n, m = np.maximum(inside[0], 1e-9), np.maximum(beside[0], 1e-9)
        rise = inside[1] / n - beside[1] / m
        total = cell[2] - cell[1] ** 2 / (n + m)
        found = n * m / (n + m) * rise * np.abs(rise) / np.maximum(total, 1e-300)
        least = 0.5 * np.minimum((c.off_s - c.on_s) / self.period_s, 2.0)
        seen = (n > least[:, None]) & (m > 0.5)
        return np.where(seen & (total > 1e-12 * cell[2]), 1.0 - found, 1.0)

    def _upto(self, t_s: Floats) -> Floats:
        at = self.at_s
        if not len(at):
            return np.zeros((3, *t_s.shape))
        i = np.clip(np.searchsorted(at, t_s, side="right") - 1, 0, len(at) - 2)
        part = np.clip((t_s - at[i]) / np.maximum(at[i + 1] - at[i], 1e-300), 0.0, 1.0)
        first = self.sums[:, (i + 1) // 2]
        return np.asarray(first + part * (self.sums[:, i // 2 + 1] - first))


def shown(r: Readings, windows_s: Floats) -> Shown | None:
    """Return the sums of a trace over the disjoint sorted spans, shape (k, 2), or None without spans or readings."""
    cells = _cells(windows_s, r.period_s)
    if not len(cells) or r.period_s <= 0.0 or np.count_nonzero(r.ok) < 2:
        return None
    return _summed(r, windows_s, cells.some(cells.evenly(MOST_SPANS)))


def _summed(r: Readings, windows_s: Floats, cells: Cells) -> Shown:
    at_s, extent_s = _extents(r)
    many = np.where(r.ok, extent_s / r.period_s, 0.0)
    watts = np.where(r.ok, r.watts, 0.0)
    mean_w = float(watts @ many) / max(float(many.sum()), 1e-300)
    watts -= mean_w
    sums, each = np.zeros((3, len(many) + 1)), many
    for row in sums:
        np.cumsum(each, out=row[1:])
        each = each * watts
    return Shown(at_s, sums, cells, r, windows_s)


def readings_near(shown: Shown, late_s: Floats, margin_s: float = 0.0) -> tuple[Indices, Indices]:
    """Return the valid readings with their middle in a cell, and their cells; spans are ``late_s`` late, shape (k,)."""
    r, c = shown.readings, shown.cells
    late_s = late_s + shown.tau_s
    begin, end = np.maximum.accumulate(c.begin_s + late_s) - margin_s, c.end_s + late_s + margin_s
    middle = 0.5 * (r.start_s + r.end_s)
    cell = np.clip(count_before(begin, middle) - 1, 0, None)
    use = np.flatnonzero(r.ok & (middle >= begin[cell]) & (middle <= end[cell]))
    return use, cell[use]


def modelled(shown: Shown, begin_late_s: Floats, end_late_s: Floats, levels: float = np.inf) -> Shown:
    """Return the sums for modelled readings of spans of constant power whose begins and ends are this late, shapes
    (k,).

    They suffice for ``edges_of_spans`` with ``levels``.
    """
    late_s, longer_s = 0.5 * (begin_late_s + end_late_s), float(np.max(np.abs(end_late_s - begin_late_s)))
    r, (near, _) = shown.readings, readings_near(shown, late_s, 2.0 * shown.cells.width_s + longer_s)
    if np.isfinite(levels):
        reach_s = 2.0 * levels * (GUARD * shown.period_s + SETTLE_TAU * shown.tau_s) + longer_s
        edges_s = np.sort(np.append(shown.cells.on_s + begin_late_s, shown.cells.off_s + end_late_s) + shown.tau_s)
        reached = merged(np.column_stack([edges_s - reach_s, edges_s + reach_s]))
        near = near[touches(reached, r.start_s[near], r.end_s[near])]
    start_s, end_s = r.start_s[near], r.end_s[near]
    watts = mean_signal(edges_of(shown.moved(begin_late_s, end_late_s)), start_s, end_s, shown.tau_s)
    r = replace(r, start_s=start_s, end_s=end_s, watts=watts, ok=np.ones(len(watts), bool))
    return _summed(replace(r, pool=None), shown.windows_s, shown.cells)


def _extents(r: Readings) -> tuple[Floats, Floats]:
    """Return alternating begins and ends of the intervals that readings represent, and the length of each."""
    gap = r.start_s[1:] - r.end_s[:-1]
    half = 0.5 * np.where(gap < GUARD * r.period_s, gap, 0.0)
    ends = 0.5 * max(r.period_s - r.aperture_s, 0.0)
    at_s = np.empty(2 * len(r.start_s))
    begin, end = at_s[0::2], at_s[1::2]
    begin[:], end[:] = r.start_s, r.end_s
    begin[:1] -= ends
    begin[1:] -= half
    end[:-1] += half
    end[-1:] += ends
    np.maximum(end, begin, out=end)
    extent_s = end - begin
    return at_s if (at_s[1:] >= at_s[:-1]).all() else np.maximum.accumulate(at_s), extent_s


def _cells(windows_s: Floats, period_s: float) -> Cells:
    """Return the spans with cells that reach to the middle of gaps, or less far in long gaps.

    The first and the last cell reach into time without spans, so a train that is a period off fits at neither end.
    """
    spans = windows_s[windows_s[:, 1] > windows_s[:, 0]] if len(windows_s) else windows_s.reshape(-1, 2)
    if not len(spans):
        return Cells(*np.zeros((4, 0)))
    on, off = spans.T
    width = np.maximum(off - on, 4.0 * period_s)
    gap = on[1:] - off[:-1]
    beyond = float(np.median(np.diff(on))) if len(spans) > 1 else float(width[0])
    before, after = np.append(beyond, 0.5 * gap), np.append(0.5 * gap, beyond)
    limit = np.maximum(width, beyond * np.isin(np.arange(len(on)), [0, len(on) - 1]))
    return Cells(on, off, on - np.minimum(before, limit), off + np.minimum(after, limit))


# ---- edges ----------------------------------------------------------------------------------


class Edges(Struct, frozen=True):
    """How late begins and ends of spans are in the trace, compared with their stamps, shapes (k,); NaN if not seen."""

    begin_s: Floats
    end_s: Floats
    share: float = 1.0
    """Of the spans that readings cover and that have room for levels, the share that shows both edges."""
    amiss_s: float = 0.0
    """Mean error of the edges of modelled spans of constant power; it was subtracted from the edges."""
    blur_s: float = 0.0
    """How far edges are from steps: a step that is moved by this time has the same misfit."""

    @property
    def longer_s(self) -> float:
        """Return by how much spans are longer than stamped; 0 if no span shows both of its ends."""
        both = self.end_s - self.begin_s
        return float(np.median(both[np.isfinite(both)])) if np.any(np.isfinite(both)) else 0.0

    @property
    def shape_s(self) -> float:
        """Return the uncertainty that all edges share because power within spans may vary."""
        return math.hypot(0.1 * self.amiss_s, BLURRED * self.blur_s)

    @property
    def doubt_s(self) -> float:
        """Return the uncertainty that all edges share, because spans may have another shape than stamped."""
        return math.hypot(0.5 * self.longer_s, self.shape_s)

    def in_turn(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return the stamps of the edges that are seen, and how late these are, corrected for ``longer_s``."""
        half = 0.5 * self.longer_s
        at = np.column_stack([cells.on_s, cells.off_s]).ravel()
        late = np.column_stack([self.begin_s + half, self.end_s - half]).ravel()
        return at[np.isfinite(late)], late[np.isfinite(late)]


def edges_of_spans(shown: Shown, late_s: Floats, levels: float = np.inf) -> Edges:
    """Return the edges of spans near lateness ``late_s``, shape (k,), from areas and levels beside them.

    A guard is ``GUARD`` readings and the time in which a filter settles. Levels are means over readings from one guard
    to ``levels`` guards from an edge. This is exact for spans of constant power and readings that are means. Spans and
    gaps that are shorter than a few readings have no levels, and no edges.
    """
    c, guard_s = shown.cells, GUARD * shown.period_s + SETTLE_TAU * shown.tau_s
    inward, found, blur = 0.5 * (c.off_s - c.on_s), list[Floats](), list[Floats]()
    # in short spans the levels are not settled, so readings near the edge are used too
    room = np.minimum.reduce([inward, c.on_s - c.begin_s, c.end_s - c.off_s])
    guard_s = max(min(guard_s, 0.5 * float(np.median(room))), GUARD * shown.period_s)
    for stamp, beside, sign in ((c.on_s, c.on_s - c.begin_s, 1.0), (c.off_s, c.end_s - c.off_s, -1.0)):
        at = stamp + late_s + shown.tau_s
        left_s, right_s = (beside, inward) if sign > 0 else (inward, beside)
        wide = np.minimum(left_s, right_s) > guard_s
        left_s, right_s = np.minimum(left_s, levels * guard_s), np.minimum(right_s, levels * guard_s)
        # noise moves an edge by about the root of the number of readings, so each round examines fewer
        for power in (1.0, 1.0, 0.5, 0.25, 0.0):
            near_s = np.maximum(((left_s + right_s) / shown.period_s) ** power * shown.period_s, 2.0 * guard_s)
            left, right = shown.watts(at - left_s, at - guard_s), shown.watts(at + guard_s, at + right_s)
            # a limit inside a reading would split it as if its power were constant
            first = np.maximum(at - left_s, shown.before(at - near_s))
            last = np.minimum(at + right_s, shown.after(at + near_s))
            rise = np.where(right == left, np.nan, right - left)
            edge = shown.part_of(first, last, (right - shown.watts(first, last)) / rise)
            ok = (sign * rise > 0.0) & wide & (edge > first) & (edge < last)
            at = np.where(ok, edge, at)
        found.append(np.where(ok, at - stamp - shown.tau_s, np.nan))
        blur.append(np.where(ok, _blur_s(shown, at, (first, last), guard_s), np.nan))
    due = wide & shown.covered(late_s[:, None])[:, 0]
    share = float(np.mean(np.isfinite(found[0] + found[1])[due])) if np.any(due) else 0.0
    blur_s = float(np.nanmedian(blur)) if np.any(np.isfinite(blur)) else 0.0
    return Edges(found[0], found[1], share, blur_s=blur_s)


def _blur_s(shown: Shown, at_s: Floats, within_s: tuple[Floats, Floats], guard_s: float) -> Floats:
    """Return how far edges are from steps between the levels beside them: a step moved by this time misfits as much.

    The scatter of the levels themselves is subtracted.
    """
    left, right = shown.between(within_s[0], at_s - guard_s), shown.between(at_s + guard_s, within_s[1])
    total, levels = np.zeros(len(at_s)), []
    for (many, watts, squares), (first, last) in ((left, (-guard_s, 0.0)), (right, (0.0, guard_s))):
        level = watts / np.maximum(many, 1e-9)
        n, near, of_near = shown.between(at_s + first, at_s + last)
        total += of_near - 2.0 * level * near + level**2 * n - n * (squares / np.maximum(many, 1e-9) - level**2)
        levels.append(level)
    rise2 = np.maximum((levels[1] - levels[0]) ** 2, 1e-300)
    return np.asarray(shown.period_s * total / rise2)
