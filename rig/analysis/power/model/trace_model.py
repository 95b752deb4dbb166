"""Model a trace as levels of idle, gaps and spans, a change of the level, and noise.

    y = I + G [gap] + S [span] + J c + u + e

``y`` are the means of blocks of readings. The idle level I and the level of spans above it, S, are free. The level of
gaps above idle, G, is normal with an unknown size. ``c`` is the shape of a change: a step at a border of blocks, a
decay, or leakage that follows the heat of the work. Its size J is normal too; most traces have no change. ``u`` is
flicker noise, a smooth wander, and a disturbance of idle. ``e`` is white noise and further scatter of blocks of one
state: idle, gap or span.
A configuration is one set of sizes and variances with at most one change. Predictions are means over configurations,
weighted by restricted likelihood (Patterson and Thompson, Biometrika 58, 1971, 545).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.power.model.blocks import GAP, IDLE, SPAN, Blocks
from rig.analysis.power.model.idle_level_changes import RARE, compound_changes, is_heat, means, simple_changes, work_of
from rig.analysis.result.distributions import normal_quantile
from rig.types import Bools, Floats, Indices

SLOW = 3
"""Number of kinds of correlated noise: flicker noise, a smooth wander, and a disturbance of some blocks of idle."""
SMOOTH = 0.2
"""Correlation time of a smooth wander, in lengths of the trace."""
LASTS = 3.0
"""A disturbance of idle is correlated over this many blocks."""
SIZES = 9
"""Number of sizes for the level of gaps that the fit tries."""
DRAWS = 48
"""Number of sets of variances that the fit tries in each round; in the first round, it tries twice this many."""
FLATTER, WIDER, UPPER = (0.3, 0.7, 1.0), 1.4, 7.0
"""Exponent of the likelihood in each round; factor on the covariance of points; width of the upper part of a log range.

Half of the first points are drawn from this upper part.
"""
COMPOUND = 8
"""At each of three sets of variances, this many likeliest changes from ``compound_changes`` are kept."""
KEPT = 32
"""Predictions average over at most this many configurations."""
WINDOWS = 100
"""Idle power is predicted for at most this many spans; of more spans, a regular selection is used."""
RANGE = (1e-3, 30.0)
"""Smallest variance relative to white noise, and largest relative to the residuals of levels."""
SHORTEST = 1e-5
"""Shorter intervals are lengthened to this part of the trace, because rounding would make their covariance wrong."""


def _between(twice: Callable[[Floats], Floats], a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> Floats:
    """Return the mean of a function of time difference, over all pairs of a moment in ``a`` and a moment in ``b``.

    ``a`` and ``b`` are begins and ends of intervals. ``twice`` is the second antiderivative of the function. The shape
    is (len(a), len(b)).
    """
    (s, e), (c, d) = (x[:, None] for x in a), b
    return np.asarray((twice(e - c) + twice(s - d) - twice(s - c) - twice(e - d)) / ((e - s) * (d - c)))


def _log(x: Floats) -> Floats:
    x = np.abs(x)
    return np.asarray(0.5 * x * x * (np.log(np.maximum(x, 1e-300)) - 1.5))


def _smooth(x: Floats) -> Floats:
    """Return the second antiderivative of the Matern covariance of order 3/2."""
    a, x = math.sqrt(3.0) / SMOOTH, np.abs(x)
    return np.asarray(2.0 * x / a + (3.0 / a**2 + x / a) * np.exp(-a * x))


def kernels(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> Floats:
    """Return the covariances of flicker noise of density 1 and of a smooth wander of variance 1.

    The shape is (2, len(a), len(b)). ``a`` and ``b`` are begins and ends of intervals, in lengths of the trace. The
    covariance of flicker noise includes a constant, which has no effect because the idle level is free.
    """
    return np.array([10.0 - _between(_log, a, b), _between(_smooth, a, b)])


class Configurations(Struct, frozen=True):
    """The w ways to explain a trace: their probabilities, (w,), their variances, (w, p), and their gaps and changes.

    ``columns`` are the indices of two columns of the design, for gaps and for a change, and ``sizes_w2`` their sizes, 0
    for none, (w, 2). ``inverse`` is the inverse covariance of blocks, (w, b, b). ``known`` is ``inverse`` times the
    columns of the free levels, (w, b, f), and ``gram`` is the covariance of these levels, (w, f, f). ``part`` are the
    two columns times their sizes, (w, b, 2).
    """

    share: Floats
    variances: Floats
    columns: Indices
    sizes_w2: Floats
    inverse: Floats
    known: Floats
    gram: Floats
    part: Floats


class TraceModel(Struct, frozen=True, dict=True):
    """The model of one trace, fitted; ``flicker_w2`` is the expected density of flicker noise.

    ``wander_w2`` is the expected variance of the smooth wander.
    """

    blocks: Blocks
    from_s: float
    lasts_s: float
    design: Design
    ways: Configurations
    flicker_w2: float
    wander_w2: float

    def idle_under(self, windows_s: Floats) -> tuple[Floats, float]:
        """Return weights of readings, shape (n,), for mean idle under windows, shape (k, 2), and its uncertainty.

        This standard uncertainty excludes noise. It comes from changes of levels, from disturbances and scatter of
        blocks, and from differences between the configurations.
        """
        w = windows_s[np.linspace(0, len(windows_s) - 1, min(len(windows_s), WINDOWS)).astype(int)]
        start = (w[:, 0] - self.from_s) / self.lasts_s
        end = np.maximum((w[:, 1] - self.from_s) / self.lasts_s, start + SHORTEST)
        each, u_w = self._predicted(
            *(x @ ((end - start) / np.sum(end - start))[:, None] for x in self._idle(start, end))
        )
        return self.blocks.weights(each[:, 0]), float(u_w[0])

    def idle_at(self, t_s: Floats) -> Floats:
        """Return idle power at ``t_s`` in watts, interpolated between predictions for 32 parts of the trace."""
        return np.asarray(np.interp(t_s, *self._course))

    @cached_property
    def _course(self) -> tuple[Floats, Floats]:
        cuts = np.linspace(0.0, 1.0, 33)
        each, _ = self._predicted(*self._idle(cuts[:-1], cuts[1:]))
        return self.from_s + self.lasts_s * 0.5 * (cuts[1:] + cuts[:-1]), self.design.y @ each

    @cached_property
    def gaps_w(self) -> tuple[float, float]:
        """Return the level of gaps above idle and its standard uncertainty besides noise, in watts; 0 without gaps."""
        d = self.design
        to_blocks, z, x = (np.zeros((*shape, 1)) for shape in ((2, len(d.y)), d.columns.shape[1:], d.free.shape[1:]))
        z[0] = np.any(self.blocks.state == GAP)
        each, u_w = self._predicted(to_blocks, z, x)
        return float(d.y @ each[:, 0]), float(u_w[0])

    def _idle(self, start: Floats, end: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what ``_predicted`` needs for idle power in m intervals, in lengths of the trace."""
        d = self.design
        within = np.maximum(start, 0.0), np.maximum(end, SHORTEST)  # a decay is not known before the trace
        changes, levels = means(d.shapes, *within, d.work).T, np.zeros((d.free.shape[1], len(start)))
        levels[0] = 1.0
        return kernels(d.times, (start, end)), np.vstack([np.zeros(len(start)), changes]), levels

    def _predicted(self, to_blocks: Floats, z: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Return weights of blocks for m predicted values, (b, m), and their uncertainties besides noise, (m,).

        The arguments are those of ``Design.weights``.
        """
        d, ways = self.design, self.ways
        v, each = ways.variances, d.weights(ways, to_blocks, z, x)
        at, left = d.y @ each, d.columns.T[ways.columns] @ each - z[ways.columns]
        lasting = v[:, SLOW - 1, None] * np.sum(each * (d.kernel[-1] @ each), axis=1)
        scatter = np.einsum("wc,wcm->wm", ways.sizes_w2, left**2)
        scatter += np.einsum("wb,wbm->wm", v[:, SLOW:] @ d.scatter, each**2)
        mean, square = ways.share @ at, ways.share @ (at * at + lasting + scatter)
        return np.tensordot(ways.share, each, 1), np.sqrt(np.maximum(square - mean * mean, 0.0))


class Design(Struct, frozen=True, dict=True):
    """The data and matrices of b blocks that all configurations share.

    ``y`` are the means of the blocks in watts. ``white`` is the covariance of white noise, (b, b), and ``kernel`` are
    the covariances of slow noise, (3, b, b). ``scatter`` marks the blocks of each state that may scatter, (s, b).
    ``free`` are the columns of the free levels, (b, f). ``columns`` are the columns for gaps and for each change,
    (b, 1 + c); ``idle_level_changes`` makes the ``shapes`` of changes. ``gap_sizes_w2`` are possible variances of the
    level of gaps, and ``change_w2`` is the variance of a change. ``prior`` is the log probability of each change, (c,).
    """

    y: Floats
    state: Indices
    times: tuple[Floats, Floats]
    white: Floats
    kernel: Floats
    scatter: Floats
    free: Floats
    columns: Floats
    shapes: Floats
    work: Floats
    prior: Floats
    gap_sizes_w2: Floats
    change_w2: float

    @cached_property
    def heats(self) -> Bools:
        """Return which changes are heat, shape (c,)."""
        return is_heat(self.shapes)

    def covariance(self, theta: Floats) -> Floats:
        """Return the covariance of blocks, shape (m, b, b), for m sets of log variances, shape (m, p)."""
        v = np.exp(theta)
        found = np.einsum("mk,kij->mij", v[:, :SLOW], self.kernel) + self.white
        diagonal = np.arange(len(self.y))
        found[:, diagonal, diagonal] += v[:, SLOW:] @ self.scatter
        return np.asarray(found)

    def configured(self, share: Floats, theta: Floats, columns: Indices, sizes_w2: Floats) -> Configurations:
        """Return configurations that are ready for predictions."""
        part = self.columns.T[columns] * sizes_w2[:, :, None]
        inverse = np.linalg.inv(self.covariance(theta) + part.swapaxes(1, 2) @ self.columns.T[columns])
        known = inverse @ self.free
        gram = np.linalg.inv(self.free.T @ known)
        return Configurations(share, np.exp(theta), columns, sizes_w2, inverse, known, gram, part.swapaxes(1, 2))

    def weights(self, ways: Configurations, to_blocks: Floats, z: Floats, x: Floats) -> Floats:
        """Return weights of blocks, (w, b, m), for the best unbiased prediction of m values in each configuration.

        ``to_blocks`` are the covariances between the values and the blocks from flicker noise and wander, (2, b, m).
        ``z`` is the part of gaps and of each change in the values, (1 + c, m), and ``x`` the part of each free level,
        (f, m).
        """
        slow = np.tensordot(ways.variances[:, :2], to_blocks, 1)
        each = ways.inverse @ (slow + ways.part @ z[ways.columns])
        return np.asarray(each + ways.known @ (ways.gram @ (x - self.free.T @ each)))


def fit(blocks: Blocks, white_w2: Floats) -> TraceModel:
    """Return the model of blocks; ``white_w2`` is their covariance from noise, (b, b). At least one block is idle."""
    d, from_s, lasts_s, box = _designed(blocks, white_w2)
    d, theta, log, parts = _explored(d, box)
    share = np.exp(log - log.max())
    joint = np.ascontiguousarray((share[:, None, None] * parts / share.sum()).T)
    # a rare change may matter most, so each change is drawn by the root of its probability, and weighted by this root
    rare = np.sqrt(np.maximum(joint.sum(axis=(1, 2)), 1e-300))
    upto = np.cumsum(joint / rare[:, None, None])
    drawn = np.searchsorted(upto, (np.arange(KEPT) + 0.5) * upto[-1] / KEPT)
    found, count = np.unique(np.minimum(drawn, joint.size - 1), return_counts=True)
    c, g, i = np.unravel_index(found, joint.shape)
    sizes, weight = np.column_stack([d.gap_sizes_w2[g], d.change_w2 * (c > 0)]), count * rare[c]
    ways = d.configured(weight / weight.sum(), theta[i], np.column_stack([0 * c, c]), sizes)
    flicker_w2, wander_w2 = (joint.sum(axis=(0, 1)) @ np.exp(theta[:, :2])).tolist()
    return TraceModel(blocks, from_s, lasts_s, d, ways, flicker_w2, wander_w2)


def _designed(blocks: Blocks, white_w2: Floats) -> tuple[Design, float, float, Box]:
    y, state = blocks.watts, blocks.state
    from_s = float(blocks.start_s.min())
    lasts_s = max(float(blocks.end_s.max()) - from_s, 1e-300)
    start = (blocks.start_s - from_s) / lasts_s
    times = start, np.maximum((blocks.end_s - from_s) / lasts_s, start + SHORTEST)
    states = [k for k in (IDLE, GAP, SPAN) if np.any(state == k)]
    is_gap, is_span = (state == GAP) * 1.0, (state == SPAN) * 1.0
    free = np.column_stack([np.ones(len(y)), is_span] if SPAN in states else [np.ones(len(y))])
    full = np.column_stack([free, is_gap]) if GAP in states else free
    left = y - full @ np.linalg.lstsq(full, y, rcond=None)[0]
    own = np.diag(white_w2)
    # a trace may have no noise but rounding, or be zero
    floor = max(float(np.median(own)), 1e-12 * float(np.max(np.abs(y))) ** 2, 1e-60)
    slow = max(float(np.mean(left[state != SPAN] ** 2)), floor)
    size2 = max(slow, *(float(np.mean(y[state == k]) - np.mean(y[state == IDLE])) ** 2 for k in states))
    white = white_w2 + RANGE[0] * floor * np.eye(len(y))
    work = work_of(state, *times, blocks.many, y)
    shapes, changes = simple_changes(state, *times, y, work)
    sizes = np.zeros(1)
    if GAP in states:
        own = np.diag(white)
        least = max(1.0 / np.sum(1.0 / own[state == GAP]) + 1.0 / np.sum(1.0 / own[state == IDLE]), 1e-10 * size2)
        sizes = np.geomspace(least, max(size2, 10.0 * least), SIZES)
    several = [k for k in states if np.count_nonzero(state == k) > 2]
    scatter = np.array([(state == k) * 1.0 for k in several]).reshape(-1, len(y))
    at_idle = max(float(np.mean(left[state == IDLE] ** 2)), floor)
    most = np.array([slow, slow, at_idle, *(max(float(np.mean(left[state == k] ** 2)), floor) for k in several)])
    columns = np.column_stack([is_gap, changes])
    prior = np.full(columns.shape[1] - 1, math.log(0.5 * RARE / max(columns.shape[1] - 1, 1)))
    kernel = np.append(kernels(times, times), _lasting(state, start)[None], axis=0)
    d = Design(y, state, times, white, kernel, scatter, free, columns, shapes, work, prior, sizes, size2)
    return d, from_s, lasts_s, Box(math.log(RANGE[0] * floor), np.log(RANGE[1] * most))


def _lasting(state: Indices, start: Floats) -> Floats:
    """Return the correlation between blocks of one idle window from a disturbance, such as a fan, shape (b, b)."""
    order = np.argsort(start)
    window = np.zeros(len(state))
    window[order] = np.cumsum(np.diff(state[order] == IDLE, prepend=False))
    place = np.argsort(order) + 0.0
    same = (window[:, None] == window) & (state == IDLE)[:, None] & (state == IDLE)
    return np.asarray(np.where(same, np.exp(-np.abs(place[:, None] - place) / LASTS), 0.0))


class Box(Struct, frozen=True):
    """Range of equally likely log variances: one lower limit for all, and an upper limit for each, shape (p,)."""

    low: float
    high: Floats

    @property
    def cut(self) -> Floats:
        """Return where the upper part of each range begins, shape (p,)."""
        return np.asarray(np.maximum(self.high - UPPER, 0.5 * (self.low + self.high)))

    def drawn(self) -> Floats:
        """Return points all over the box, shape (m, p)."""
        x, cut = 2.0 * _even(2 * DRAWS, len(self.high)), self.cut
        return np.where(x < 1.0, self.low + x * (cut - self.low), cut + (x - 1.0) * (self.high - cut))

    def near(self, centre: Floats, root: Floats, skip: int) -> Floats:
        """Return normal points around a centre, shape (m, p); points outside are mirrored into the box."""
        found = centre + _normal(DRAWS, len(centre), skip) @ root.T
        found = np.where(found < self.low, 2.0 * self.low - found, found)
        return np.clip(np.where(found > self.high, 2.0 * self.high - found, found), self.low, self.high)

    def importance(self, log: Floats, theta: Floats, peaks: list[tuple[Floats, Floats]]) -> Floats:
        """Return log evidence minus the log of the density from which points were drawn."""
        cut, rounds, dim = self.cut, 2.0 + len(peaks), theta.shape[1]
        each = np.where(theta < cut, 0.5 / (cut - self.low), 0.5 / (self.high - cut))
        density = 2.0 / rounds * np.prod(each, axis=1)
        for centre, root in peaks:
            off = np.linalg.solve(root, (theta - centre).T)
            at_centre = (2.0 * math.pi) ** (-0.5 * dim) / np.prod(np.diag(root))
            density += at_centre / rounds * np.exp(-0.5 * np.sum(off**2, axis=0))
        return np.asarray(log - np.log(density))


def _explored(d: Design, box: Box) -> tuple[Design, Floats, Floats, Floats]:
    """Return the design, m sets of log variances, their log importance, and the probabilities of sizes and changes.

    The probabilities have the shape (m, sizes, 1 + c) and sum to 1 in each set. The sets, called points, are drawn
    from the whole box first, and then near likely points. There are many compound changes. The design includes only
    those that raise the likelihood most, at the best of the first points or at one of two points with less noise.
    """
    theta, peaks = box.drawn(), list[tuple[Floats, Floats]]()
    best = theta[np.argmax(_evidence(d, theta[:DRAWS])[0])]
    calm = np.array([best, np.minimum(best, 0.5 * (best + box.low)), np.full(len(best), box.low)])
    d = _with_compound(d, calm)
    log, parts = _evidence(d, theta)
    for keep in FLATTER:
        weight = box.importance(log, theta, peaks) * keep
        share = np.exp(weight - weight.max())
        share /= share.sum()
        centre = share @ theta
        off = theta - centre
        peaks.append((centre, np.linalg.cholesky(WIDER * (share[:, None] * off).T @ off + 0.06 * np.eye(len(centre)))))
        drawn = box.near(*peaks[-1], 1000 * len(peaks))
        found = _evidence(d, drawn)
        theta, log, parts = (np.concatenate(x) for x in ((theta, drawn), (log, found[0]), (parts, found[1])))
    return d, theta, box.importance(log, theta, peaks), parts


def _with_compound(d: Design, thetas: Floats) -> Design:
    """Return the design with the compound changes that raise the likelihood most at some log variances."""
    (every, column), chosen = compound_changes(d.state, *d.times), set[int]()
    if not len(every):
        return d
    free = np.column_stack([d.free, d.columns[:, :1]]) if d.gap_sizes_w2[0] > 0.0 else d.free
    for inverse in np.linalg.inv(d.covariance(thetas)):
        left = inverse @ column
        known = inverse @ free
        left -= known @ np.linalg.solve(free.T @ known, free.T @ left)
        s2, s1 = np.sum(column * left, axis=0), d.y @ left
        gain = -0.5 * np.log1p(d.change_w2 * s2) + 0.5 * d.change_w2 * s1**2 / (1.0 + d.change_w2 * s2)
        chosen |= set(np.argsort(gain)[-COMPOUND:].tolist())
    take = sorted(chosen)
    shapes, columns = np.vstack([d.shapes, every[take]]), np.hstack([d.columns, column[:, take]])
    prior = np.append(d.prior, np.full(len(take), math.log(0.5 * RARE / len(every))))
    return replace(d, shapes=shapes, columns=columns, prior=prior)


@cache
def _even(n: int, dim: int, skip: int = 0) -> Floats:
    """Return points that fill a cube evenly, shape (n, dim), by the additive recurrence of Roberts (2018)."""
    g = float(np.max(np.roots([1.0, *np.zeros(dim - 1), -1.0, -1.0]).real))  # g ** (dim + 1) is 1 + g
    return np.asarray(np.mod(0.5 + np.outer(np.arange(1, n + 1) + skip, g ** -np.arange(1.0, dim + 1.0)), 1.0))


@cache
def _normal(n: int, dim: int, skip: int) -> Floats:
    """Return points that are distributed normally and evenly, shape (n, dim)."""
    return np.asarray(np.vectorize(normal_quantile)(_even(n, dim, skip)))


def _evidence(d: Design, theta: Floats) -> tuple[Floats, Floats]:
    """Return log restricted likelihoods, (m,), and probabilities of sizes and changes in each, (m, sizes, 1 + c)."""
    found = [_of_some(d, part) for part in np.array_split(theta, max(1, len(theta) // 32))]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _of_some(d: Design, theta: Floats) -> tuple[Floats, Floats]:
    v = d.covariance(theta)
    inverse = np.linalg.inv(v)
    free = inverse @ d.free
    gram = d.free.T @ free
    inverse -= free @ np.linalg.solve(gram, free.swapaxes(1, 2))
    seen = np.column_stack([d.y, d.columns])
    left = (inverse.reshape(-1, len(d.y)) @ seen).reshape(len(theta), *seen.shape)  # one product takes less time than m
    own, cross = np.einsum("bc,mbc->mc", seen, left), seen[:, :2].T @ left
    base = -0.5 * (np.linalg.slogdet(v)[1] + np.linalg.slogdet(gram)[1] + cross[:, 0, 0])
    zz, zy = own[:, 1, None], cross[:, 0, 1, None]
    ss, sy, sz = own[:, 2:], cross[:, 0, 2:], cross[:, 1, 2:]
    size = d.gap_sizes_w2
    f = size / (1.0 + size * zz)
    none = base[:, None] - 0.5 * np.log1p(size * zz) + 0.5 * f * zy**2
    more = 1.0 + d.change_w2 * np.maximum(ss[:, None] - f[:, :, None] * sz[:, None] ** 2, 0.0)
    s1 = sy[:, None] - f[:, :, None] * (sz * zy)[:, None]
    gain = 0.5 * (d.change_w2 * s1**2 / more - np.log(more))  # faster than ``log1p``
    gain = np.where(d.heats & (s1 < 0.0), -np.inf, gain)  # a warmer device draws more, not less
    changed = none[:, :, None] + gain + d.prior
    every = np.concatenate([none[:, :, None] + math.log(1.0 - RARE), changed], axis=2)
    top = every.max(axis=(1, 2), keepdims=True)
    part = np.exp(every - top)
    total = part.sum(axis=(1, 2))
    return top[:, 0, 0] + np.log(total), part / total[:, None, None]
