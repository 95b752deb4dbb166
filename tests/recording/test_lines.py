"""Lines are decoded once: refused ones are named with their value, and older fields move to their new places."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rig.errors import StoreError
from rig.recording.anonymise import without_identity, without_place, without_places
from rig.recording.disk.decoding import decode, start_of
from rig.recording.disk.files import Folder
from rig.recording.events import IdleWindow, Start
from rig.recording.lines import Chain
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from tests.support.run_by_hand import start_line, write
from tests.support.start_lines import LEAST, start


def test_what_is_refused_names_line_field_and_value() -> None:
    line = json.dumps({"seq": 4, "prev": "", "type": "idle", "on_ns": 1.5, "off_ns": 2}).encode()
    with pytest.raises(StoreError) as caught:
        decode(line, "idle", 4)
    assert caught.value.field == "on_ns"
    assert "line 5" in caught.value.message
    assert "1.5" in caught.value.message


def test_lines_of_other_types_and_other_fields_are_passed_over(tmp_path: Path) -> None:
    idle = {"type": "idle", "on_ns": 1, "off_ns": 2, "colour": "blue"}
    run = open_run(write(tmp_path / "run", [start_line(), {"type": "door", "open": True}, idle], {}))
    assert run.events == (IdleWindow(on_ns=1, off_ns=2),)
    assert len(run.lines) == 4


def test_what_older_recordings_hold_in_details_is_found_in_its_field() -> None:
    device = {"details": {"schedule_depends_on_budget": False, "solver": "tabu", "colour": "blue"}}
    workload = {"details": {"targets": {"best": {"p1": -3}}, "notes": ["a note"], "nodes": 20}}
    found = start_of(LEAST | {"device": device, "workload": workload})
    assert found.device.schedule_depends_on_budget is False
    assert found.device.algorithm.solver == "tabu"
    assert (found.workload.targets, found.workload.notes) == ({"best": {"p1": -3.0}}, ["a note"])
    assert found.workload.nodes == 20


def test_details_with_another_meaning_of_a_name_stay_where_they_are() -> None:
    found = start_of(LEAST | {"workload": {"details": {"nodes": "many", "notes": "one"}}})
    assert (found.workload.nodes, found.workload.notes) == (None, [])


def test_results_show_scenario_and_workload_as_they_were_recorded(tmp_path: Path) -> None:
    workload = {"name": "mine", "details": {"nodes": 3}, "colour": "blue"}
    run = open_run(write(tmp_path / "run", [start_line(workload=workload)], {}))
    assert run.start.played == {"scenario": {"name": "by hand"}, "workload": workload}


@pytest.mark.parametrize(("word", "left"), [
    ("--out=/srv/data/run", "--out=run"), ("model=/home/alice/nets/m.net", "model=~/nets/m.net"),
    ("port=/dev/ttyACM0", "port=/dev/ttyACM0"), ("host=ada@board.lab", "host=left out"), ("runs/here", "runs/here"),
])  # fmt: skip
def test_a_command_line_says_nothing_of_who_and_where(word: str, left: str) -> None:
    assert without_place(word) == left
    assert without_places(["/opt/env/bin/rig", word]) == ["rig", left]


def test_a_line_says_nothing_of_homes_and_hosts() -> None:
    line = json.dumps({"message": "cannot open /home/alice/x: no", "host": "board"}, separators=(",", ":"))
    assert json.loads(without_identity(line)) == {"message": "cannot open ~/x: no", "host": "left out"}


@pytest.mark.parametrize("keep", [False, True])
def test_identity_is_recorded_only_when_asked_for(tmp_path: Path, keep: bool) -> None:
    with Recorder(tmp_path / "run", keep) as recorder:
        recorder.event(start(device={"details": {"file": "/home/alice/x"}}))
        recorder.stop()
    read: Start = open_run(tmp_path / "run").start
    assert read.device.details["file"] == ("/home/alice/x" if keep else "~/x")


def test_an_interruption_between_a_line_and_its_count_breaks_no_chain(tmp_path: Path) -> None:
    """Otherwise the next line holds the hash of the line before the interrupted one."""

    class Interrupting:
        def __init__(self, file: Any) -> None:
            self.file, self.count = file, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: bytes) -> int:
            written = int(self.file.write(data))
            self.count += 1
            if self.count == 2:
                raise KeyboardInterrupt
            return written

    chain = Chain(Folder(tmp_path, None), keep_identity=True)
    chain._file = Interrupting(chain._file)  # type: ignore[assignment]
    chain.append(IdleWindow(on_ns=1, off_ns=2))
    with pytest.raises(KeyboardInterrupt):
        chain.append(IdleWindow(on_ns=3, off_ns=4))
    chain.append(IdleWindow(on_ns=5, off_ns=6))
    chain.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    heads = [json.loads(line) for line in lines]
    assert [head["seq"] for head in heads] == [0, 1, 2]
    assert [head["prev"] for head in heads[1:]] == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]
