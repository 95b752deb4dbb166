"""The figures of a result for people: cards, tables, and what their uncertainty is made of, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from reports.format import budget, clean, si
from reports.names import KINDS, groups, parts_of, target_of, text_of, title
from rig.analysis.quantity import Quantity
from rig.analysis.result import Result

_SERVED = ("idle_power_w", "average_power_w", "average_energy_per_sample_j")
_CARDS: Mapping[str, tuple[str, ...]] = {
    "offline": ("accuracy", "throughput_samples_hz", "duration_s", "execution_time_s", *_SERVED, "dynamic_power_w"),
    "server": ("accuracy", "throughput_samples_hz", "latency_p50_s", "latency_p99_s", "backlog_max", *_SERVED),
    "optimization": ("execution_time_s", *_SERVED),
    "real-time": (
        "stream_accuracy",
        "onset_latency_p50_s",
        "in_time_share",
        "latency_p99_s",
        "dropped_share",
        *_SERVED,
    ),
}
_ONE_BY_ONE = (
    "accuracy",
    "execution_time_s",
    "execution_time_p99_s",
    "idle_power_w",
    "active_power_w",
    "dynamic_power_w",
    "energy_per_inference_j",
    "dynamic_energy_per_inference_j",
)
_HEADED = ("phase", "rail", "phase and rail", "cross-check")


class Row(NamedTuple):
    """One quantity in a table."""

    name: str
    title: str
    value: str
    half: str
    unit: str
    n: str
    method: str


def headlines(result: Result) -> list[dict[str, str]]:
    """The figures a reader looks for first in this scenario; one that is missing says so."""
    names = [*_asked_for(result.quantities), *_CARDS.get(result.start.scenario.name, _ONE_BY_ONE)]
    refused = {r.scope for r in result.refusals}
    cards = []
    for name in names:
        q = result.quantities.get(name)
        value, half, unit = parts_of(name, q) if q is not None else ("", "", "")
        state = "given" if q is not None else "refused" if name in refused or "all" in refused else "absent"
        cards.append({"title": title(name), "value": value, "half": half, "unit": unit, "state": state})
    return cards


def _asked_for(quantities: Mapping[str, Quantity]) -> list[str]:
    """What the rules or the task ask for by name: estimates by early stopping, and what a solver reached."""
    target = "official" if "gap_official_mean" in quantities else next(filter(None, map(target_of, quantities)), "")
    solver = (
        f"gap_{target}_mean",
        "feasible_share",
        f"reached_gap_{target}_0_01_share",
        f"time_to_gap_{target}_0_01_s",
    )
    stopped = [name for name in quantities if name.endswith("_early_stopping_s")]
    return [*(name for name in solver if name in quantities), *stopped]


def result_tables(quantities: Mapping[str, Quantity]) -> list[dict[str, Any]]:
    """One table per kind, each of groups of rows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for group in groups(quantities):
        rows = [_row(name, q) for name, q in group.entries]
        tables.setdefault(group.kind, []).append({"heading": group.heading, "rows": rows})
    return [{"caption": KINDS[k], "groups": found, "headed": k in _HEADED} for k, found in tables.items()]


def component_tables(quantities: Mapping[str, Quantity]) -> list[dict[str, Any]]:
    """For each quantity that states an uncertainty, what it is made of."""
    tables = []
    for group in groups(quantities):
        for name, q in group.entries:
            if not q.components and not q.bias:
                continue
            rows = [
                (
                    clean(line.source),
                    si(line.u, q.unit, 2),
                    "—" if math.isnan(line.share) else f"{100 * line.share:.1f} %",
                    "∞" if math.isinf(line.dof) else f"{line.dof:.3g}",
                    clean(line.shared or "—"),
                )
                for line in budget(q)
            ]
            if q.bias:
                rows.append(("bias bound, added to the interval", si(q.bias, q.unit, 2), "—", "—", "—"))
            tables.append({"name": clean(name), "text": text_of(name, q), "rows": rows})
    return tables


def _row(name: str, q: Quantity) -> Row:
    value, half, unit = parts_of(name, q)
    count = str(q.n) if q.n else ""
    return Row(clean(name), title(name), value, half, clean(unit), count, clean(q.method))
