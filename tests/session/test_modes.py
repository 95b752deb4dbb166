"""The runs of ``rig measure``: a session by default, one run by --mode, trials, compliance, and their ends."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rig
from rig.analysis.result.quantity import FigureKey
from rig.analysis.sessions.speed import executions_of
from rig.errors import DeviceTimeoutError, SetupError
from rig.recording.session_json import is_session, runs_in
from rig.session.measure import REPEATS_LEAST
from tests.support.paths import SUPPORT
from tests.support.raised import Capture, Patch, raised, raising
from tests.support.submissions import session as recorded

DEVICES = SUPPORT / "serving.py"
HONEST, CACHING = (f"{DEVICES}:{name}" for name in ("honest", "caching"))
Measure = Callable[..., Path]


@pytest.fixture
def session(tmp_path: Path) -> Measure:
    """Return a function that records a session or a run in virtual time, and returns its directory."""

    return lambda *options, **more: recorded(tmp_path / "out", "samples=8", *options, **({"device": HONEST} | more))


def summary(folder: Path) -> rig.Result:
    return rig.evaluated(folder).result


def failed(result: rig.Result) -> list[str]:
    assert result.validity is not None
    return [c.rule for c in result.validity.checks if not c.ok and "idle window" not in c.rule]


def ids(run: rig.Run) -> list[str]:
    return [row["sample_id"] for row in run.replies.to_pylist() if not row["warmup"]]


def test_two_meters_with_equal_rail_names_are_refused(tmp_path: Path) -> None:
    raised(SetupError, recorded, tmp_path / "out", says=r"core\.arrows", meters=("mock", "mock"))
    assert not (tmp_path / "out").exists()


def test_a_coarse_host_clock_refuses_real_measurements(session: Measure, monkeypatch: Patch) -> None:
    fine_ns = time.monotonic_ns  # on Windows, Python 3.12 reads a clock of 15.6 ms
    monkeypatch.setattr(time, "monotonic_ns", lambda: fine_ns() // 15_625_000 * 15_625_000)
    raised(SetupError, session, says=r"steps by 0\.016 s.*3\.13", device="numpy-esn", meters=("none",))
    session()


def test_a_session_works_without_opening_directories(session: Measure, monkeypatch: Patch) -> None:
    """Windows does neither."""

    def refusing(call: Callable[..., Any], wrong: Callable[[Path], bool]) -> Callable[..., Any]:
        refuse = raising(PermissionError(13, "as on Windows"))
        return lambda path, *given, **more: (refuse if wrong(Path(path)) else call)(path, *given, **more)

    monkeypatch.setattr("rig.recording.disk.files.BY_DESCRIPTOR", False)
    monkeypatch.setattr(os, "open", refusing(os.open, Path.is_dir))
    monkeypatch.setattr(Path, "unlink", refusing(Path.unlink, lambda path: path.name == ".lock"))
    assert len(runs_in(session())) == 3


def test_a_request_accepts_text_paths_and_named_options(tmp_path: Path) -> None:
    named: Any = {"samples": 8, "marks": False}
    place: Any = str(tmp_path / "out")
    asked = rig.Request("mock", options=named, out=place)

    assert asked == rig.Request("mock", options=("samples=8", "marks=False"), out=tmp_path / "out")


# ---- which runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["single-stream", "offline", "server", "real-time"])
def test_the_default_session_is_accuracy_performance_and_power(session: Measure, scenario: str) -> None:
    length = {"server": ["duration_s=4"], "real-time": ["stream_s=6"]}.get(scenario, [])
    folder = session(*length, scenario=scenario)
    assert [(p.name, why) for p, why in runs_in(folder)] == [(n, n) for n in ("accuracy", "performance", "power")]
    runs = {why: rig.open_run(path) for path, why in runs_in(folder)}
    assert [why for why, run in runs.items() if run.traces] == ["power"]
    assert sorted(ids(runs["accuracy"])) == sorted(runs["accuracy"].samples["id"].to_pylist())
    assert len(ids(runs["accuracy"])) == 8
    assert ids(runs["performance"]) == ids(runs["power"])  # the same load


@pytest.mark.parametrize("mode", ["together", "performance", "accuracy", "power"])
def test_a_mode_records_one_run_and_no_session(session: Measure, mode: str) -> None:
    folder = session(mode=mode)
    run = rig.open_run(folder)
    assert not is_session(folder)
    assert run.start.purpose == ("all" if mode == "together" else mode)
    assert set(run.traces) == {"core"}
    wanted = {"accuracy", "execution_time_s", "latency_p50_s", "active_power_w", "average_power_w"}
    assert mode != "together" or wanted <= set(map(str, rig.evaluate(run).quantities))


def test_no_power_is_measured_without_a_meter(session: Measure) -> None:
    assert [why for _, why in runs_in(session(meters=("none",)))] == ["accuracy", "performance"]


def test_only_power_runs_play_longer_sequences_when_asked(session: Measure) -> None:
    runs = {why: rig.open_run(path) for path, why in runs_in(session(amortise_s=2.0))}
    assert {why: len(ids(run)) for why, run in runs.items()} == {"accuracy": 8, "performance": 8, "power": 4}
    assert set(runs["power"].samples["inferences"].to_pylist()) == {2}


# ---- compliance ----------------------------------------------------------------------------


def test_a_compliance_run_repeats_one_sample(session: Measure) -> None:
    folder = session(compliance=True)
    path, why = runs_in(folder)[-1]
    assert (path.name, why) == ("repeated", "compliance")
    asked = ids(rig.open_run(path))
    assert len(asked) == REPEATS_LEAST
    assert len(set(asked)) == 1


@pytest.mark.parametrize("scenario", ["single-stream", "offline", "server", "real-time"])
def test_an_honest_device_passes_in_every_scenario(session: Measure, scenario: str) -> None:
    length = {"server": ["arrival_hz=2"], "real-time": ["stream_s=6"]}.get(scenario, [])
    found = summary(session(*length, scenario=scenario, compliance=True))
    assert failed(found) == []


@pytest.mark.parametrize("kept", [1, 100])
def test_a_device_that_remembers_answers_is_found(session: Measure, kept: int) -> None:
    """One cache keeps the last sample alone; the other keeps all samples since the accuracy run."""
    (rule,) = failed(summary(session(f"kept={kept}", device=CACHING, compliance=True)))
    assert ("repeated" if kept == 1 else "time of the accuracy runs") in rule


def test_phases_issued_apart_pass_the_compliance_checks(session: Measure) -> None:
    found = summary(session("preprocess_s=0.03", "hit_rate=1", "apart=true", device="mock", compliance=True))
    assert failed(found) == []


# ---- how a session ends --------------------------------------------------------------------


def test_a_broken_session_binds_its_runs(session: Measure, tmp_path: Path) -> None:
    """The fourteenth sample is the fourth of the second run, because each run begins with a warm-up."""
    caught = raised(DeviceTimeoutError, session, "fail_at=14", "fail=hang", "timeout_s=1", device="mock")
    assert "performance" in caught.remedy
    assert [why for _, why in runs_in(tmp_path / "out")] == ["accuracy", "performance"]
    found = summary(tmp_path / "out")
    assert not found.complete and "performance: the run" in failed(found)


@pytest.mark.parametrize(("rules", "told"), [("neurobench-1.0", 1), ("quick", 0)])
def test_invalidity_is_told_first(tmp_path: Path, capsys: Capture, monkeypatch: Patch, rules: str, told: int) -> None:
    monkeypatch.setattr("rig.session.measure._record", raising(DeviceTimeoutError("begun")))
    with pytest.raises(DeviceTimeoutError, match="begun"):
        rig.measure(rig.Request(HONEST, meters=("mock",), mode="together", rules=rules, out=tmp_path / "out"))

    warning = f"The verdict will be INVALID: rules {rules} allow only hardware, and here are simulators ("
    assert capsys.readouterr().err.count(warning) == told


# ---- energy is power times the reported time, by phase and overall

SPREAD, TWO = "span_spread=0.2", "preprocess_s=0.05"
TWO_PHASES = ("", "preprocess", "inference")


@pytest.mark.parametrize(("options", "more"), [((), {"trials": 2}), ((), {"amortise_s": 2.0}), (("apart=true",), {})])
def test_energy_is_power_times_time(tmp_path: Path, options: tuple[str, ...], more: dict[str, Any]) -> None:
    whole = rig.evaluated(recorded(tmp_path / "out", SPREAD, TWO, *options, **more)).result.quantities
    names = ("energy_per_inference_j", "active_power_w", "execution_time_s")
    for energy, power, each_s in ([whole[FigureKey(name, phase)].value for name in names] for phase in TWO_PHASES):
        assert energy == pytest.approx(power * each_s, rel=1e-12)


def test_all_phases_of_an_issue_are_one_execution(tmp_path: Path) -> None:
    (part,) = rig.evaluated(recorded(tmp_path / "out", SPREAD, TWO, mode="together")).parts
    whole, first, last = (executions_of([part], {}, phase)[1] for phase in TWO_PHASES)
    assert whole == pytest.approx(first + last * [1.0, 1.0, 0.0])


def test_energy_holds_the_sum_over_unequal_phase_mixes(tmp_path: Path) -> None:
    sure = ("span_spread=0.3", TWO, "inference_w=6e-3", "gain_limit=0", "offset_limit=0")
    for seed in (1, 2, 3):
        of_seed = (f"seed={seed}", f"device_seed={seed}", f"meter_seed={seed}")
        figures = rig.evaluated(recorded(tmp_path / str(seed), *sure, *of_seed)).result.quantities
        whole, *parts = (figures[FigureKey("energy_per_inference_j", phase)] for phase in TWO_PHASES)
        assert whole.interval()[0] <= sum(part.value for part in parts) <= whole.interval()[1]


def test_stamp_errors_of_two_runs_do_not_cancel(tmp_path: Path) -> None:
    found = rig.evaluated(recorded(tmp_path / "out", SPREAD, "stamp_jitter_s=1e-4"))
    (alone,) = [part.result.quantities for part in found.parts if part.purpose == "power"]
    assert found.result.quantities["energy_per_inference_j"].u > alone["energy_per_inference_j"].u


def test_amortised_and_single_sample_times_are_both_stated(tmp_path: Path) -> None:
    found = rig.evaluated(recorded(tmp_path / "out", SPREAD, TWO, amortise_s=6.0))
    by = {part.purpose: part.result.quantities for part in found.parts}
    whole = found.result
    for phase in TWO_PHASES:
        time, single = FigureKey("execution_time_s", phase), FigureKey("execution_time_single_s", phase)
        assert whole.quantities[time] == by["power"][time]
        assert whole.quantities[single].value == by["performance"][time].value
    assert any("sequences of 6 s (1 in each power run)" in note for note in whole.notes)
    assert any(note.startswith("One sequence does not show how sequences differ") for note in whole.notes)
    assert "average_energy_per_sample_j" in by["power"] and "average_energy_per_sample_j" not in whole.quantities


# ---- the report of a session ---------------------------------------------------------------


def test_a_session_report_has_only_its_own_pictures(session: Measure) -> None:
    path = session()
    rig.report(path)
    whole, run = (folder / "derived" / "report.html" for folder in (path, path / "power"))
    assert "<svg" in whole.read_text() and "trace-model" in whole.read_text()
    assert "<svg" not in run.read_text() and "trace-model" not in run.read_text()
    assert "rig report power" in run.read_text()
    assert not list((path / "power" / "derived").rglob("*.svg"))
    rig.report(path / "power")
    assert "<svg" in run.read_text()
