"""The cost of a network before it runs: footprint, parameters, connection sparsity, dense operations, execution rate.

The definitions are NeuroBench's ("Specifications of the Algorithm Track Metrics"). The reference implementation counts
states once they exist, so its footprint depends on when it is read. Here, the footprint at the start and the full
footprint are separate figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, get_args

from rig.analysis.result.catalogue import figure
from rig.analysis.result.figure_key import Figures
from rig.network.description import MemoryKind, NetworkInfo


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
