"""A described network, built and run through any backend of PyNN. This module is shipped as source.

``drivers/devices/pynn/description.py`` defines the descriptions. Here a description consists of plain dictionaries,
lists and numbers, and each array of weights is ``{"dtype", "shape", "data"}``. Times are milliseconds of biological
time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from drivers.workers.common import Refusal, decoded

LEAD_STEPS = 2
"""A presentation begins this many steps from now: NEST through PyNN silently drops earlier spikes of sources."""
Spikes = Any
"""The spikes of a population: which neurons fired, and when (ms since the presentation began)."""


def on_grid(events: Any, sources: int, step_ms: float, sample_id: str) -> tuple[Any, Any]:
    """Return addresses of events, and the times of the events on the grid of steps (ms).

    Events have shape (n, 2): microseconds and address. An event takes effect at the end of its step. Raises a
    ``Refusal`` for another array, for an address without a source, and for an event at time 0 or earlier, which is in
    no step.
    """
    if events.ndim != 2 or events.shape[1] != 2 or events.dtype.kind not in "iu":
        what = f"sample {sample_id} is {events.dtype} of shape {events.shape}, not whole numbers of shape (n, 2)"
        raise Refusal("DataError", what, "Each row is a time in microseconds and an address", "payload")
    times, addresses = events[:, 0].astype(np.int64), events[:, 1].astype(np.int64)
    for field, values, low, high in (("address", addresses, 0, sources - 1), ("time", times, 1, 2**53)):
        outside = (values < low) | (values > high)
        if outside.any():
            found = int(values[outside][0])
            what = f"sample {sample_id} has an event with {field} {found}, outside {low} to {high}"
            remedy = "Shift the events after time 0" if field == "time" else "Use addresses of the network's sources"
            raise Refusal("DataError", what, remedy, field, found)
    return addresses, np.ceil(times / (1000.0 * step_ms)) * step_ms


def whole_steps_ms(seconds: float, step_ms: float) -> float:
    """Return the time of a presentation (ms), rounded up to whole steps."""
    return math.ceil(1000.0 * seconds / step_ms) * step_ms


def staged(samples: list[dict[str, Any]], step_ms: float) -> dict[str, dict[str, Any]]:
    """Return samples by id, in order. Raises a ``Refusal`` if a sample's last events fall in the next presentation."""
    for sample in samples:
        events, blank_s = decoded(sample["payload"]), 1e-3 * LEAD_STEPS * step_ms
        last_s = 1e-6 * float(events[:, 0].max()) if events.ndim == 2 and len(events) else 0.0
        if last_s + blank_s > sample["duration_s"]:
            what = f"sample {sample['id']} has an event at {last_s:g} s of its {sample['duration_s']:g} s"
            remedy = f"Leave a blank of {blank_s:g} s or more at its end (option blank_s of the workload)"
            raise Refusal("DataError", what, remedy, "duration_s", sample["duration_s"])
    return {sample["id"]: sample for sample in samples}


def answer(description: dict[str, Any], events: Any, spikes: dict[str, Spikes]) -> dict[str, Any]:
    """Return the results of a presentation. Times are milliseconds since the presentation began.

    ``label`` is the label of the output neuron that fired most, the first of several, or null if none fired. ``tied``
    is how many neurons of other labels fired equally often, and ``most`` is how often. ``fired`` is the number of
    spikes of each population that is no source, and ``events`` is the number of the sources' events. ``first_input_ms``
    is the end of the step of the first event.
    """
    (neurons, times), labels, step_ms = spikes[description["output"]], description["labels"], description["step_ms"]
    counts = np.bincount(neurons, minlength=len(labels))
    most = int(counts.max())
    winners = [labels[n] for n in np.flatnonzero(counts == most)] if most else []
    fired = {name: len(found[1]) for name, found in spikes.items()}
    return {
        "label": winners[0] if winners else None,
        "tied": sum(label != winners[0] for label in winners),
        "most": most,
        "first_input_ms": math.ceil(int(events[:, 0].min()) / (1e3 * step_ms)) * step_ms if len(events) else None,
        "first_output_ms": round(float(times.min()), 3) if len(times) else None,
        "events": len(events),
        "fired": fired,
        **operations(description, events, fired),
    }


def operations(description: dict[str, Any], events: Any, fired: dict[str, int]) -> dict[str, int]:
    """Count the synaptic operations of a presentation, by two conventions.

    ``synaptic_operations`` counts each spike at every synapse that it reaches. NE15-MNIST has another convention. It
    counts each source's event at every synapse from its pixel to the output, as if the layer between passed the event
    on. This convention also adds the output's spikes.
    """
    sizes = {p["name"]: p["size"] for p in description["populations"]}
    sources = [p["name"] for p in description["populations"] if p["source"]]
    firsts = np.cumsum([0] + [sizes[name] for name in sources])
    sent = {**fired, **dict(zip(sources, np.histogram(events[:, 1], firsts)[0].tolist(), strict=True))}
    fans = [(p, 1 if p["connector"] == "one-to-one" else sizes[p["target"]]) for p in description["projections"]]
    into = sum(fan for p, fan in fans if p["target"] == description["output"] and p["source"] not in sources)
    return {
        "synaptic_operations": sum(sent[p["source"]] * fan for p, fan in fans),
        "synaptic_operations_ne15": fired[description["output"]] + len(events) * into,
    }


class Network:
    """The network on one backend of PyNN.

    ``sim`` is the backend's module; ``setup`` has the extra arguments of its ``setup``. If ``events`` are given, the
    sources have these spikes from the start, because some backends accept none later.
    """

    def __init__(
        self, sim: Any, description: dict[str, Any], arrays: dict[str, Any], events: Any = None, **setup: Any
    ) -> None:
        self._sim, self._step_ms, self._began_ms = sim, description["step_ms"], 0.0
        delay_ms = description["delay_ms"]
        sim.setup(timestep=self._step_ms, min_delay=delay_ms, **setup)
        self._weights = {name: decoded(array) for name, array in arrays.items()}
        self._sources = [p for p in description["populations"] if p["source"]]
        self._recorded = [p["name"] for p in description["populations"] if not p["source"]]
        trains = {} if events is None else self._trains(events, "of the start", 0.0)
        self._made: dict[str, Any] = {}
        for p in description["populations"]:
            first = trains.get(p["name"], [])
            first = first if any(first) else []  # sPyNNaker fails for lists that are all empty
            model = sim.SpikeSourceArray(spike_times=first) if p["source"] else sim.IF_curr_exp(**description["neuron"])
            self._made[p["name"]] = sim.Population(p["size"], model, label=p["name"])
            if not p["source"]:
                self._made[p["name"]].initialize(v=description["neuron"]["v_rest"])
                self._made[p["name"]].record("spikes")
        self._projections, self._plastic = {}, {}
        for p in description["projections"]:
            made = self._projection(p, delay_ms, description.get("plasticity"))
            self._projections[f"{p['source']} to {p['target']}, {p['receptor']}"] = made
            if p["plastic"]:
                self._plastic[f"{p['source']}-{p['target']}"] = made

    def load(self, events: Any, sample_id: str) -> None:
        """Give the sources the spikes of the next presentation."""
        for name, trains in self._trains(events, sample_id, self._sim.get_current_time()).items():
            spiking = [n for n, train in enumerate(trains) if train]
            if spiking:  # other sources still have spike times in the past
                self._made[name][spiking].set(spike_times=[trains[n] for n in spiking])

    def run(self, seconds: float) -> None:
        """Run for some further biological time, in whole steps."""
        self._began_ms = self._sim.get_current_time() + LEAD_STEPS * self._step_ms
        self._sim.run(whole_steps_ms(seconds, self._step_ms))

    def _trains(self, events: Any, sample_id: str, now_ms: float) -> dict[str, list[list[float]]]:
        """Return the spike times of each source, delayed by ``LEAD_STEPS``."""
        sizes = [p["size"] for p in self._sources]
        addresses, times = on_grid(events, sum(sizes), self._step_ms, sample_id)
        order = np.lexsort((times, addresses))
        later = times[order] + now_ms + LEAD_STEPS * self._step_ms
        trains = [train.tolist() for train in np.split(later, np.searchsorted(addresses[order], range(1, sum(sizes))))]
        firsts = np.cumsum([0, *sizes])
        return {p["name"]: trains[firsts[k] : firsts[k + 1]] for k, p in enumerate(self._sources)}

    def spikes(self) -> dict[str, Spikes]:
        """Return the spikes of the last presentation, by population, without the sources."""
        found = {}
        for name in self._recorded:
            trains = self._made[name].get_data("spikes", clear=True).segments[-1].spiketrains
            channels, times = trains.multiplexed
            neurons = np.searchsorted(np.sort(trains.all_channel_ids), np.asarray(channels))
            found[name] = neurons, np.asarray(times, float) - self._began_ms
        return found

    def synapses(self) -> dict[str, int]:
        """Return how many synapses the backend made, by source, target and receptor. For none, PyNN returns NaN."""
        found = {name: np.asarray(p.get("weight", format="array"), float) for name, p in self._projections.items()}
        return {name: int((~np.isnan(weights)).sum()) for name, weights in found.items()}

    def weights(self) -> dict[str, list[list[float]]]:
        """Return the current weights of the plastic projections, in nA, by source and target."""
        return {name: np.asarray(p.get("weight", format="array")).tolist() for name, p in self._plastic.items()}

    def _projection(self, p: dict[str, Any], delay_ms: float, rule: dict[str, float] | None) -> Any:
        sim, weight = self._sim, p["weight"]
        pre, post = self._made[p["source"]], self._made[p["target"]]
        # PyNN 0.13 cannot connect populations of one neuron one to one (numpy 2)
        one_to_one = p["connector"] == "one-to-one" and pre.size > 1
        connector = sim.OneToOneConnector() if one_to_one else sim.AllToAllConnector()
        synapse = sim.StaticSynapse() if isinstance(weight, str) else sim.StaticSynapse(weight=weight, delay=delay_ms)
        if p["plastic"]:
            assert rule is not None
            times = {name: rule[name] for name in ("tau_plus", "tau_minus", "A_plus", "A_minus")}
            bounds = {name: rule[name] for name in ("w_min", "w_max")}
            synapse = sim.STDPMechanism(
                timing_dependence=sim.SpikePairRule(**times),
                weight_dependence=sim.MultiplicativeWeightDependence(**bounds),
                weight=weight,
                delay=delay_ms,
            )
        elif isinstance(weight, str):
            array = self._weights[weight]
            at = np.indices(array.shape).reshape(2, -1).T
            rows = np.column_stack([at, array.ravel(), np.full(array.size, delay_ms)])
            connector = sim.FromListConnector(rows, column_names=["weight", "delay"])
        return sim.Projection(pre, post, connector, synapse, receptor_type=p["receptor"])
