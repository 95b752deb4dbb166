"""Counts effective synaptic operations in integers, from the inputs of each connection alone.

An operation is effective if neither the weight nor the input is zero. So the fan-out of each input, the number of
non-zero weights that it meets, describes a connection fully. The count of an execution is the sum of the fan-outs of
its non-zero inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.network.description import Connection, Counts, Memory, MemoryKind


@dataclass(frozen=True, slots=True, eq=False)
class Synapses:
    """A connection and its fan-out: the number of non-zero weights that each input meets, int64, shape of one input."""

    connection: Connection
    fan_out: Counts

    def count(self, values: NDArray[Any]) -> dict[str, Counts]:
        """Return ``acs`` and ``macs`` by execution for inputs of shape (executions, ...).

        Operations are multiply-accumulates in an execution whose inputs have a value other than -1, 0 and 1, and
        accumulates otherwise (NeuroBench, "Synaptic operations"). Inputs arrive ``connection.delay`` executions after
        they were sent, so in the first executions nothing arrives.
        """
        here = np.asarray(values).reshape(len(values), -1)
        if delay := min(self.connection.delay, len(here)):
            here = np.concatenate((np.zeros_like(here[:delay]), here[:-delay]))
        active = here != 0
        # computed in doubles: sums of integers are exact up to 2**53, and no count is larger
        operations = (active @ self.fan_out.ravel().astype(np.float64)).astype(np.int64)
        macs = operations * (np.abs(here) != active).any(axis=1)
        return {"acs": operations - macs, "macs": macs}


def linear(name: str, source: str, target: str, weights: NDArray[Any], delay: int = 0) -> Synapses:
    """Return a connection of all inputs to all neurons; ``weights`` has shape (inputs, neurons)."""
    fan_out = np.count_nonzero(weights, axis=1).astype(np.int64)
    return _synapses(name, source, target, weights, weights.size, fan_out, delay)


def convolution(
    name: str,
    source: str,
    target: str,
    weights: NDArray[Any],
    shape: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    delay: int = 0,
) -> Synapses:
    """Return a convolution in any number of dimensions over an input of ``shape`` (channels, ...).

    ``weights`` has shape (outputs, channels / groups, ...). Stride, padding and dilation may differ along the axes.
    Padding is no input: it performs no operation, not even a dense one. Sum pooling is a convolution with one group per
    channel. Raises ``ValueError`` for weights that do not fit the input.
    """
    if weights.ndim != len(shape) + 1 or weights.shape[1] * groups != shape[0] or weights.shape[0] % groups:
        raise ValueError(f"weights of shape {weights.shape} in {groups} groups do not fit an input of {tuple(shape)}")
    axes = [np.broadcast_to(each, len(shape) - 1).tolist() for each in (stride, padding, dilation)]
    met = [_spread(used, shape, groups, *axes) for used in (weights != 0, np.ones_like(weights))]
    return _synapses(name, source, target, weights, int(met[1].sum()), met[0], delay)


def memory_of(arrays: Mapping[str, NDArray[Any]], kind: MemoryKind | None = None) -> tuple[Memory, ...]:
    """Return the memory of a model's arrays at their own precision.

    Without ``kind``, an array of two dimensions or more holds weights, and any other holds parameters.
    """
    return tuple(
        Memory(name, kind or ("weights" if a.ndim > 1 else "parameters"), int(a.size), 8 * a.itemsize)
        for name, a in ((name, np.asarray(values)) for name, values in arrays.items())
    )


def active(values: NDArray[Any]) -> Counts:
    """Return how many values of each execution are not zero, for an array of shape (executions, ...)."""
    return np.asarray(np.reshape(values, (len(values), -1)).astype(bool, copy=False).sum(axis=1), np.int64)


def count(synapses: Sequence[Synapses], values: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Counts]]:
    """Return the activity of one sample, for ``Reply.activity``.

    ``values`` has, by name, the outputs of each layer and of each other source of connections, each of shape
    (executions, ...).
    """
    sources = {part.connection.source for part in synapses}
    layers = {part.connection.target for part in synapses}
    counted = {name: {"active": active(values[name])} for name in values if name in sources | layers}
    return counted | {part.connection.name: part.count(values[part.connection.source]) for part in synapses}


def _synapses(
    name: str, source: str, target: str, weights: NDArray[Any], dense: int, fan_out: Counts, delay: int
) -> Synapses:
    zeros = int(weights.size - np.count_nonzero(weights))
    most = int(fan_out.max(initial=0))
    return Synapses(Connection(name, source, target, int(weights.size), zeros, dense, most, delay), fan_out)


def _spread(
    used: NDArray[Any], shape: Sequence[int], groups: int, strides: list[int], paddings: list[int], dilations: list[int]
) -> Counts:
    """Return for each input how many of the ``used`` weights it meets in all windows together, shape ``shape``."""
    grouped = used.reshape(groups, -1, *used.shape[1:]).sum(axis=1, dtype=np.int64)
    found = grouped.reshape(shape[0], *used.shape[2:])
    axes = zip(shape[1:], used.shape[2:], strides, paddings, dilations, strict=True)
    for size, width, stride, padding, dilation in axes:
        # the kernel's first remaining axis becomes the input's last axis
        windows = max((size + 2 * padding - dilation * (width - 1) - 1) // stride + 1, 0)
        first = np.arange(windows)[:, None] * stride - padding
        at = first + dilation * np.arange(width)
        hits = np.zeros((width, size), np.int64)
        for k in range(width):
            inside = at[:, k][(at[:, k] >= 0) & (at[:, k] < size)]
            np.add.at(hits[k], inside, 1)
        found = np.tensordot(found, hits, axes=([1], [0]))
    return np.asarray(found, np.int64)
