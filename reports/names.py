"""What the figures of a result are called, to which group they belong, and how they read. Cheap to import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reports.format import Scale, clean, quantity_parts, quantity_text
from rig.analysis.quantity import Quantity

KINDS = {  # in the order in which they are shown
    "overall": "Whole device",
    "service": "Service",
    "arrivals": "Arrivals",
    "scene changes": "Scene changes",
    "average": "Average while serving",
    "solver": "Solver",
    "peer": "By the method of the program that recorded it",
    "phase": "By phase",
    "rail": "By rail",
    "phase and rail": "By phase and rail",
    "cross-check": "Cross-checks from trimmed windows",
    "other": "Other figures",
}
_OVERALL = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "execution_time_s": "Execution time, mean",
    "execution_time_se_s": "Execution time, standard error of the mean",
    "execution_time_p50_s": "Execution time, median",
    "execution_time_p90_s": "Execution time, 90th percentile",
    "execution_time_p99_s": "Execution time, 99th percentile",
    "busy_time_per_inference_s": "Busy time per inference",
    "idle_power_w": "Idle power",
    "active_power_w": "Active power",
    "dynamic_power_w": "Dynamic power",
    "energy_per_inference_j": "Energy per inference",
    "energy_per_inference_integrated_j": "Energy per inference, integrated",
    "dynamic_energy_per_inference_j": "Dynamic energy per inference",
}
_TITLES = {
    **_OVERALL,
    "throughput_samples_hz": "Throughput, samples",
    "throughput_inferences_hz": "Throughput, inferences",
    "dropped_share": "Samples dropped",
    "backlog_max": "Backlog, greatest",
    "in_time_share": "Answered in time",
    "arrival_gap_distance": "Gaps kept from gaps scheduled, Kolmogorov distance",
    "onset_never_share": "Scene changes never recognised",
    "stream_accuracy": "Share of time with the right scene",
    "largest_nodes": "Largest problem solved, nodes",
    "cost_best": "Cost, best",
    "feasible_share": "Solutions that are feasible",
    "overrun_mean_s": "Overrun of the budget, mean",
    "overrun_max_s": "Overrun of the budget, greatest",
    "average_power_w": "Average power",
    "average_energy_per_sample_j": "Energy per sample, idle stretches included",
}
_STEMS = {"slip": "Host's slip", "onset_latency": "Time to recognise a new scene"}
_SERVICE = re.compile(r"duration_s|throughput_.+|latency_.+|dropped_share|backlog_max|in_time_share")
_ARRIVALS = re.compile(r"slip_.+|arrival_gap_distance")
_SCENES = re.compile(r"onset_.+|stream_accuracy")
_AVERAGE = re.compile(r"(?:rail\.(?P<rail>.+)\.)?average_[^.]+", re.S)
_SOLVER = re.compile(r"(?:gap|cost|target|time_to|energy_to|reached|overrun|feasible)(?![a-z]).*", re.S)
_PLAIN = (
    ("peer", re.compile(r"peer\..+", re.S)),
    ("average", _AVERAGE),
    ("service", _SERVICE),
    ("arrivals", _ARRIVALS),
    ("scene changes", _SCENES),
    ("solver", _SOLVER),
)
_NAME = re.compile(r"(?P<trimmed>trimmed\.)?(?:phase\.(?P<phase>.+?)\.)?(?:rail\.(?P<rail>.+)\.)?(?P<leaf>[^.]+)", re.S)
_TO_GAP = re.compile(
    r"(?P<what>time_to|energy_to|reached)_gap_(?P<target>.+?)_(?P<gap>\d+(?:_\d+)?)(?P<official>_official)?(?:_share)?"
)
_GAP = re.compile(r"gap_(?P<target>.+)_(?P<what>mean|spread_problems|spread_solves)")
_TARGET_COST = re.compile(r"target_(?P<target>.+)_mean")
_GAPS = {"mean": "mean", "spread_problems": "deviation between problems", "spread_solves": "deviation within a problem"}
_UNIT = re.compile(r"_(?:s|w|j|hz)$")
_PERCENTILE = re.compile(r"(?P<stem>.+)_p(?P<p>\d+(?:_\d+)?)(?P<stopped>_early_stopping)?", re.S)
_MOMENT = re.compile(r"(?P<stem>.+)_(?P<what>mean|median|min|max)", re.S)
_MOMENTS = {"mean": "mean", "median": "median", "min": "least", "max": "greatest"}
_SHARES = re.compile(r"(?:.*_)?(?:share|accuracy|gap|feasible)|(?:gap|feasible|within|reached)_.*")
_NUMBERS = re.compile(r"backlog_max|arrival_gap_distance|(?:cost|target).*|.*_(?:count|ratio|distance)")
_BRIEF = re.compile(r"throughput_.*|latency_p(?:50|90|99)_s|latency_.*_early_stopping_s")


class Name(NamedTuple):
    """A dotted quantity name, taken apart."""

    kind: str
    heading: str
    leaf: str


class Group(NamedTuple):
    """Quantities that belong in one table, as (name, quantity)."""

    kind: str
    heading: str
    entries: tuple[tuple[str, Quantity], ...]


def split_name(name: str) -> Name:
    """Kind, heading and leaf of a dotted name; what is not understood is of kind ``other``."""
    for kind, pattern in _PLAIN:
        if pattern.fullmatch(name):
            leaf = name.rpartition(".")[2] if kind == "average" else name.removeprefix("peer.")
            return Name(kind, kind.capitalize(), leaf)
    match = _NAME.fullmatch(name)
    if match is None:
        return Name("other", "Other", name)
    phase, rail, leaf = match["phase"], match["rail"], match["leaf"]
    where = [f"phase {clean(phase)}"] if phase else []
    where += [f"rail {clean(rail)}"] if rail else []
    heading = ", ".join(where)
    if match["trimmed"]:
        return Name("cross-check", f"Trimmed windows{', ' + heading if heading else ''}", leaf)
    if not where:
        return Name("overall", "Overall", leaf) if leaf in _OVERALL else Name("other", "Other", leaf)
    kind = "phase and rail" if phase and rail else "phase" if phase else "rail"
    return Name(kind, heading[0].upper() + heading[1:], leaf)


def title(name: str) -> str:
    """A human title for a quantity's name; without its phase and rail, which its group's heading has."""
    kind, _, leaf = split_name(name)
    rail = (_AVERAGE.fullmatch(name) or {"rail": None})["rail"] if kind == "average" else None
    if kind == "peer":
        where, _, leaf = leaf.rpartition(".")
        return _words(leaf) + (f", {clean(where).replace('.', ' ').replace('_', ' ')}" if where else "")
    return _words(leaf) + (f", rail {clean(rail)}" if rail else "")


def _words(leaf: str) -> str:
    if leaf in _TITLES:
        return _TITLES[leaf]
    plain = _UNIT.sub("", clean(leaf))
    if of_target := _of_target(plain):
        return of_target
    if match := _PERCENTILE.fullmatch(plain):
        tail = ", early stopping" if match["stopped"] else ""
        return f"{_stem(match['stem'])}, {ordinal(match['p'].replace('_', '.'))}{tail}"
    if match := _MOMENT.fullmatch(plain):
        return f"{_stem(match['stem'])}, {_MOMENTS[match['what']]}"
    return _stem(plain) or clean(leaf)


def _of_target(plain: str) -> str:
    if match := _TO_GAP.fullmatch(plain):
        share = f"{100 * float(match['gap'].replace('_', '.')):g} %"
        every = ", reached by all" if match["official"] else ""
        return f"{_stem(match['what'])} a gap of {share} ({_target(match['target'])}){every}"
    if match := _TARGET_COST.fullmatch(plain):
        return f"Cost of the {_target(match['target'])}, mean"
    if match := _GAP.fullmatch(plain):
        return f"Gap to the {_target(match['target'])}, {_GAPS[match['what']]}"
    return ""


def _target(name: str) -> str:
    return f"{name.replace('_', ' ')} target"


def _stem(text: str) -> str:
    words = text.replace("_", " ").strip()
    return _STEMS.get(text) or words[:1].upper() + words[1:]


def target_of(name: str) -> str:
    """The target that a solver's figure of this name speaks of; empty for none."""
    match = _GAP.fullmatch(name) or _TARGET_COST.fullmatch(name) or _TO_GAP.fullmatch(_UNIT.sub("", name))
    return match["target"] if match else ""


def ordinal(p: str) -> str:
    """A percentile in words: ``50`` is the median, ``99.9`` the 99.9th percentile."""
    if p == "50":
        return "median"
    irregular = "." not in p and p[-2:] not in ("11", "12", "13")
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(p[-1], "th") if irregular else "th"
    return f"{p}{ending} percentile"


def groups(quantities: Mapping[str, Quantity]) -> list[Group]:
    """Quantities grouped for tables in the order of ``KINDS``."""
    found: dict[tuple[int, str], list[tuple[str, Quantity]]] = {}
    kinds = list(KINDS)
    for name, q in quantities.items():
        kind, heading, _ = split_name(name)
        found.setdefault((kinds.index(kind), heading), []).append((name, q))
    order = list(_OVERALL)

    def place(entry: tuple[str, Quantity]) -> int:
        leaf = split_name(entry[0]).leaf
        of_rail = _AVERAGE.fullmatch(entry[0]) is not None and entry[0].startswith("rail.")
        return order.index(leaf) if leaf in _OVERALL else len(order) + of_rail

    ranked = sorted(found.items(), key=lambda item: item[0][0])
    return [Group(kinds[k], heading, tuple(sorted(rows, key=place))) for (k, heading), rows in ranked]


def brief(group: Group, scheduled: bool) -> Group:
    """What of a group a terminal shows: where nothing was scheduled, throughput and three percentiles are the

    service; gaps are to the official target where there is one; and a single rail or a sample of one inference
    says nothing twice.
    """
    entries = list(group.entries)
    known = dict(entries)
    if group.kind == "service":
        entries = [e for e in entries if scheduled or _BRIEF.fullmatch(e[0])]
        samples, inferences = (known.get(f"throughput_{what}_hz") for what in ("samples", "inferences"))
        if samples is not None and inferences is not None and samples.value == inferences.value:
            entries = [e for e in entries if e[0] != "throughput_inferences_hz"]
    if group.kind == "solver":
        targets = {target_of(name) for name in known}
        entries = [e for e in entries if "official" not in targets or target_of(e[0]) in ("", "official")]
        entries = [e for e in entries if not e[0].endswith(("_official_s", "_spread_problems", "_spread_solves"))]
    if group.kind == "average" and sum(name.startswith("rail.") for name in known) == 1 and len(known) > 1:
        entries = [e for e in entries if not e[0].startswith("rail.")]
    return Group(group.kind, group.heading, tuple(entries))


# ---- how a figure reads -------------------------------------------------------------------


def scale(name: str) -> Scale:
    """How a number without a unit reads under this name: shares in percent, counts and costs as they are."""
    leaf = name.rpartition(".")[2] if not _SOLVER.fullmatch(name) else name
    return "number" if _NUMBERS.fullmatch(leaf) else "percent" if _SHARES.fullmatch(leaf) else "auto"


def parts_of(name: str, q: Quantity) -> tuple[str, str, str]:
    """(value, half width, unit) of a quantity called ``name``, as text."""
    return quantity_parts(q, scale(name))


def text_of(name: str, q: Quantity) -> str:
    """A quantity called ``name`` for people: ``341.2 ± 3.1 µW``."""
    return quantity_text(q, scale(name))
