"""The plain methods agree with the estimators, and detect the changes that their bounds promise to detect."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.audit import BUGS, shortened
from fixtures.worlds.random_draw import draw, measured
from reports.audit.audit import audit
from reports.audit.evidence import compared
from reports.audit.figures import Plain, spans
from reports.audit.power.estimate import idle_windows, power_rails
from reports.audit.power.placing import clearest, open_s
from reports.audit.power.windows import facts_of
from reports.audit.subject import Claim, open_subject
from rig.commands.shell.main import main
from tests.support.asleep import BUSY_W, RATE_HZ, recording
from tests.support.paths import ROOT
from tests.support.submission_folder import unpacked
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


def test_spans_of_many_readings_are_known_within_two_thousandths(tmp_path: Path) -> None:
    found = {c.key: c for c in audit(unpacked("single-session", tmp_path)).compared if c.scope == "power"}
    for key in ("active_power_w", "dynamic_power_w", "execution_time_s"):
        assert found[key].sharp
        assert found[key].bound <= 2e-3 * found[key].plain


def test_two_right_methods_may_differ_by_the_noise_at_the_ends_of_spans(tmp_path: Path) -> None:
    """On this bench, edges are farther apart than the readings between them show."""
    measured(draw(1142), tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    found = audit(tmp_path / "run").compared
    assert len(found) >= 10
    assert [c for c in found if not c.ok] == []


@pytest.mark.parametrize("seed", [1096, 1098])
def test_few_spans_and_readings_leave_the_plain_method_itself_unsure(tmp_path: Path, seed: int) -> None:
    """Clocks that place a span only to more than a reading, and readings that cover part of their time."""
    measured(shortened(draw(seed), seed), tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    assert [c for c in audit(tmp_path / "run").compared if not c.ok] == []


@pytest.mark.parametrize(
    ("readings", "gap_w", "counter"),
    [
        (0.5, 0.5e-3, False), (0.5, 2.5e-3, True), (1.5, 2.5e-3, False), (1.5, 1e-3, True), (3.0, 0.5e-3, False),
        (3.0, 2.5e-3, True), (5.0, 2.5e-3, False), (20.0, 1e-3, True),
    ],
)  # fmt: skip
def test_what_short_gaps_draw_is_not_drawn_by_the_spans(
    tmp_path: Path, readings: float, gap_w: float, counter: bool
) -> None:
    """The gaps are at idle, below or above it; for some no reading shows the level."""
    run = recording(tmp_path / "run", 1e-3, gap_w, gap_s=readings / RATE_HZ, counter=counter)
    assert main(["report", str(run), "--json"]) == 0
    found = {c.key: c for c in audit(run).compared}
    assert [c for c in found.values() if not c.ok] == []
    active = found["active_power_w"]
    assert abs(active.plain - BUSY_W) <= active.bound <= 0.03 * BUSY_W


@pytest.mark.parametrize("gap_w", [0.5e-3, 1e-3, 2.5e-3])
def test_what_spans_draw_at_their_begin_is_theirs_whatever_gaps_draw(tmp_path: Path, gap_w: float) -> None:
    """Readings completely inside spans leave out a part of the spans."""
    run = recording(tmp_path / "run", 1e-3, gap_w, gap_s=0.0105, first_w=3 * BUSY_W)
    assert main(["report", str(run), "--json"]) == 0
    found = {c.key: c for c in audit(run).compared}
    assert [c for c in found.values() if not c.ok] == []
    assert abs(found["active_power_w"].plain - 1.2 * BUSY_W) <= found["active_power_w"].bound


def test_each_planted_bug_has_its_line() -> None:
    """If a line were rewritten, the benchmark would stop at its bug."""
    assert [what for what, _, file, old, _ in BUGS if old not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize(("bound", "allowed"), [(1.9e-3, 1.9e-3), (2.1e-3, 12.1e-3)])
def test_a_plain_figure_known_to_two_thousandths_decides_alone(bound: float, allowed: float) -> None:
    claims, plain = {"idle_power_w": Claim(1.005, "W", 0.01)}, {"idle_power_w": Plain(1.0, bound, "mean")}
    (found,) = compared("power", claims, plain)

    assert found.allowed == pytest.approx(allowed)
    assert found.ok == (allowed > 5e-3)


@pytest.mark.parametrize("seed", [1, 4])
def test_spans_that_end_at_idle_level_are_laid_where_the_clocks_have_them(tmp_path: Path, seed: int) -> None:
    """Any earlier place shows as much power; one beyond the clocks' uncertainty puts a span's end into the next gap."""
    options = ("preprocess_s=0.1", "preprocess_w=3e-3", "inference_w=1e-3", f"device_seed={seed}", f"meter_seed={seed}")
    ((_, run),) = open_subject(session(tmp_path / "run", *options, mode="together")).runs
    (trace,) = power_rails(run).values()
    late_s = clearest(run, trace, spans(run), idle_windows(run), facts_of(run, trace))[1]
    assert abs(late_s) < 0.8 * open_s(run, trace.clock)
