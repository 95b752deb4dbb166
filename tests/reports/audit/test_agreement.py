"""The plain methods agree with the estimators, and notice a change that their bounds promise to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.audit.audit import audit
from tests.support.submission_folder import unpacked

EVERY_KIND = (
    "by-hand-example", "counter-rapl", "current-burden", "dropped-readings", "host-clock-own-meter", "killed",
    "offline-batches", "placed-by-marks", "point-readings", "qubo-power", "real-time-xylo-live", "server-together",
    "single-session", "supply-rail", "truth-14", "two-rails", "xylo-single",
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
