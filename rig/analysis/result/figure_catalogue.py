"""The catalogue of every quantity that the rig computes: unit, title, and the family in which it is shown."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rig.analysis.result.quantity import FigureKey, Figures, Quantity

Family = Literal[
    "overall", "service", "arrivals", "scene changes", "average", "solver", "complexity", "spiking", "recorder"
]
Scale = Literal["auto", "percent", "number"]
"""How to print a number without a unit: in percent up to 1, always in percent, or never in percent."""


class Entry(NamedTuple):
    """One quantity.

    ``title`` may contain parameters of the key. A quantity that is ``signed`` can be below zero. ``better`` is "" if
    neither more nor less is better.
    """

    unit: str
    title: str
    family: Family = "overall"
    scale: Scale = "auto"
    signed: bool = False
    better: Literal["less", "more", ""] = "less"


CATALOGUE: Mapping[str, Entry] = {
    "accuracy": Entry("1", "Accuracy", scale="percent", better="more"),
    "balanced_accuracy": Entry("1", "Balanced accuracy", scale="percent", better="more"),
    "session_accuracy_mean": Entry("1", "Accuracy, mean over sessions", scale="percent", better="more"),
    "session_accuracy": Entry("1", "Accuracy", scale="percent", better="more"),
    "session_accuracy_old": Entry("1", "Accuracy, old words", scale="percent", better="more"),
    "session_accuracy_new": Entry("1", "Accuracy, new words", scale="percent", better="more"),
    "learning_time_per_class_s": Entry("s", "Time to learn a class"),
    "learning_energy_per_class_j": Entry("J", "Energy to learn a class"),
    "learning_dynamic_energy_per_class_j": Entry("J", "Dynamic energy to learn a class", signed=True),
    "map": Entry("1", "COCO mean average precision", scale="number", better="more"),
    "r2": Entry("1", "Coefficient of determination, R2", scale="number", signed=True, better="more"),
    "smape_mean": Entry("1", "sMAPE, mean (0 to 200)", scale="number"),
    "smape_p{percentile}": Entry("1", "sMAPE, {percentile}", scale="number"),
    "execution_time_s": Entry("s", "Execution time, mean"),
    "execution_time_single_s": Entry("s", "Execution time of a single sample, mean"),
    "execution_time_se_s": Entry("s", "Execution time, standard error of the mean"),
    "execution_time_p{percentile}_s": Entry("s", "Execution time, {percentile}"),
    "busy_time_per_inference_s": Entry("s", "Busy time per inference"),
    "idle_power_w": Entry("W", "Idle power"),
    "active_power_w": Entry("W", "Active power"),
    "dynamic_power_w": Entry("W", "Dynamic power", signed=True),
    "preprocessing_power_w": Entry("W", "Pre-processing power, front end that listens"),
    "preprocessing_energy_per_inference_j": Entry("J", "Pre-processing energy per inference, front end that listens"),
    "energy_per_inference_j": Entry("J", "Energy per inference"),
    "energy_per_inference_integrated_j": Entry("J", "Energy per inference, integrated"),
    "dynamic_energy_per_inference_j": Entry("J", "Dynamic energy per inference", signed=True),
    "duration_s": Entry("s", "Duration", "service", better=""),
    "throughput_samples_hz": Entry("Hz", "Throughput, samples", "service", better="more"),
    "throughput_inferences_hz": Entry("Hz", "Throughput, inferences", "service", better="more"),
    "latency_mean_s": Entry("s", "Latency, mean", "service"),
    "latency_p{percentile}_s": Entry("s", "Latency, {percentile}", "service"),
    "latency_p{percentile}_early_stopping_s": Entry("s", "Latency, {percentile}, early stopping", "service"),
    "peak_rate_hz": Entry("Hz", "Highest rate within the rules", "service", better="more"),
    "dropped_share": Entry("1", "Samples dropped", "service", "percent"),
    "backlog_max": Entry("1", "Backlog, greatest", "service", "number"),
    "in_time_share": Entry("1", "Answered in time", "service", "percent", better="more"),
    "slip_p{percentile}_s": Entry("s", "Scheduling delay of the host, {percentile}", "arrivals"),
    "slip_max_s": Entry("s", "Scheduling delay of the host, greatest", "arrivals"),
    "arrival_gap_distance": Entry("1", "Gaps issued to gaps scheduled, Kolmogorov distance", "arrivals", "number"),
    "onset_never_share": Entry("1", "Scene changes never recognised", "scene changes", "percent"),
    "onset_latency_mean_s": Entry("s", "Time to recognise a new scene, mean", "scene changes"),
    "onset_latency_p{percentile}_s": Entry("s", "Time to recognise a new scene, {percentile}", "scene changes"),
    "stream_accuracy": Entry("1", "Share of time with the right scene", "scene changes", "percent", better="more"),
    "average_power_w": Entry("W", "Average power", "average"),
    "average_energy_per_sample_j": Entry("J", "Energy per sample, idle stretches included", "average"),
    "runtime_power_w": Entry("W", "Average power over the runtime of a solve", "solver"),
    "largest_nodes": Entry("1", "Largest problem solved, nodes", "solver", better="more"),
    "cost_mean": Entry("1", "Cost, mean", "solver", "number", signed=True),
    "cost_best": Entry("1", "Cost, best", "solver", "number", signed=True),
    "feasible_share": Entry("1", "Solutions that are feasible", "solver", "percent", better="more"),
    "overrun_mean_s": Entry("s", "Overrun of the budget, mean", "solver"),
    "overrun_max_s": Entry("s", "Overrun of the budget, greatest", "solver"),
    "target_{target}_mean": Entry("1", "Cost of the {target} target, mean", "solver", "number", signed=True, better=""),
    "gap_{target}_mean": Entry("1", "Gap to the {target} target, mean", "solver", "percent", signed=True),
    "gap_{target}_spread_problems": Entry(
        "1", "Gap to the {target} target, deviation between problems", "solver", "percent", signed=True
    ),
    "gap_{target}_spread_solves": Entry(
        "1", "Gap to the {target} target, deviation within a problem", "solver", "percent", signed=True
    ),
    "reached_gap_{target}_{threshold}_share": Entry(
        "1", "Reached a gap of {threshold} ({target} target)", "solver", "percent", better="more"
    ),
    "time_to_gap_{target}_{threshold}_s": Entry(
        "s", "Time to a gap of {threshold} ({target} target), where reached", "solver", better=""
    ),
    "time_to_gap_{target}_{threshold}_official_s": Entry(
        "s", "Time to a gap of {threshold} ({target} target), reached by all", "solver"
    ),
    "energy_to_gap_{target}_{threshold}_j": Entry(
        "J", "Energy to a gap of {threshold} ({target} target), where reached", "solver", better=""
    ),
    "energy_to_gap_{target}_{threshold}_official_j": Entry(
        "J", "Energy to a gap of {threshold} ({target} target), reached by all", "solver"
    ),
    "footprint_bytes": Entry("B", "Footprint", "complexity"),
    "footprint_at_start_bytes": Entry("B", "Footprint before the first execution", "complexity"),
    "footprint_weights_bytes": Entry("B", "Footprint, weights", "complexity"),
    "footprint_parameters_bytes": Entry("B", "Footprint, parameters of neurons", "complexity"),
    "footprint_states_bytes": Entry("B", "Footprint, states", "complexity"),
    "footprint_buffers_bytes": Entry("B", "Footprint, buffers", "complexity"),
    "parameters": Entry("1", "Parameters", "complexity", "number", better=""),
    "connection_sparsity": Entry("1", "Connection sparsity", "complexity", "number", better=""),
    "model_execution_rate_hz": Entry("Hz", "Model execution rate", "complexity", better=""),
    "executions_per_sample": Entry("1", "Executions per sample", "complexity", "number", better=""),
    "activation_sparsity": Entry("1", "Activation sparsity", "complexity", "number", better=""),
    "dense_operations_per_execution": Entry("1", "Dense synaptic operations per execution", "complexity", "number"),
    "dense_operations_per_sample": Entry("1", "Dense synaptic operations per sample", "complexity", "number"),
    "effective_macs_per_execution": Entry("1", "Effective MACs per execution", "complexity", "number"),
    "effective_macs_per_sample": Entry("1", "Effective MACs per sample", "complexity", "number"),
    "effective_acs_per_execution": Entry("1", "Effective ACs per execution", "complexity", "number"),
    "effective_acs_per_sample": Entry("1", "Effective ACs per sample", "complexity", "number"),
    "membrane_updates_per_execution": Entry("1", "Membrane updates per execution", "complexity", "number"),
    "membrane_updates_per_sample": Entry("1", "Membrane updates per sample", "complexity", "number"),
    "spikes_per_execution": Entry("1", "Spikes per execution", "complexity", "number", better=""),
    "spikes_per_sample": Entry("1", "Spikes per sample", "complexity", "number", better=""),
    "energy_per_effective_operation_j": Entry("J", "Energy per effective operation", "complexity"),
    "energy_per_spike_j": Entry("J", "Energy per spike", "complexity"),
    "dynamic_energy_per_effective_operation_j": Entry(
        "J", "Dynamic energy per effective operation", "complexity", signed=True
    ),
    "dynamic_energy_per_spike_j": Entry("J", "Dynamic energy per spike", "complexity", signed=True),
    "response_latency_mean_s": Entry("s", "Response latency in biological time, mean", "spiking", better=""),
    "silent_share": Entry("1", "Samples without an output spike", "spiking", "percent", better=""),
    "synaptic_operations_hz": Entry("Hz", "Synaptic operations per biological second, counted", "spiking", better=""),
    "synaptic_operations_ne15_hz": Entry(
        "Hz", "Synaptic operations per biological second, as NE15-MNIST", "spiking", better=""
    ),
    "real_time_factor": Entry("1", "Biological time over simulation time", "spiking", "number", better="more"),
    "energy_per_synaptic_operation_j": Entry("J", "Dynamic energy per synaptic operation", "spiking", signed=True),
    "synaptic_operations_per_j": Entry(
        "1/J", "Synaptic operations per second and watt above idle", "spiking", better="more"
    ),
    "energy_j": Entry("J", "Energy", "recorder"),
    "power_w": Entry("W", "Power", "recorder"),
    "throughput_hz": Entry("Hz", "Throughput", "recorder", better="more"),
    "energy_per_inference_median_j": Entry("J", "Energy per inference, median", "recorder"),
    "throughput_median_hz": Entry("Hz", "Throughput, median", "recorder", better="more"),
    "ranging.average_power_w": Entry("W", "Average power, ranging", "recorder"),
    "energy_per_query_j": Entry("J", "Energy per query", "recorder"),
    "testing_over_ranging": Entry("1", "Testing over ranging", "recorder", signed=True, better=""),
}


def entry_of(key: FigureKey) -> Entry:
    """Return the entry of a figure's quantity.

    Raises ``KeyError`` for a quantity that the catalogue does not hold.
    """
    return CATALOGUE[key.quantity]


def figure(name: str, value: float, told: str, n: int = 0, **of: Any) -> Figures:
    """Return one figure without an uncertainty; ``told`` is its method, and ``of`` are the other fields of its key."""
    return Figures({FigureKey(name, **of): Quantity(float(value), CATALOGUE[name].unit, n=n, method=told)})


def title_of(key: FigureKey) -> str:
    """Return the title of a figure without its phase and rail, such as ``Latency, 99th percentile``."""
    title = entry_of(key).title.format(
        target=key.target.replace("_", " "), threshold=f"{100 * key.threshold:g} %", percentile=ordinal(key.percentile)
    )
    title = f"{title}, layer {key.layer}" if key.layer else title
    title = f"{title}, {key.sample}" if key.sample else title
    return f"{title}, window {key.window}" if key.window else title


def ordinal(percentile: float) -> str:
    """Return a percentile in words: 50 is the median, 99.9 the 99.9th percentile."""
    text = f"{percentile:g}"
    if text == "50":
        return "median"
    irregular = "." not in text and text[-2:] not in ("11", "12", "13")
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(text[-1], "th") if irregular else "th"
    return f"{text}{ending} percentile"
