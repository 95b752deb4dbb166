"""The boxes of the workflow, the baselines' versions, and the configuration, as a reader sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from reports.sections import algorithm, timing
from reports.session import members
from reports.workflow import box_of, workflow
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.records import ImportRecord
from rig.recording.session import bind
from rig.recording.writer import Recorder
from scenarios.workloads.qubo_mis.workload import open_workload
from tests.support.made_up import made_up, q
from tests.support.start_lines import start


def test_of_an_import_nobody_recorded_where_its_data_came_from() -> None:
    found = made_up()
    imported = structs.replace(found.start, imported=ImportRecord(format="plain-csv"))
    assert "Data initialization" not in [box.title for box in workflow(replace(found, start=imported))]


def test_a_box_stands_for_what_was_recorded_and_says_where_it_ran_and_whether_it_was_timed_and_powered() -> None:
    found = declared(made_up(), phases=["inference", "preprocess"])
    power = {FigureKey("active_power_w", "inference"): q(1e-3, "W")}
    boxes = workflow(replace(found, quantities=found.quantities | power))
    assert [(box.title, box.where, box.timed, box.powered) for box in boxes] == [
        ("Data initialization", "host", False, False),
        ("On-device preprocessing", "device", True, False),
        ("Inference", "device", True, True),
    ]


@pytest.mark.parametrize(
    ("phase", "box"),
    [
        ("preprocess", "On-device preprocessing"), ("encode", "On-device preprocessing"),
        ("host_features", "Host pre-processing"), ("inference", "Inference"), ("solve", "Inference"),
        ("postprocess", "Post-processing"), ("classify", "Post-processing"),
    ],
)  # fmt: skip
def test_a_phase_stands_in_the_box_that_its_name_begins_with(phase: str, box: str) -> None:
    assert box_of(phase) == box


def declared(found: Result, **device: object) -> Result:
    return replace(found, start=structs.replace(found.start, device=structs.replace(found.start.device, **device)))


def test_what_the_device_declares_of_a_box_and_a_phase_that_never_ran_are_told() -> None:
    found = declared(
        made_up(), details={"workflow": {"Host pre-processing": "events are encoded"}}, phases=["inference", "decode"]
    )
    lines = {box.title: box.lines for box in workflow(found)}
    assert lines["Host pre-processing"] == ("events are encoded",)
    assert lines["Post-processing"] == ("decode: declared, none recorded",)


def test_the_versions_of_the_published_baselines_stand_beside_those_of_the_device() -> None:
    found = declared(made_up(), versions={"dwave-samplers": "1.7.0"}).start
    qubo = structs.replace(found, workload=structs.replace(found.workload, benchmark=open_workload(nodes=10).benchmark))
    pairs = dict(algorithm(qubo))
    assert pairs["Version of dwave-samplers"] == "1.7.0; the published baseline used 1.1.0"
    assert pairs["Version of lava-nc"] == "not used; the published baseline used 0.8.0"
    assert pairs["Benchmark"].startswith("NeuroBench 1.0, QUBO")
    assert not [key for key in dict(algorithm(found)) if key.startswith("Version of")]


def test_the_configuration_stands_with_its_run_and_in_the_section_on_timing(tmp_path: Path) -> None:
    for name, configuration in (("performance", "efficiency"), ("power", "")):
        with Recorder(tmp_path / name) as recorder:
            recorder.event(start(run_id=name, purpose=name, configuration=configuration))
            recorder.stop()
    bind(tmp_path, [("performance", "performance"), ("power", "power")])
    gave = {m.name: m.gave for m in members(tmp_path, None)}
    assert gave["performance"].endswith("; configuration efficiency")
    assert "configuration" not in gave["power"]
    told = {title: dict(timing(replace(made_up(), start=start(configuration=name)))) for title, name in
            (("named", "efficiency"), ("not", ""))}  # fmt: skip
    assert told["named"]["Configuration of the system"] == "efficiency"
    assert told["not"]["Configuration of the system"] == "not stated"
