"""The rules neurobench-1.0: a session that keeps them is VALID; each single change breaks its rule."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from reports.verdict_by_rule import verdict_of
from rig.analysis.evaluate import evaluate
from rig.analysis.result.verdict import ALONE
from rig.analysis.sessions.one_bench_and_data import shared_recording
from rig.analysis.verdict.benchmark_limits import ASC
from rig.recording.reader import open_run
from rig.session.report import Evaluated
from scenarios.rules import SETS, rules
from tests.support.hardware_clothes import Document, Edit, edited, recorded
from tests.support.paths import SHARED
from tests.support.run_by_hand import rewritten

SCENARIOS = ("single-stream", "optimization", "real-time", "offline", "server")
FIRST, POWER = "performance-1", "power-1"
CHOICE = SETS["quick"][1]["*"]
Tables = dict[str, pa.Table]
Sessions = Callable[[str], Evaluated]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Evaluated]:
    """Return a function that gives the session of a scenario, and records it once: this takes a second or two."""
    return cache(lambda scenario: recorded(scenario, tmp_path_factory.mktemp("clothed")))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_session_that_keeps_every_rule_is_submittable(session: Sessions, scenario: str) -> None:
    validity = session(scenario).result.validity
    assert validity is not None
    assert [check for check in validity.checks if not check.ok] == []
    assert validity.valid and validity.submittable
    assert {bool(check.source) for check in validity.checks} == {True}


def test_an_unknown_benchmark_is_noted(session: Sessions, tmp_path: Path) -> None:
    said = "Limits of the benchmark 'of a test' are as declared by the workload; the rig knows none of its own"
    assert said in session(S).result.notes
    under_known = {part.name: start("workload", "benchmark", "name", to=ASC) for part in session(S).parts}
    assert not [note for note in edited(session(S), under_known, tmp_path).notes if note.startswith("Limits of")]


def test_equal_samples_and_warm_up_are_noted(session: Sessions, tmp_path: Path) -> None:
    power = next(part for part in session(S).parts if part.purpose == "power")
    one_payload = rows("samples", lambda k, row: row | {"payload_sha256": "0" * 64})
    notes = evaluate(open_run(rewritten(power.run.path, tmp_path / "equal", one_payload))).notes
    assert "samples with the data of another: 11 of 12, so 1 are distinct" in notes
    assert not [note for note in power.result.notes if note.startswith("samples with the data")]
    assert "Warm-up: 1 of 13 samples that were issued count in no figure" in power.result.notes


@pytest.mark.parametrize(("mode", "failing"), [("together", ["mode"]), ("performance", []), ("power", [])])
def test_a_single_run_is_never_submittable(tmp_path: Path, mode: str, failing: list[str]) -> None:
    (part,) = recorded("single-stream", tmp_path, mode=mode).parts
    validity = part.result.validity
    assert validity is not None
    assert [check.rule for check in validity.checks if not check.ok] == failing
    assert validity.submittable is False
    verdict = verdict_of(part.result)
    assert verdict is not None and verdict.caveat == ALONE


def test_a_probe_is_not_judged_by_its_benchmark(session: Sessions, tmp_path: Path) -> None:
    def probe(events: list[Document], tables: Tables) -> None:
        events[0]["purpose"], events[0]["workload"]["benchmark"] = "probe", None

    path = rewritten(session("server").parts[1].run.path, tmp_path / "probe", probe)
    validity = evaluate(open_run(path)).validity
    assert validity is not None and validity.valid


# ---- single changes ---------------------------------------------------------------------------


def start(*path: str, to: Any) -> Edit:
    """Set a value in the start line."""

    def edit(events: list[Document], tables: Tables) -> None:
        at = events[0]
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = to

    return edit


def option(name: str, value: Any) -> Edit:
    return start("scenario", "options", name, to=value)


def rows(table: str, change: Callable[[int, Document], Document | None]) -> Edit:
    """Change each counted row of a table by its number, or leave it out."""

    def edit(events: list[Document], tables: Tables) -> None:
        name = f"{table}.arrows"
        kept: list[Document | None] = []
        number = 0
        for row in tables[name].to_pylist():
            if row.get("warmup"):
                kept.append(row)
                continue
            kept.append(change(number, row))
            number += 1
        tables[name] = pa.Table.from_pylist([row for row in kept if row is not None], schema=tables[name].schema)

    return edit


def both(first: Edit, second: Edit) -> Edit:
    def edit(events: list[Document], tables: Tables) -> None:
        first(events, tables)
        second(events, tables)

    return edit


def moved(column: str, by_s: float, every: int = 1, ticks: float = 1e9) -> Edit:
    """Add time to a column of every n-th reply."""
    by = round(by_s * ticks)
    return rows("replies", lambda k, row: row if k % every else row | {column: row[column] + by})


def replies(change: Callable[[int, Document], Document | None]) -> Edit:
    return rows("replies", change)


def said(change: Callable[[int, str], str]) -> Edit:
    return replies(lambda k, row: row | {"output": change(k, row["output"])})


def shorter(k: int, row: Document) -> Document:
    return row | {"off_tick": row["off_tick"] - (row["off_tick"] - row["on_tick"]) // 3}


def times(factor: float) -> Edit:
    """Scale the readings of power."""

    def edit(events: list[Document], tables: Tables) -> None:
        trace = tables["traces/core.arrows"]
        watts = pa.array(trace["value"].to_numpy() * factor, trace["value"].type)
        tables["traces/core.arrows"] = trace.set_column(trace.schema.get_field_index("value"), "value", watts)

    return edit


def other_meter(events: list[Document], tables: Tables) -> None:
    events[0]["meters"][0]["serial_number"] = "another"


def shorter_idle(events: list[Document], tables: Tables) -> None:
    idle = next(event for event in events if event["type"] == "idle")
    idle["off_ns"] = idle["on_ns"] + 1_500_000_000


def without_idle(events: list[Document], tables: Tables) -> None:
    events[:] = [event for event in events if event["type"] != "idle"]


def ended(events: list[Document], tables: Tables) -> None:
    events[-1]["error"] = {"error": "DeviceError", "message": "broke"}


def claimed(k: int, row: Document) -> Document:
    cost = re.search(r'"cost": ?(-?\d+)', row["output"])
    assert cost is not None
    return row if k else row | {"output": row["output"].replace(cost[0], f'"cost": {int(cost[1]) - 1}')}


NO_POWER: dict[str, Edit | None] = {f"power-{k}": None for k in range(1, 6)}
ONE = {FIRST: None}
Change = tuple[str, Mapping[str, Edit | None], set[str]]


def one(scenario: str, edit: Edit, *rule: str, run: str = FIRST) -> Change:
    return scenario, {run: edit}, {f"{run}: {name}" for name in rule}


def whole(scenario: str, edits: Mapping[str, Edit | None], *rule: str) -> Change:
    return scenario, edits, set(rule)


def left_out(scenario: str, end: str) -> Change:
    without = replies(lambda k, row: None if row["sample_id"].endswith(end) else row)
    return whole(scenario, {FIRST: without}, f"{FIRST}: {ANSWERED}", "samples that not every run holds")


BENCHMARK, OF_SCENARIO = "benchmark of the workload", "scenario of the benchmark"
OTHER_RULES = "the rules are those of neurobench-1.0"
PREPROCESSING = "pre-processing, reported separately from inference"
ONE_DEVICE = "devices, as they were declared in the runs"
ANSWERED, CONFIGURED = "samples of the set answered", "configurations of the runs"
UNLIKE = tuple(f"execution time of the {name} runs, against the performance runs" for name in ("power", "accuracy"))
S, Q, R, F, V = SCENARIOS
CHANGES: dict[str, Change] = {
    # every scenario
    "a simulated meter": whole(
        S, {POWER: start("meters", to=[{"name": "m", "mode": "simulator"}])},
        f"{POWER}: device and meters", "meters of the power runs",
    ),
    "a run that broke off": one(S, ended, "the run"),
    "all in one run": one(S, start("purpose", to="all"), "mode"),
    "a workload of no benchmark": one(S, start("workload", "benchmark", to=None), BENCHMARK),
    "a rule of one's own": one(S, start("rules", "trials", to=3), OTHER_RULES),
    "a short idle window": one(S, shorter_idle, "shortest idle window", run=POWER),
    "four performance runs": whole(S, ONE, "runs for performance"),
    "four power runs": whole(S, {POWER: None}, "runs for power"),
    "another configuration for speed": whole(
        S, {FIRST: start("configuration", to="efficiency")}, CONFIGURED, "runs for performance"
    ),
    "another firmware for speed": whole(S, {FIRST: start("device", "versions", to={"firmware": "2"})}, ONE_DEVICE),
    "a system without an outline": whole(
        S, {"accuracy": start("device", "description", to="")}, "outline of the system architecture", ONE_DEVICE
    ),
    "pre-processing that is not declared": whole(
        S, {"accuracy": start("device", "preprocessing", to=None)}, f"accuracy: {PREPROCESSING}", ONE_DEVICE
    ),
    "an algorithm without an outline": whole(
        S, {"accuracy": start("device", "algorithm", to={"tuning": "none"})}, "outline of the algorithm", ONE_DEVICE
    ),
    "an algorithm of unknown tuning": whole(
        S, {"accuracy": start("device", "algorithm", to={"model": "a model"})},
        "outline of the tuning of the algorithm", ONE_DEVICE,
    ),
    # single-stream
    "ASC in batches": one(S, start("scenario", "name", to="offline"), OF_SCENARIO, OTHER_RULES),
    "a sample left out": left_out(S, "03"),
    "a sample without an answer": one(
        S, replies(lambda k, row: row | {"completed_ns": None} if k < 2 else row), "samples without an answer", ANSWERED
    ),
    "a sample handed over early": one(S, moved("issued_ns", -0.05, 4), "samples at a time"),
    "no accuracy run": whole(S, {"accuracy": None}, "runs for accuracy"),
    "no labels": whole(S, {"accuracy": rows("samples", lambda k, row: row | {"label": None})}, "Accuracy reported"),
    "labels for the easy half": whole(
        S, {"accuracy": rows("samples", lambda k, row: row if k % 2 else row | {"label": None})},
        "accuracy: samples without a label",
    ),
    "another meter for one of the power runs": whole(S, {POWER: other_meter}, "meters of the power runs"),
    "no power runs": whole(
        S, NO_POWER, "runs for power", "Idle power reported", "Active power reported", "Dynamic power reported",
        "Energy per inference reported",
    ),
    "no idle windows": whole(
        S, {POWER: without_idle}, "power-1: shortest idle window", "Idle power reported", "Active power reported",
        "Dynamic power reported", "Energy per inference reported",
    ),
    "a faster trial": whole(S, {FIRST: replies(shorter)}, "execution_time_s of each trial from the mean", *UNLIKE),
    "a trial that draws more": whole(
        S, {POWER: times(1.3)}, *(f"{kind}_power_w of each trial from the mean" for kind in ("active", "average"))
    ),
    "other answers for speed": whole(
        S, {FIRST: replies(lambda k, row: row | {"output": '{"label":"bus"}'})},
        "samples answered otherwise for speed than for accuracy",
    ),
    "power measured at a slower clock": whole(S, {f"performance-{k}": replies(shorter) for k in range(1, 6)}, *UNLIKE),
    "a clamp the wrong way round": whole(
        S, {f"power-{k}": times(-1.0) for k in range(1, 6)},
        *(f"power-{k}: sign of power and energy" for k in range(1, 6)),
    ),
    "a constant answered for power": whole(
        S, {POWER: replies(lambda k, row: row | {"output": '{"label":"bus"}'})},
        "samples answered otherwise for power than for accuracy",
    ),
    "twelve samples under the name of the benchmark": one(
        S, start("workload", "benchmark", "name", to=ASC), "benchmark: samples"
    ),
    "fewer samples than are declared": whole(
        S, {"accuracy": both(start("workload", "benchmark", "name", to=ASC),
                             start("workload", "benchmark", "parameters", "samples", "found", to=[16240]))},
        "accuracy: samples in the recording",
    ),
    "ten inferences in a second of audio": whole(
        S, {"accuracy": both(start("workload", "benchmark", "name", to=ASC),
                             rows("samples", lambda k, row: row | {"inferences": 10}))},
        "accuracy: benchmark: samples", "accuracy: samples in the recording",
        "accuracy: samples with another length of an inference", UNLIKE[1],
    ),
    # optimization
    "a solve without solution": one(Q, said(lambda k, text: text if k else "null"), "solutions that could be checked"),
    "a cost that is not true": one(Q, replies(claimed), "solves whose costs are not those of their solutions"),
    "a solver of two phases": whole(
        Q, {FIRST: start("device", "phases", to=["solve", "readout"])}, f"{FIRST}: phases that ran",
        f"{FIRST}: phases of the solver", "devices, as they were declared in the runs",
    ),
    "a solve past its budget": one(Q, moved("on_tick", -0.01, 9), "solves past their budget by 1 ms and 1 %"),
    "one seed for two solves of a problem": one(
        Q, said(lambda k, text: re.sub(r'"seed": ?\d+', '"seed": 7', text) if k < 2 else text),
        "solves with a seed that their problem had before",
    ),
    "a problem tuned by itself": one(
        Q, said(lambda k, text: text if k else text.replace('"all"', '"many"')), "tunings of the solver in a run"
    ),
    "solves without power": whole(Q, NO_POWER, "runs for power", "Average power over the runtime of a solve reported"),
    # real-time
    "half a second as an inference": one(R, option("window_s", 0.5), "benchmark: option window_s"),
    "a deadline beyond the stride": one(R, option("deadline_s", 5.0), "deadline of a frame"),
    "late frames": one(R, moved("completed_ns", 0.6, 5), "frames answered within 0.5 s"),
    "dropped frames": one(
        R, replies(lambda k, row: row if row["issue"] % 6 else row | dict.fromkeys(
            ("issued_ns", "completed_ns", "on_tick", "off_tick", "output", "executions"))),
        "frames answered within 0.5 s",
    ),
    "a host that slips": one(R, moved("due_ns", -0.06, 7), "p99 of the host's slip"),
    "a stream of one scene": whole(
        R, {FIRST: rows("samples", lambda k, row: row | {"label": "bus", "label_age_s": None})},
        "Time to recognise a new scene, mean reported", "Share of time with the right scene reported",
    ),
    # offline and server
    "a benchmark that has no Offline": one(
        F, start("workload", "benchmark", "scenarios", "allowed", to=["single-stream"]), OF_SCENARIO
    ),
    "too few queries": one(
        V, replies(lambda k, row: row if k < 661 else None), "queries", "queries, with 0 over the bound, to trust p99 "
        "(early stopping)",
    ),
    "a server that is late": one(
        V, option("latency_bound_s", 0.0305), "p99 of latency",
        "queries, with 662 over the bound, to trust p99 (early stopping)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_one_change_breaks_the_right_rule(session: Sessions, tmp_path: Path, what: str) -> None:
    scenario, edits, failing = CHANGES[what]
    validity = edited(session(scenario), edits, tmp_path).validity
    assert validity is not None
    lost = {"runs of the session"} if None in edits.values() else set()
    assert {check.rule for check in validity.checks if not check.ok} == failing | lost
    assert not validity.valid


def test_runs_that_share_readings_are_one_measurement(session: Sessions) -> None:
    """This holds whatever the other files of the runs are, and also for stamps that are all later by one time."""
    run = next(part.run for part in session(S).parts if part.purpose == "power")
    ids = [run.replies.column_names.index(name) for name in ("issued_ns", "completed_ns")]
    later = run.replies
    for k, column in zip(ids, ("issued_ns", "completed_ns"), strict=True):
        later = later.set_column(k, column, pc.add(later[column], 10**9))
    others = {"stamps": replace(run, replies=later, traces={}), "readings of core": replace(run, replies=later[:0])}
    for shared, other in others.items():
        found = shared_recording([("power-1", run), ("power-2", replace(other, digest="0" * 64))])
        assert found == ("power-1", "power-2", shared)
    assert shared_recording((part.name, part.run) for part in session(S).parts) is None


def test_readings_of_a_coarse_meter_may_repeat(session: Sessions) -> None:
    one, other = [part.run for part in session(S).parts if part.purpose == "power"][:2]
    coarse = {"core": replace(one.traces["core"], value=1e-3 * (np.arange(1000) % 50))}
    runs = [("one", replace(one, traces=coarse)), ("other", replace(other, traces=coarse))]
    assert shared_recording(runs) is None


# ---- where each rule comes from ---------------------------------------------------------------


QUOTE = re.compile(r"'([^']{12,})'")
TEXTS = {"N": "001_35ce462ea1db13d4.txt", "P": "000_9b9f4804c7a9fbbb.txt"}
"""The file of each source's text. Source R (see ``docs/reference/rules.csv``) has none."""


def texts() -> dict[str, str]:
    return {name: (SHARED / "seeds" / file).read_text().replace("*", "") for name, file in TEXTS.items()}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_rule_cites_a_sentence_or_this_project(scenario: str) -> None:
    asked = rules("neurobench-1.0", scenario)
    assert asked.sources["*"] == CHOICE
    assert set(asked.reports) <= set(asked.sources)
    assert all(re.match(r"[NPR](,|:)", text) for text in asked.sources.values() if not text.startswith(CHOICE))
    assert asked.source_of("trials").startswith("R, rules: 'An average over 5 trials'")
    assert asked.source_of("trial_tolerance").startswith(CHOICE)
