"""The display while a run is recorded: its progress, watts, and the room on its disk, but nothing that is unknown."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reports.watch.run_progress import progress
from reports.watch.run_status import Growing, Room, RoomLeft, room_text, waiting_s
from reports.watch.tail import follow
from rig.bench.request import Request
from rig.commands.shell.main import main
from rig.errors import StoreError
from rig.recording.writer import Recorder
from rig.session.measure import measure
from rig.status_line import StatusLine
from rig.types import Chunk, ClockInfo, MeterInfo, Rail, Reply, Span
from tests.support.made_up import HOSTILE
from tests.support.raised import Capture, Patch
from tests.support.start_lines import start

METER = MeterInfo("smu", "simulator", ClockInfo("meter", 1e6), (Rail("core", rate_hz=1e3),))


def told(
    capsys: Capture, total: int, path: Path | None, steps: int, clock: Callable[[], float] = lambda: 0.0
) -> list[str]:
    """Return the lines of a run of so many steps without a terminal."""
    with progress(total, path, clock) as show:
        for done in range(steps):
            show(done, {"core": 1.5e-3})
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


def test_progress_without_a_terminal_is_printed_by_tenths(capsys: Capture, tmp_path: Path) -> None:
    tenths = [f"power: {done}/40 samples, {40 - done} left, after 0 s" for done in range(4, 40, 4)]
    whole = ["power: begins, 40 samples", *tenths, "power: ended, 40 samples in 0.0 s"]
    assert told(capsys, 40, tmp_path / "power", 41) == whole


def test_a_run_beyond_its_total_reports_once_a_minute(capsys: Capture) -> None:
    clock_s = iter(range(1000))
    _, *lines, _ = told(capsys, 1, None, 130, lambda: float(next(clock_s)))
    assert lines == ["run: 59 samples, after 60 s", "run: 119 samples, after 120 s"]


def test_an_unknown_total_is_not_shown(capsys: Capture) -> None:
    assert told(capsys, 0, None, 42) == ["run: begins", "run: ended, 41 samples in 0.0 s"]


@pytest.mark.parametrize(("scenario", "option"), [("server", "arrival_hz=50"), ("real-time", "stream_s=10")])
def test_a_run_limited_by_time_shows_no_total(tmp_path: Path, capsys: Capture, scenario: str, option: str) -> None:
    options = ("samples=200", "audio_hz=1000", "idle_s=0.5", option)
    measure(Request("mock", scenario=scenario, mode="together", options=options, out=tmp_path / "run"))

    assert "left" not in capsys.readouterr().err
    assert "/" not in Growing(tmp_path / "run").look().text().split("  ")[1]


def test_a_run_broken_off_states_its_sample_count(capsys: Capture) -> None:
    with pytest.raises(KeyboardInterrupt), progress(5) as show:
        show(2, {})
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "run: broken off, 2/5 samples, 3 left"


@pytest.mark.parametrize(("done", "said", "unsaid"), [(7, "7/20 samples, 13 left", "8/20"), (45, "45 samples", "/20")])
def test_a_terminal_shows_one_line(
    monkeypatch: Patch, capsys: Capture, tmp_path: Path, done: int, said: str, unsaid: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "power-3").mkdir()
    with progress(20, tmp_path / "power-3") as show:
        show(done, {"core": 1e-3})
        sys.stdout.write("of a driver")  # is kept elsewhere, and costs no redrawing
    shown = capsys.readouterr()
    assert shown.out == "of a driver"
    last = shown.err.rsplit("\r", 2)[-2]
    assert f"power-3 {said}" in last
    assert "core 1 mW" in last
    assert "GB left" in last
    assert unsaid not in last
    assert "%" not in last


# ---- the disk -----------------------------------------------------------------------------


def test_the_time_until_a_full_disk_is_extrapolated(tmp_path: Path) -> None:
    at = iter([0.0, 0.5, 10.0])
    room = Room(tmp_path, lambda: next(at))
    first = room.look()
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "core.arrows").write_bytes(bytes(1_000_000))
    again, later = room.look(), room.look()

    assert first is again  # at most once a second
    assert first is not None
    assert later is not None
    assert math.isinf(first.full_in_s)
    assert later.full_in_s == pytest.approx(later.free * 10.0 / 1e6)


@pytest.mark.parametrize(("left", "said"), [
    (RoomLeft(71_000_000_000, math.inf, math.nan), "disk 71 GB left"),
    (RoomLeft(71_000_000_000, 9000.0, math.nan), "disk 71 GB left, full in 2.5 h"),
    (RoomLeft(5_000_000, 4.0, 0.26), "buffer 0.3 s  disk 0.005 GB left, full in 4 s"),
    (None, ""),
])  # fmt: skip
def test_unknown_room_is_not_shown(left: RoomLeft | None, said: str) -> None:
    assert room_text(left) == said


def test_waiting_time_is_read_from_the_recording(tmp_path: Path) -> None:
    came = {"type": "chunk", "readings": 1, "arrived_ns": 0}
    lines = [came | {"rail": rail, "waiting_s": s} for rail, s in (("a", 9.0), ("a", 0.1), ("b", 0.5))]
    others = [came | {"rail": []}, came | {"rail": {}, "waiting_s": 7.0}, came | {"rail": "c"}, [], 3]
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(map(json.dumps, [*lines, *others])) + '\n{"type": "chunk", "rail": "a", "wai')

    assert waiting_s(events) == 0.5
    assert math.isnan(waiting_s(tmp_path / "none"))


# ---- rig tail -----------------------------------------------------------------------------


def recorded(path: Path, name: str = "core") -> tuple[Recorder, Callable[[int], None]]:
    """Return a recorder of a run of 5 samples, and a function that records one answer, and 100 readings of 2 mW."""
    recorder = Recorder(path)
    recorder.event(start(workload={"name": "none", "samples": 5}))
    recorder.open_trace(METER, Rail(name, rate_hz=1e3), 0)

    def more(k: int) -> None:
        span = Span("inference", 1000 * k, 1000 * k + 500)
        recorder.reply(k, Reply(f"s{k}", "answer", (span, span)), None, 0, 1, warmup=k == 0)
        recorder.chunk(Chunk(name, np.full(100, 2e-3, np.float32)), k)
        recorder.flush()

    return recorder, more


def test_progress_of_a_run_is_read_from_its_files(tmp_path: Path) -> None:
    recorder, more = recorded(tmp_path / "run")
    shown: list[str] = []

    def wait() -> bool:
        k = len(shown) - 1
        more(k) if k < 4 else recorder.stop()
        return True

    assert follow(tmp_path / "run", shown.append, wait).ended
    assert [text.split("  ")[1] for text in shown] == [
        "0/5 samples, 5 left",
        "0/5 samples, 5 left",  # the first is warm-up
        *(f"{k}/5 samples, {5 - k} left" for k in (1, 2, 3, 3)),
    ]
    assert "core 2 mW" in shown[1]
    assert "core" not in shown[0]


def test_a_torn_file_counts_up_to_its_last_batch(tmp_path: Path) -> None:
    recorder, more = recorded(tmp_path / "run")
    for k in range(3):
        more(k)
    recorder.close_files()
    for name in ("replies.arrows", "traces/core.arrows"):
        file = tmp_path / "run" / name
        file.write_bytes(file.read_bytes()[:-60])

    standing = Growing(tmp_path / "run").look()

    assert standing.done == 1
    assert standing.watts == {"core": pytest.approx(2e-3)}
    assert not standing.ended


def test_the_newest_run_of_a_session_is_followed(tmp_path: Path) -> None:
    for name in ("accuracy", "power"):
        recorder, more = recorded(tmp_path / name)
        more(1)
        recorder.stop()
    (tmp_path / "request.json").write_text("{}")

    last = follow(tmp_path, lambda text: None, lambda: False)

    assert (last.run.name, last.ended) == ("power", True)


def test_the_command_prints_the_state_once(tmp_path: Path, capsys: Capture) -> None:
    recorder, more = recorded(tmp_path / "run", HOSTILE)
    more(1)
    recorder.stop()

    assert main(["tail", str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["tail", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()

    assert (document["done"], document["left"], document["ended"]) == (1, 4, True)
    assert "1/5 samples" in said.out
    assert "\x1b" not in said.out + said.err


def test_the_error_that_ended_a_run_is_shown(tmp_path: Path) -> None:
    recorder, more = recorded(tmp_path / "run")
    more(1)
    recorder.stop(StoreError("the disk is full", field="out"))

    assert Growing(tmp_path / "run").look().text().endswith("ended: the disk is full")


# ---- the line of what is done before a run


def test_no_status_is_shown_without_a_tty(capsys: Capture) -> None:
    line = StatusLine()
    line.show("reading its clock")
    line.clear()
    assert not line.shown
    assert capsys.readouterr() == ("", "")


def test_progress_without_a_terminal_is_paced(capsys: Capture, monkeypatch: Patch) -> None:
    line, at = StatusLine(), [0.0]
    monkeypatch.setattr("rig.status_line.time.monotonic", lambda: at[0])
    for at[0] in (0.0, 1.0, 4.9, 5.1):
        line.pace(f"{at[0]} s")
    assert capsys.readouterr().err == "0.0 s\n5.1 s\n"
