"""The cost of a network before it runs: footprint, parameters, connection sparsity, dense operations, execution rate.

The definitions are NeuroBench's ("Specifications of the Algorithm Track Metrics"). The reference implementation counts
states once they exist, so its footprint depends on when it is read. Here, the footprint at the start and the full
footprint are separate figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import get_args

from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.quantity import Quantity
from rig.network.description import MemoryKind, NetworkInfo


def static_figures(network: NetworkInfo) -> Figures:
    """Return the figures that follow from the description alone."""
    weights = sum(c.weights for c in network.connections)
    method = f"counted from the declared network{f' ({network.convention})' if network.convention else ''}"
    found = {
        FigureKey("footprint_bytes"): exact(network.footprint_bits() / 8, "B", method),
        FigureKey("footprint_at_start_bytes"): exact(network.footprint_bits(at_start=True) / 8, "B", method),
        FigureKey("parameters"): exact(network.parameters, "1", method),
        FigureKey("dense_operations_per_execution"): exact(network.dense, "1", method),
    }
    for kind in get_args(MemoryKind):
        key = FigureKey(f"footprint_{kind}_bytes")
        found[key] = exact(network.footprint_bits(kind) / 8, "B", method)
    if weights:
        zeros = sum(c.zeros for c in network.connections)
        found[FigureKey("connection_sparsity")] = exact(zeros / weights, "1", method)
    if network.execution_s is not None:
        found[FigureKey("model_execution_rate_hz")] = exact(1.0 / network.execution_s, "Hz", "declared by the device")
    return Figures(found)


def mean_static_figures(networks: Sequence[NetworkInfo]) -> Figures:
    """Return the static figures of the networks of a run, as means if samples have networks of their own."""
    each = [static_figures(network) for network in networks]
    if len(set(networks)) == 1:
        return each[0]
    found = {}
    for key, first in each[0].items():
        values = [figures[key].value for figures in each if key in figures]
        method = f"mean over {len(values)} samples, each a network of its own, {first.method}"
        found[key] = exact(fmean(values), first.unit, method, len(values))
    return Figures(found)


def exact(value: float, unit: str, method: str, n: int = 0) -> Quantity:
    """Return a counted number with an interval of zero width."""
    return Quantity(float(value), unit, n=n, method=method, limits=(float(value), float(value)))
