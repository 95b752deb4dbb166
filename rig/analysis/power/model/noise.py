"""Find the noise of a meter in idle windows, and propagate it through any weighted sum of readings.

Allan variances of idle readings separate three kinds of noise (IEEE Std 952, Annex C). White noise averages out over
readings. Errors of counter values cancel between successive readings. Slow noise does neither. The scatter from span to
span does not show slow noise, or hum in step with the spans, because both are nearly the same in every span.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from rig.analysis.timing.activity_signal import fast_length
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import RECTANGLE, SURE
from rig.types import Bools, Floats, Indices

Lines = tuple[tuple[float, float, float], ...]
"""For each line of the spectrum: frequency in Hz, amplitude in W, and uncertainty of the frequency in Hz."""
Looks = tuple[Floats, Floats]
"""For a counter: length of each reading, (n,), and how busy the device is at each counter value, 0 to 1, (n + 1,)."""
MAX_LINES = 8
SHORTEST = 8
"""The spectrum of a stretch of at least this many readings is used."""
STANDS_OUT = 8.0
"""A peak of the spectrum is a line, as of mains hum, if its power over the mean noise reaches this plus ln(bins)."""
SHOWN = 2.0
"""Where a wrong answer costs little, a difference of at least this many standard errors counts as real."""
ALIKE = (0.0, 0.5, 0.9)
"""Correlations between errors of neighbouring counter values; the fit tries each of them."""
SEGMENT = 1 << 13
"""Slow noise is computed from about this many weights at most; weights of neighbouring readings are added first."""
HORIZON_S = 1000.0
"""Calibration limits include changes slower than this."""
BLOCK = 1 << 16
"""Number of readings in one block; intermediate arrays of all readings would take more memory than the trace."""


class Noise(Struct, frozen=True):
    """The noise of a rail.

    ``white_w`` is the standard deviation per reading at idle, and ``busy_w`` the same while busy. ``period_s`` is the
    interval between readings. ``dof`` are the degrees of freedom of the white level. ``flicker_w2`` is h in the
    spectral density h / f. ``wander_w2`` is the variance of a smooth wander, and ``wander_s`` its correlation time.
    ``look_j`` is the standard error of one value of an energy counter at idle; at work it is ``rise`` times larger.
    ``step_j`` is the standard error from the counter's step.
    """

    white_w: float
    busy_w: float
    flicker_w2: float
    lines: Lines
    period_s: float
    dof: float
    wander_w2: float = 0.0
    wander_s: float = 1.0
    look_j: float = 0.0
    rise: float = 1.0
    step_j: float = 0.0

    def look_j2(self, busy: Floats | float) -> Floats:
        """Return the variance of counter values in J**2; ``busy`` is how busy the device is, 0 to 1."""
        return np.asarray((self.look_j * (1.0 + (self.rise - 1.0) * busy)) ** 2 + self.step_j**2)

    def reading_w(self) -> float:
        """Return the standard deviation of one reading while the device is busy, in watts."""
        return math.sqrt(self.busy_w**2 + 2.0 * float(self.look_j2(1.0)) / self.period_s**2)


def spread(differences: Floats) -> float:
    """Return a robust standard deviation of readings, from the differences of neighbours."""
    if not len(differences):
        return 0.0
    return float(np.median(np.abs(differences - np.median(differences)))) * 1.4826 / math.sqrt(2.0)


def noise_of(r: Readings, where: Indices, held: Indices) -> Noise:
    """Return the noise of single readings.

    ``where`` is the number of the idle window around each reading, and ``held`` the number of the span around it,
    shapes (n,); -1 means none. The readings of a counter differ in length, so their errors are compared in joules.
    """
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1] & r.adjacent()
    share = (r.end_s - r.start_s) / r.period_s if r.counter else np.ones(len(r.watts))
    level_w = float(np.mean(r.watts[where >= 0]))
    windows = [np.flatnonzero(where == k) for k in np.unique(where[where >= 0])]
    stretches = []
    for at in windows:
        slot = np.round((r.start_s[at] - r.start_s[at][0]) / r.period_s).astype(np.int64)
        slot = np.arange(len(at)) if r.counter else slot
        grid, left = np.full(slot[-1] + 1, np.nan), (r.watts[at] - level_w) * share[at]
        grid[slot] = left - left.mean()
        stretches.append(grid)
    # two readings of a counter differ in length; energy that only comes from this difference is subtracted
    drop = np.diff(r.watts * share) - 0.5 * (r.watts[1:] + r.watts[:-1]) * np.diff(share)
    loud = np.append(pair, False) | np.append(False, pair)
    busy_w = float(np.median(r.watts[loud])) if r.counter and np.any(loud) else 0.0
    ratio = abs(busy_w) / max(abs(level_w), 1e-12 * abs(busy_w), 1e-300)
    return estimate(stretches, drop[pair], r.period_s, ratio if r.counter else None, r.step_j)


def estimate(
    stretches: Sequence[Floats], busy: Floats, period_s: float, ratio: float | None = None, step_j: float = 0.0
) -> Noise:
    """Return noise from residuals at idle and from differences at work.

    ``stretches`` has the residuals of each idle window, in watts, with NaN for missing readings. ``busy`` are
    differences of neighbouring readings inside spans, in watts. The noise at work comes from their median, because the
    steps of a burst do not change a median. ``ratio`` is power at work over power at idle for a counter, whose errors
    grow with power, and None for other meters. ``step_j`` is the counter's step in joules.
    """
    step_j /= RECTANGLE  # the standard error from a step
    spectra = [periodogram(np.nan_to_num(x), period_s) for x in stretches if len(x) >= SHORTEST]
    pooled = np.concatenate([x[np.isfinite(x)] for x in (*stretches, np.zeros(0))])
    n = len(pooled)
    if not spectra:
        sigma = float(np.std(pooled)) if n > 1 else 0.0
        busy_w = max(sigma, spread(busy)) if ratio is None else sigma * max(ratio, 1.0)
        return Noise(sigma, busy_w, 0.0, (), period_s, max(n - 1.0, 1.0), step_j=step_j)
    lines = lines_of(spectra)
    white_w2, look_w2 = _levels([_without(x, lines, period_s) for x in stretches], ratio is not None)
    steps = np.concatenate([np.diff(x) for x in stretches])
    idle_w2, busy_w2 = spread(steps[np.isfinite(steps)]) ** 2, spread(busy) ** 2
    sure = 2.0 * SURE * math.hypot(max(len(busy), 1) ** -0.5, n**-0.5)
    dof = max(n - 2.0, 1.0)
    if ratio is None:
        more_w2 = busy_w2 - idle_w2 if busy_w2 > (1.0 + sure) * idle_w2 else 0.0
        return Noise(math.sqrt(white_w2), math.sqrt(white_w2 + more_w2), 0.0, lines, period_s, dof)
    # if most readings equal the next, the median of differences is only rounding
    seen = busy_w2 / idle_w2 if idle_w2 > 1e-6 * float(np.var(pooled)) and len(busy) > 1 else ratio**2
    rise = math.sqrt(max(min(max(ratio**2, seen / (1.0 + sure)), seen * (1.0 + sure)), 1.0))
    look_j = math.sqrt(max(look_w2 * period_s**2 - step_j**2, 0.0))
    white_w = math.sqrt(white_w2)
    busy_w = white_w * min(rise, max(ratio, 1.0))
    return Noise(white_w, busy_w, 0.0, lines, period_s, dof, look_j=look_j, rise=rise, step_j=step_j)


def _levels(stretches: Sequence[Floats], counter: bool) -> tuple[float, float]:
    """Return the variances of white noise per reading and of one counter value, fitted to Allan variances.

    The Allan variances are over 1, 2, 4, ... readings. Flicker noise and a random walk are fitted too, but their sizes
    are not used: the model of the trace finds slow noise.
    """
    rows = []
    for k in range(64):
        m = 1 << k
        off = [
            c[2 * m :] - 2.0 * c[m:-m] + c[: -2 * m]
            for x in stretches
            if len(c := np.append(0.0, np.cumsum(x))) > 2 * m
        ]
        total = sum(map(len, off))
        if total < 3 * m or not total:
            break
        rows.append((m, 0.5 * sum(float(x @ x) for x in off) / total / m**2, total / m))
    m, found, count = np.array(rows).T
    if not np.any(found > 0.0):
        return 0.0, 0.0
    # counter values whose error has the correlation rho with the error of the value before
    looks = [(3.0 - 4.0 * rho**m + rho ** (2.0 * m)) / m**2 for rho in ALIKE if counter]
    terms = np.column_stack([1.0 / m, np.ones(len(m)), m, *looks])
    expected = found
    for _ in range(4):
        scale = np.sqrt(count) / np.maximum(expected, 1e-12 * found.max())
        sizes = _not_negative(terms * scale[:, None], found * scale)
        expected = terms @ sizes
    return float(sizes[0]), float(sizes[3:].sum())


def _not_negative(terms: Floats, found: Floats) -> Floats:
    """Return the least-squares solution without sizes below zero: the best of all choices of terms.

    If several choices fit the values exactly, the first of them is taken, whatever the rounding.
    """
    best, least = np.zeros(terms.shape[1]), float(found @ found)
    rounding = 1e-18 * least
    for used in map(list, itertools.product((False, True), repeat=len(best))):
        x = np.zeros(len(best))
        x[used] = np.linalg.lstsq(terms[:, used], found, rcond=None)[0]
        left = found - terms @ x
        if x.min() >= 0.0 and float(left @ left) < least - rounding:
            best, least = x, float(left @ left)
    return best


def _without(x: Floats, lines: Lines, period_s: float) -> Floats:
    """Return the readings of a stretch without its lines; each may be up to half a bin from its frequency."""
    at = np.flatnonzero(np.isfinite(x))
    if not lines or len(at) < SHORTEST:
        return x[at]
    turn = 2.0 * np.pi * period_s * np.outer(at, [f + off * df for f, _, df in lines for off in (-0.5, 0.0, 0.5)])
    waves = np.hstack([np.cos(turn), np.sin(turn)])
    return np.asarray(x[at] - waves @ np.linalg.lstsq(waves, x[at], rcond=None)[0])


def periodogram(x: Floats, period_s: float) -> tuple[Floats, Floats]:
    """Return frequencies and the one-sided periodogram, without the bins at zero and at the Nyquist frequency."""
    n = len(x)
    power = 2.0 * period_s / n * np.abs(np.fft.rfft(x)) ** 2
    f = np.arange(len(power)) / (n * period_s)
    last = len(power) - 1 if n % 2 == 0 else len(power)
    return f[1:last], power[1:last]


def lines_of(spectra: Sequence[tuple[Floats, Floats]]) -> Lines:
    """Return up to ``MAX_LINES`` lines.

    They are sought in the spectrum of the longest stretch. The power of a line between two bins is in both of them.
    """
    f, power = max(spectra, key=lambda spectrum: len(spectrum[0]))
    if len(f) < 16:
        return ()
    smooth = np.interp(np.arange(len(f)), *_running_median(power))
    limit = math.log(len(f)) + STANDS_OUT
    found: list[tuple[float, float, float]] = []
    ratio = power / np.maximum(smooth / math.log(2.0), 1e-300)
    df = float(f[1] - f[0])
    for k in np.argsort(ratio)[::-1][: 4 * MAX_LINES].tolist():
        if ratio[k] < limit or len(found) == MAX_LINES:
            break
        if all(abs(f[k] - g) >= 3.0 * df for g, _, _ in found):
            found.append((float(f[k]), math.sqrt(2.0 * df * float(power[max(k - 1, 0) : k + 2].sum())), df))
    return tuple(found)


def _running_median(power: Floats) -> tuple[Floats, Floats]:
    """Return medians of log-spaced groups of bins, as (index, level) for interpolation."""
    cuts = np.unique(np.round(np.geomspace(1, len(power) + 1, 24)).astype(int)) - 1
    pairs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
    return np.array([(a + b - 1) / 2 for a, b in pairs]), np.array([np.median(power[a:b]) for a, b in pairs])


def variances(
    noise: Noise, weight: Floats, t_s: Floats, busy: Bools, many: Floats | None = None, looks: Looks | None = None
) -> dict[str, float]:
    """Return the variance of ``sum(weight * y)`` by source.

    ``weight`` and ``t_s`` have shape (n,). ``busy`` marks the readings during which the device was busy. ``many``, if
    given, is the number of single readings in each mean. For a counter, ``looks`` has the lengths of its readings,
    shape (n,), and how busy the device is at each counter value, shape (n + 1,). Each counter value ends one reading
    and begins the next, so its error counts with the difference of their two weights.
    """
    each2 = weight**2 if many is None else weight**2 / np.maximum(many, 1.0)
    white = float(np.where(busy, noise.busy_w**2, noise.white_w**2) @ each2)
    found = {"white": white} | dict.fromkeys(("flicker", "level", "lines", "wander", "counter", "step"), 0.0)
    used = np.flatnonzero(weight != 0.0)  # takes a third of the time of ``flatnonzero(weight)``
    if not len(used):
        return found
    if looks is not None:
        length_s, at_looks = looks
        factor = np.diff(np.where(length_s > 0.0, weight / np.maximum(length_s, 1e-300), 0.0), prepend=0.0, append=0.0)
        found["step"] = noise.step_j**2 * float(factor @ factor)
        found["counter"] = max(float(factor**2 @ noise.look_j2(at_looks)) - found["step"], 0.0)
    # views of all readings from the first to the last take less time than copies of most of them
    part = slice(used[0], used[-1] + 1) if 2 * len(used) > used[-1] - used[0] else used
    t, w, of = t_s[part], weight[part], None if many is None else many[part]
    if noise.flicker_w2 > 0.0 or noise.wander_w2 > 0.0:
        found["flicker"], found["level"], found["wander"] = _slow(noise, t, w)
    found["lines"] = sum(
        0.5 * a * a * _line_gain(t, w if of is None else w * _passed(f * noise.period_s, of), f, df)
        for f, a, df in noise.lines
    )
    return found


def _passed(turns: float, many: Floats) -> Floats:
    """Return the part of a line's amplitude left in means of ``many`` readings, with ``turns`` periods per reading."""
    return np.asarray(np.sin(np.pi * turns * many) / (np.sin(np.pi * turns) * many) if turns % 1.0 else np.ones(1))


def _slow(noise: Noise, t_s: Floats, weight: Floats) -> tuple[float, float, float]:
    """Return the variances of a weighted sum from flicker noise, from slower flicker noise, and from a smooth wander.

    All are the autocorrelation of the weights times a covariance. Flicker noise is split at a period of four times the
    duration of the weights. The covariance of the faster part is minus the logarithm of the time between two readings,
    plus a constant. The slower part shifts all readings alike: it adds to an absolute level, but not to a difference of
    levels, whose weights add up to zero. Changes slower than ``HORIZON_S`` are left out. The wander has the Matern
    covariance of order 3/2.
    """
    last = (t_s[-1] - t_s[0]) / noise.period_s
    stride = max(1, int(np.ceil((last + 1.0) / SEGMENT)))
    slots = int(np.round(last)) // stride + 1
    if len(t_s) == np.round(last) + 1.0:  # no reading is missing
        grid = np.append(weight, np.zeros(slots * stride - len(weight))).reshape(slots, stride) @ np.ones(stride)
    else:
        grid = np.zeros(slots)
        for part in (slice(k, k + BLOCK) for k in range(0, len(t_s), BLOCK)):
            slot = (np.round((t_s[part] - t_s[0]) / noise.period_s) / stride).astype(np.int64)
            grid += np.bincount(slot, weight[part], slots)
    spectrum, step_s = np.fft.rfft(grid, 2 * fast_length(slots)), noise.period_s * stride
    power = spectrum.real**2 + spectrum.imag**2
    by_flicker = max(float(power @ _of_lags(slots)), 0.0)
    level, size = float(grid.sum()) ** 2, float(np.abs(grid).sum()) ** 2
    longest = 0.5 * math.pi * HORIZON_S / (step_s * slots)
    # the weights of a difference of levels add up to zero, except for rounding
    slower = 0.0 if level <= 1e-18 * size else level * max(math.log(longest), 0.0)
    wander = max(float(power @ _of_lags(slots, math.sqrt(3.0) * step_s / noise.wander_s)), 0.0)
    return noise.flicker_w2 * by_flicker, noise.flicker_w2 * slower, noise.wander_w2 * wander


@lru_cache(maxsize=64)
def _of_lags(slots: int, apart: float = 0.0) -> Floats:
    """Return what each bin of the power spectrum of ``slots`` weights adds to the variance from slow noise.

    For a wander, ``apart`` is sqrt(3) times the length of a step over its correlation time. 0 means flicker noise.
    """
    lag, n = np.arange(float(slots)), 2 * fast_length(slots)
    if apart:
        covariance = (1.0 + apart * lag) * np.exp(-apart * lag)
    else:  # the mean of -ln |t| over two moments in one step is 3/2 more than at the length of the step
        covariance = -np.log(0.5 * math.pi / slots * np.maximum(lag, math.exp(-1.5)))
    both = np.zeros(n)
    both[:slots] = covariance
    both[n - slots + 1 :] += covariance[:0:-1]
    found = np.fft.rfft(both).real * 2.0 / n
    found[[0, -1]] *= 0.5  # these frequencies occur once, the others with both signs
    return np.asarray(found)


def _line_gain(t_s: Floats, weight: Floats, f_hz: float, df_hz: float) -> float:
    """Return the largest ``|W(f)|^2`` within ``df_hz`` of ``f_hz``; W is the Fourier transform of the weights.

    The weights are demodulated, and summed over slots far shorter than ``1 / df_hz``. The spectrum of these sums has
    every frequency nearby. All frequencies are needed: a line in step with the spans adds up over all spans, and its
    peak is as narrow as the inverse length of the run.
    """
    slots = 1 + int(8.0 * df_hz * (t_s[-1] - t_s[0]))
    grid = np.zeros(slots, dtype=np.complex128)
    for part in (slice(k, k + BLOCK) for k in range(0, len(t_s), BLOCK)):
        since = t_s[part] - t_s[0]
        turn, slot = 2.0 * np.pi * f_hz * since, np.minimum((8.0 * df_hz * since).astype(np.int64), slots - 1)
        # a complex exponential would take four times as long as sine and cosine together
        grid += np.bincount(slot, weight[part] * np.cos(turn), slots)
        grid -= 1j * np.bincount(slot, weight[part] * np.sin(turn), slots)
    gain = np.abs(np.fft.fft(grid, 4 * slots)) ** 2
    return float(np.max(gain[np.abs(np.fft.fftfreq(4 * slots)) <= 1.0 / 8.0]))
