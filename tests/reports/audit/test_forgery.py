"""A session that keeps every rule passes; each way to claim more than was measured is refused or reported."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reports.audit.audit import audit
from reports.audit.benchmarks import DECLARED, held_of
from reports.submission.audit_page import document, html, text
from rig.analysis.verdict.benchmark_limits import ASC as NAME
from rig.commands.shell.main import main
from rig.errors import StoreError
from scenarios.workloads.asc.catalogue import TAU
from scenarios.workloads.asc.scenes import CLASSES
from scenarios.workloads.asc.workload import benchmark_of
from tests.support import forgery
from tests.support.forgery import CORE, Edit, Lines, Tables, both, column, faults, of, read_as, replaced, start
from tests.support.hardware_clothes import recorded
from tests.support.run_by_hand import read_plainly
from tests.support.submission_folder import altered, forged, row_edited
from tests.support.submissions import session as simulated, submitted

MODIFIED = 27
"""The check that fails if the sources of this project have uncommitted changes."""


def test_a_session_with_long_sequences_and_compliance_passes(tmp_path: Path) -> None:
    """Sequences may span two scenes and then have no label, and one sample is repeated on purpose."""
    played = recorded("single-stream", tmp_path, amortise_s=2.0, compliance=True, configuration="efficiency")
    assert {part.run.start.configuration for part in played.parts} == {"efficiency"}
    assert played.result.to_json()["configuration"] == "efficiency"
    assert played.result.validity is not None
    assert [check for check in played.result.validity.checks if not check.ok] == []
    found = audit(played.path)
    assert [r.said for r in found.rules if not r.ok] == []
    assert {c.number for c in found.failed} <= {MODIFIED}


# ---- the benchmark ----------------------------------------------------------------------------


ALIKE = {
    "itself": NAME,
    "capitals and spaces": NAME.upper().replace(" ", "  "),
    "a Cyrillic letter": NAME.replace("e", "\u0435", 1),
    "Cyrillic letters and a full-width digit": NAME.replace("a", "\u0430").replace("1", "\uff11"),
    "what is not seen": NAME.replace("B", "\u200bB\u00ad"),
}


def test_a_look_alike_benchmark_name_has_the_known_limits(session: Path, tmp_path: Path) -> None:
    """Each performance run has one of the names in ``ALIKE``. A name in Chinese characters is like no known one."""
    ways = {f"performance-{number}": name for number, name in enumerate(ALIKE.values(), 1)}
    own = {"power-1": "\u58f0\u5b66\u573a\u666f\u5206\u7c7b 1.0"}
    names = defaultdict(lambda: "twelve scenes", ways | own)
    alike = start(lambda run, line: line["workload"]["benchmark"].update(name=names[run]))
    found = faults(of(session, tmp_path, alike))
    assert {rule: found[rule] for rule in found if rule.endswith("benchmark: samples")} == {
        f"{name}: benchmark: samples": "12.0" for name in ways
    }


def test_a_meter_may_describe_itself_in_other_words(few: Path, tmp_path: Path) -> None:
    reopened = start(lambda run, line: [meter.update(first_line=run) for meter in line["meters"]])
    assert "24" not in faults(of(few, tmp_path, reopened))


def test_an_unknown_benchmark_has_declared_limits(session: Path) -> None:
    found = {c.number: c for c in audit(session, quick=True).checks}[4]
    assert f"twelve scenes, {DECLARED}" in found.found
    assert found.outcome == "warned"


def test_each_inference_of_a_known_benchmark_is_1_s(few: Path, tmp_path: Path) -> None:
    named = start(lambda run, line: line["workload"]["benchmark"].update(name=NAME))
    broken = faults(of(few, tmp_path, both(named, column("samples.arrows", "inferences", lambda _: [10] * 12))))
    assert broken["power-1: samples that are not 1 s long for each inference"] == "12 of 12"


def test_known_limits_equal_those_of_the_workloads() -> None:
    made = benchmark_of({"source": TAU, "split": "test", "slices": 16240, "classes": CLASSES})
    declared = {"scenario of the benchmark": made.scenarios}
    declared |= {f"benchmark: {name}": one for name, one in made.parameters.items()}
    declared |= {f"benchmark: option {name}": one for name, one in made.options.items()}
    assert held_of(NAME)["allowed"] == {rule: list(one.allowed) for rule, one in declared.items()}


# ---- one operating point, and the work ----------------------------------------------------------


def quicker(share: float, *trials: str) -> Edit:
    """Shorten spans by this share, in performance runs or in those of these names."""

    def edit(name: str, lines: Lines, tables: Tables) -> None:
        replies = tables["replies.arrows"]
        if name in trials or (not trials and name.startswith("performance")):
            tables["replies.arrows"] = forgery.shorter(replies, [share] * replies.num_rows)

    return edit


SPEED = "execution time of the power runs, against the performance runs"


def test_power_at_another_speed_than_time_is_reported(session: Path, tmp_path: Path) -> None:
    assert faults(of(session, tmp_path / "a", quicker(0.75)))[SPEED].startswith("299.")
    little = of(session, tmp_path / "b", quicker(0.04))
    assert SPEED not in faults(little)
    (told,) = (c for c in little.checks if c.number == 17)
    assert told.outcome == "warned"
    assert "of the power runs, against the performance runs 4.1" in told.found


def unlike_each_other(run: str, lines: Lines, tables: Tables) -> None:
    """Make spans shorter by up to 90 %, by the same shares in every run, under rules without a tolerance."""
    lines[0]["rules"] = {**lines[0]["rules"], "name": "quick", "trial_tolerance": None}
    asked = tables["replies.arrows"]["sample_id"].to_pylist()
    names = sorted(set(asked))
    share = [0.9 * names.index(name) / len(names) for name in asked]
    tables["replies.arrows"] = forgery.shorter(tables["replies.arrows"], share)


@pytest.mark.parametrize("purpose", ["power", "accuracy"])
def test_a_speed_change_of_eight_percent_is_found(session: Path, tmp_path: Path, purpose: str) -> None:
    others = [run.name for run in session.iterdir() if run.is_dir() and not run.name.startswith(purpose)]
    rule = SPEED.replace("power", purpose)
    found = of(session, tmp_path, both(unlike_each_other, quicker(0.08, *others)))
    assert faults(found)[rule].startswith("8.")
    assert rule in {c.number: c for c in found.failed}[17].found
    assert rule not in faults(of(session, tmp_path / "honest", unlike_each_other))


def test_slow_samples_left_out_of_the_time_are_reported(session: Path, tmp_path: Path) -> None:
    def without_one(run: str, lines: Lines, tables: Tables) -> None:
        table = tables["replies.arrows"]
        if run.startswith("performance"):
            asked = table.filter(pa.compute.invert(table["warmup"]))["sample_id"].to_pylist()
            tables["replies.arrows"] = table.filter(pa.compute.not_equal(table["sample_id"], asked[-1]))

    found = faults(of(session, tmp_path, without_one))
    assert "1 not in performance-1" in found["samples that not every run holds"]
    assert "1 not in performance-1" in found["8"]


def test_integrated_energy_is_not_judged_by_the_time_of_other_runs(session: Path, tmp_path: Path) -> None:
    """Another check compares the times of the runs."""
    other = forged(session, tmp_path / "session", quicker(0.75))
    assert main(["report", str(other), "--json", "--allow-invalid"]) == 0
    told = audit(other)
    assert told.claimed > 0
    assert SPEED in faults(told)
    assert [c.outcome for c in told.checks if c.number == 25] == ["passed"]


@pytest.mark.parametrize("answer", ['{"label": "bus"}', "null", None])
def test_a_run_that_answers_otherwise_than_for_accuracy_is_reported(
    session: Path, tmp_path: Path, answer: str | None
) -> None:
    skipped = column("replies.arrows", "output", lambda said: [answer] * len(said))
    found = faults(of(session, tmp_path, forgery.only(("performance-2", "power-3"), skipped)))
    for what in ("speed", "power"):
        assert f"samples answered otherwise for {what} than for accuracy" in found


def test_one_answer_that_noise_changes_is_excused(session: Path, tmp_path: Path) -> None:
    """One changed answer of 60 is more than one percent, but not more than chance allows."""

    def noisy(outputs: list[Any]) -> list[Any]:
        last = max(k for k, said in enumerate(outputs) if said is not None)
        return [*outputs[:last], '{"label": "none"}', *outputs[last + 1 :]]

    found = of(session, tmp_path, forgery.only(("power-3",), column("replies.arrows", "output", noisy)))
    assert "samples answered otherwise for power than for accuracy" not in faults(found)


@pytest.mark.parametrize(("every", "outcome"), [(7, "warned"), (3, "failed")])
def test_many_differing_answers_are_reported(session: Path, tmp_path: Path, every: int, outcome: str) -> None:
    """Chance may change three of 12 answers (a warning), but not eight (a failure); only one check reports it."""

    def noisy(name: str, lines: Lines, tables: Tables) -> None:
        if name.startswith(("power", "accuracy")):
            table = tables["replies.arrows"]
            ids, said = table["sample_id"].to_pylist(), table["output"].to_pylist()
            known = {one: k for k, one in enumerate(sorted(set(ids)))}
            turn = [0, every - 1][name.startswith("power")]
            wrong = [known[one] % every == turn for one in ids]
            noisy_ones = ['{"label": "none"}' if w and s else s for w, s in zip(wrong, said, strict=True)]
            tables["replies.arrows"] = replaced(table, "output", noisy_ones)

    found = of(session, tmp_path, noisy)
    by_number = {c.number: c for c in found.checks}
    assert by_number[28].outcome == outcome
    assert "samples answered otherwise for power than for accuracy" in by_number[28].found
    assert "answered otherwise" not in by_number[15].found


# ---- claims ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handed_in(session: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of the session, and of another with one percent more power."""

    sooner = column("replies.arrows", "completed_ns", lambda all_: [None if ns is None else ns - 1 for ns in all_])
    another = both(read_as(lambda watt: 1.01 * watt), sooner)
    folder = tmp_path_factory.mktemp("handed-in")
    return submitted(folder, session, forged(session, folder / "another", another)).path


def claimed(handed_in: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> dict[str, str]:
    """Return a quick audit's findings after a change of the only row's claims."""
    shutil.copytree(handed_in, folder / "sub")
    row_edited(folder / "sub", lambda row: change(row["claims"]))
    return faults(audit(folder / "sub", quick=True))


def test_an_honest_submission_passes(handed_in: Path) -> None:
    found = audit(handed_in)
    assert [r.said for r in found.rules if not r.ok] == []
    assert {c.number for c in found.failed} <= {MODIFIED}
    assert [c for c in found.compared if not c.ok] == []
    assert len(found.compared) > 60


def test_a_simulator_may_have_a_separate_row(session: Path, tmp_path: Path) -> None:
    path = submitted(tmp_path / "sub", session, simulated(tmp_path / "mock")).path
    rows = json.loads((path / "submission.json").read_text())["configurations"]
    assert {row["class"] for row in rows} == {"measured", "simulated"}
    assert 16 not in {c.number for c in audit(path, quick=True).failed}


def test_a_required_figure_that_nobody_claims_is_reported(handed_in: Path, tmp_path: Path) -> None:
    told = claimed(handed_in, tmp_path, lambda claims: claims.pop("idle_power_w"))
    assert told["4"].endswith("is called VALID, and it claims no idle_power_w")


def test_sessions_of_a_row_that_differ_too_much_are_reported(handed_in: Path, tmp_path: Path) -> None:
    def apart(claims: dict[str, Any]) -> None:
        one = claims["active_power_w"]
        one["trials"] = [0.9 * one["value"], 1.1 * one["value"]]

    assert "active_power_w: a session lies 0.00026" in claimed(handed_in, tmp_path, apart)["17"]


# ---- recordings that contradict themselves, or hold another one again

BARE = forgery.rail(lambda own: {key: value for key, value in own.items() if key != "kind"})
"""A trace that states only what is required about its rail."""


CONTRADICTIONS = {
    "another unit in the trace": (
        forgery.rail(lambda own: own | {"conversion": {"unit": "A", "supply_v": 0.1, "burden_ohm": 0.0}}),
        "1", "conversion of rail core is Conversion(unit='A', supply_v=0.1",
    ),
    "a kind that the trace leaves out": (
        both(BARE, start(lambda run, line: [one.update(kind="point") for m in line["meters"] for one in m["rails"]])),
        "24", "rail core has another kind in its trace",
    ),
    "a clock that is ten times as fast": (
        start(lambda run, line: [c.update(tick_hz=1.25e6) for c in (line["device"]["clock"], *line["clocks"][1:2])]),
        "20", "the clock 'device' is 0.9 off its declared rate",
    ),
    "another meter in each power run": (
        start(lambda run, line: [meter.update(serial_number=run) for meter in line["meters"]]),
        "24", "power runs have 2 sets of meters",
    ),
    "readings that were taken away": (forgery.table(CORE, lambda core: core.slice(7)), "21", "readings, but"),
    "labels of half of the samples": (
        column("samples.arrows", "label", lambda labels: [None, *labels[1:]]), "15", "1 of 12 samples have no label"
    ),
    "one payload for all samples": (
        column("samples.arrows", "payload_sha256", lambda all_: all_[:1] * len(all_)),
        "8", "11 samples have the payload of another",
    ),
    "hardware that calls itself simulated": (
        start(lambda run, line: line["device"].update(description="SIMULATED device on a simulated plant")),
        "16", "mock says that it is hardware, and describes itself with the word 'SIMULATED'",
    ),
    "hardware with the serial number of a stand-in": (
        start(lambda run, line: [meter.update(serial_number="SIM0000001") for meter in line["meters"]]),
        "16", "mock says that it is hardware, and describes itself with the word 'SIM0000001'",
    ),
    "hardware on the version of a simulator": (
        start(lambda run, line: line["device"].update(versions={"xylosim": "0.1.3"})),
        "16", "mock says that it is hardware, and describes itself with the word 'xylosim'",
    ),
    "hardware by a simulating command line": (
        start(lambda run, line: line.update(argv=["rig", "measure", "--simulate"])),
        "16", "it was recorded with --simulate, and says that all is hardware",
    ),
    "executions that were doubled": (
        column("replies.arrows", "executions", lambda all_: [None if n is None else 2 * n for n in all_]),
        "28", "a span holds 2 executions, but 1 are declared",
    ),
    "inferences that were doubled": (
        column("samples.arrows", "inferences", lambda all_: [2] * len(all_)),
        "8", "an inference takes 0.5 s of a sample, and not 1.0 s",
    ),
    "two tolerances of one clock": (
        start(lambda run, line: line["device"]["clock"].update(tolerance=0.4)),
        "20", "mock describes its clock 'device' otherwise",
    ),
    "a clamp the wrong way round": (
        read_as(np.negative), "24", "active_power_w is -0.002668; the sign of a current clamp or shunt is reversed"
    ),
    "a meter on another rail": (
        read_as(lambda watt: 1e-3 + np.random.default_rng(1).normal(0, 3e-5, len(watt))),
        "18", "power-1: the readings show no step at the spans",
    ),
    "a trace that was rolled": (read_as(lambda watt: np.roll(watt, 20)), "19", "core shows the spans 0.04"),
    "a trace that was rolled back": (read_as(lambda watt: np.roll(watt, -20)), "19", "core shows the spans 0.039"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_recording_that_contradicts_itself_fails_its_check(few: Path, tmp_path: Path, what: str) -> None:
    edit, number, words = CONTRADICTIONS[what]
    assert words in faults(of(few, tmp_path, edit))[number]


def test_a_board_may_loop_as_often_as_declared(few: Path, tmp_path: Path) -> None:
    doubled, number, _ = CONTRADICTIONS["executions that were doubled"]
    told = start(lambda run, line: line["device"].update(details={"iterations": 2}))
    assert number not in faults(of(few, tmp_path, both(doubled, told)))


def test_two_rates_of_one_clock_are_refused(few: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the clock device of the device has 1 ticks a second"):
        of(few, tmp_path, start(lambda run, line: line["device"]["clock"].update(tick_hz=1.0)))


@pytest.mark.parametrize(("inferences", "longer_s"), [([1] * 12, 0.1), ([1, 2] * 6, 0.1), ([2] * 12, 0.0)])
def test_several_inferences_need_a_length(few: Path, tmp_path: Path, inferences: list[int], longer_s: float) -> None:
    """Samples of 1 s, each longer than the last, for a task that does not state the length of an inference."""
    lasts = column("samples.arrows", "duration_s", lambda _: [1.0 + longer_s * k for k in range(12)])
    hold = column("samples.arrows", "inferences", lambda _: inferences)
    task = start(lambda run, line: line["workload"].update(task="words"))
    found = of(few, tmp_path, both(lasts, hold, task))
    assert 8 not in {c.number for c in found.failed}
    assert ("nothing shows how many a sample holds" in faults(found).get("8", "")) is (2 in inferences)


def test_unseen_faults_are_listed_by_name(session: Path, tmp_path: Path) -> None:
    found = audit(session, quick=True)
    assert {"a moved trace", "imports"} <= json.loads(document([found]))["not_seen"].keys()
    assert "<dt>selection</dt>" in html([found])
    assert any(line.startswith("unseen  selection, ") for line in text(found))


@pytest.mark.parametrize(("file", "said"), [("replies.arrows", "stamps"), (CORE, "readings of core")])
def test_one_recording_in_other_batches_is_the_same_recording(
    session: Path, tmp_path: Path, file: str, said: str
) -> None:
    _, first = read_plainly(session / "power-1")

    def again(run: str, lines: Lines, tables: Tables) -> None:
        if run == "power-2":
            held = first[file]
            for name in {"issued_ns", "completed_ns"} & set(held.column_names):
                held = replaced(held, name, [None if ns is None else ns + 10**9 for ns in held[name].to_pylist()])
            tables[file] = pa.concat_tables([held.slice(0, 5), held.slice(5)])  # separate batches

    assert f"power-1 and power-2 hold the same {said}" in faults(of(session, tmp_path, again))["2"]


def test_readings_of_a_coarse_meter_may_repeat(session: Path, tmp_path: Path) -> None:
    steps = [1e-3 * (k % 50) for k in range(1000)]
    coarse = forgery.table(CORE, lambda core: replaced(core.slice(0, 1000), "value", steps))
    assert "2" not in faults(audit(forged(session, tmp_path / "session", coarse), quick=True))


def test_a_truncated_file_of_a_run_fails(session: Path, tmp_path: Path) -> None:
    run = tmp_path / "power-1"
    shutil.copytree(session / "power-1", run)
    (run / CORE).write_bytes((run / CORE).read_bytes()[:-100])
    altered(run, lambda lines: None)
    told = faults(audit(run))
    assert "2" not in told
    assert "core.arrows has lost its end, and its run was closed" in told["1"]
