"""``rig doctor``: it reports what is good, names each fault with its remedy, and never hangs."""

import json
import math
import signal
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.front_end import EXACT
from rig.commands.shell.main import main
from rig.doctor.clock import clock_findings
from rig.doctor.examination import Settings, diagnose
from rig.doctor.findings import Finding, exit_code, si, summary
from rig.doctor.host import TESTED, host_findings, permission_findings
from rig.doctor.meter import Taken, noise_finding, rate_finding, reading_findings
from rig.errors import DeviceError, MeterError, RigError, SetupError, UsageError
from rig.session.locks import device_lock
from rig.types import Accuracy, Bracket, Chunk, ClockInfo, Conversion, Floats, MeterInfo, Rail
from tests.support.instruments import INSTRUMENTS
from tests.support.paths import ROOT
from tests.support.raised import Patch, raised
from tests.support.tiny_board import Chip, TinyBoardSim
from tests.support.waiting import within

pytestmark = pytest.mark.real_time

SECONDS = 0.05
Doctor = Callable[..., list[Finding]]


@pytest.fixture
def visit(here: Path) -> Doctor:
    """Return everything that the doctor finds besides the host, for a bench file's text or for drivers by name."""

    def run(*names: str, text: str | None = None, **given: Any) -> list[Finding]:
        path = None
        if text is not None:
            path = here / "bench.toml"
            path.write_text(text, encoding="utf-8")
        return [f for f in diagnose(names, path, Settings(**{"seconds": SECONDS} | given)) if f.item != "host"]

    return run


def of(findings: Sequence[Finding], item: str, topic: str) -> Finding:
    found = [f for f in findings if (f.item, f.topic) == (item, topic)]
    assert len(found) == 1, findings
    return found[0]


def number(finding: Finding, name: str) -> float:
    value = finding.values[name]
    assert isinstance(value, (int, float))
    return float(value)


def levels(findings: Sequence[Finding], item: str) -> dict[str, str]:
    return {f.topic: f.level for f in findings if f.item == item}


# ---- clocks --------------------------------------------------------------------------------------------------------

DEVICE = '[devices.sim]\ndriver = "mock"\noptions = {{ {} }}\n'


@pytest.mark.parametrize("ppm", [-3000.0, 5000.0])
def test_a_clock_beyond_its_tolerance_is_broken(visit: Doctor, ppm: float) -> None:
    clock = of(visit(text=DEVICE.format(f"device_drift_ppm = {ppm}"), seconds=0.3), "sim", "clock")

    assert clock.level == "broken"
    assert clock.exit_code == DeviceError.exit_code
    told_hz = float(clock.remedy.removeprefix("Declare tick_hz ").partition(" ")[0])
    assert told_hz == pytest.approx(12.5e6 * (1 + ppm * 1e-6), rel=number(clock, "off_doubt"))


def brackets_of(off: float, offset_s: float, seed: int) -> tuple[Any, list[Bracket]]:
    """Return when (ns) a clock of 1 MHz with these errors was read, and its brackets over a link of random delays."""
    rng = np.random.default_rng(seed)
    at_ns = 10**12 + np.sort(rng.integers(0, 10**9, 60))
    out, back = rng.exponential(2e5, (2, 60)) + 1e5
    ticks = np.floor((at_ns - 10**12) * 1e-3 * (1 + off) + (offset_s + 1000.0) * 1e6)
    return at_ns, [Bracket(int(t - o), int(k), int(t + b)) for t, k, o, b in zip(at_ns, ticks, out, back, strict=True)]


@pytest.mark.parametrize(("sigmas", "level"), [(1.5, "ok"), (3.5, "doubtful"), (6.0, "broken")])
def test_a_rate_is_broken_only_beyond_chance(sigmas: float, level: str) -> None:
    _, brackets = brackets_of(1e-3, 0.0, 1)
    *_, loose = clock_findings("x", ClockInfo("c", 1e6, 0.1), brackets, 10**12)
    tolerance = abs(number(loose, "off")) - sigmas * 0.5 * number(loose, "off_doubt")
    *_, clock = clock_findings("x", ClockInfo("c", 1e6, tolerance), brackets, 10**12)
    assert clock.level == level and ("--seconds" in clock.remedy) == (level == "doubtful")


@given(st.floats(-9e-4, 9e-4), st.floats(-1e6, 1e6), st.integers(0, 99))
def test_the_stated_clock_intervals_hold_the_truth(off: float, offset_s: float, seed: int) -> None:
    at_ns, brackets = brackets_of(off, offset_s, seed)

    *_, clock = clock_findings("x", ClockInfo("c", 1e6, 1e-3), brackets, 10**12)

    assert clock.level == "ok"
    assert abs(number(clock, "off") - off) < 2.0 * number(clock, "off_doubt")
    middle_s = float(np.mean(at_ns)) * 1e-9 - 1000.0
    moved_s = abs(off) * 1.0  # the offset refers to some moment within the second
    assert abs(number(clock, "offset_s") - offset_s - off * middle_s) < 2.0 * number(clock, "offset_doubt_s") + moved_s


@pytest.mark.parametrize(("ticks", "says"), [
    ([5] * 4, "stands still"), ([5, 9, 8, 12], "goes back"), ([k // 3 * 1000 for k in range(60)], "steps of 1 ms"),
])  # fmt: skip
def test_a_stopped_backward_or_coarse_clock_is_named(ticks: list[int], says: str) -> None:
    brackets = [Bracket(k * 333_333, tick, k * 333_333 + 1000) for k, tick in enumerate(ticks)]
    found = list(clock_findings("x", ClockInfo("c", 1e6, 0.1), brackets, 0))

    assert any(f.level != "ok" and says in f.text for f in found)


# ---- rails ---------------------------------------------------------------------------------------------------------

WATCHED = """\
[devices.sim]
driver = "mock"
options = {{ idle_w = 1e-3, inference_w = 3e-3 }}
[meters.watch]
driver = "mock"
sees = "sim"
{}
options = {{ {} }}
"""


def test_noise_and_rate_match_the_instrument(visit: Doctor) -> None:
    found = visit(text=WATCHED.format("", "noise = 0.01, rate_hz = 2000.0"), seconds=0.3)

    assert number(of(found, "watch", "noise"), "deviation") == pytest.approx(0.01 * 3e-3, rel=0.12)
    rate = of(found, "watch", "rate")
    assert abs(number(rate, "rate_hz") - 2000.0 * (1 + 40e-6)) < 1.5 * number(rate, "doubt_hz")


@pytest.mark.parametrize(("rail", "options", "topic", "level"), [
    ("", "clip = 0.3", "overload", "broken"), ("", "drop = 0.3", "rate", "broken"),
    ("", "stated = false", "accuracy", "doubtful"), ("", "noise = 0.0", "noise", "doubtful"),
    ("", "silent_after_s = 1e-6", "core", "broken"), ("", "raise_after_s = 0.01", "driver", "broken"),
    ("", "meter_drift_ppm = 9000.0", "clock", "broken"), ('rail = "io"', "", "wiring", "broken"),
])  # fmt: skip
def test_meter_faults_are_reported(visit: Doctor, rail: str, options: str, topic: str, level: str) -> None:
    found = visit(text=WATCHED.format(rail, options))

    assert levels(found, "watch")[topic] == level
    assert all(f.remedy for f in found if f.level != "ok")


RAIL = Rail("core", conversion=Conversion("A", supply_v=2.0), rate_hz=100.0, accuracy=Accuracy(0.0, 0.0))


def said_of(rail: Rail, *chunks: Chunk, tick_hz: float = 1e3) -> dict[str, Finding]:
    info = MeterInfo("m", "simulator", ClockInfo("c", tick_hz), (rail,))
    taken = Taken(Bracket(0, 0, 1))
    taken.add(chunks, 0)
    return {f.topic: f for f in reading_findings("m", info, taken, ())}


@pytest.mark.parametrize(("ticks", "level"), [(10, "ok"), (10_000, "broken")])
@pytest.mark.parametrize("rate_hz", [0.0, 100.0])
def test_a_time_in_another_unit_is_broken(rate_hz: float, ticks: int, level: str) -> None:
    """A tick is declared as a millisecond. If the board counts microseconds, stamps give a thousandth of the rate."""
    rail = replace(RAIL, rate_hz=rate_hz)
    taken = Taken(Bracket(0, 0, 1))
    for k in range(20):
        end = np.arange(5 * k + 1, 5 * k + 6) * ticks
        taken.add([Chunk("core", np.ones(5), end_tick=end, start_tick=end - ticks)], (k + 1) * 50_000_000)
    info = MeterInfo("m", "simulator", ClockInfo("c", 1e3), (rail,))
    assert {f.topic: f.level for f in reading_findings("m", info, taken, ())}["rate"] == level


@pytest.mark.parametrize(("declared_hz", "stamped_hz", "says"), [
    (20.0, 0.0, "rate_hz = 100"), (20.0, 101.0, "rate_hz = 101"), (500.0, 0.0, "Lower rate_hz"),
])  # fmt: skip
def test_the_remedy_for_a_wrong_rate_states_the_true_rate(declared_hz: float, stamped_hz: float, says: str) -> None:
    arrived = [(k * 50_000_000, 5 * k) for k in range(20)]
    assert says in rate_finding("m", replace(RAIL, rate_hz=declared_hz), arrived, stamped_hz).remedy


AMPERES = np.array([1.0, 1.1, 0.9, 1.0, 1.05])
TICKS = np.arange(0, 1000, 10, dtype=np.int64)
JOULES = TICKS * 1e-3 * 3.0 + 1e-6 * np.sin(TICKS)


@pytest.mark.parametrize(("rail", "chunk", "mean_w"), [
    (RAIL, Chunk("core", AMPERES), 2.02),
    (Rail("core", "cumulative", Conversion("J")), Chunk("core", JOULES, TICKS, TICKS), 3.0),
], ids=["amperes at the declared voltage", "a counter of joules"])  # fmt: skip
def test_readings_become_watts(rail: Rail, chunk: Chunk, mean_w: float) -> None:
    noise = said_of(rail, chunk)["noise"]

    assert number(noise, "mean") == pytest.approx(mean_w, rel=1e-4)
    assert noise.values["unit"] == "W"


@pytest.mark.parametrize(("rail", "amperes", "topic"), [
    (replace(RAIL, conversion=Conversion("A")), AMPERES, "supply"),
    (replace(RAIL, range_max=1.02), AMPERES, "overload"), (RAIL, np.append(AMPERES, math.nan), "readings"),
], ids=["without a voltage", "above the range, without a flag", "no number, without a flag"])  # fmt: skip
def test_impossible_amperes_are_broken(rail: Rail, amperes: Floats, topic: str) -> None:
    said = said_of(rail, Chunk("core", amperes))

    assert said[topic].level == "broken"
    assert said[topic].values.get("over", 2) == 2
    assert said["noise"].values["unit"] == ("A" if topic == "supply" else "W")
    assert math.isfinite(number(said["noise"], "mean"))


@given(st.integers(0, 999), st.floats(-1.0, 1.0))
def test_a_drift_is_found_within_its_uncertainty(seed: int, drift: float) -> None:
    start_s = np.arange(1000) * 1e-3
    value = 5.0 + drift * start_s + np.random.default_rng(seed).normal(0.0, 0.1, 1000)
    said = noise_finding("m", RAIL, value, start_s, "W")

    assert abs(number(said, "drift_per_s") - drift) < 2.5 * number(said, "doubt_per_s")  # five standard errors
    assert number(said, "deviation") == pytest.approx(0.1, rel=0.12)


@pytest.mark.parametrize(("value", "says"), [(-1.0, "reads backwards"), (1.0, "not settled")])
def test_a_negative_or_unsettled_rail_is_doubtful(value: float, says: str) -> None:
    start_s = np.arange(100) * 1e-2
    drift = start_s if value > 0 else 0.0
    noise = np.random.default_rng(1).normal(0.0, 1e-3, 100)

    assert says in noise_finding("m", RAIL, value + drift + noise, start_s, "W").remedy


# ---- which drivers are opened
# ------------------------------------------------------------------------------------------


def test_options_need_a_named_driver(visit: Doctor) -> None:
    raised(UsageError, visit, "sim", text=DEVICE.format(""), options=("rate_hz=500",), says="name a driver")


def test_a_meter_path_needs_a_bench_file(visit: Doctor) -> None:
    (found,) = [f for f in visit(f"{ROOT / 'examples' / 'my_meter.py'}:open_meter") if f.level == "broken"]

    assert "[meters.NAME]" in found.remedy


def test_a_named_driver_is_opened_with_its_meter(visit: Doctor) -> None:
    found = visit("mock", options=("rate_hz=500",))

    assert [f.topic for f in found if f.item == "mock"].count("identity") == 2
    assert {f.level for f in found} == {"ok"}
    assert "500 declared" in of(found, "mock", "rate").text


def test_only_named_items_are_opened(visit: Doctor) -> None:
    text = WATCHED.format("", "") + '[meters.far]\ndriver = "scpi-dmm"\nsupply_v = 1.0\n'

    assert {f.item for f in visit("sim", text=text)} == {"bench", "sim"}
    assert {f.item for f in visit("far", text=text)} == {"bench", "far"}


@pytest.mark.parametrize(("options", "says", "code"), [
    ("", "no address of an instrument is given", UsageError),
    ('address = "TCPIP::127.0.0.1::1::SOCKET"', "cannot be opened", SetupError),
    ('address = "TCPIP::127.0.0.1::{mute}::SOCKET", timeout_s = 0.2', "gave no answer", MeterError),
])  # fmt: skip
def test_a_meter_that_does_not_answer_is_broken(visit: Doctor, options: str, says: str, code: type[RigError]) -> None:
    pytest.importorskip("pyvisa_py")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        given = options.format(mute=mute.getsockname()[1])
        found = visit(text=f'[meters.far]\ndriver = "scpi-dmm"\nsupply_v = 1.0\noptions = {{ {given} }}\n')

    far = of(found, "far", "open")
    assert says in far.text
    assert ("Check its power, its network and the address" in far.remedy) is (code is SetupError)
    assert exit_code(found) == code.exit_code
    assert "1 broken (far)" in summary(found)


def test_a_meter_without_its_device_is_not_opened(tmp_path: Path, visit: Doctor) -> None:
    (tmp_path / "shut.py").write_text("def open_device(): 1 / 0\ndef open_meter(device): ...\n", encoding="utf-8")
    text = '[devices.board]\ndriver = "shut.py:open_device"\n'
    found = visit("own", text=text + '[meters.own]\ndriver = "shut.py:open_meter"\nsees = "board"\n')

    assert of(found, "board", "open").level == "broken"
    assert of(found, "own", "open").text.endswith("board is not open")


def test_a_wrong_entry_is_named_by_its_line(visit: Doctor) -> None:
    found = visit(text=WATCHED.format("", "rate = 3.0"))

    assert ":8: meters.watch.options.rate is not an option of mock" in of(found, "watch", "file").text
    assert levels(found, "watch") == {"file": "broken"}
    assert of(found, "sim", "identity").level == "ok"


# ---- drivers that misbehave ----------------------------------------------------------------------------------------

ROGUE = """\
import signal, threading, time

closed = threading.Event()

def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.3)

WAYS = {"hang": lambda: closed.wait(60.0), "interrupt": interrupt, "raise": lambda: 1 / 0, "lie": lambda: 3}

class Rogue:
    def __init__(self, how):
        self.info, self.close = WAYS[how], closed.set

def open_device(*, how: str = ""):
    if how == "exit":
        raise SystemExit(3)
    return Rogue(how)
"""


@pytest.fixture
def rogue(tmp_path: Path, visit: Doctor) -> Callable[..., list[Finding]]:
    (tmp_path / "rogue.py").write_text(ROGUE, encoding="utf-8")

    def run(how: str, **given: Any) -> list[Finding]:
        text = f'[devices.bad]\ndriver = "rogue.py:open_device"\noptions = {{ how = "{how}" }}\n'
        return visit(text=text + '[devices.good]\ndriver = "mock"\n', **given)

    return run


def test_a_device_in_use_is_left_alone(tmp_path: Path, rogue: Doctor) -> None:
    with device_lock(f"{tmp_path / 'rogue.py'}:open_device"):
        found = rogue("raise")
    assert "in use by process" in of(found, "bad", "open").text
    assert of(found, "good", "identity").level == "ok"
    assert "in use" not in " ".join(f.text for f in rogue("raise"))


def test_a_hanging_driver_does_not_stop_the_others(rogue: Doctor) -> None:
    with within(30.0):
        found = rogue("hang", timeout_s=0.1)

    assert of(found, "bad", "patience").text.endswith("while reading its info")
    assert of(found, "good", "identity").level == "ok"


@pytest.mark.parametrize(("how", "says"), [
    ("raise", "ZeroDivisionError: division by zero"), ("lie", "its info() gives a int"), ("exit", "SystemExit: 3"),
])  # fmt: skip
def test_a_driver_with_errors_is_broken(rogue: Doctor, how: str, says: str) -> None:
    found = [f for f in rogue(how) if f.item == "bad"]

    assert found[-1].level == "broken"
    assert says in found[-1].text


def test_ctrl_c_closes_all_drivers(tmp_path: Path, rogue: Doctor) -> None:
    from rig.plugins import load

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # a process in a shell's background ignores Ctrl-C
        with within(30.0), pytest.raises(KeyboardInterrupt):
            rogue("interrupt", seconds=0.05, timeout_s=60.0)
    finally:
        signal.signal(signal.SIGINT, before)

    opened = load("devices", f"{tmp_path / 'rogue.py'}:open_device")
    closed: threading.Event = opened.__globals__["closed"]
    assert closed.wait(30.0)


# ---- the host ------------------------------------------------------------------------------------------------------


def host(tmp_path: Path, seconds: float = 0.02) -> dict[str, Finding]:
    found = [f for f in host_findings(seconds, tmp_path, tmp_path / "runs") if isinstance(f, Finding)]
    assert len({f.topic for f in found}) == len(found)
    return {f.topic: f for f in found}


def test_the_host_is_described(tmp_path: Path) -> None:
    found = host(tmp_path)

    assert list(found) == ["python", "clock", "cpu", "load", "schedule", "disk"]
    stated = {f"Programming Language :: Python :: {major}.{minor}" for major, minor in TESTED}
    assert stated == set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"])
    assert number(found["clock"], "resolution_s") < 1e-6
    assert number(found["schedule"], "sleep_p99_s") >= number(found["schedule"], "sleep_median_s") > 0
    assert f"{si(number(found['schedule'], 'wait_p99_s'), 's')} (99th percentile of " in found["schedule"].text
    assert number(found["disk"], "free_bytes") > 0


@pytest.mark.parametrize(("step_ns", "level"), [(50, "ok"), (2000, "doubtful")])
def test_one_slow_reading_makes_no_clock_doubtful(tmp_path: Path, monkeypatch: Patch, step_ns: int, level: str) -> None:
    """The host is busy with something else during one reading."""
    steps = np.full(4000, step_ns)
    steps[500] = 10_000_000
    monkeypatch.setattr(time, "monotonic_ns", iter(np.cumsum(steps).tolist()).__next__)
    clock = list(islice(host_findings(0.02, tmp_path), 2))[1]
    assert isinstance(clock, Finding) and clock.level == level
    assert f"{si(step_ns * 1e-9, 's')} for each time stamp" in clock.text


@pytest.mark.parametrize(("governor", "level"), [("performance", "ok"), ("powersave", "doubtful")])
def test_a_governor_that_slows_the_cpu_is_doubtful(tmp_path: Path, governor: str, level: str) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_governor").write_text(f"{governor}\n", encoding="utf-8")

    assert host(tmp_path)["cpu"].level == level
    assert governor in host(tmp_path)["cpu"].text


def test_missing_energy_counters_are_broken(tmp_path: Path) -> None:
    (found,) = permission_findings("cpu", "rapl", [], tmp_path)
    assert found.level == "broken"

    counter = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.parent.mkdir(parents=True)
    counter.write_text("1\n", encoding="utf-8")
    (found,) = permission_findings("cpu", "rapl", [], tmp_path)
    assert found.level == "ok"


def test_for_a_missing_serial_port_the_present_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "ttyACM3").touch()
    (found,) = permission_findings("board", "mlperf-tiny", ["/dev/no-such-port", "x", 3], tmp_path)

    assert found.level == "broken"
    assert "/dev/no-such-port is not there" in found.text
    assert str(tmp_path / "dev" / "ttyACM3") in found.remedy


# ---- what is printed -----------------------------------------------------------------------------------------------


def command(*argv: str) -> int:
    return main(["doctor", *argv, "--seconds", "0.02"])


def test_each_finding_has_one_line(visit: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    code = command("mock", "--option", "stated=false")
    *lines, last = capsys.readouterr().out.splitlines()

    assert code == 0
    assert {line.split()[0] for line in lines} <= {"ok", "doubtful"}
    assert last.startswith(f"{len(lines)} findings: ")


def test_json_is_one_document_with_every_finding(visit: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    code = command("mock", "--json", "--option", "clip=0.1")
    document = json.loads(capsys.readouterr().out)

    assert code == document["exit_code"] == 22
    assert {f["level"] for f in document["findings"]} <= {"ok", "doubtful", "broken"}
    (overload,) = (f for f in document["findings"] if f["topic"] == "overload")
    assert overload["values"]["over"] > 0


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_an_impossible_timeout_is_refused(value: str) -> None:
    assert command("mock", "--timeout", value) == UsageError.exit_code


# ---- a board and each simulated meter: names, ranges, rates, and the order of opening -------------------------------

BOARD = f"{ROOT / 'drivers' / 'devices' / 'mlperf_tiny' / 'device.py'}:open_device"
WATCHES = ("serial-text", "nvml", "rapl")
ON_TIME = ("rate", "clock")
"""Findings about these are right only if the machine has time for the instrument and its reader."""
ON_BOARD = """
[devices.board]
driver = "{board}"
options = {{ port = "{port}", labels = "down,go,left,right" }}
boot_s = 0.1

[meters.meter]
driver = "{driver}"
sees = "board"
{options}
"""


@pytest.mark.parametrize(("name", "how", "says", "rate_hz"), [
    ("ppk2", {}, "SIMULATED Nordic PPK2, source mode", 100_000),
    ("lpm01a", {}, "SIMULATED ST PowerShield, energy", 1000),
    ("otii", {}, "SIMULATED Otii Simulator", 4000),
    ("joulescope", {}, "Joulescope u/js110/000007, power", 20_000),
    ("scpi-dmm", {"wiring": EXACT}, "34465A on its 3 A terminals", 1000),
    ("serial-text", {}, "serial", 0),
    ("nvml", {}, "SIM", None),
    ("dmm6500", {}, "DMM6500, FRON terminals", 10_000),
    ("rapl", {}, "RAPL", 100),
])  # fmt: skip
def test_the_doctor_names_meter_range_and_rate(
    tmp_path: Path, name: str, how: dict[str, Any], says: str, rate_hz: float | None
) -> None:
    pytest.importorskip("serial", reason="extra serial is not installed")
    pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
    plant = LivePlant()
    with TinyBoardSim(Chip(), plant) as board, INSTRUMENTS[name](plant, **how) as instrument:
        if name == "joulescope":
            instrument.sim.paths = ("u/js110/000007",)
        options = dict(instrument.options)
        supply = f"supply_v = {options.pop('supply_v')}\n" if "supply_v" in options else ""
        given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        path = tmp_path / "bench.toml"
        text = ON_BOARD.format(board=BOARD, port=board.port, driver=name, options=f"{supply}options = {{ {given} }}")
        path.write_text(text, encoding="utf-8")
        found = [f for f in diagnose([], path, Settings(seconds=0.6)) if f.item != "host"]

    order = ["board", "meter"] if name in WATCHES else ["meter (feeds it)", "board"]
    assert of(found, "board", "power").text == f"opened in this order: {', '.join(order)}"
    assert [f.item for f in found if f.topic == "identity"] == [who.partition(" ")[0] for who in order]
    assert says in of(found, "meter", "identity").text
    if rate_hz is not None:  # the counter's rate is measured
        assert of(found, "meter", "rate").values["declared_hz"] == pytest.approx(rate_hz, rel=1e-6)
    if name in ("lpm01a", "scpi-dmm", "dmm6500"):  # the others choose their range themselves
        assert "up to " in of(found, "meter", "identity").text
    assert [f.text for f in found if f.level == "broken" and f.topic not in ON_TIME] == []
