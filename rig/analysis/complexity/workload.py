"""What a network did while it ran: activation sparsity, synaptic operations and membrane updates.

The figures are means over the samples that were asked, of which each counts once. An execution is one forward pass of
the network, and a sample takes one or more of them. The paper states operations per execution, and its reference
implementation counts them per sample: here both are figures of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rig.analysis.complexity.static import exact, static_figures
from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.quantity import Quantity
from rig.analysis.verdict import Check
from rig.network.description import (
    Activity,
    Connection,
    Counts,
    Layer,
    NetworkInfo,
    activity_faults,
    network_faults,
)
from rig.recording.columns import array_of
from rig.recording.reader import Run

RULE = "counted activity fits the declared network"
RATE = "executions of a sample fit the model execution rate"


@dataclass(frozen=True, slots=True)
class Complexity:
    """The figures of a recording, and the checks that it fails."""

    figures: Figures
    checks: tuple[Check, ...]
    per_inference: Mapping[str, float] = field(default_factory=dict)
    """What the network did in a mean inference of the spans, by what was counted; empty where a span is uncounted."""


def complexity_of(run: Run) -> Complexity:
    """Return the complexity of the network that the device of a run declares; no figures without one.

    A description or counters that contradict themselves give a failed check in place of the figures that need them.
    """
    network = run.start.device.network
    if network is None:
        return Complexity(Figures(), ())
    if faults := list(network_faults(network)):
        return Complexity(Figures(), (Check("the declared network is consistent", _said(faults), "", False),))
    figures, counted = static_figures(network), _counted(run)
    if not counted:
        return Complexity(figures, ())
    faults = [f"sample {s.sample_id}: {fault}" for s in counted for fault in activity_faults(network, s.activity)]
    if faults:
        return Complexity(figures, (Check(RULE, _said(faults), "0 contradictions", False),))
    if not sum(s.executions for s in counted):
        return Complexity(figures, ())
    checks = tuple(_rate_checks(run, network, counted))
    return Complexity(figures | _figures(network, counted), checks, _per_inference(run, network, counted))


def energies_of(run: Run, complexity: Complexity, known: Figures) -> Figures:
    """Return energy per effective operation and per spike, of the last phase, which executes the network.

    ``known`` holds the energies per inference of the same run, so that both are of the same inferences.
    """
    found, phase = {}, "".join(run.start.device.phases[-1:])
    for kind in ("energy", "dynamic_energy"):
        whole = known.get(FigureKey(f"{kind}_per_inference_j", phase))
        if whole is None:
            continue
        for what, number in complexity.per_inference.items():
            method = f"{kind.replace('_', ' ')} of the phase {phase} over the {number:.6g} counted in an inference"
            found[FigureKey(f"{kind}_per_{what}_j")] = whole.scaled(1.0 / number, "J", method)
    return Figures(found)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The activity of one answer."""

    issue: int
    sample_id: str
    activity: Activity

    @property
    def executions(self) -> int:
        """Return how often the network was executed; every counter has the same length once it was checked."""
        return max((len(counts) for part in self.activity.values() for counts in part.values()), default=0)


def _counted(run: Run) -> list[_Counted]:
    """The activity of every answer, without warm-up, in the order of issue."""
    warm = {row["issue"] for row in run.replies.select(["issue", "warmup"]).to_pylist() if row["warmup"]}
    found: dict[tuple[int, str], dict[str, dict[str, Counts]]] = {}
    table = run.activity.combine_chunks()
    names = zip(*(table[c].to_pylist() for c in ("issue", "sample_id", "layer", "counter")), strict=True)
    counts = table["counts"].combine_chunks() if len(table) else None
    for row, (issue, sample_id, layer, counter) in enumerate(names):
        values = counts[row].values if counts is not None else None
        array = np.zeros(0, np.int64) if values is None else array_of(values).astype(np.int64)
        if issue not in warm:
            found.setdefault((issue, sample_id), {}).setdefault(layer, {})[counter] = array
    return [_Counted(issue, sample_id, activity) for (issue, sample_id), activity in found.items()]


def _per_inference(run: Run, network: NetworkInfo, counted: list[_Counted]) -> dict[str, float]:
    """Effective operations, and spikes where every layer counts them, in a mean inference of the last phase's spans.

    A span may hold a sample many times, and a sample many inferences. Counts are of one processing of the sample.
    """
    rows = run.replies.select(["issue", "sample_id", "phase", "executions", "warmup"]).to_pylist()
    last = run.start.device.phases[-1:]
    spans = [row for row in rows if row["phase"] in last and not row["warmup"]]
    size = dict(zip(run.samples["id"].to_pylist(), run.samples["inferences"].to_pylist(), strict=True))
    inferences = sum((row["executions"] or 1) * (size.get(row["sample_id"]) or 1) for row in spans)
    activity = {(one.issue, one.sample_id): one.activity for one in counted}
    if not spans or any((row["issue"], row["sample_id"]) not in activity for row in spans):
        return {}

    def mean(parts: Iterable[Layer | Connection], *counters: str) -> float:
        names = [(part.name, counter) for part in parts for counter in counters]
        each = {at: sum(int(of[part][counter].sum()) for part, counter in names) for at, of in activity.items()}
        return sum((row["executions"] or 1) * each[row["issue"], row["sample_id"]] for row in spans) / inferences

    found = {"effective_operation": mean(network.connections, "acs", "macs")}
    if all("spikes" in one.activity[layer.name] for one in counted for layer in network.layers):
        found["spike"] = mean(network.layers, "spikes")
    return {what: number for what, number in found.items() if number}


def _figures(network: NetworkInfo, counted: list[_Counted]) -> Figures:
    asked = Counter(one.sample_id for one in counted)
    share = np.array([1.0 / asked[one.sample_id] for one in counted])
    executions = float(np.sum(share * [one.executions for one in counted]))
    method = f"counted over {sum(one.executions for one in counted)} executions of {len(asked)} samples"

    def total(parts: Iterable[Layer | Connection], counter: str) -> float:
        names = [part.name for part in parts]
        return float(np.sum(share * [sum(int(one.activity[n][counter].sum()) for n in names) for one in counted]))

    def sparsity(layers: Sequence[Layer]) -> Quantity:
        neurons = sum(layer.neurons for layer in layers)
        return exact(1.0 - total(layers, "active") / (neurons * executions), "1", method, len(asked))

    found = {FigureKey("executions_per_sample"): exact(executions / len(asked), "1", method, len(asked))}
    found[FigureKey("activation_sparsity")] = sparsity(network.layers)
    for layer in network.layers:
        found[FigureKey("activation_sparsity", layer=layer.name)] = sparsity([layer])
    totals = {
        "dense_operations": network.dense * executions,
        "effective_macs": total(network.connections, "macs"),
        "effective_acs": total(network.connections, "acs"),
    }
    for counter, name in (("updates", "membrane_updates"), ("spikes", "spikes")):
        if all(counter in one.activity[layer.name] for one in counted for layer in network.layers):
            totals[name] = total(network.layers, counter)
    for name, number in totals.items():
        found[FigureKey(f"{name}_per_execution")] = exact(number / executions, "1", method, len(asked))
        found[FigureKey(f"{name}_per_sample")] = exact(number / len(asked), "1", method, len(asked))
    for c in network.connections:
        own = {"dense_operations": c.dense * executions}
        own |= {f"effective_{counter}": total([c], counter) for counter in ("macs", "acs")}
        for name, number in own.items():
            key = FigureKey(f"{name}_per_sample", layer=c.name)
            found[key] = exact(number / len(asked), "1", method, len(asked))
    return Figures(found)


def _rate_checks(run: Run, network: NetworkInfo, counted: list[_Counted]) -> Iterator[Check]:
    """A failed check if samples that state their length took another number of executions than the rate gives."""
    if network.execution_s is None:
        return
    rows = zip(run.samples["id"].to_pylist(), run.samples["duration_s"].to_pylist(), strict=True)
    lasting_s: Mapping[str, float] = {name: s for name, s in rows if s}
    known = [one for one in counted if one.sample_id in lasting_s]
    off = [one for one in known if abs(one.executions - lasting_s[one.sample_id] / network.execution_s) > 1.0]
    if off:
        first = off[0]
        found = f"{len(off)} of {len(known)}, such as {first.executions} in {lasting_s[first.sample_id]:g} s"
        yield Check(RATE, found, f"{1.0 / network.execution_s:g} in a second", False)


def _said(faults: list[str]) -> str:
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"
