"""The run directory is a format: anyone can write one, and only what is written matters.

A session binds its runs by their hashes.
"""

import dataclasses
import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from msgspec import structs

import rig
from benchmarks.faults.forge import bind_again
from fixtures.bench.true_power import SimPlant
from fixtures.worlds.random_draw import draw, measured, truth
from rig.commands.shell.main import main
from rig.errors import IntegrityError, StoreError
from rig.recording.layout import EVENTS
from rig.recording.session_json import FILE, SEAL, bind, open_session, runs_in
from tests.support.paths import ROOT
from tests.support.raised import Capture, raised
from tests.support.run_by_hand import observed, read_plainly, trace, with_ticks, write
from tests.support.schema import FOLDER, schemas, text_of
from tests.support.sessions import bound

EXAMPLE = ROOT / "examples" / "write_run_by_hand.py"
TABLES = ("samples", "replies", "progress", "activity")
FIGURES = ("execution_time_s", "idle_power_w", "active_power_w", "dynamic_power_w", "energy_per_inference_j")


def engine_written(path: Path, seed: int = 5, windows: int = 40) -> SimPlant:
    """Measure a drawn plant and return it; the meter's clock is a multiple of its rate, so ticks are whole."""
    d = draw(seed)
    whole = {"rate_hz": 1000.0, "aperture": 1.0, "filter_tau_s": 0.0, "drop": 0.0, "clip": 0.0}
    device = d.device | {"inference_s": 0.03, "marks": True}
    d = dataclasses.replace(d, meter=d.meter | whole, device=device, windows=windows, window_s=0.03, idle_s=1.0)
    return measured(d, path)


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "run"
    engine_written(path)
    return path


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    path = tmp_path_factory.mktemp("example") / "run"
    said = subprocess.run([sys.executable, EXAMPLE, path], capture_output=True, text=True, check=True).stdout
    return path, json.loads(said)


@functools.cache
def schema(name: str) -> Draft202012Validator:
    document = json.loads(next(FOLDER.parent.rglob(f"{name}.json")).read_text())
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


# ---- schemas ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["start", "event", "stop", "submission"])
def test_stored_schemas_match_structs(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text_of(schemas()[name]), "run python -m tests.support.schema"


@pytest.mark.parametrize("source", ["engine", "example"])
def test_every_line_fits_its_schema(source: str, engine_run: Path, example: tuple[Path, dict[str, float]]) -> None:
    for line in lines(engine_run if source == "engine" else example[0]):
        schema(line["type"] if line["type"] in ("start", "stop") else "event").validate(line)


def test_results_fit_their_schema(engine_run: Path) -> None:
    schema("results").validate(json.loads(json.dumps(rig.evaluate(rig.open_run(engine_run)).to_json())))


def test_extra_fields_are_allowed(engine_run: Path) -> None:
    start = lines(engine_run)[0]
    start["colour"] = start["device"]["colour"] = start["clocks"][0]["crystal"] = "blue"
    schema("start").validate(start)


# ---- the example --------------------------------------------------------------------------


def test_the_example_imports_no_rig() -> None:
    assert not re.search(r"^\s*(from|import) (rig|fixtures|drivers|scenarios|reports)\b", EXAMPLE.read_text(), re.M)


def test_a_report_of_the_example_is_right(example: tuple[Path, dict[str, float]], capsys: Capture) -> None:
    path, true = example
    assert main(["report", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]["quantities"]
    for name, value in true.items():
        low, high = found[name]["interval_95"]
        assert low <= value <= high, name
        assert high - low <= 0.01 * value or name == "accuracy", name


# ---- a second writer ----------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 13, 10_000])
def test_the_same_contents_by_another_writer_give_equal_figures(engine_run: Path, tmp_path: Path, batch: int) -> None:
    events, tables = read_plainly(engine_run)
    tables = {name: with_ticks(t) if name.startswith("traces/") else t for name, t in tables.items()}
    write(tmp_path / "run", events[:-1], tables, batch)
    ours, theirs = (rig.evaluate(rig.open_run(p)).quantities for p in (engine_run, tmp_path / "run"))
    assert ours.keys() == theirs.keys()
    for name, q in ours.items():
        other = theirs[name]
        assert [other.value, other.half_width()] == pytest.approx([q.value, q.half_width()], rel=1e-9, abs=0), name


def test_column_order_and_extra_columns_do_not_matter(engine_run: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    events, tables = read_plainly(engine_run)
    replies = tables["replies.arrows"]
    which = pa.array([0] * (replies.num_rows - 1) + [None], pa.uint8())
    replies = replies.select(replies.column_names[::-1])
    replies = replies.append_column("mood", pa.DictionaryArray.from_arrays(which, pa.array(["good"])))
    at = replies.column_names.index("issue")
    replies = replies.set_column(at, "issue", replies["issue"].cast(pa.uint16()))
    at = replies.column_names.index("phase")
    replies = replies.set_column(at, "phase", replies["phase"].cast(pa.large_string()).dictionary_encode())
    write(tmp_path / "run", events[:-1], tables | {"replies.arrows": replies})
    assert rig.open_run(tmp_path / "run").replies.equals(rig.open_run(engine_run).replies)


def holds(path: Path, plant: SimPlant, count: int, widest: float = 1.0) -> dict[str, bool]:
    """Return which intervals, at most ``widest`` of the figure, contain the truth of a plant of ``count`` spans."""
    true, found = truth(plant, "inference", count), rig.evaluate(rig.open_run(path)).quantities
    ends = {name: found[name].interval() for name in FIGURES}
    assert all(high - low < widest * true[name] for name, (low, high) in ends.items())
    return {name: bool(low <= true[name] <= high) for name, (low, high) in ends.items()}


def test_figures_of_a_hand_written_run_hold_the_truth(tmp_path: Path) -> None:
    held = [holds(tmp_path / str(seed), *observed(tmp_path / str(seed), seed), 0.05) for seed in range(8)]
    # of 8 intervals at 95 %, fewer than 6 hold by chance once in 170 times
    assert {name: n for name in FIGURES if (n := sum(one[name] for one in held)) < 6} == {}


@pytest.mark.parametrize("unit", ["A", "J"])
def test_currents_and_counters_are_converted_as_documented(tmp_path: Path, unit: str) -> None:
    plant, count = observed(tmp_path / "watts", 1)
    events, tables = read_plainly(tmp_path / "watts")
    watts, start, end = (tables["traces/core.arrows"][c].to_numpy() for c in ("value", "start_tick", "end_tick"))
    rail: dict[str, Any] = {"name": "core", "rate_hz": 1000.0, "accuracy": {"of_reading": 1e-3, "offset": 1e-6}}
    if unit == "A":
        rail["conversion"] = {"unit": "A", "supply_v": 2.0, "burden_ohm": 10.0}
        columns = {"value": (2.0 - np.sqrt(4.0 - 40.0 * watts)) / 20.0, "start_tick": start, "end_tick": end}
    else:
        rail |= {"kind": "cumulative", "conversion": {"unit": "J"}}
        edge = np.append(start, end[-1])
        columns = {"value": np.append(0.0, np.cumsum(watts * 1e-3)), "start_tick": edge, "end_tick": edge}
    write(tmp_path / "run", events[:-1], tables | {"traces/core.arrows": trace(rail, columns)})
    assert holds(tmp_path / "run", plant, count) == dict.fromkeys(FIGURES, True)


# ---- reading ------------------------------------------------------------------------------


def test_tables_hold_the_documented_columns(engine_run: Path) -> None:
    run = rig.open_run(engine_run)
    document = (ROOT / "docs" / "reference" / "run-directory.md").read_text()
    for name in TABLES:
        section = document.split(f"### {name}.arrows")[1].split("\n#")[0]
        assert getattr(run, name).column_names == re.findall(r"^\| `(\w+)` \|", section, re.M), name
    assert run.replies.num_rows == 40


def test_a_later_calibration_changes_only_the_figures(engine_run: Path) -> None:
    run = rig.open_run(engine_run)
    core = run.traces["core"]
    found = []
    for supply_v in (1.0, 2.0):
        rail = dataclasses.replace(core.rail, conversion=rig.Conversion("A", supply_v))
        again = structs.replace(run, traces={"core": structs.replace(core, rail=rail)})
        found.append(rig.evaluate(again).quantities["active_power_w"].value)
    assert found[1] == pytest.approx(2.0 * found[0], rel=1e-9)


# ---- a session binds its runs by their hashes --------------------------------------------------

PURPOSES = [("performance", "performance"), ("power", "power")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bound(tmp_path, PURPOSES)


def test_a_session_is_independent_of_its_location(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "session"
    for place in (folder, elsewhere):
        folder.rename(place)
        assert runs_in(place) == [(place / name, name) for name in ("performance", "power")]


def test_the_path_of_a_run_opens_only_the_run(folder: Path) -> None:
    assert runs_in(folder / "power") == [(folder / "power", "")]


def test_a_session_says_what_each_run_is_for(folder: Path) -> None:
    document = json.loads((folder / FILE).read_text())
    assert [(r["path"], r["purpose"]) for r in document["runs"]] == PURPOSES
    assert document["schema"] == "neurorig-session/1"
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [FILE, SEAL]


def altered(folder: Path) -> None:
    events = folder / "power" / EVENTS
    events.write_bytes(events.read_bytes().replace(b'"purpose":"power"', b'"purpose":"pover"'))


def exchanged(folder: Path) -> None:
    shutil.rmtree(folder / "power")
    shutil.copytree(folder / "performance", folder / "power")


@pytest.mark.parametrize(("change", "what"), [
    (altered, "not the run"), (exchanged, "not the run"), (lambda folder: shutil.rmtree(folder / "power"), "missing")
])  # fmt: skip
def test_an_altered_or_removed_run_is_reported(folder: Path, change: Callable[[Path], None], what: str) -> None:
    change(folder)
    raised(IntegrityError, runs_in, folder, says=f"power is {what}")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"runs": [{"path": "power"}]}', '{"runs": [1]}'])
def test_an_unreadable_session_is_refused(folder: Path, text: str) -> None:
    (folder / FILE).write_text(text)
    raised(StoreError, runs_in, folder, says="cannot be read")


@pytest.mark.parametrize(("field", "value"), [
    ("schema", "neurorig-session/2"), ("schema", None), ("schema", ["neurorig-session/1"]), ("created_utc", 3),
    ("created_utc", None), ("created_utc", "yesterday"), ("repeated", ["../../x"]),
    ("repeated", ["broken/../x"]), ("repeated", "broken/power.1"), ("tried", 1),
])  # fmt: skip
def test_a_field_of_a_wrong_type_is_refused_by_name(folder: Path, field: str, value: object) -> None:
    bind_again(folder, lambda document: document.update({field: value}))
    raised(StoreError, runs_in, folder, says=field)


def test_binding_again_takes_the_place_of_the_first_and_names_what_was_broken_off(folder: Path) -> None:
    bind(folder, PURPOSES[1:], repeated=["broken/power.1"])
    assert runs_in(folder) == [(folder / "power", "power")]
    assert open_session(folder).repeated == ("broken/power.1",)
