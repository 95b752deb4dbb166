"""Figures by the method of the program that made a recording, in its own windows.

An imported run has a line of the type ``peer`` with the name of the method and its input: counts, and windows or stamps
in ticks of a trace's clock. The figures are computed from the trace and never copied from a report. Their keys have the
method ``peer``, beside the rig's own figures. They state no uncertainty.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from rig.analysis.result.figure_key import PEER, FigureKey, Figures
from rig.analysis.result.quantity import Quantity
from rig.errors import DataError
from rig.recording.events import LIMIT, ReferenceWindows
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace

Found = dict[FigureKey, Quantity]


def recorder_figures(run: Run) -> Figures:
    """Return the figures of every ``peer`` line whose method is known; other lines are ignored.

    Raises ``DataError`` for a line that lacks what its method needs.
    """
    figures: Found = {}
    for given in run.of_type(ReferenceWindows):
        method = METHODS.get(given.method)
        if method is None:
            continue
        trace = run.traces.get(given.rail)
        if trace is None or len(trace.value) < 2:
            raise _bad("rail", given.rail, "names no trace of this run")
        trace = trace.part(0, len(trace.value))
        figures |= method(given, trace, _tick_hz(run, trace))
    return Figures(figures)


def _energyrunner(given: ReferenceWindows, trace: Trace, tick_hz: float) -> Found:
    """EEMBC EnergyRunner 3 (MLPerf Tiny, ULPMark-ML): energy by untrimmed windows.

    ``stamps`` are the falling edges of the device's pin in ticks, of which the first marks the connection; window
    k = 2, 4, ... lies between stamps k - 1 and k (counted from 0), and holds the samples with
    ``stamp[k-1] <= t < stamp[k]``. The time of a sample is accumulated in double precision, ``t += 1/rate``, which
    decides on which side of a stamp a sample falls. Power is energy over the number of samples, throughput counts over
    the stamped length. ``inferences`` are the counts of the windows. The method was derived from the published results
    of mlcommons/tiny_results_v1.0, which it reproduces in all printed digits.
    """
    stamps, counts, rate_hz = _windows(given, trace, tick_hz)
    time_s = np.concatenate([[0.0], np.cumsum(np.full(len(trace.value) - 1, 1.0 / rate_hz))])
    figures: Found = {}
    for k, (on, off, count) in enumerate(zip(stamps[1::2], stamps[2::2], counts, strict=True), start=1):
        first, last = np.searchsorted(time_s, [on, off], side="left")
        method = f"EnergyRunner, window {2 * k}: samples with {on:g} s <= t < {off:g} s, untrimmed"
        figures |= _window(k, trace, (int(first), int(last)), off - on, count, method)
    return figures | _medians(figures, len(counts), "EnergyRunner")


def _tiny_runner(given: ReferenceWindows, trace: Trace, tick_hz: float) -> Found:
    """Return the runner of MLPerf Tiny 1.3 (mlcommons/tiny, ``benchmark/runner/main.py``): windows counted in samples.

    Stamps are numbers of samples. Energy is the sum of the samples between two stamps times the sampling interval,
    power is energy over the time of those samples, and the result is the median energy per inference.
    """
    stamps, counts, rate_hz = _windows(given, trace, tick_hz)
    figures: Found = {}
    for k, (on, off, count) in enumerate(zip(stamps[1::2], stamps[2::2], counts, strict=True), start=1):
        bounds = round(on * rate_hz), round(off * rate_hz)
        method = f"MLPerf Tiny runner, trial {k - 1}: samples {bounds[0]} to {bounds[1] - 1}"
        figures |= _window(k, trace, bounds, off - on, count, method)
    return figures | _medians(figures, len(counts), "MLPerf Tiny runner")


def _windows(given: ReferenceWindows, trace: Trace, tick_hz: float) -> tuple[list[float], list[int], float]:
    """Return stamps in seconds, the inferences of each window, and the rate of the trace.

    Raises ``DataError`` for stamps out of order, a wrong count of windows, or no watts at a fixed rate.
    """
    if any(after < before for before, after in itertools.pairwise(given.stamps)):
        raise _bad("stamps", given.stamps, "are not in order")
    if any(abs(tick) >= LIMIT for tick in given.stamps):
        raise _bad("stamps", "a stamp", "is outside +-2^62")
    stamps, counts = [tick / tick_hz for tick in given.stamps], given.inferences
    if len(counts) != len(stamps[1::2]) or len(stamps[1::2]) != len(stamps[2::2]) or min(counts, default=1) < 1:
        raise _bad("inferences", len(counts), f"does not count the {len(stamps[2::2])} windows")
    if trace.rail.rate_hz <= 0 or trace.rail.conversion.unit != "W":
        raise _bad("rail", given.rail, "is not in watts at a fixed rate")
    return stamps, counts, trace.rail.rate_hz


def _window(k: int, trace: Trace, bounds: tuple[int, int], length_s: float, count: int, method: str) -> Found:
    """Return energy, power, energy per inference and throughput of one window; none if a sample in it was dropped."""
    first, last = bounds
    held = np.asarray(trace.value[first:last], dtype=np.float64)
    if not len(held) or not length_s > 0.0:
        raise _bad("stamps", bounds, "bound a window without a sample")
    if np.any(np.isnan(held)):
        return {}
    total_j = math.fsum((held / trace.rail.rate_hz).tolist())
    mean_w = total_j * trace.rail.rate_hz / len(held)
    return {
        _key("energy_j", k): _q(total_j, "J", len(held), method),
        _key("power_w", k): _q(mean_w, "W", len(held), f"{method}, over the time of its samples"),
        _key("energy_per_inference_j", k): _q(total_j / count, "J", count, method),
        _key("throughput_hz", k): _q(count / length_s, "Hz", count, method),
    }


def _medians(figures: Found, windows: int, who: str) -> Found:
    """Return medians over the windows, if every window has its figures."""
    out: Found = {}
    for of_window, of_all in (
        ("energy_per_inference_j", "energy_per_inference_median_j"),
        ("throughput_hz", "throughput_median_hz"),
    ):
        each = [q for key, q in figures.items() if key.quantity == of_window]
        if each and len(each) == windows:
            middle = median(q.value for q in each)
            out[_key(of_all)] = _q(middle, each[0].unit, len(each), f"{who}, median of its windows")
    return out


def _mlperf_power(given: ReferenceWindows, trace: Trace, _: float) -> Found:
    """MLPerf Inference power: mean of the meter's log strictly between LoadGen's ``power_begin`` and ``power_end``.

    Readings that are not above 0 are left out; the two clocks are treated as one. Energy per query is given for the
    scenarios SingleStream and MultiStream if the log counts its queries (1.0 did not). The comparison with the ranging
    run is given if there was one (submission checker and power checker of mlcommons/inference and
    mlcommons/power-dev).
    """
    figures: Found = {}
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
        figures[_key(quantity)] = _q(means[key], "W", len(held), method)
    queries, duration_s = given.queries, given.duration_s
    if given.scenario in ("SingleStream", "MultiStream") and "testing" in means and queries is not None:
        if not (queries > 0 and duration_s is not None and duration_s > 0):
            raise _bad("queries", queries, "does not count queries")
        method = "MLPerf power: average power x (power_end - power_begin) / queries"
        figures[_key("energy_per_query_j")] = _q(means["testing"] * duration_s / queries, "J", queries, method)
    if len(means) == 2:
        excess = means["testing"] / means["ranging"] - 1.0
        method = "MLPerf power checker: testing over ranging, less 1; refused below -0.05"
        figures[_key("testing_over_ranging")] = _q(excess, "1", 0, method)
    return figures


METHODS: Mapping[str, Callable[[ReferenceWindows, Trace, float], Found]] = {
    "energyrunner": _energyrunner,
    "mlperf-tiny-runner": _tiny_runner,
    "mlperf-power": _mlperf_power,
}


def _key(quantity: str, window: int = 0) -> FigureKey:
    return FigureKey(quantity, method=PEER, window=window)


def _q(value: float, unit: str, n: int, method: str) -> Quantity:
    return Quantity(value, unit, (), 0.0, n, method)


def _tick_hz(run: Run, trace: Trace) -> float:
    clock = run.clocks().get(trace.clock)
    return 1e9 if clock is None else clock.tick_hz


def _bad(field: str, value: object, why: str) -> DataError:
    return DataError(
        f"the peer line's {field} {value!r} {why}", field=field, value=value, remedy="Import the recording again"
    )
