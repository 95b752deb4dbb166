"""Each rule alone makes a run INVALID, and states what was found, what is allowed and what to do; notes, refusals and
checks are views of one list of findings, and a result without power is not shown as VALID."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from reports import verdict_by_rule
from rig.analysis.result.finding import Finding, note, refusal
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.result import Result
from rig.analysis.result.verdict import Ruling, Validity
from rig.analysis.service.early_stopping import needed
from rig.analysis.service.queries import queries_of
from rig.analysis.service.serving import service_figures
from rig.analysis.verdict.recording_faults import remarks_of
from rig.analysis.verdict.rule_checks import checks_of, named, ruling_of
from rig.analysis.verdict.rule_remedies import REMEDIES, remedy_of
from rig.errors import DeviceError
from rig.recording.reader import Run
from rig.recording.records import ImportRecord
from rig.types import Rules
from scenarios.rules import SETS, rules
from tests.support.made_up import made_up, with_checks, without_pictures
from tests.support.serving import Asked, recording

ALL = Rules(
    "test", "server", "a test", submittable=True, idle_s=2.0, warmup=1, min_duration_s=10.0, min_queries=100,
    whole_set=True, percentile=0.9, early_stopping=True, late_share=0.1, gap_distance=0.05, hardware_only=True,
)  # fmt: skip
BOUND = {"latency_bound_s": 0.1}
METER = {"name": "m", "mode": "hardware", "clock": {"name": "host", "tick_hz": 1e9}, "rails": []}
SIMULATED = METER | {"mode": "simulator"}
N = 110
AT_S = np.cumsum(np.random.default_rng(3).exponential(0.1, N)) * 10.5 / 11.0 + 5.0
AT_S = 5.0 + (AT_S - AT_S[0]) * 10.1 / (AT_S[-1] - AT_S[0])
"""A run that keeps every rule: 110 arrivals in 10.1 s, each answered after 20 ms."""


def good() -> list[Asked]:
    warm = [Asked(None, 4.0, 4.1, warmup=True)]
    return warm + [Asked(t, t, t + 0.02, f"s{k % 4}") for k, t in enumerate(AT_S.tolist())]


def judged(folder: Path, asked: list[Asked], rules: Rules = ALL, **about: Any) -> Validity:
    """Return the verdict on a hand-made recording."""
    given: dict[str, Any] = {"options": BOUND, "size": 4, "meters": [METER]} | about
    name = str(len(list(folder.iterdir())))
    verdict = verdict_of(recording(folder / name, asked, rules=rules, **given))
    assert verdict is not None
    return verdict


def verdict_of(run: Run) -> Validity | None:
    q, rules = queries_of(run), run.start.rules
    ruling = ruling_of(rules)
    if ruling is None or rules is None:
        return None
    checks = checks_of(rules, run, q, service_figures(q, rules.percentile))
    return Validity(*ruling, named(checks, rules))


def broken(verdict: Validity) -> list[tuple[str, str, str]]:
    return [(c.rule, c.found, c.allowed) for c in verdict.checks if not c.ok]


def test_a_run_that_keeps_every_rule_is_valid(tmp_path: Path) -> None:
    verdict = judged(tmp_path, good())
    assert broken(verdict) == []
    # an unknown set never allows submission
    assert (verdict.valid, verdict.submittable, verdict.rules) == (True, False, "test")
    assert len(verdict.checks) >= 12


def slower(late: set[int], by_s: float, of: int) -> list[Asked]:
    """Return the run ``good``, in which the queries ``late`` of each ``of`` are answered ``by_s`` later."""
    return [replace(a, done=a.done + by_s) if k % of in late else a for k, a in enumerate(good()) if a.done is not None]


SLIP, EARLY = "p99 of the host's slip", "queries, with {} over the bound, to trust p90 (early stopping)"
LAST = float(AT_S[-1]) + 0.05
HARDWARE = ("device and meters", "hardware, simulator", "hardware")
BROKEN: dict[str, tuple[list[Asked], dict[str, Any], list[tuple[str, str, str]]]] = {
    "broken off": (good(), {"error": DeviceError("broke")}, [("the run", "broken off", "to the end")]),
    "a simulated meter": (good(), {"meters": [SIMULATED]}, [HARDWARE]),
    "a short idle window": (good(), {"idle_s": (2.0, 1.5)}, [("shortest idle window", "1.5 s", "at least 2 s")]),
    "no idle window": (good(), {"idle_s": ()}, [("shortest idle window", "0 s", "at least 2 s")]),
    "a sample of the set left out": (good(), {"size": 5}, [("samples of the set answered", "4", "5")]),
    "a sample without an answer": ([*good(), Asked(LAST, LAST, None)], {}, [("samples without an answer", "1", "0")]),
    "a sample refused": (
        [replace(a, output=None) if k == 50 else a for k, a in enumerate(good())], {},
        [("samples without an answer", "1", "0")]),
    "too much warm-up": ([Asked(None, 3.0, 3.1, warmup=True), *good()], {}, [("warm-up samples", "2", "at most 1")]),
    "too short": (good(), {"rules": replace(ALL, min_duration_s=10.2)}, [("duration", "10.12 s", "at least 10.2 s")]),
    "a bound that all miss": (good(), {"options": {"latency_bound_s": 0.019}}, [
        ("p90 of latency", "0.02 s", "at most 0.019 s"), (EARLY.format(110), "110", f"at least {needed(110, 0.9)}")]),
    "a bound that a fifth miss": (slower({0, 1}, 0.09, of=10), {}, [
        ("p90 of latency", "0.11 s", "at most 0.1 s"), (EARLY.format(22), "110", f"at least {needed(22, 0.9)}")]),
    # the 90th percentile keeps its bound, but perhaps by chance
    "few in time to trust it": (slower(set(range(1, 9)), 0.09, of=1000), {}, [
        (EARLY.format(8), "110", f"at least {needed(8, 0.9)}")]),
    # two in a hundred are issued 30 ms late and answered in 1 ms: no latency exceeds the bound
    "a slow host before a quick device": (
        [replace(a, at=a.due + late, done=a.due + late + 0.001) for k, a in enumerate(good()) if a.due is not None
         for late in (0.03 * (k % 50 == 1),)], {}, [(SLIP, "0.03 s", "at most 0.01 s")]),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_single_broken_rule_is_named_with_its_limit(tmp_path: Path, what: str) -> None:
    asked, about, rules = BROKEN[what]
    verdict = judged(tmp_path, asked, **about)
    assert not verdict.valid
    assert broken(verdict) == rules


@pytest.mark.parametrize("seconds", [0.7, 1.1, 2.3, 10.12, 600.0])
def test_the_exact_duration_is_long_enough(tmp_path: Path, seconds: float) -> None:
    asked = [Asked(t, t, t + 0.1) for t in (1.7, 1.7 + seconds - 0.1)]
    least = Rules("test", "server", "a test", submittable=False, min_duration_s=seconds, idle_s=seconds)
    assert broken(judged(tmp_path, asked, rules=least, idle_s=(seconds, seconds))) == []


@pytest.mark.parametrize(
    ("count", "few"), [(63, [("queries for p90 (early stopping)", "63", "at least 64")]), (64, [])]
)
def test_early_stopping_without_a_bound_needs_the_least_count(tmp_path: Path, count: int, few: list[Any]) -> None:
    loose = replace(ALL, min_queries=1, min_duration_s=0.0)
    assert broken(judged(tmp_path, good()[: count + 1], rules=loose, options={})) == few


STREAM = {"window_s": 1.0, "stride_s": 0.5, "deadline_s": None}
IN_TIME = Rules("test", "real-time", "a test", submittable=False, in_time_share=0.9, late_share=0.1)


def test_too_few_frames_in_time_are_reported(tmp_path: Path) -> None:
    asked = [Asked(k * 0.5, k * 0.5, k * 0.5 + 0.5) for k in range(20)]
    assert broken(judged(tmp_path, asked, rules=IN_TIME, options=STREAM)) == []
    for left, share in ((2, []), (3, [("frames answered within 0.5 s", "85.00%", "at least 90%")])):
        some = [replace(a, at=None, done=None) if k < left else a for k, a in enumerate(asked)]
        assert broken(judged(tmp_path, some, rules=IN_TIME, options=STREAM)) == share


def test_a_declared_deadline_replaces_the_stride(tmp_path: Path) -> None:
    asked = [Asked(k * 0.5, k * 0.5, k * 0.5 + 0.3) for k in range(20)]
    verdict = judged(tmp_path, asked, rules=IN_TIME, options=STREAM | {"deadline_s": 0.25})
    assert broken(verdict) == [("frames answered within 0.25 s", "0.00%", "at least 90%")]


# ---- a slow host ---------------------------------------------------------------------------


def test_bunched_arrivals_are_found_by_their_gaps(tmp_path: Path) -> None:
    """Never more than 5 ms late, and yet the load is not Poisson's."""
    due_s = 5.0 + (AT_S - 5.0) / 20.0
    kept_s = np.ceil(due_s / 0.005) * 0.005
    asked = [Asked(t, at, at + 1e-9, f"s{k % 4}") for k, (t, at) in enumerate(zip(due_s, kept_s, strict=True))]
    (gaps,) = broken(judged(tmp_path, asked, rules=replace(ALL, min_duration_s=0.0, warmup=None)))
    assert gaps[0] == "Kolmogorov distance of gaps kept to gaps scheduled"
    assert gaps[2] == "at most 0.05"


@pytest.mark.parametrize("holds", [None, 1, 3])
def test_waiting_for_a_busy_device_is_not_the_hosts_fault(tmp_path: Path, holds: int | None) -> None:
    """Bursts of four: the device holds some, the rest waits for it, and the bound is kept."""
    asked = []
    for burst in range(30):
        at_s = 5.0 + 0.4 * burst
        ends = [at_s + 0.02 * (k + 1) for k in range(4)]
        free = [at_s] * (holds or 1) + ends
        asked += [Asked(at_s, free[k], ends[k], f"s{k}") for k in range(4)]
    assert broken(judged(tmp_path, asked, rules=replace(ALL, warmup=None), holds=holds)) == []


# ---- which rules apply ---------------------------------------------------------------------


def test_an_accuracy_run_must_answer_the_whole_set(tmp_path: Path) -> None:
    asked, loose = [Asked(None, k, k + 0.5, f"s{k}") for k in range(4)], replace(ALL, whole_set=False)
    assert broken(judged(tmp_path, asked, purpose="accuracy")) == []
    short = judged(tmp_path, asked[:3], purpose="accuracy", rules=loose)
    assert broken(short) == [("samples of the set answered", "3", "4")]
    assert broken(judged(tmp_path, asked[:1], purpose="compliance", rules=loose)) == []


def test_a_run_that_names_no_rules_has_no_verdict(tmp_path: Path) -> None:
    assert verdict_of(recording(tmp_path / "run", good())) is None


def test_a_run_without_any_query_is_invalid(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [], rules=rules("quick", "server"), options={})
    assert "queries" in [rule for rule, _, _ in broken(verdict)]


# ---- the sets themselves -------------------------------------------------------------------


def test_only_the_rule_set_quick_is_not_submittable() -> None:
    for name, (_, _, scenarios) in SETS.items():
        assert {rules(name, scenario).submittable for scenario in scenarios} == {name != "quick"}
    assert rules("quick", "one of my own").submittable is False


def test_rule_sets_match_their_sources() -> None:
    server = rules("mlperf-6", "server")
    assert (server.min_duration_s, server.percentile, server.min_queries, server.warmup) == (600.0, 0.99, 662, 0)
    stream = rules("mlperf-6", "single-stream")
    assert (stream.percentile, stream.min_queries, stream.early_stopping) == (0.9, 64, True)
    ours = rules("neurobench-1.0", "single-stream")
    assert (ours.trials, ours.trial_tolerance, ours.whole_set, ours.hardware_only) == (5, 0.05, True, True)


@pytest.mark.parametrize(("asked_hz", "told"), [(10.0, False), (13.0, True)])
def test_an_arrival_rate_far_from_the_request_is_reported(asked_hz: float, told: bool, tmp_path: Path) -> None:
    every = [Asked(0.1 * k, 0.1 * k, 0.1 * k + 0.05) for k in range(20)]
    remarks = remarks_of(recording(tmp_path / "run", every, options={"arrival_hz": asked_hz}))
    assert any("due at 10 Hz" in remark for remark in remarks) is told


def test_totals_over_several_meters_are_noted(tmp_path: Path) -> None:
    def of(name: str, rail: str, unit: str = "W", kind: str = "mean") -> dict[str, Any]:
        conversion = {"unit": unit, "supply_v": None, "burden_ohm": 0.0, "supply_rail": None}
        return METER | {"name": name, "rails": [{"name": rail, "kind": kind, "conversion": conversion}]}

    def told(name: str, *meters: dict[str, Any], imported: ImportRecord | None = None) -> list[str]:
        run = recording(tmp_path / name, good(), meters=list(meters))
        remarks = remarks_of(structs.replace(run, start=structs.replace(run.start, imported=imported)))
        return [remark for remark in remarks if "counts twice" in remark]

    assert ["board (a) and chip (b)" in remark for remark in told("two", of("a", "board"), of("b", "chip"))] == [True]
    assert not told("one", of("a", "board"), of("b", "supply", "V"), of("c", "pin", kind="edges"))
    both = of("a", "board") | {"rails": of("a", "board")["rails"] + of("a", "chip")["rails"]}
    assert not told("measured", both) and told("imported", both, imported=ImportRecord())


# ---- remedies, and views of one list of findings -----------------------------------------------

CHECKS = ("Finding", "at_least", "at_most", "_within", "_count")
ANALYSIS = Path(__file__).resolve().parents[3] / "rig" / "analysis"


def _text(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return a rule as its module writes it, with X for inserted values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", "X", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "X" for v in node.values)  # type: ignore[misc]
    return names.get(node.id) if isinstance(node, ast.Name) else None


def written_rules() -> Iterator[str]:
    """Return every rule that the modules of the analysis write in a check, or just before one."""
    for path in sorted(ANALYSIS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id in CHECKS:
                names = {
                    target.id: text
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Assign) and n.lineno < call.lineno and (text := _text(n.value, {})) is not None
                    for target in n.targets
                    if isinstance(target, ast.Name)
                }
                if call.args and (text := _text(call.args[0], names)):
                    yield text


def test_every_rule_has_a_remedy_and_every_remedy_a_rule() -> None:
    found = {*written_rules(), "predictions of every step", "forecasts of the whole"}
    assert len(found) > 50
    assert [rule for rule in sorted(found) if not remedy_of(rule)] == []
    assert [p for p, _ in REMEDIES if not any(re.match(p, rule) for rule in found)] == []


def test_only_a_failed_rule_carries_its_remedy() -> None:
    rules = made_up().start.rules or pytest.fail("the made-up run has rules")
    late = Finding("p99 of the host's slip", "0.2 s", "at most 0.1 s", False)
    failed, passed, own = named([late, structs.replace(late, ok=True), structs.replace(late, remedy="Wait")], rules)
    assert "rig doctor" in failed.remedy
    assert (passed.remedy, own.remedy) == ("", "Wait")


def test_a_run_rule_has_the_same_remedy_in_a_session() -> None:
    assert remedy_of("power-1: shortest idle window") == remedy_of("shortest idle window") != ""


def _without_power(valid: bool) -> Result:
    result = without_pictures(made_up())
    kept = {key: q for key, q in result.quantities.items() if key.quantity != "active_power_w"}
    checks = () if valid else (Finding("queries", "1", "at least 2", False),)
    return with_checks(structs.replace(result, quantities=Figures(kept)), *checks)


def test_a_verdict_without_power_is_valid_for_times_only() -> None:
    result = _without_power(valid=True)
    said = verdict_by_rule.verdict_of(result)
    assert said is not None and result.verdict == said.verdict == "VALID for times; power refused"
    assert said.sign != "✓"
    assert result.to_json()["validity"]["verdict"] == "VALID for times; power refused"


def test_what_is_invalid_stays_so_without_power_and_nothing_of_power_is_refused_without_a_meter() -> None:
    assert _without_power(valid=False).verdict == "INVALID"
    result = _without_power(valid=True)
    assert structs.replace(result, start=structs.replace(result.start, meters=[])).verdict == "VALID"


# ---- notes, refusals and checks are views of one list ------------------------------------------

BROKEN_RULE = Finding("queries", "3", "at least 10")
DOUBT = Finding("gaps in the host's heartbeat", "1, the longest 2 s", "none", told=True)
PASSED_DOUBT = structs.replace(DOUBT, ok=True)
POWER = refusal(FigureKey("active_power_w"), "no trace", "Measure again")
RULING = Ruling("quick", "", False)


def test_a_failed_doubt_check_is_noted_without_written_rules() -> None:
    result = structs.replace(made_up(), findings=(DOUBT, PASSED_DOUBT, BROKEN_RULE), ruling=None)

    assert result.validity is None
    assert result.notes == ("gaps in the host's heartbeat: 1, the longest 2 s, allowed: none",)


def test_equal_notes_appear_once() -> None:
    assert structs.replace(made_up(), findings=(note("twice"), note("twice"))).notes == ("twice",)


def test_results_json_has_each_view() -> None:
    said = structs.replace(made_up(), findings=(BROKEN_RULE, POWER, note("a sentence")), ruling=RULING).to_json()

    assert said["notes"] == ["a sentence"]
    assert said["refusals"] == [{"scope": "active_power_w", "reason": "no trace", "remedy": "Measure again"}]
    assert said["validity"]["checks"] == [{"rule": "queries", "found": "3", "allowed": "at least 10", "ok": False}]
