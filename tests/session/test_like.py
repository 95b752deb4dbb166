"""A repetition takes task and options from a recording of others, but no option of device, meter or bench."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rig
from fixtures.worlds.lab_recording import plain_lab, write
from rig.commands.shell.main import main
from rig.errors import UnknownNameError, UsageError
from rig.session.find_recordings import meant
from rig.session.like import like, lines_of
from tests.support.raised import Capture, raised
from tests.support.run_by_hand import rewritten
from tests.support.submissions import session, submitted


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with options of every part."""
    folder = tmp_path_factory.mktemp("theirs")
    options = ("warmup=2", "sample_seed=2040", "inference_s=0.05", "meter.noise=1e-3")
    return session(folder / "a", *options, trials=2, configuration="fast")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session(tmp_path_factory.mktemp("lone") / "run", "samples=4", mode="together")


def edited(run: Path, folder: Path, **values: Any) -> Path:
    """Return the run with other values in its start line, and right hashes."""

    def change(lines: list[dict[str, Any]], _: dict[str, Any]) -> None:
        for name, value in values.items():
            lines[0][name] = {**lines[0].get(name, {}), **value}

    return rewritten(run, folder / "edited", change)


def test_task_options_and_seeds_are_taken(recorded: Path) -> None:
    taken, _ = like(recorded)
    assert (taken.scenario, taken.workload, taken.rules, taken.mode) == ("single-stream", "asc", "quick", "session")
    assert (taken.trials, taken.configuration) == (2, "fast")
    assert {"scenario.warmup=2", "workload.samples=6", "workload.sample_seed=2040"} <= set(taken.options)


def test_bench_options_are_left_out(recorded: Path) -> None:
    assert not [text for text in like(recorded)[0].options if not text.startswith(("scenario.", "workload."))]


def test_a_repetition_asks_the_same(recorded: Path, tmp_path: Path, capsys: Capture) -> None:
    theirs = submitted(tmp_path / "theirs", recorded).path
    ours = tmp_path / "ours"
    words = ["measure", "--device", "mock", "--like", str(theirs), "--out", str(ours), "--allow-invalid"]
    words += ["--option", "inference_s=0.06"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert all(f"takes   {option}" in printed for option in like(recorded)[0].options)
    assert like(ours) == like(recorded)
    assert "phase_w" in str(rig.open_run(ours / "power-1").start.device.details)


def test_the_configuration_must_be_named(recorded: Path, tmp_path: Path) -> None:
    made = submitted(tmp_path / "out", recorded, session(tmp_path / "b"))
    raised(UsageError, like, made.path, says=r"2 configurations.*sessions/a")


@pytest.mark.parametrize("group", ["workload", "scenario", "rules"])
def test_code_that_a_recording_names_is_never_run(run: Path, tmp_path: Path, group: str) -> None:
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    found = raised(UnknownNameError, like, edited(run, tmp_path, **{group: {"name": f"{code}:open_workload"}}))
    assert ("--workload path.py:function" in found.remedy) == (group == "workload")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("option", ["data=set", "data=/etc", "split=../x", "split=here.txt", "data=C:\\x"])
def test_a_foreign_path_is_not_taken(run: Path, here: Path, option: str) -> None:
    Path("here.txt").write_text("x")
    taken, left = like(edited(run, here, workload={"options": dict([option.split("=")])}))
    assert not [text for text in taken.options if text.startswith("workload.")]
    assert any("a path" in what for what in left)


def test_an_unknown_option_is_named_and_left_out(run: Path, tmp_path: Path) -> None:
    taken, left = like(edited(run, tmp_path, scenario={"options": {"colour\x1b[2J": "blue"}}))
    assert any("no option here" in what for what in left)
    assert "\x1b" not in "".join(lines_of(taken, left))


def test_drawn_seeds_are_requested_explicitly(run: Path, tmp_path: Path) -> None:
    drawn = {"name": "qubo-mis", "options": {"nodes": 10, "draw": 2, "seeds": "0-4"}, "details": {"seeds": [71, 8]}}
    options = like(edited(run, tmp_path, workload=drawn, scenario={"name": "optimization", "options": {}}))[0].options
    assert {"workload.seeds=71,8", "workload.draw=0"} <= set(options)


def refusal(tmp_path: Path, recording: Path, *words: str, capsys: Capture) -> str:
    command = ["measure", "--device", "mock", "--like", str(recording), "--out", str(tmp_path / "ours"), *words]
    assert main(command) == UsageError.exit_code
    assert not (tmp_path / "ours").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize(("words", "said"), [
    (("--trials", "1"), "--trials is given beside --like"),
    (("--scenario", "offline"), "--scenario is given beside --like"),
    (("--option", "sample_seed=2000"), "workload.sample_seed is taken"),
    (("--option", "scenario.warmup=1"), "scenario.warmup is taken"),
])  # fmt: skip
def test_taken_options_are_refused(
    recorded: Path, tmp_path: Path, words: tuple[str, ...], said: str, capsys: Capture
) -> None:
    assert said in refusal(tmp_path, recorded, *words, capsys=capsys)


def test_other_samples_are_refused(run: Path, tmp_path: Path, capsys: Capture) -> None:
    """An older recording has no options of its workload; the digest identifies its samples."""
    older = edited(run, tmp_path, workload={"options": {}})
    assert "does not hold them" in "".join(lines_of(*like(older)))
    assert "are not those of the recording" in refusal(tmp_path, older, capsys=capsys)
    words = ["measure", "--device", "mock", "--like", str(older), "--out", str(tmp_path / "ours")]
    assert main([*words, "--allow-invalid", "--option", "samples=4", "--option", "audio_hz=1000"]) == 0


def test_an_import_is_no_measurement_to_repeat(run: Path, tmp_path: Path) -> None:
    raised(UsageError, like, edited(run, tmp_path, imported={"format": "plain-csv"}), says="only an import")


def test_the_mode_of_one_run_is_taken(run: Path) -> None:
    taken, _ = like(run)
    assert (taken.mode, taken.trials) == ("together", None)


# ---- a recording is found by its path, by its name below ``runs/``, or by a part of this name


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    write(plain_lab(1, "plain"), path)
    return path


@pytest.fixture
def lab(plain: Path, here: Path) -> Path:
    """A folder with three recordings; ``b-mock`` is the newest."""
    for age_s, name in enumerate(("b-mock", "a-mock", "first")):
        shutil.copytree(plain, here / "runs" / name)
        os.utime(here / "runs" / name / "events.jsonl", (1e9 - age_s, 1e9 - age_s))
    return here


@pytest.mark.usefixtures("lab")
def test_a_part_of_a_name_is_enough(capsys: Capture) -> None:
    assert meant(Path("first")) == meant(Path("irs")) == meant(Path("runs/first")) == Path("runs/first")
    assert meant(Path("gone")) == Path("gone")
    raised(UsageError, meant, Path("mock"), says=r"mock may be one of 2 recordings.*such as runs/b-mock")
    listed = [line.split(",")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert listed == ["runs/b-mock", "runs/a-mock"]


def test_an_exact_name_precedes_longer_names(lab: Path) -> None:
    (lab / "runs" / "a-mock").rename(lab / "runs" / "first-2")
    assert meant(Path("first")) == Path("runs/first")


@pytest.mark.usefixtures("lab")
def test_a_report_of_a_folder_lists_its_recordings(capsys: Capture) -> None:
    assert main(["report", "runs"]) == UsageError.exit_code
    *listed, said = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0].strip() for line in listed] == ["runs/b-mock", "runs/a-mock", "runs/first"]
    what = "runs holds 3 recordings and no session.json that binds them"
    assert said == f"rig: {what}. Name one of them, such as runs/b-mock"


@pytest.mark.usefixtures("lab")
def test_a_report_and_a_comparison_take_names() -> None:
    assert main(["report", "first", "--allow-invalid"]) == 0
    assert main(["compare", "first", "a-mock"]) == 0
