"""The cost of a network before it runs, and its activity while it ran.

The cost is footprint, parameters, connection sparsity, dense operations and execution rate. The definitions are
NeuroBench's ("Specifications of the Algorithm Track Metrics"). The reference implementation counts states once they
exist, so its footprint depends on when it is read. Here, the footprint at the start and the full footprint are separate
figures.

The activity is activation sparsity, synaptic operations and membrane updates. Its figures are means over the samples
that were issued, and each sample counts once. An execution is one forward pass of the network, and a sample takes one
or more executions. NeuroBench's paper states operations per execution, and its reference implementation counts them per
sample. Here, the two are separate figures.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, get_args

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import figure
from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.warmup import counted_replies, warmup_issues
from rig.network.description import Activity, Counts, MemoryKind, NetworkInfo, activity_faults, network_faults
from rig.recording.columns.buffers import array_of
from rig.recording.reader import Run

_Sums = Mapping[str, Mapping[str, int]]
"""The sum over executions of each counter of each layer or connection."""
RULE = "counted activity fits the declared network"
RATE = "executions of a sample fit the model execution rate"


class Complexity(Struct, frozen=True):
    """The figures of complexity of a recording, and the checks that it fails."""

    figures: Figures
    findings: tuple[Finding, ...]
    per_inference: Mapping[str, float] = field(default_factory=dict)
    """Mean effective operations and spikes per inference, without zeros; empty if any span lacks counts."""


def complexity_of(run: Run) -> Complexity:
    """Return the complexity of the network that a run's device declares, or of the networks that its samples define.

    Without a network there are no figures. If the description or the counters contradict themselves, a failed check
    replaces the figures that need them.
    """
    declared, own = run.start.device.network, run.networks()
    networks = {f"sample {name}: ": network for name, network in own.items()}
    if declared is not None and not own:
        networks = {"": declared}
    if not networks:
        return Complexity(Figures(), ())
    if faults := [where + fault for where, network in networks.items() for fault in network_faults(network)]:
        return Complexity(Figures(), (Finding("the declared network is consistent", _said(faults)),))
    figures, (activity, sums) = mean_static_figures(list(networks.values())), _activity(run)
    counted, faults = [], []
    for (issue, sample_id), counters in activity.items():
        network = own.get(sample_id, declared)
        wrong = ["no network is declared"] if network is None else list(activity_faults(network, counters))
        faults += [f"sample {sample_id}: {fault}" for fault in wrong]
        if network is not None and not wrong:
            executions = next((len(counts) for part in counters.values() for counts in part.values()), 0)
            counted.append(_Counted(issue, sample_id, network, executions, sums[issue, sample_id]))
    if faults:
        return Complexity(figures, (Finding(RULE, _said(faults), "0 contradictions"),))
    if not sum(one.executions for one in counted):
        return Complexity(figures, ())
    return Complexity(figures | _figures(counted), tuple(_rate_checks(run, counted)), _per_inference(run, counted))


def energies_of(run: Run, complexity: Complexity, known: Figures) -> Figures:
    """Return energy per effective operation and per spike, of the last phase, which executes the network.

    ``known`` holds the energies per inference of the same run, so that energies and counts are of the same inferences.
    """
    found, phase = {}, "".join(run.start.device.phases[-1:])
    for kind in ("energy", "dynamic_energy"):
        whole = known.get(FigureKey(f"{kind}_per_inference_j", phase))
        if whole is None:
            continue
        for what, number in complexity.per_inference.items():
            method = f"{kind.replace('_', ' ')} of {phase} over {number:.6g} {what.replace('_', ' ')}s per inference"
            found[FigureKey(f"{kind}_per_{what}_j")] = whole.scaled(1.0 / number, "J", method)
    return Figures(found)


class _Counted(Struct, frozen=True):
    """The counters that the device reported with one answer, which passed the checks."""

    issue: int
    sample_id: str
    network: NetworkInfo
    executions: int
    sums: _Sums

    def each(self, counter: str) -> dict[str, int]:
        """Return a counter's sum over the executions for each layer or connection that has it.

        ``neurons`` and ``dense_operations`` are taken from the description, once for each execution.
        """
        known = self.sums.get(counter, {})
        if counter == "neurons":
            return {layer.name: layer.neurons * self.executions for layer in self.network.layers}
        if counter == "dense_operations":
            return {c.name: c.dense * self.executions for c in self.network.connections}
        names = [layer.name for layer in self.network.layers] + [c.name for c in self.network.connections]
        return {name: known[name] for name in names if name in known}


def _activity(run: Run) -> tuple[dict[tuple[int, str], Activity], dict[tuple[int, str], _Sums]]:
    """Return the activity of every answer, without warm-up, in the order of issue, and the sums over executions."""
    warm = warmup_issues(run)
    found: dict[tuple[int, str], dict[str, dict[str, Counts]]] = {}
    sums: dict[tuple[int, str], dict[str, dict[str, int]]] = {}
    names = zip(*(run.activity[c].to_pylist() for c in ("issue", "sample_id", "layer", "counter")), strict=True)
    lists = run.activity["counts"].combine_chunks()
    counts, ends = array_of(lists.values).astype(np.int64), array_of(lists.offsets)
    each = np.add.reduceat(np.append(counts, 0.0), ends[:-1]) * (np.diff(ends) > 0)
    rows = zip(names, pairwise(ends.tolist()), each.tolist(), strict=True)
    for (issue, sample_id, layer, counter), (begin, end), total in rows:
        if issue not in warm:
            found.setdefault((issue, sample_id), {}).setdefault(layer, {})[counter] = counts[begin:end]
            sums.setdefault((issue, sample_id), {}).setdefault(counter, {})[layer] = int(total)
    return dict(found), dict(sums)


def _per_inference(run: Run, counted: list[_Counted]) -> dict[str, float]:
    """Return mean effective operations, and spikes if every layer counts them, per inference of the last phase's spans.

    A span may execute its sample many times, and a sample may hold many inferences. Counts are for one pass over the
    sample.
    """
    rows, last = counted_replies(run, "issue", "sample_id", "phase", "executions"), run.start.device.phases[-1:]
    spans = [row for row in rows.to_pylist() if row["phase"] in last]
    size = run.by_sample("inferences")
    inferences = sum((row["executions"] or 1) * (size.get(row["sample_id"]) or 1) for row in spans)
    known = {(one.issue, one.sample_id): one for one in counted}
    if not spans or any((row["issue"], row["sample_id"]) not in known for row in spans):
        return {}

    def mean(*counters: str) -> float:
        number = {at: sum(sum(one.each(counter).values()) for counter in counters) for at, one in known.items()}
        return sum((row["executions"] or 1) * number[row["issue"], row["sample_id"]] for row in spans) / inferences

    found = {"effective_operation": mean("acs", "macs")}
    if _in_every_layer("spikes", counted):
        found["spike"] = mean("spikes")
    return {what: number for what, number in found.items() if number}


def _in_every_layer(counter: str, counted: list[_Counted]) -> bool:
    layers = [(one, layer) for one in counted for layer in one.network.layers]
    return bool(layers) and all(layer.name in one.sums.get(counter, {}) for one, layer in layers)


def _figures(counted: list[_Counted]) -> Figures:
    asked = Counter(one.sample_id for one in counted)
    share = np.array([1.0 / asked[one.sample_id] for one in counted])
    executions = float(np.sum(share * [one.executions for one in counted]))
    method = f"counted over {sum(one.executions for one in counted)} executions of {len(asked)} samples"
    counters = ("neurons", "dense_operations", "active", "macs", "acs", "updates", "spikes")
    sums = {counter: [one.each(counter) for one in counted] for counter in counters}

    def total(counter: str, part: str | None = None) -> float:
        """Return the sum over samples, for one layer or connection or for all."""
        return float(np.sum(share * [sum(each.values()) if part is None else each[part] for each in sums[counter]]))

    def shared(counter: str) -> list[str]:
        """Return the layers or connections that the networks of all samples have."""
        return [part for part in sums[counter][0] if all(part in each for each in sums[counter])]

    n = len(asked)
    found = exact("executions_per_sample", executions / n, method, n)
    for layer in (None, *shared("neurons")) if total("neurons") else ():
        sparsity = 1.0 - total("active", layer) / total("neurons", layer)
        found |= exact("activation_sparsity", sparsity, method, n, layer=layer or "")
    names = {"dense_operations": "dense_operations", "effective_macs": "macs", "effective_acs": "acs"}
    optional = {"membrane_updates": "updates", "spikes": "spikes"}
    for name, counter in (names | {name: c for name, c in optional.items() if _in_every_layer(c, counted)}).items():
        found |= exact(f"{name}_per_execution", total(counter) / executions, method, n)
        found |= exact(f"{name}_per_sample", total(counter) / n, method, n)
    for connection in shared("dense_operations"):
        for name, counter in names.items():
            found |= exact(f"{name}_per_sample", total(counter, connection) / n, method, n, layer=connection)
    return found


def _rate_checks(run: Run, counted: list[_Counted]) -> Iterator[Finding]:
    """Yield a failed check if executions of samples differ by over 1 from their duration times the declared rate."""
    lasting_s = {name: s for name, s in run.by_sample("duration_s").items() if s}
    known = [one for one in counted if one.sample_id in lasting_s]
    timed = [(one, one.network.execution_s) for one in known if one.network.execution_s is not None]
    off = [(one, s) for one, s in timed if abs(one.executions - lasting_s[one.sample_id] / s) > 1.0]
    if off:
        first, execution_s = off[0]
        found = f"{len(off)} of {len(timed)}, such as {first.executions} in {lasting_s[first.sample_id]:g} s"
        yield Finding(RATE, found, f"{1.0 / execution_s:g} in a second", False)


def _said(faults: list[str]) -> str:
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"


def static_figures(network: NetworkInfo) -> Figures:
    """Return the figures that follow from the description alone."""
    weights = sum(c.weights for c in network.connections)
    method = f"counted from the declared network{f' ({network.convention})' if network.convention else ''}"
    found = exact("footprint_bytes", network.footprint_bits() / 8, method)
    found |= exact("footprint_at_start_bytes", network.footprint_bits(at_start=True) / 8, method)
    found |= exact("parameters", network.parameters, method)
    found |= exact("dense_operations_per_execution", network.dense, method)
    for kind in get_args(MemoryKind):
        found |= exact(f"footprint_{kind}_bytes", network.footprint_bits(kind) / 8, method)
    if weights:
        found |= exact("connection_sparsity", sum(c.zeros for c in network.connections) / weights, method)
    if network.execution_s is not None:
        found |= exact("model_execution_rate_hz", 1.0 / network.execution_s, "declared by the device")
    return found


def mean_static_figures(networks: Sequence[NetworkInfo]) -> Figures:
    """Return the static figures of the networks of a run, as means if samples have networks of their own."""
    each = [static_figures(network) for network in networks]
    if len(set(networks)) == 1:
        return each[0]
    found = Figures()
    for key, first in each[0].items():
        values = [figures[key].value for figures in each if key in figures]
        method = f"mean over {len(values)} samples, each a network of its own, {first.method}"
        found |= exact(key.quantity, fmean(values), method, len(values))
    return found


def exact(name: str, value: float, told: str, n: int = 0, **of: Any) -> Figures:
    """Return one figure that was counted, with an interval of zero width; arguments are as in ``figure``."""
    counted = figure(name, value, told, n, **of)
    return Figures({key: replace(q, limits=(q.value, q.value)) for key, q in counted.items()})
