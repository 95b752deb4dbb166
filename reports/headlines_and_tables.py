"""The figures of a result as text: cards, tables, and components of the uncertainty."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.format import KINDS, budget, groups, parts_of, short_text, si, text_of, title
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import LITERAL, FigureKey, Quantity
from rig.analysis.result.result import Result
from rig.analysis.solving.gap_to_target import by_preference
from rig.terminal import clean

_POWER = tuple(map(FigureKey, ("idle_power_w", "average_power_w", "average_energy_per_sample_j")))
_ACCURACY, _EXECUTION, _THROUGHPUT = map(FigureKey, ("accuracy", "execution_time_s", "throughput_samples_hz"))
_LATENCY = tuple(FigureKey("latency_p{percentile}_s", percentile=p) for p in (50, 99))
_CARDS: Mapping[str, tuple[FigureKey, ...]] = {
    "offline": (_ACCURACY, _THROUGHPUT, FigureKey("duration_s"), _EXECUTION, *_POWER, FigureKey("dynamic_power_w")),
    "server": (_ACCURACY, _THROUGHPUT, *_LATENCY, FigureKey("backlog_max"), *_POWER),
    "optimization": (FigureKey("runtime_power_w"), FigureKey("idle_power_w"), _EXECUTION),
    "real-time": (
        FigureKey("stream_accuracy"), FigureKey("onset_latency_p{percentile}_s", percentile=50),
        FigureKey("in_time_share"), _LATENCY[1], FigureKey("dropped_share"), *_POWER,
    ),
}  # fmt: skip
_ONE_BY_ONE = (
    _ACCURACY, _EXECUTION, FigureKey("execution_time_p{percentile}_s", percentile=99),
    *map(FigureKey, ("idle_power_w", "active_power_w", "dynamic_power_w", "energy_per_inference_j")),
    FigureKey("dynamic_energy_per_inference_j"),
)  # fmt: skip
CARDS = 6
_SCORES = tuple(map(FigureKey, ("session_accuracy_mean", "learning_energy_per_class_j", "map", "r2", "smape_mean")))
_DETAILS = (
    "feasible_share", "idle_power_w", "backlog_max", "duration_s", "dropped_share", "dynamic_energy_per_inference_j",
    "execution_time_p{percentile}_s",
)  # fmt: skip
"""Quantities that are left out when the first screen is full, the last one first."""
_COMPONENTS = 12
"""The page lists at most this many components of one figure."""
_HEADED = ("phase", "rail", "phase and rail", "cross-check", LITERAL)


class Row(NamedTuple):
    """One quantity in a table."""

    name: str
    title: str
    value: str
    half: str
    unit: str
    n: str
    method: str


def cards(result: Result, keys: Sequence[FigureKey]) -> list[dict[str, str]]:
    """Return figures as text, each with its state: given, refused or absent."""
    refused = {r.scope for r in result.refusals}
    found = []
    for key in keys:
        q = result.quantities.get(key)
        value, half, unit = parts_of(key, q) if q is not None else ("", "", "")
        state = "given" if q is not None else "refused" if key in refused else "absent"
        found.append({"title": title(key), "value": value, "half": half, "unit": unit, "state": state})
    return found


def key_figures(result: Result) -> list[FigureKey]:
    """Return the keys of at most six figures for a page to show first. It omits absent figures first, then details."""
    asked = headline_keys(result)
    told = {*result.quantities, *(r.scope for r in result.refusals)}
    rank = {quantity: k for k, quantity in enumerate(_DETAILS, 1)}
    kept = sorted(asked, key=lambda key: (key not in told, rank.get(key.quantity, 0)))
    return [key for key in asked if key in kept[:CARDS]]


def headline_keys(result: Result) -> list[FigureKey]:
    """Return the keys of the most important figures of this scenario, stated or not."""
    scores = [key for key in _SCORES if key in result.quantities]
    return [*scores, *_requested(result.quantities), *_CARDS.get(result.start.scenario.name, _ONE_BY_ONE)]


def _requested(quantities: Mapping[FigureKey, Quantity]) -> list[FigureKey]:
    """Return the keys of figures that the rules or the task require: a solver's, and estimates by early stopping."""
    targets = by_preference(key.target for key in quantities if key.target)
    target = next(iter(targets), "")
    near = ("reached_gap_{target}_{threshold}_share", "time_to_gap_{target}_{threshold}_s",
            "energy_to_gap_{target}_{threshold}_j")  # fmt: skip
    solver = (
        *map(FigureKey, ("peak_rate_hz", "largest_nodes")),
        FigureKey("gap_{target}_mean", target=target),
        *map(FigureKey, ("cost_best", *(() if targets else ("cost_mean",)), "feasible_share")),
        *(FigureKey(name, target=target, threshold=0.01) for name in near),
    )
    stopped = [key for key in quantities if key.quantity == "latency_p{percentile}_early_stopping_s"]
    return [*(key for key in solver if key in quantities), *stopped]


COMPLEXITY = (
    "footprint_bytes", "connection_sparsity", "activation_sparsity", "dense_operations_per_sample",
    "effective_macs_per_sample", "effective_acs_per_sample", "membrane_updates_per_sample",
)  # fmt: skip
_COSTS = (
    "execution_time_s", "energy_per_inference_j", "energy_per_effective_operation_j",
    "dynamic_energy_per_effective_operation_j", "energy_per_spike_j", "dynamic_energy_per_spike_j",
)  # fmt: skip


def beside_cost(result: Result) -> list[tuple[str, str]]:
    """Return the complexity of the network, then its times and energies; empty if no complexity was recorded."""
    found, costs = ([k for n in names if (k := FigureKey(n)) in result.quantities] for names in (COMPLEXITY, _COSTS))
    return [(title(k), short_text(k, result.quantities[k])) for k in (*found, *costs)] if found else []


def result_tables(quantities: Mapping[FigureKey, Quantity]) -> list[dict[str, Any]]:
    """Return one table for each kind of figure; a table consists of groups of rows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for group in groups(quantities):
        rows = [_row(key, q) for key, q in group.entries]
        tables.setdefault(group.kind, []).append({"heading": group.heading, "rows": rows})
    return [{"caption": KINDS[k], "groups": found, "headed": k in _HEADED} for k, found in tables.items()]


def component_tables(quantities: Mapping[FigureKey, Quantity], keys: Sequence[FigureKey]) -> list[dict[str, Any]]:
    """Return a table of the components of the uncertainty for each figure that has some."""
    tables = []
    for key, q in ((key, quantities[key]) for key in keys if key in quantities):
        if not q.components and not q.bias:
            continue
        lines, scale = budget(q), entry_of(key).scale
        rows = []
        for line in lines[:_COMPONENTS]:
            share = "—" if math.isnan(line.share) else f"{100 * line.share:.1f} %"
            dof = "∞" if math.isinf(line.dof) else si(line.dof, "", 3)
            rows.append((clean(line.source), si(line.u, q.unit, 2, scale), share, dof, clean(line.shared or "—")))
        if lines[_COMPONENTS:]:
            rows.append((f"{len(lines) - _COMPONENTS} smaller ones, in results.json", "", "", "", ""))
        if q.bias:
            rows.append(("bias bound, added to the interval", si(q.bias, q.unit, 2, scale), "—", "—", "—"))
        tables.append({"name": clean(key), "title": title(key), "text": text_of(key, q), "rows": rows})
    return tables


def _row(key: FigureKey, q: Quantity) -> Row:
    value, half, unit = parts_of(key, q)
    count = str(q.n) if q.n else ""
    return Row(clean(key), title(key), value, half, clean(unit), count, clean(q.method))
