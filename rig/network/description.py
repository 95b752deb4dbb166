"""The description of a deployed network: its layers, its connections and the memory that it takes.

All counts are integers, so that a recording holds them exactly. The definitions are those of NeuroBench
("Specifications of the Algorithm Track Metrics").
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST = 2**53
MOST_PARTS = 10_000
"""The most layers, connections or arrays of a network; each may get its own figures."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
MemoryKind = Literal["weights", "parameters", "states", "buffers"]
Counts = NDArray[np.int64]
Activity = Mapping[str, Mapping[str, Counts]]
"""What a network did in one sample: counters by name, by layer or connection, each of shape (executions,).

Of a layer: ``active``, the neurons whose output is not zero. Optional: ``spikes``, the sum of its outputs, and
``updates``, the membranes whose value changed. Of a connection: ``acs`` and ``macs``, its effective operations.
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """One array that the network keeps; ``bits`` is the precision of an element as deployed.

    Trained values of neurons, such as thresholds, are ``parameters``. ``states`` are what neurons carry from one
    execution to the next. ``buffers`` are all else, such as past inputs. ``elements_at_start`` is how many elements
    exist before the first execution, if not all of them.
    """

    name: Name
    kind: MemoryKind
    elements: Count
    bits: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    elements_at_start: Count | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A population of neurons, each with one activation in an execution; activation sparsity counts only these.

    Activations are "the outputs of ReLU functions and spikes from spiking neurons" (NeuroBench, "Activation sparsity").
    NeuroBench's harness counts the outputs of ReLU, sigmoid and spiking neurons before pooling or normalisation, also
    of spiking neurons whose membrane potential is the readout. The tanh units of a reservoir are a layer, too: Table 5
    has a sparsity of 0 for them. The state of an LSTM and the membrane potential itself are not outputs of a layer.
    """

    name: Name
    neurons: Annotated[int, msgspec.Meta(ge=1, le=2**53)]


@dataclass(frozen=True, slots=True)
class Connection:
    """Synapses from a layer, or from the input, to a layer; a recurrent connection has one layer as both ends.

    Weighted sums without an activation, such as a readout's, are no layer; their connection names itself as target.
    ``weights`` counts the weights, and ``zeros`` those that are zero. ``dense`` is the synaptic operations of one
    execution when every weight and every input counts: the weights of a linear connection, and more for a convolution.
    ``fan_out_max`` is the most nonzero synapses that one input reaches. An output of execution t arrives in execution t
    + ``delay``.
    """

    name: Name
    source: Name
    target: Name
    weights: Count
    zeros: Count
    dense: Count
    fan_out_max: Count
    delay: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """A deployed network.

    ``execution_s`` is the time (s) by which the input advances in one execution; None if the input has no time.
    ``convention`` states how memory was counted, where there is a choice.
    """

    layers: Annotated[tuple[Layer, ...], msgspec.Meta(max_length=MOST_PARTS)]
    connections: Annotated[tuple[Connection, ...], msgspec.Meta(max_length=MOST_PARTS)]
    memory: Annotated[tuple[Memory, ...], msgspec.Meta(max_length=MOST_PARTS)]
    execution_s: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None
    convention: Annotated[str, msgspec.Meta(max_length=1000)] = ""

    @property
    def neurons(self) -> int:
        return sum(layer.neurons for layer in self.layers)

    @property
    def dense(self) -> int:
        """Return the dense synaptic operations of one execution."""
        return sum(connection.dense for connection in self.connections)

    @property
    def parameters(self) -> int:
        """Return the number of weights and other trained values of the network."""
        return sum(m.elements for m in self.memory if m.kind in ("weights", "parameters"))

    def footprint_bits(self, kind: MemoryKind | None = None, at_start: bool = False) -> int:
        """Return the bits of memory of one kind, or of all; with ``at_start``, those before the first execution."""
        return sum(
            m.bits * (m.elements if not at_start or m.elements_at_start is None else m.elements_at_start)
            for m in self.memory
            if kind in (None, m.kind)
        )


def activity_rows(activity: Activity) -> list[tuple[str, str, list[int]]]:
    """Return (layer or connection, counter, counts) of each counter. Raises ``ValueError`` for others than integers."""
    rows = []
    for part, counters in activity.items():
        for name, counts in counters.items():
            array = np.asarray(counts)
            if array.ndim != 1 or array.dtype.kind not in "iu" or not _within(array, MOST):
                found = f"{array.dtype} of shape {array.shape}"
                raise ValueError(f"{name} of {part} is {found}; give one row of integers from 0 to {MOST}")
            rows.append((str(part), str(name), array.tolist()))
    return rows


def network_faults(network: NetworkInfo) -> Iterator[str]:
    """Yield a sentence for each contradiction in a description."""
    names = [*(layer.name for layer in network.layers), *(c.name for c in network.connections)]
    layers = {layer.name for layer in network.layers}
    if len(set(names)) < len(names):
        yield "two layers or connections share a name"
    if not network.layers and not network.connections:
        yield "there is neither a layer nor a connection"
    for c in network.connections:
        if c.target not in layers | {c.name}:
            yield f"connection {c.name} ends at {c.target}, which is no layer"
        if c.zeros > c.weights:
            yield f"connection {c.name} has {c.zeros} zeros among {c.weights} weights"
        if c.dense < c.fan_out_max:
            yield f"connection {c.name} has fewer dense operations than synapses from one input"
    for m in network.memory:
        if m.elements_at_start is not None and m.elements_at_start > m.elements:
            yield f"memory {m.name} has more elements at the start than later"


def activity_faults(network: NetworkInfo, activity: Activity) -> Iterator[str]:
    """Yield a sentence for each contradiction between the counters of one sample and the description."""
    lengths = {len(counts) for counters in activity.values() for counts in counters.values()}
    if len(lengths) > 1:
        yield f"counters are of {' and '.join(map(str, sorted(lengths)))} executions"
        return
    for layer in network.layers:
        counters = activity.get(layer.name, {})
        if "active" not in counters:
            yield f"layer {layer.name} lacks the counter `active`"
        for name, most in (("active", layer.neurons), ("updates", layer.neurons), ("spikes", MOST)):
            if name in counters and not _within(counters[name], most):
                yield f"layer {layer.name} of {layer.neurons} neurons counts {name} outside 0 to {most}"
    for c in network.connections:
        acs, macs = (activity.get(c.name, {}).get(name) for name in ("acs", "macs"))
        if acs is None or macs is None:
            yield f"connection {c.name} has no counters acs and macs"
        elif (acs | macs).min(initial=0) < 0 or not _within(acs + macs, c.dense):
            yield f"connection {c.name} counts operations outside 0 to {c.dense}, its dense operations"
        else:
            yield from _against_source(c, acs + macs, activity.get(c.source, {}).get("active"))


def _against_source(c: Connection, operations: Counts, active: Counts | None) -> Iterator[str]:
    """Yield a sentence if an execution has more operations than its active inputs times the largest fan-out."""
    if active is None:
        return
    late = min(c.delay, len(active))
    most = active[: len(active) - late] * float(c.fan_out_max)  # an integer could exceed 64 bits
    if operations[:late].any() or (operations[late:] > most).any():
        yield f"connection {c.name} counts more operations than the active neurons of {c.source} reach"


def _within(counts: Counts, most: int) -> bool:
    return bool(counts.astype(np.uint64).max(initial=0) <= most)  # a negative number becomes a large one
