"""A recording that contradicts itself, or that holds another one again, is reported by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reports.audit.audit import audit
from reports.submission.audit_page import document, html, text
from rig.errors import StoreError
from tests.support.forgery import CORE, Lines, Tables, both, column, faults, of, rail, read_as, replaced, start, table
from tests.support.run_by_hand import read_plainly
from tests.support.submission_folder import altered, forged

BARE = rail(lambda own: {key: value for key, value in own.items() if key != "kind"})
"""A trace that states only what is required about its rail."""


CONTRADICTIONS = {
    "another unit in the trace": (
        rail(lambda own: own | {"conversion": {"unit": "A", "supply_v": 0.1, "burden_ohm": 0.0, "supply_rail": None}}),
        "1", "conversion of rail core is Conversion(unit='A', supply_v=0.1",
    ),
    "another accuracy in the trace": (
        rail(lambda own: own | {"accuracy": {"of_reading": 1e-9, "offset": 0.0, "source": "", "linearity": 0.0}}),
        "1", "accuracy of rail core is Accuracy(of_reading=1e-09",
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
    "readings that were taken away": (table(CORE, lambda core: core.slice(7)), "21", "readings, but"),
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
def test_a_recording_that_contradicts_itself(few: Path, tmp_path: Path, what: str) -> None:
    edit, number, words = CONTRADICTIONS[what]
    assert words in faults(of(few, tmp_path, edit))[number]


def test_a_board_may_loop_in_each_span_as_often_as_its_driver_declares(few: Path, tmp_path: Path) -> None:
    doubled, number, _ = CONTRADICTIONS["executions that were doubled"]
    told = start(lambda run, line: line["device"].update(details={"iterations": 2}))
    assert number not in faults(of(few, tmp_path, both(doubled, told)))


def test_a_recording_with_two_rates_of_one_clock_is_none(few: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the clock device of the device has 1 ticks a second"):
        of(few, tmp_path, start(lambda run, line: line["device"]["clock"].update(tick_hz=1.0)))


@pytest.mark.parametrize("inferences", [[1] * 12, [1, 2] * 6])
def test_inferences_of_no_length_are_in_doubt_unless_each_sample_has_one(
    few: Path, tmp_path: Path, inferences: list[int]
) -> None:
    """Samples of 1 s to 2.1 s for a task that does not state the length of an inference."""
    lasts = column("samples.arrows", "duration_s", lambda _: [1.0 + 0.1 * k for k in range(12)])
    hold = column("samples.arrows", "inferences", lambda _: inferences)
    task = start(lambda run, line: line["workload"].update(task="words"))
    found = of(few, tmp_path, both(lasts, hold, task))
    assert 8 not in {c.number for c in found.failed}
    assert ("nothing shows how many a sample holds" in faults(found).get("8", "")) is (2 in inferences)


def test_what_no_audit_sees_is_listed_by_name(session: Path, tmp_path: Path) -> None:
    found = audit(session, quick=True)
    assert "a moved trace" in json.loads(document([found]))["not_seen"]
    assert "<dt>selection</dt>" in html([found])
    assert any(line.startswith("unseen  selection, ") for line in text(found))


def test_one_recording_under_two_names(session: Path, tmp_path: Path) -> None:
    events, first = read_plainly(session / "power-1")

    def again(run: str, lines: Lines, tables: Tables) -> None:
        if run.startswith("power"):
            lines[:] = [lines[0], *events[1:-1], lines[-1]]
            tables |= {name: held.slice(0) for name, held in first.items()}

    told = faults(of(session, tmp_path, again))["2"]
    assert "runs that share a recording: power-1 and power-2 hold the same stamps" in told


@pytest.mark.parametrize(("file", "said"), [("replies.arrows", "stamps"), (CORE, "readings of core")])
def test_one_recording_in_other_batches_at_another_time(session: Path, tmp_path: Path, file: str, said: str) -> None:
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
    coarse = table(CORE, lambda core: replaced(core.slice(0, 1000), "value", steps))
    assert "2" not in faults(audit(forged(session, tmp_path / "session", coarse), quick=True))


def test_a_file_of_a_closed_run_has_an_end(session: Path, tmp_path: Path) -> None:
    run = tmp_path / "power-1"
    shutil.copytree(session / "power-1", run)
    (run / CORE).write_bytes((run / CORE).read_bytes()[:-100])
    altered(run, lambda lines: None)
    told = faults(audit(run))
    assert "2" not in told
    assert "core.arrows has lost its end, and its run was closed" in told["1"]
