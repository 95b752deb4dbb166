"""Compute figures as the program that made a recording computes them, over that program's own windows.

An imported run has a line of the type ``peer``. It holds the name of the method and its input: counts, and windows or
stamps in ticks of a trace's clock. The figures are computed from the trace and never copied from a report. Their keys
have the method ``peer``, beside the rig's own figures. The figures state no uncertainty.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np

from rig.analysis.result.figure_catalogue import figure
from rig.analysis.result.quantity import PEER, Figures
from rig.errors import DataError
from rig.recording.events import LIMIT, ReferenceWindows
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace

Window = tuple[float, float, int]
_figure = partial(figure, method=PEER)


def recorder_figures(run: Run) -> Figures:
    """Return the figures of every ``peer`` line whose method is known; other lines are ignored.

    Raises ``DataError`` for a line that lacks what its method needs.
    """
    figures = Figures()
    for given in run.of_type(ReferenceWindows):
        method = METHODS.get(given.method)
        if method is None:
            continue
        trace = run.traces.get(given.rail)
        if trace is None or len(trace.value) < 2:
            raise _bad("rail", given.rail, "names no trace of this run")
        clock = run.clocks().get(trace.clock)
        figures |= method(given, trace.part(0, len(trace.value)), 1e9 if clock is None else clock.tick_hz)
    return figures


def _energyrunner(given: ReferenceWindows, trace: Trace, tick_hz: float) -> Figures:
    """Compute figures as EEMBC EnergyRunner 3 does (MLPerf Tiny, ULPMark-ML): energy over whole windows.

    ``stamps`` are the falling edges of the device's pin in ticks. The first edge marks the connection. Window k = 2, 4,
    ... is between stamps k - 1 and k (counted from 0), and holds the samples with ``stamp[k-1] <= t < stamp[k]``. The
    time of a sample is accumulated in double precision, ``t += 1/rate``, because its rounding decides whether a sample
    is before or after a stamp. Power is energy over the time of the samples. Throughput is inferences over the stamped
    length. ``inferences`` holds the number of inferences in each window. The method was derived from the published
    results of mlcommons/tiny_results_v1.0, which it reproduces in all printed digits.
    """
    windows = _windows(given, trace, tick_hz)
    time_s = np.concatenate([[0.0], np.cumsum(np.full(len(trace.value) - 1, 1.0 / trace.rail.rate_hz))])
    bounds = [np.searchsorted(time_s, [on_s, off_s], side="left").tolist() for on_s, off_s, _ in windows]
    told = "EnergyRunner, window {}: samples with {:g} s <= t < {:g} s, untrimmed"
    methods = [told.format(2 * k, on_s, off_s) for k, (on_s, off_s, _) in enumerate(windows, start=1)]
    return _of_windows(trace, windows, bounds, methods)


def _tiny_runner(given: ReferenceWindows, trace: Trace, tick_hz: float) -> Figures:
    """Compute figures as the runner of MLPerf Tiny 1.3 does (mlcommons/tiny, ``benchmark/runner/main.py``).

    A stamp is the number of a sample. Energy is the sum of the samples between two stamps, times the sampling interval.
    Power is energy over the time of those samples. The result is the median energy per inference.
    """
    windows, rate_hz = _windows(given, trace, tick_hz), trace.rail.rate_hz
    bounds = [(round(on_s * rate_hz), round(off_s * rate_hz)) for on_s, off_s, _ in windows]
    methods = [f"MLPerf Tiny runner, trial {k}: samples {a} to {b - 1}" for k, (a, b) in enumerate(bounds)]
    return _of_windows(trace, windows, bounds, methods)


def _windows(given: ReferenceWindows, trace: Trace, tick_hz: float) -> list[Window]:
    """Return begin and end of each window in seconds, and its inferences.

    Raises ``DataError`` for stamps out of order or beyond 2^62, a wrong count of windows, or no watts at a fixed rate.
    """
    if any(after < before for before, after in itertools.pairwise(given.stamps)):
        raise _bad("stamps", given.stamps, "are not in order")
    if any(abs(tick) >= LIMIT for tick in given.stamps):
        raise _bad("stamps", "a stamp", "is outside +-2^62")
    stamps, counts = [tick / tick_hz for tick in given.stamps], given.inferences
    on_s, off_s = stamps[1::2], stamps[2::2]
    if not len(counts) == len(on_s) == len(off_s) or min(counts, default=1) < 1:
        raise _bad("inferences", len(counts), f"does not count the {len(off_s)} windows")
    if trace.rail.rate_hz <= 0 or trace.rail.conversion.unit != "W":
        raise _bad("rail", given.rail, "is not in watts at a fixed rate")
    return list(zip(on_s, off_s, counts, strict=True))


def _of_windows(
    trace: Trace, windows: Sequence[Window], bounds: Sequence[Sequence[int]], methods: Sequence[str]
) -> Figures:
    """Return energy, power, energy per inference and throughput of each window, and the medians of the last two.

    ``bounds`` holds, for each window, its first sample and the sample after its last. A window with a sample that was
    dropped has no figures, and then there are no medians.
    """
    found, rate_hz = Figures(), trace.rail.rate_hz
    for k, ((on_s, off_s, count), (first, end), method) in enumerate(zip(windows, bounds, methods, strict=True), 1):
        held = np.asarray(trace.value[first:end], dtype=np.float64)
        if not len(held) or not off_s > on_s:
            raise _bad("stamps", (first, end), "bound a window without a sample")
        if np.any(np.isnan(held)):
            continue
        total_j = math.fsum((held / rate_hz).tolist())
        mean_w = total_j * rate_hz / len(held)
        found |= _figure("energy_j", total_j, method, len(held), window=k)
        found |= _figure("power_w", mean_w, f"{method}, over the time of its samples", len(held), window=k)
        found |= _figure("energy_per_inference_j", total_j / count, method, count, window=k)
        found |= _figure("throughput_hz", count / (off_s - on_s), method, count, window=k)
    for name, unit in (("energy_per_inference", "j"), ("throughput", "hz")):
        each = [q.value for key, q in found.items() if key.quantity == f"{name}_{unit}"]
        if each and len(each) == len(windows):
            told = f"{methods[0].partition(',')[0]}, median of its windows"
            found |= _figure(f"{name}_median_{unit}", median(each), told, len(each))
    return found


def _mlperf_power(given: ReferenceWindows, trace: Trace, _: float) -> Figures:
    """Average the meter's log between LoadGen's ``power_begin`` and ``power_end``, as MLPerf Inference power does.

    Both ends are excluded, and only readings above 0 W count. The clocks of meter and LoadGen are treated as one clock.
    Energy per query is stated for the scenarios SingleStream and MultiStream if the log counts its queries (version 1.0
    does not). A ranging run, if there was one, is compared with the test run. Sources are the submission checker of
    mlcommons/inference and the power checker of mlcommons/power-dev.
    """
    figures = Figures()
    means: dict[str, float] = {}
    for quantity, key, bounds in (
        ("average_power_w", "testing", given.testing),
        ("ranging.average_power_w", "ranging", given.ranging),
    ):
        if bounds is None:
            continue
        begin, end = bounds
        held = trace.value[(trace.end_tick > begin) & (trace.end_tick < end) & (trace.value > 0)].tolist()
        if not held:
            raise _bad(key, [begin, end], "bounds no reading above 0 W")
        means[key] = sum(held) / len(held)
        method = "MLPerf power: mean of the readings stamped strictly between power_begin and power_end, above 0 W"
        figures |= _figure(quantity, means[key], method, len(held))
    queries, duration_s = given.queries, given.duration_s
    if given.scenario in ("SingleStream", "MultiStream") and "testing" in means and queries is not None:
        if not (queries > 0 and duration_s is not None and duration_s > 0):
            raise _bad("queries", queries, "does not count queries")
        method = "MLPerf power: average power x (power_end - power_begin) / queries"
        figures |= _figure("energy_per_query_j", means["testing"] * duration_s / queries, method, queries)
    if len(means) == 2:
        excess = means["testing"] / means["ranging"] - 1.0
        method = "MLPerf power checker: testing over ranging, less 1; refused below -0.05"
        figures |= _figure("testing_over_ranging", excess, method)
    return figures


METHODS: Mapping[str, Callable[[ReferenceWindows, Trace, float], Figures]] = {
    "energyrunner": _energyrunner,
    "mlperf-tiny-runner": _tiny_runner,
    "mlperf-power": _mlperf_power,
}


def _bad(field: str, value: object, why: str) -> DataError:
    what, remedy = f"the peer line's {field} {value!r} {why}", "Import the recording again"
    return DataError(what, field=field, value=value, remedy=remedy)
