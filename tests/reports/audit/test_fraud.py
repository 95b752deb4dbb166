"""A session that keeps every rule passes; each way to claim more than was measured is refused or told of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reports.audit.audit import Audit, audit
from reports.audit.benchmarks import DECLARED, known
from scenarios.workloads.asc.benchmark import NAME, benchmark_of
from scenarios.workloads.asc.catalogue import TAU
from scenarios.workloads.asc.scenes import CLASSES
from tests.support.asleep import recording
from tests.support.hardware_clothes import recorded
from tests.support.submission_folder import forged

MODIFIED = 27
"""Fails where the sources of this project have changes that are not committed."""
Lines = list[dict[str, Any]]
Tables = dict[str, pa.Table]
Edit = Callable[[str, Lines, Tables], None]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of a benchmark of twelve scenes by neurobench-1.0 that keeps every rule."""

    def of_twelve(name: str, lines: Lines, tables: Tables) -> None:
        lines[0]["workload"]["benchmark"]["name"] = "twelve scenes"

    folder = tmp_path_factory.mktemp("honest")
    return forged(recorded("single-stream", folder).folder, folder / "session", of_twelve)


def of(session: Path, folder: Path, edit: Edit) -> Audit:
    return audit(forged(session, folder / "session", edit))


def faults(found: Audit) -> dict[str, str]:
    """The rules that are broken and the checks that failed or warn, with what was found."""
    broken = {f"{r.run}: {r.rule}".removeprefix(": "): r.found for r in found.rules if not r.ok}
    return broken | {str(c.number): c.found for c in found.checks if c.outcome in ("failed", "warned")}


def test_an_honest_session_keeps_every_rule(session: Path) -> None:
    found = audit(session)
    assert [r.said for r in found.rules if not r.ok] == []
    assert {c.number for c in found.failed} <= {MODIFIED}


# ---- the benchmark ----------------------------------------------------------------------------


def renamed(name: str, lines: Lines, tables: Tables) -> None:
    lines[0]["workload"]["benchmark"]["name"] = NAME


def test_a_known_benchmark_has_its_limits_whatever_a_recording_declares(session: Path, tmp_path: Path) -> None:
    broken = faults(of(session, tmp_path, renamed))
    assert broken["accuracy: benchmark: samples"] == "12.0"


def test_limits_of_an_unknown_benchmark_are_the_submitters(session: Path) -> None:
    found = {c.number: c for c in audit(session, quick=True).checks}[4]
    assert f"twelve scenes, {DECLARED}" in found.found
    assert found.outcome == "warned"


def test_a_second_is_an_inference_of_a_known_benchmark(session: Path, tmp_path: Path) -> None:
    def ten(name: str, lines: Lines, tables: Tables) -> None:
        renamed(name, lines, tables)
        tables["samples.arrows"] = with_column(tables["samples.arrows"], "inferences", [10] * 12)

    broken = faults(of(session, tmp_path, ten))
    assert broken["power-1: samples that are not 1 s long for each inference"] == "12 of 12"


def test_known_limits_are_those_that_the_workloads_declare() -> None:
    made = benchmark_of({"source": TAU, "split": "test", "slices": 16240, "classes": CLASSES})
    declared = {"scenario of the benchmark": made.scenarios}
    declared |= {f"benchmark: {name}": one for name, one in made.parameters.items()}
    declared |= {f"benchmark: option {name}": one for name, one in made.options.items()}
    assert known()[NAME]["allowed"] == {rule: list(one.allowed) for rule, one in declared.items()}


# ---- one operating point, and the work ----------------------------------------------------------


def quicker(share: float) -> Edit:
    """Performance runs whose spans are so much shorter."""

    def edit(name: str, lines: Lines, tables: Tables) -> None:
        table = tables["replies.arrows"]
        if name.startswith("performance"):
            on, off = (table[key].to_pylist() for key in ("on_tick", "off_tick"))
            ends = [b if a is None else b - round(share * (b - a)) for a, b in zip(on, off, strict=True)]
            tables["replies.arrows"] = with_column(table, "off_tick", ends)

    return edit


SPEED = "execution time of the power runs, against the performance runs"


def test_power_at_another_speed_than_time(session: Path, tmp_path: Path) -> None:
    assert faults(of(session, tmp_path / "a", quicker(0.75)))[SPEED].startswith("299.")
    assert SPEED not in faults(of(session, tmp_path / "b", quicker(0.04)))


@pytest.mark.parametrize("purpose", ["performance-2", "power-3"])
@pytest.mark.parametrize("answer", ['{"label": "bus"}', "null", None])
def test_a_run_that_answers_otherwise_than_for_accuracy(
    session: Path, tmp_path: Path, purpose: str, answer: str | None
) -> None:
    def skipped(name: str, lines: Lines, tables: Tables) -> None:
        if name == purpose:
            table = tables["replies.arrows"]
            tables["replies.arrows"] = with_column(table, "output", [answer] * table.num_rows)

    what = "speed" if purpose.startswith("performance") else "power"
    assert f"samples answered otherwise for {what} than for accuracy" in faults(of(session, tmp_path, skipped))


def read_as(change: Callable[[Any], Any]) -> Edit:
    """Readings of every power run after a change of their watts."""

    def edit(name: str, lines: Lines, tables: Tables) -> None:
        if CORE in tables:
            watt = change(tables[CORE]["value"].to_numpy())
            tables[CORE] = with_column(tables[CORE], "value", watt.tolist())

    return edit


CORE = "traces/core.arrows"


def test_a_clamp_the_wrong_way_round(session: Path, tmp_path: Path) -> None:
    told = faults(of(session, tmp_path, read_as(np.negative)))["24"]
    assert "power-1: active_power_w is -0.0026" in told
    assert "the sign of a current clamp or shunt is reversed" in told


def test_a_meter_on_another_rail_shows_no_step(session: Path, tmp_path: Path) -> None:
    flat = read_as(lambda watt: 1e-3 + np.random.default_rng(1).normal(0, 3e-5, len(watt)))
    assert "power-1: the readings show no step at the spans" in faults(of(session, tmp_path, flat))["18"]


def test_dynamic_power_above_either_idle_is_told(tmp_path: Path) -> None:
    found = {c.number: c for c in audit(recording(tmp_path / "hot", idle_w=2.5e-3, gap_w=1e-3)).checks}[18]
    assert found.outcome == "warned"
    assert "dynamic power is 0.0004997 W above the idle windows, 0.002 W above the gaps" in found.found
    ready = {c.number: c for c in audit(recording(tmp_path / "ready", idle_w=1e-3, gap_w=1e-3)).checks}[18]
    assert ready.outcome == "passed"
    assert "idle windows are at 0.001 W, gaps between spans at 0.001 W" in ready.found


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(
        table.schema.get_field_index(name),
        field,
        pa.array(values, None if any(values) else field.type).cast(field.type),
    )
