"""Compute figures of spiking networks: response latency in biological time, synaptic operations, speed.

The device answers with an object that holds ``first_input_ms`` and ``first_output_ms``, ``synaptic_operations``, and
``synaptic_operations_ne15`` by the convention of NE15-MNIST. The definitions are from the chapter "Benchmarking
Neuromorphic Vision" (model-level and hardware-level evaluation).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from rig.analysis.result.finding import Finding
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity, product
from rig.analysis.scores.answers import Answer, data_of
from rig.recording.reader import Run
from rig.types import Floats

_COUNTS = {
    "synaptic_operations": "every spike at every synapse that it reaches, over biological time, blanks included",
    "synaptic_operations_ne15": "as NE15-MNIST: each input spike twice for each output neuron, and output spikes",
}


def spiking_figures(run: Run, answers: Sequence[Answer], known: Figures) -> Figures:
    """Return the figures of a device that answers with spikes; none for other devices.

    ``known`` holds times and energies of the run. Speed and energy are those of the last phase, which simulates. No
    speed is stated for a simulator that stands in for a real-time machine (``times_of``).
    """
    fans, data = _fan_outs(run), data_of(run)
    counted = [row for row in _counted(run, answers) if not _contradiction(row[2], fans)]
    if not counted:
        return Figures()
    names, seconds, said = zip(*counted, strict=True)
    asked = [data[name] for name in names]
    figures, biological_s = _latency(asked, said), sum(seconds) / len(seconds)
    device = run.start.device
    phase = device.phases[-1] if device.phases else ""
    for name, method in _COUNTS.items():
        counts = np.array([answer[name] for answer in said], np.float64)
        figures |= {FigureKey(f"{name}_hz"): _mean(counts / biological_s, asked, "Hz", method)}
    wall_s = None if "times_of" in device.details else known.get(FigureKey("execution_time_s", phase))
    if wall_s is not None and wall_s.value > 0:
        method = f"biological time over the time of the phase {phase}"
        figures |= {FigureKey("real_time_factor"): _inverse(wall_s, biological_s, "1", method)}
    each = _mean(np.array([answer["synaptic_operations"] for answer in said], np.float64), asked, "1", "")
    energy_j = known.get(FigureKey("dynamic_energy_per_inference_j", phase))
    if energy_j is None or not each.value:
        return figures
    method = f"dynamic energy of the phase {phase} over counted operations"
    per_operation = product(energy_j, _inverse(each, 1.0, "1", ""), "J", method)
    figures |= {FigureKey("energy_per_synaptic_operation_j"): per_operation}
    if per_operation.value > 0:
        method = "inverse of the energy of an operation, which is operations per second and watt"
        figures |= {FigureKey("synaptic_operations_per_j"): _inverse(per_operation, 1.0, "1/J", method)}
    return figures


def spiking_checks(run: Run, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield a failed check if some answers hold impossible counts or times; spiking figures leave these answers out."""
    fans = _fan_outs(run)
    odd = [f"{name}: {what}" for name, _, said in _counted(run, answers) if (what := _contradiction(said, fans))]
    if odd:
        yield Finding("answers of spikes that contradict themselves", f"{len(odd)}, such as {odd[0]}", "0")


def _fan_outs(run: Run) -> dict[str, int]:
    """Return, by population, how many synapses each spike reaches.

    The result is empty if a connection has neither one weight for each source neuron nor one for each pair of neurons.
    """
    device, fans = run.start.device, Counter[str]()
    stated = device.algorithm.network if isinstance(device.algorithm.network, dict) else {}
    sizes = neurons if isinstance(neurons := stated.get("neurons"), dict) else {}
    for c in device.network.connections if device.network else ():
        n, m = sizes.get(c.source), sizes.get(c.target)
        if not (isinstance(n, int) and isinstance(m, int) and n > 0 and c.weights in (n, n * m)):
            return {}
        fans[c.source] += c.weights // n
    return fans


def _contradiction(said: Mapping[str, Any], fans: Mapping[str, int]) -> str:
    """Return what is impossible in an answer, or "".

    ``fired`` counts the spikes of each population. ``events`` counts the spikes of the one population that ``fired``
    leaves out.
    """
    first_ms, then_ms, fired = (said.get(what) for what in ("first_input_ms", "first_output_ms", "fired"))
    if min(said[name] for name in _COUNTS) < 0:
        return "a negative count"
    if _is_number(first_ms) and _is_number(then_ms) and then_ms < first_ms:
        return "an output spike before the first input spike"
    fired = fired if isinstance(fired, dict) else {}
    sent: dict[str, Any] = dict.fromkeys(fans, said.get("events")) | fired
    if not fans or len(fans.keys() - fired) > 1 or not all(_is_number(sent[name]) for name in fans):
        return ""
    counted, reached = said["synaptic_operations"], sum(sent[name] * fan for name, fan in fans.items())
    return "" if counted == reached else f"{counted} operations by spikes that reach {reached} synapses"


def _counted(run: Run, answers: Sequence[Answer]) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Yield sample, biological seconds and output of each answer that states its operations, without warm-up."""
    durations = run.by_sample("duration_s")
    for answer in answers:
        output, seconds = answer.output, durations.get(answer.sample_id) or 0.0
        if seconds > 0 and isinstance(output, dict) and all(_is_number(output.get(name)) for name in _COUNTS):
            yield answer.sample_id, seconds, output


def _latency(data: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the mean time from the first input spike to the first output spike, and the share of silent answers."""
    pairs: list[tuple[Any, Any]] = [(a.get("first_input_ms"), a.get("first_output_ms")) for a in answers]
    spiked = [k for k, pair in enumerate(pairs) if all(map(_is_number, pair))]
    silent, asked = len(pairs) - len(spiked), len(set(data)) / len(data)
    method = "answers without an output spike, counted"
    figures = Figures({FigureKey("silent_share"): proportion(asked * silent, asked * len(pairs), method)})
    if spiked:
        each_s = np.array([1e-3 * (pairs[k][1] - pairs[k][0]) for k in spiked], float)
        method = "first input spike to first output spike in biological time, over samples with an output spike"
        figures |= {FigureKey("response_latency_mean_s"): _mean(each_s, [data[k] for k in spiked], "s", method)}
    return figures


def _mean(each: Floats, data: Sequence[str], unit: str, method: str) -> Quantity:
    """Return the mean of samples with its standard error (GUM 4.2); samples with the same data count as one."""
    _, of = np.unique(data, return_inverse=True)
    means = np.bincount(of, each) / np.bincount(of)
    n = len(means)
    parts = (Component("finite sample", float(means.std(ddof=1)) / math.sqrt(n), n - 1),) if n > 1 else ()
    return Quantity(float(means.mean()), unit, parts, 0.0, n, method)


def _inverse(quantity: Quantity, factor: float, unit: str, method: str) -> Quantity:
    """Return ``factor / quantity`` to first order (GUM 5.1.3)."""
    scaled = quantity.scaled(-factor / quantity.value**2, unit, method)
    return Quantity(factor / quantity.value, unit, scaled.components, scaled.bias, quantity.n, method)


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(value)
