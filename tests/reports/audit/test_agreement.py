"""The plain methods agree with the estimators, and detect the changes that their bounds promise to detect."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.audit import BUGS, shortened
from fixtures.worlds.random_draw import draw, measured
from reports.audit.audit import audit
from reports.audit.clocks import line
from reports.audit.evidence import Compared, compared
from reports.audit.figures import Plain, refused, service, spans
from reports.audit.folder.reading import Run, read_run
from reports.audit.power.estimate import idle_windows, power_rails
from reports.audit.power.placing import clearest, open_s
from reports.audit.power.windows import facts_of
from reports.audit.scores import predictions
from reports.audit.subject import Claim, open_subject
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.errors import StoreError
from rig.recording.events import Stop
from rig.recording.layout import payload_path
from rig.recording.reader import open_run
from rig.types import Indices, Reply, Span
from tests.support.asleep import BUSY_W, RATE_HZ, recording
from tests.support.paths import ROOT
from tests.support.predicted import recorded
from tests.support.raised import raised
from tests.support.serving import MS, S, bench, due, played, samples
from tests.support.submission_folder import altered, unpacked
from tests.support.submissions import session

EVERY_KIND = (
    "by-hand-example", "counter-rapl", "current-burden", "dropped-readings", "host-clock-own-meter",
    "import-joulescope-jls", "killed", "killed-torn", "offline-batches", "placed-by-marks", "point-readings",
    "qubo-power", "real-time-xylo-live", "server-together", "single-session", "supply-rail", "truth-14", "two-rails",
    "xylo-single",
)  # fmt: skip


@pytest.mark.parametrize("name", EVERY_KIND)
def test_plain_figures_agree_with_the_estimators(tmp_path: Path, name: str) -> None:
    found = audit(unpacked(name, tmp_path)).compared
    assert len(found) >= 10
    assert [c for c in found if not c.ok] == []


@pytest.mark.parametrize("name", ["qubo-find-size", "server-find-peak"])
def test_final_probes_of_a_search_fail_no_check(tmp_path: Path, name: str) -> None:
    assert "probe" not in str([check.found for check in audit(unpacked(name, tmp_path)).failed])


def test_rig_and_audit_agree_on_reordered_and_refused_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = samples(2)
    plant, device = bench(0.2, holds=4)
    said = [("s0", "quick", 40, 80), ("s0", "slow", 0, 130), ("s1", None, 150, 160), ("s1", "x", 250, 300)]

    def polled(wait_s: float) -> list[Reply]:
        now_ns = plant.clock.now_ns()
        start_ns = int(device.log[0][1]) if device.log else now_ns
        plant.clock.sleep_until(now_ns + round(min(wait_s, 0.01) * S))
        ready = [reply for reply in said if start_ns + reply[3] * MS <= plant.clock.now_ns()]
        said[:] = said[len(ready) :]
        spans = [Span("inference", start_ns + on * MS, start_ns + off * MS) for *_, on, off in ready]
        return [Reply(k, out, (span,)) for (k, out, *_), span in zip(ready, spans, strict=True)]

    monkeypatch.setattr(device, "poll", polled)
    with played(device, due([0.0, 0.03, 0.15, 0.25], [one, one, two, two]), plant) as run:
        found, plain = evaluate(run), service(read_run(run.path))
    for key in ("latency_mean_s", "latency_p50_s", "throughput_samples_hz"):
        assert found.quantities[key].value == pytest.approx(plain[key].value, abs=plain[key].bound)
    assert found.quantities["latency_mean_s"].value == pytest.approx((0.13 + 0.05 + 0.05) / 3, abs=0.01)
    assert plain["latency_p99_s"].value == math.inf and "latency_p99_s" not in found.quantities
    assert not [c for c in found.notes if "before they were issued" in c]


def test_long_spans_are_bounded_to_two_thousandths(tmp_path: Path) -> None:
    found = {c.key: c for c in audit(unpacked("single-session", tmp_path)).compared if c.scope == "power"}
    for key in ("active_power_w", "dynamic_power_w", "execution_time_s"):
        assert found[key].sharp
        assert found[key].bound <= 2e-3 * found[key].plain


def reported(run: Path) -> dict[str, Compared]:
    """Return the audit's comparisons for a run with a report; all of them agree."""
    assert main(["report", str(run), "--json"]) == 0
    found = audit(run).compared
    assert [c for c in found if not c.ok] == []
    return {c.key: c for c in found}


@pytest.mark.parametrize(("seed", "few"), [(1142, False), (1096, True), (1098, True)])
def test_two_right_methods_differ_only_within_the_plain_bound(tmp_path: Path, seed: int, few: bool) -> None:
    """It is unsure if too few readings show a gap's level, or if clocks place a span no better than to a reading."""
    measured(shortened(draw(seed), seed) if few else draw(seed), tmp_path / "run")
    assert len(reported(tmp_path / "run")) >= 10 or few


@pytest.mark.parametrize(("readings", "gap_w", "counter", "first"), [
    (0.5, 0.5e-3, False, 1), (0.5, 2.5e-3, True, 1), (1.5, 2.5e-3, False, 1), (1.5, 1e-3, True, 1),
    (3.0, 0.5e-3, False, 1), (3.0, 2.5e-3, True, 1), (5.0, 2.5e-3, False, 1), (20.0, 1e-3, True, 1),
    (10.5, 0.5e-3, False, 3), (10.5, 1e-3, False, 3), (10.5, 2.5e-3, False, 3),
])  # fmt: skip
def test_gaps_are_told_from_spans(tmp_path: Path, readings: float, gap_w: float, counter: bool, first: int) -> None:
    """Gaps are at, below or above idle; for some no reading shows the level. A span's first tenth may draw triple."""
    how: dict[str, Any] = {"gap_s": readings / RATE_HZ, "counter": counter, "first_w": first * BUSY_W}
    active = reported(recording(tmp_path / "run", 1e-3, gap_w, **how))["active_power_w"]
    assert abs(active.plain - (0.9 + 0.1 * first) * BUSY_W) <= active.bound
    assert active.bound <= 0.03 * BUSY_W or first > 1


def test_bugs_match_source_lines() -> None:
    """If a line of the sources was rewritten, the benchmark could not plant its bug."""
    assert [what for what, _, file, old, _ in BUGS if old not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize(("bound", "allowed"), [(1.9e-3, 1.9e-3), (2.1e-3, 12.1e-3)])
def test_a_sharp_plain_figure_decides_alone(bound: float, allowed: float) -> None:
    claims, plain = {"idle_power_w": Claim(1.005, "W", 0.01)}, {"idle_power_w": Plain(1.0, bound, "mean")}
    (found,) = compared("power", claims, plain)

    assert found.allowed == pytest.approx(allowed)
    assert found.ok == (allowed > 5e-3)


def test_spans_stamped_too_wide_are_known_within_two_percent(tmp_path: Path) -> None:
    dynamic = reported(recording(tmp_path / "run", 1e-3, 1e-3, gap_s=0.0303, loose_s=3e-4))["dynamic_power_w"]
    assert abs(dynamic.claimed - dynamic.plain) > 1.5e-3 * dynamic.plain
    assert dynamic.sharp and dynamic.bound <= 0.02 * dynamic.plain


@pytest.mark.parametrize(("claimed", "ok"), [(1.0105, True), (0.9895, True), (1.012, False)])
def test_a_claim_beyond_the_plain_bound_fails(claimed: float, ok: bool) -> None:
    plain = {"active_power_w": Plain(1.0, 1e-3, "area", "", 0.01)}
    assert [c.ok for c in compared("power", {"active_power_w": Claim(claimed, "W", 10.0)}, plain)] == [ok]


@pytest.mark.parametrize("seed", [1, 4])
def test_spans_that_end_at_idle_level_follow_the_clocks(tmp_path: Path, seed: int) -> None:
    """Any earlier place shows as much power; one beyond the clocks' uncertainty puts a span's end into the next gap."""
    options = ("preprocess_s=0.1", "preprocess_w=3e-3", "inference_w=1e-3", f"device_seed={seed}", f"meter_seed={seed}")
    ((_, run),) = open_subject(session(tmp_path / "run", *options, mode="together")).runs
    (trace,) = power_rails(run).values()
    late_s = clearest(run, trace, spans(run), idle_windows(run), facts_of(run, trace))[1]
    assert abs(late_s) < 0.8 * open_s(run, trace.clock)


# ---- predictions: its scores exist even where the estimators refuse

RNG = np.random.default_rng(0)
SERIES = RNG.normal(size=9)
VELOCITY = np.zeros(9, [("spikes", "u1", 2), ("velocity", "<f4", 2)])
VELOCITY["velocity"] = RNG.normal(size=(9, 2))
FORECAST: tuple[Any, Any, str] = (SERIES, {"forecast_from": 4}, "forecast")
REGRESSION: Any = (VELOCITY, {"regress": "velocity", "regress_from": dict.fromkeys("abc", 4)}, "prediction")


def rows(key: str, scale: float) -> Any:
    return (scale * RNG.normal(size=5 if key == "forecast" else (5, 2))).tolist()


@pytest.mark.parametrize(("kind", "odd", "count"), [
    (FORECAST, "none", 4), (FORECAST, 5 * [None], 4), (FORECAST, [1.0], 0), (REGRESSION, "none", 2),
    (REGRESSION, [], 2), (REGRESSION, None, 2), (REGRESSION, (), 4),
])  # fmt: skip
def test_scores_match_the_audit(kind: tuple[Any, Any, str], odd: Any, count: int, tmp_path: Path) -> None:
    """The odd answer is a second one to a sample with a good answer; () repeats the good answer."""
    kept, details, key = kind
    answers = [(name, rows(key, scale)) for name, scale in zip("abcc", (0.1, 1.0, 1e3, 0.5), strict=True)]
    run = recorded(tmp_path, [*answers, ("a", answers[0][1] if odd == () else odd)], kept, details, key)
    derived = predictions(read_run(run))
    claimed = {str(k): q.value for k, q in evaluate(open_run(run)).quantities.items() if k.quantity[:2] in ("r2", "sm")}
    assert {k: plain.value for k, plain in derived.items()} == pytest.approx(claimed, rel=1e-9)
    assert len(derived) == count


def test_a_session_holds_one_inference_for_each_step_to_predict_and_payloads_of_that_kind(tmp_path: Path) -> None:
    run = recorded(tmp_path, [("a", rows("prediction", 1.0))], *REGRESSION)
    assert 8 not in {check.number for check in audit(run).failed}
    np.save(run / payload_path("a"), SERIES)
    altered(run, lambda lines: None)
    raised(StoreError, predictions, read_run(run), says="payload of 'a'")


# ---- clocks are straight lines through the quickest readings

TICK_HZ, COUNT = 1e6, 40


def run_of(late_ns: Indices) -> Run:
    """Return a clock that is read each second, from 1000 ns before its tick to ``late_ns`` after it."""
    tick = np.arange(COUNT, dtype=np.int64) * 1_000_000
    brackets = {"device": np.column_stack([tick * 1000 - 1000, tick, tick * 1000 + late_ns])}
    start = {"t0_ns": 0, "clocks": [{"name": "device", "tick_hz": TICK_HZ, "tolerance": 1e-3}]}
    return Run(Path("run"), start, brackets)


def test_slow_readings_do_not_shift_a_clock() -> None:
    late = np.full(COUNT, 1000)
    late[1::2] = 10_000_000
    found = line(run_of(late), "device")

    assert found.seconds(np.array([20_000_000]))[0] == pytest.approx(20.0, abs=1e-8)
    assert found.bound_s == pytest.approx(1e-6, rel=0.01)


def test_an_indistinct_clock_rate_is_the_declared_one() -> None:
    found = line(run_of(np.full(COUNT, 200_000_000)), "device")
    assert (found.s_per_tick, found.rate_bound) == (1.0 / TICK_HZ, 1e-3)


def test_a_clock_that_was_never_read_is_refused() -> None:
    run = run_of(np.full(COUNT, 1000))
    run.start["clocks"].append({**run.start["clocks"][0], "name": "meter"})

    raised(StoreError, line, run, "meter", says=r"never read\. The run was broken off before")
    with pytest.raises(StoreError, match=r"never read\. No recording of the rig is like this"):
        line(replace(run, stop=Stop(files={})), "meter")
    raised(StoreError, line, run, "chip", says=r"not declared\. No recording of the rig is like this")


def test_a_run_without_samples_has_no_refused_answers() -> None:
    nobody: Any = SimpleNamespace(output=[])
    assert refused(nobody).tolist() == []
