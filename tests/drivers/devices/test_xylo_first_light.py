"""Every command of the page on boards runs unchanged, on a simulated board, with fewer samples."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from drivers.devices.xylo import board as board_module, microphone
from drivers.devices.xylo.networks.network import load_network
from rig.commands.shell.main import main, parser
from tests.support.paths import DOCS, ROOT

pytest.importorskip("xylosim")
PAGE = (DOCS / "reference" / "xylo-board.md").read_text(encoding="utf-8")
STEPS = dict(re.findall(r"^### (\d+)\. [^\n]+\n\n```sh\n(rig [^\n]+)\n```$", PAGE, flags=re.MULTILINE))
"""The command of each step, by its number."""
SHORTER = (
    (r"--repeat \d+", "--repeat 2"), (r"samples=\d+", "samples=2"), (" --option idle_s=300", ""),
    ("stream_s=60", "stream_s=3"), ("--trials 5", "--trials 2"),
)  # fmt: skip
"""Parts of commands that would take an afternoon, and their replacements here."""
HAPPENS = {"14": {"other_s": 4.0}, "15": {"unplug_s": 4.0}}
"""A person's action during a step, in seconds after the board is opened."""
ENDS = {"14": "its stopwatch went back", "15": "Device is not open"}
"""The command's output after this action."""
LONGER = dict.fromkeys(HAPPENS, ("samples=2", "samples=400"))
"""So many samples that the action comes before the last one."""


@pytest.fixture(autouse=True)
def _idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "WARM_S", 0.1)
    monkeypatch.setattr(board_module, "LOOK_NS", 10**12)
    monkeypatch.setattr(microphone, "LOST", 1.0)


def command_of(step: str) -> list[str]:
    text = STEPS[step].partition(" > ")[0]
    for long, short in SHORTER:
        text = re.sub(long, short, text)
    text = text.replace(*LONGER.get(step, ("", "")))
    brief = "" if step == "0" else " --option idle_s=0.2 --allow-invalid"
    return shlex.split(text.replace("examples/", f"{ROOT / 'examples'}/") + brief)[1:]


def bench_of(step: str) -> str:
    options = ", ".join(f"{name} = {value}" for name, value in {"step_s": 1e-3, **HAPPENS.get(step, {})}.items())
    driver = ROOT / "fixtures" / "instruments" / "xylo" / "bench.py"
    return f'[devices.board]\ndriver = "{driver}:open_device"\noptions = {{ {options} }}\n'


def test_every_step_records_its_number_and_states_its_refutation() -> None:
    sections = re.findall(r"^### (\d+)\. (.*?)(?=^##)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert [number for number, _ in sections] == [str(k) for k in range(len(sections))] == list(STEPS)
    for number, text in sections:
        assert "**Refuted**" in text or "**In doubt**" in text, number
        if number != "0":
            assert re.findall(r"--out first-light/0*(\d+)-[\w-]+", STEPS[number]) == [number]


def test_compared_recordings_come_from_earlier_steps() -> None:
    written = {re.findall(r"--out (\S+)", command)[-1] for command in STEPS.values() if "--out" in command}
    lines = re.findall(r"`(rig (?:compare|view|report|audit) [^`]+)`", PAGE)

    assert len(lines) > 8
    for line in lines:
        assert set(re.findall(r"first-light/\S+", line)) <= written
        words = shlex.split(line)[1:]
        if words[0] in ("compare", "report"):
            parser(words[0]).parse_args(words)


@pytest.mark.real_time
@pytest.mark.parametrize("step", STEPS)
def test_a_step_runs_without_a_board(step: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bench.toml").write_text(bench_of(step), encoding="utf-8")

    code = main(command_of(step))

    said = capsys.readouterr()
    recordings: list[Any] = list(here.glob("first-light/*"))
    if step == "0":
        found = json.loads(said.out)["findings"]
        levels = [f["level"] for f in found if f["item"] == "board"]
        assert (levels[:3], {*levels[3:]} <= {"doubtful"}) == (["ok"] * 3, True)  # a busy computer may add a doubt
    elif step in HAPPENS:
        assert code != 0
        assert ENDS[step] in said.err
        assert main(["report", str(recordings[0]), "--allow-invalid"]) in (0, 30)  # 30: too few samples for power
        assert "INCOMPLETE RECORDING" in capsys.readouterr().out
    else:
        assert code == 0, said.out + said.err
        assert len(recordings) == 1


def test_the_network_of_step_two_has_recurrence_and_biases() -> None:
    network = load_network(ROOT / "examples" / "xylo_recurrent.json")
    assert (1, 1) in network.links and all(network.specification[name].all() for name in ("bias", "bias_out"))
