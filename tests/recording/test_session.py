"""The runs of a session are bound by their hashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.faults.forge import bind_again
from rig.errors import IntegrityError, StoreError
from rig.recording.layout import EVENTS
from rig.recording.session import FILE, SEAL, bind, open_session, runs_in
from tests.support.sessions import bound

PURPOSES = [("performance", "performance"), ("power", "power")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bound(tmp_path, PURPOSES)


def test_a_session_is_its_runs_in_order_wherever_it_is(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "session"
    for place in (folder, elsewhere):
        folder.rename(place)
        assert runs_in(place) == [(place / name, name) for name in ("performance", "power")]


def test_a_run_by_itself_stands_for_itself(folder: Path) -> None:
    assert runs_in(folder / "power") == [(folder / "power", "")]


def test_it_says_what_each_run_is_for_and_leaves_no_half_written_file(folder: Path) -> None:
    document = json.loads((folder / FILE).read_text())
    assert [(r["path"], r["purpose"]) for r in document["runs"]] == PURPOSES
    assert document["schema"] == "neurorig-session/1"
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [FILE, SEAL]


def altered(folder: Path) -> None:
    events = folder / "power" / EVENTS
    events.write_bytes(events.read_bytes().replace(b'"purpose":"power"', b'"purpose":"pover"'))


def replaced(folder: Path) -> None:
    shutil.rmtree(folder / "power")
    shutil.copytree(folder / "performance", folder / "power")


@pytest.mark.parametrize("change", [altered, replaced, lambda folder: shutil.rmtree(folder / "power")])
def test_a_bound_run_that_was_altered_replaced_or_removed_is_told(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder)
    with pytest.raises(IntegrityError, match="power is not the run"):
        runs_in(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"runs": [{"path": "power"}]}', '{"runs": [1]}'])
def test_a_session_that_cannot_be_read_says_so(folder: Path, text: str) -> None:
    (folder / FILE).write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        runs_in(folder)


@pytest.mark.parametrize(("field", "value"), [
    ("schema", "neurorig-session/2"), ("schema", None), ("schema", ["neurorig-session/1"]), ("created_utc", 3),
    ("created_utc", None), ("created_utc", "yesterday"), ("repeated", ["../../x"]),
    ("repeated", ["broken/../x"]), ("repeated", "broken/power.1"), ("tried", 1),
])  # fmt: skip
def test_a_field_of_another_type_or_schema_is_refused_by_name(folder: Path, field: str, value: object) -> None:
    bind_again(folder, lambda document: document.update({field: value}))
    with pytest.raises(StoreError, match=field):
        runs_in(folder)


def test_what_was_broken_off_is_named(folder: Path) -> None:
    bind(folder, PURPOSES, repeated=["broken/power.1"])
    assert open_session(folder).repeated == ("broken/power.1",)


def test_binding_again_takes_the_place_of_the_first(folder: Path) -> None:
    bind(folder, PURPOSES[1:])
    assert runs_in(folder) == [(folder / "power", "power")]
