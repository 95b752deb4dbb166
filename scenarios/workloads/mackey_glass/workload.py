"""Forecasts of a chaotic series from its own past (NeuroBench, chaotic function prediction).

A sample is 20 Lyapunov times of one series. A model learns from the first half, and forecasts the second half only from
its own forecasts. Successive samples start half a Lyapunov time apart. The series are generated here, so they differ
from the series that the benchmark offers as a download: solvers of a chaotic equation agree only for a short time.
"""

import hashlib
from dataclasses import asdict, dataclass

import numpy as np

from rig.bench.settings import one_of, within
from rig.types import Floats, Indices, Sample, SampleSet

LYAPUNOV_TIMES, STARTS = 20, 30
"""Length of a sample in Lyapunov times, and the number of samples that the benchmark evaluates."""
BETA, GAMMA, POWER = 0.2, 0.1, 10
STEP = 0.05
"""The step of the solver, in the time unit of the equation."""
POINTS = 75
"""Points in one Lyapunov time (NeuroBench: "75 points are sampled per Lyapunov time")."""


def open_workload(*, tau: int = 17, starts: int = STARTS) -> SampleSet:
    """Open the series of a delay ``tau`` (17 to 30) with ``starts`` samples; the benchmark has 30.

    Raises ``UsageError`` for another delay, or for starts outside 1 to 61.
    """
    one_of(PUBLISHED, tau=tau)
    within(1, 61, starts=starts)
    parameters, length = PUBLISHED[tau], LYAPUNOV_TIMES * POINTS
    series = sampled(parameters, LYAPUNOV_TIMES + (starts - 1) / 2 + 1)
    offsets = [k * POINTS // 2 for k in range(starts)]
    samples = tuple(
        Sample(f"tau-{tau}-start-{k}", series[first : first + length], seed=k, keep=True)
        for k, first in enumerate(offsets)
    )
    details = {
        "source": f"generated: Runge-Kutta of order 4, step {STEP}, not the series that the benchmark offers",
        "forecast_from": length // 2, "parameters": asdict(parameters), "points_per_lyapunov_time": POINTS,
    }  # fmt: skip
    digest = hashlib.sha256(b"".join(sample.payload.tobytes() for sample in samples)).hexdigest()
    task = "chaotic function prediction: learn the first half of a series, forecast the second"
    return SampleSet("mackey-glass", task, "1", digest, samples, details)


@dataclass(frozen=True, slots=True)
class Parameters:
    """One published series: delay, Lyapunov time, and the constant value before time 0 (Table 7 of NeuroBench)."""

    tau: int
    lyapunov_time: float
    x0: float


PUBLISHED = {
    p.tau: p
    for p in (
        Parameters(17, 197, 0.7206597), Parameters(18, 138, 0.7744313), Parameters(19, 315, 0.7783468),
        Parameters(20, 131, 0.9225991), Parameters(21, 191, 0.9479431), Parameters(22, 119, 0.5455960),
        Parameters(23, 106, 0.8622247), Parameters(24, 97, 0.3259660), Parameters(25, 98, 0.8297825),
        Parameters(26, 104, 1.0033490), Parameters(27, 112, 0.6491406), Parameters(28, 119, 1.0957495),
        Parameters(29, 131, 0.9256179), Parameters(30, 139, 0.2713639),
    )
}  # fmt: skip


def sampled(parameters: Parameters, lyapunov_times: float, step: float = STEP) -> Floats:
    """Return ``POINTS`` values in each Lyapunov time from time 0, float64 of shape (n,).

    Raises ``ValueError`` if the delay is not a multiple of ``step``. The series is chaotic, so with another solver or
    step it differs after some Lyapunov times.
    """
    at = np.arange(round(lyapunov_times * POINTS)) * (parameters.lyapunov_time / POINTS)
    x, slope = _solved(parameters, float(at[-1]) + 2 * step, step)
    index = np.minimum((at / step).astype(np.int64), len(x) - 2)
    return _between(x, slope, index, at / step - index, step)


def _solved(parameters: Parameters, until: float, step: float) -> tuple[Floats, Floats]:
    """Return the values and derivatives of x at every step from time 0; before time 0, x is constant.

    The equation is ``dx/dt = beta x(t - tau) / (1 + x(t - tau)**n) - gamma x(t)``, and the solver is the fourth-order
    Runge-Kutta method. The delayed value ``x(t - tau)`` is known from the solution one delay earlier. At half steps, it
    is interpolated by a cubic through the values and derivatives at both ends of the step. The equation is therefore
    linear in ``x(t)`` with a known input, and a step is a weighted sum.
    """
    delay = round(parameters.tau / step)
    if abs(delay * step - parameters.tau) > 1e-9 * parameters.tau:
        raise ValueError(f"a step of {step} does not divide the delay {parameters.tau}")
    blocks = int(np.ceil(until / parameters.tau))
    keep, ends, middle = _weights(step)
    x, slope = np.full(delay * (blocks + 1) + 1, parameters.x0), np.zeros(delay * (blocks + 1) + 1)
    for block in range(blocks):
        past = np.arange(block * delay, (block + 1) * delay)
        here = past + delay
        drive = _drive(np.append(x[past], x[past[-1] + 1]))
        drive_middle = _drive(_between(x, slope, past, np.full(delay, 0.5), step))
        adds = (ends[0] * drive[:-1] + middle * drive_middle + ends[1] * drive[1:]).tolist()
        value, found = float(x[here[0]]), []
        for add in adds:
            value = keep * value + add
            found.append(value)
        x[here + 1] = found
        slope[here] = drive[:-1] - GAMMA * x[here]
        # the derivative from the left; the next block replaces it by the derivative from the right
        slope[here[-1] + 1] = drive[-1] - GAMMA * found[-1]
    return x[delay:], slope[delay:]


def _drive(delayed: Floats) -> Floats:
    return np.asarray(BETA * delayed / (1.0 + delayed**POWER))


def _weights(step: float) -> tuple[float, tuple[float, float], float]:
    """Return the weights of one step: of x, of the input at the begin and the end, and of the input in the middle."""

    def stepped(x: float, begin: float, middle: float, end: float) -> float:
        k1 = begin - GAMMA * x
        k2 = middle - GAMMA * (x + step / 2 * k1)
        k3 = middle - GAMMA * (x + step / 2 * k2)
        k4 = end - GAMMA * (x + step * k3)
        return x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return stepped(1, 0, 0, 0), (stepped(0, 1, 0, 0), stepped(0, 0, 0, 1)), stepped(0, 0, 1, 0)


def _between(x: Floats, slope: Floats, index: Indices, share: Floats, step: float) -> Floats:
    """Return the values of x, by cubic interpolation, at a ``share`` (0 to 1) of the step after each index."""
    rest = 1.0 - share
    left, right = x[index], x[index + 1]
    bend = rest * (slope[index] * step - (right - left)) - share * (slope[index + 1] * step - (right - left))
    return np.asarray(rest * left + share * right + share * rest * bend)
