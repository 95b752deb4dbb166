"""Lines of text on a serial port: the content of a line is recorded, and an unreliable line is no reading."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.meters.serial_text.lines import Board, LineError, Plan, Row, layout_of
from drivers.meters.serial_text.loss_detection import LineOrder, Pace
from drivers.meters.serial_text.meter import open_meter
from fixtures.instruments.pty_wire import PtyWire
from fixtures.instruments.text_board import Sketch
from rig.errors import DataError, MeterError, MeterSilentError, RigError, SetupError
from tests.support.instruments import live
from tests.support.meters import at_least, column, error_of, or_the_machine_was_busy, taken, values
from tests.support.raised import raised
from tests.support.scpi_bench import calibration
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

pytest.importorskip("serial", reason="extra serial is not installed")

Options = dict[str, Any]
TIMED: Options = {"columns": "time:ms, core:mW", "kind": "point"}
COUNTED: Options = {"kind": "mean", "columns": "n:count, core:mW", "rate_hz": 200.0}


def once(number: int, change: Callable[[bytes], bytes]) -> Callable[[int, bytes], bytes]:
    """Spoil every ``number``th line."""
    return lambda k, line: change(line) if k % number == 0 else line


# ---- one line -----------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "separator", "text", "value"), [
    ("time:ms, bus:V, i:mA", "comma", "1234,5.01,12.5", (5.01, 0.0125)),
    ("bus:V, i:A", "comma", "5.01V,0.30A", (5.01, 0.30)),
    ("vdd:mW, sdram:mW", "tab", "vdd:12.5\tsdram:3", (0.0125, 0.003)),
    ("-, e:J", "whitespace", "17   2.5e-1", (0.25,)),
    ("p:uW, x:xor8", "comma", "17.5,1D", (17.5e-6,)),
    ("p:W, x:sum8", "comma", "1*31", (1.0,)),
])  # fmt: skip
def test_a_line_is_read_by_columns(columns: str, separator: str, text: str, value: tuple[float, ...]) -> None:
    assert layout_of(columns, separator).row(text).value == pytest.approx(value)


@pytest.mark.parametrize("text", [
    "12,3.5", "12,3.5,6,7", "12,3.5,", "12,3.5x,6", "12,0x10,6", "-1,3.5,6", "1e3,3.5,6", "12,3..5,6", "12;3.5;6",
    "12,1_0,6",
])  # fmt: skip
def test_a_line_unlike_its_declaration_is_refused(text: str) -> None:
    raised(LineError, layout_of("time:ms, a:mW, b:mW", "comma").row, text)


@pytest.mark.parametrize("text", ["ovf", "nan", "inf", "-inf", "OL", "1e999"])
def test_a_non_number_from_the_board_is_flagged(text: str) -> None:
    row = layout_of("a:mW, b:mW", "comma").row(f"{text},2")

    assert np.isnan(row.value[0]) and row.flag == (True, False) and row.value[1] == pytest.approx(2e-3)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1e4), st.integers(0, 40), st.integers(0, 255))
def test_a_checksum_finds_every_changed_character(ms: int, mw: float, at: int, char: int) -> None:
    layout = layout_of("time:ms, a:mW, x:crc32", "comma")
    import zlib

    body = f"{ms},{mw:.3f}"
    line = f"{body},{zlib.crc32(body.encode()):08X}"
    at %= len(line)
    whole = layout.row(line)
    for spoilt in (line[:at] + line[at + 1 :], line[:at] + chr(char) + line[at + 1 :]):
        try:
            assert layout.row(spoilt) == whole
        except LineError:
            continue


@given(st.text(max_size=60))
def test_any_text_is_a_reading_or_a_line_error(text: str) -> None:
    for columns, separator in (("time:ms, a:mW", "comma"), ("a:A, n:count, x:sum8", "whitespace")):
        try:
            row = layout_of(columns, separator).row(text)
        except LineError:
            continue
        assert len(row.value) == 1


# ---- the count against the host's clock ---------------------------------------------------


def paced(rate_hz: float, drift: float, seconds: float, seed: int, lost_at_s: float = np.inf, lost: int = 0) -> None:
    rng = np.random.default_rng(seed)
    pace = Pace("x", rate_hz, 5e-3)
    for k in range(round(seconds * rate_hz)):
        at_s = k / rate_hz * (1 + drift)
        if at_s < lost_at_s or at_s > lost_at_s + lost / rate_hz:
            pace.add(k - (lost if at_s > lost_at_s else 0), at_s + rng.exponential(5e-4) + (rng.random() < 0.02) * 0.02)
    pace.end()


@given(st.floats(-4.5e-3, 4.5e-3), st.sampled_from([10.0, 100.0, 500.0]), st.integers(0, 9))
def test_a_steady_count_is_accepted_within_the_clock_tolerance(drift: float, rate_hz: float, seed: int) -> None:
    paced(rate_hz, drift, 20.0, seed)


@given(st.floats(-4e-3, 4e-3), st.sampled_from([20.0, 50.0, 100.0]), st.integers(1, 50), st.integers(0, 9))
def test_lost_or_surplus_lines_are_reported(drift: float, rate_hz: float, lost: int, seed: int) -> None:
    raised(MeterError, paced, rate_hz, drift, 20.0, seed, 8.0, lost, says="are missing")
    raised(MeterError, paced, 100.0, drift, 20.0, seed, 8.0, -1, says="were too many")


# ---- against the simulated board ----------------------------------------------------------


def test_resolution_comes_from_the_printed_digits() -> None:
    with live("serial-text", sketch=Sketch(digits=2)) as it, closing(it.open()) as meter:
        info = meter.info()
    rail = info.rails[0]

    assert rail.resolution == pytest.approx(1e-5) and rail.accuracy is None and rail.kind == "point"
    assert info.mode == "hardware" and info.clock.tolerance == 5e-3 and info.details["time_step_s"] == 1e-3
    assert info.details["checked_by"] == ["time"]


@pytest.mark.parametrize("ready_s", [0.002, 0.03])
@pytest.mark.parametrize("time_column", ["time:us", "-"])
def test_the_first_reading_is_inside_the_bracket(time_column: str, ready_s: float) -> None:
    sketch = Sketch(columns="time:us,count:count", ready_s=ready_s, drift=0.0)
    options: Options = {"columns": f"{time_column}, number:W", "rate_hz": 200.0, "latency_s": 0.3}
    with live("serial-text", sketch=sketch) as it, closing(it.open(**options)) as meter:
        bracket, chunks = meter.start(), list(meter.read())
        while not chunks:
            chunks += meter.read()
        true_ns = it.sim.ended_ns(round(float(chunks[0].value[0])))
    if time_column == "-":
        true_ns -= 5_000_000  # without a time column, the bracket is about the begin of the first reading

    assert bracket.before_ns <= true_ns <= bracket.after_ns
    assert bracket.after_ns - bracket.before_ns < 1_000_000_000


def test_time_wraps_lose_no_readings() -> None:
    sketch = Sketch(columns="time:us,core:mW", begin_s=2**32 * 1e-6 - 0.6)
    options: Options = {"columns": "time:us, core:mW", "kind": "point"}
    with live("serial-text", sketch=sketch) as it, closing(it.open(**options)) as meter:
        tick = column(taken(meter, 0.9), "end_tick")

    assert tick[0] < 2**32 * 1000 < tick[-1] and np.all(np.abs(np.diff(tick) - 5e6) < 2e3)


def test_a_board_is_started_and_stopped_by_commands() -> None:
    sketch = Sketch(go="g", halt="s", greeting="# logger 1.2")
    options = TIMED | {"start_command": "g\\n", "stop_command": "s\\n"}
    with live("serial-text", sketch=sketch) as it, closing(it.open(**options)) as meter:
        first = values(taken(meter, 0.1))
        assert len(values(taken(meter, 0.1))) > 5 and len(first) > 5
        until(lambda: it.sim.heard == "g\ns\n" * 3)

    assert first == pytest.approx(0.02)


def test_a_written_dialogue_is_read_exactly() -> None:
    lines = [f"{1000 + 10 * k},{20 + k}.5,{k}" for k in range(9)]
    heard: list[bytes] = []

    def answer(data: bytes) -> None:
        heard.append(data)
        wire.send(b"boot\r\n# time, mW, n\r\n" + "".join(f"{line}\r\n" for line in lines[:3]).encode())
        if len(heard) > 1:
            for part in (lines[3:4], lines[4:]):  # readings count from a line that is later than any latency
                time.sleep(0.06)
                wire.send("".join(f"{line}\r\n" for line in part).encode())

    options = TIMED | {"columns": "time:ms, core:mW, n:count", "start_command": "g", "ignore": "boot|#"}
    with PtyWire(115200, answer) as wire, closing(open_meter(port=wire.port, **options)) as meter:
        chunks = at_least(meter, 6)

    got = len(values(chunks))
    assert values(chunks).tolist() == pytest.approx([1e-3 * (20.5 + k) for k in range(9)][-got:]) and got >= 6
    assert column(chunks, "end_tick").tolist() == [(1000 + 10 * k) * 10**6 + 500_000 for k in range(9)][-got:]


# ---- faults -------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "missing"), [
    (lambda line: line.rstrip(b"\r\n"), 2),  # the end of a line is lost, so one line holds two readings
    (lambda line: line[:5] + b"\xfe\x81" + line[7:], 1),
    (lambda line: b"", 1),
    (lambda line: line[:-6] + line[-5:], 1),  # a digit is lost
    (lambda line: line + line, 0),
    (lambda line: line + b"\x00\r\n# hello\r\n", 0),
])  # fmt: skip
def test_garbled_lines_are_missing_readings(change: Callable[[bytes], bytes], missing: int) -> None:
    sketch = Sketch(columns="count:count,core:mW,x:xor8")
    options = COUNTED | {"columns": "n:count, core:mW, x:xor8", "bad_share": 0.5}
    with live("serial-text", sketch=sketch) as it, closing(it.open(**options)) as meter:
        it.sim.spoil = once(20, change)
        with or_the_machine_was_busy("missing against the host's clock"):
            value = values(taken(meter, 0.3))
            lost = np.flatnonzero(np.isnan(value))
            gaps = np.diff(lost)

            assert np.all(value[~np.isnan(value)] == pytest.approx(0.02, rel=1e-3))
            assert len(lost) == pytest.approx(missing * len(value) / 20, abs=1.5 * missing)
            assert np.all((gaps == 1) | (gaps % 20 == 0) | (gaps % 20 == 19))


def test_a_line_missing_between_two_times_is_nan() -> None:
    with live("serial-text") as it, closing(it.open(rate_hz=200.0)) as meter:
        it.sim.spoil = once(20, lambda line: b"")
        chunks = taken(meter, 0.3)

    assert np.count_nonzero(np.isnan(values(chunks))) == pytest.approx(len(values(chunks)) / 20, abs=1.5)
    assert np.all(np.abs(np.diff(column(chunks, "end_tick")) - 5e6) <= 1.01e6)


def test_too_many_bad_lines_end_the_run() -> None:
    with live("serial-text") as it, closing(it.open()) as meter:
        meter.start()
        it.sim.spoil = once(3, lambda line: line[:4] + b"?" + line[4:])
        error = error_of(meter)

    assert error.field == "bad_share" and "were not readings" in error.message


def test_a_stopped_time_is_named() -> None:
    """A time in whole seconds stands still too, and so may one that is declared in a wrong unit."""
    order = LineOrder(Plan(Board(timer_bits=0, timeout_s=1.0), layout_of("core:mW", "comma"), "column", 0.0, 0.03))
    with pytest.raises(MeterError, match=r"the column of time stands still.*unit"):
        for k in range(9):
            order.take(Row(57_963_000_000, 1e9, None, (1.0,), (False,), (0.0,)), k * 10**7)


@pytest.mark.parametrize(("columns", "options"), [
    ("time:ms,core:mW", TIMED), ("count:count,core:mW", COUNTED),
    ("core:mJ,time:us", {"columns": "core:mJ, time:us"}), ("core:mJ", {"columns": "core:mJ", "rate_hz": 200.0}),
])  # fmt: skip
def test_a_board_that_restarts_is_reported(columns: str, options: Options) -> None:
    with live("serial-text", sketch=Sketch(columns=columns)) as it, closing(it.open(**options)) as meter:
        meter.start()
        time.sleep(0.1)
        it.sim.restart()
        error = error_of(meter)

    assert "restarted" in error.message and error.remedy


def test_a_late_burst_of_timed_lines_loses_nothing() -> None:
    with live("serial-text") as it, closing(it.open()) as meter:
        chunks = taken(meter, 0.5, lambda: it.sim.stall(0.2))

    assert len(values(chunks)) > 60 and not np.any(np.isnan(values(chunks)))
    assert np.all(np.abs(np.diff(column(chunks, "end_tick")) - 5e6) <= 1.01e6)


# ---- opening ------------------------------------------------------------------------------


def test_lines_of_another_layout_are_quoted() -> None:
    with live("serial-text") as it:
        raised(SetupError, it.open, columns="time:ms, a:mW, b:mW", kind="point", boot_s=0.2, says="2 columns, and 3 ")


def test_means_of_unknown_length_are_refused() -> None:
    assert "neither rate_hz nor aperture_s" in raised(RigError, open_meter, columns="t:ms, a:mW").message


def test_a_slow_board_may_be_given_more_time() -> None:
    with live("serial-text") as it, closing(it.open(timeout_s=1e-9)) as meter:
        assert "raise timeout_s" in raised(MeterSilentError, meter.start).remedy


def test_limits_come_from_a_calibration_file_of_this_board(tmp_path: Path) -> None:
    path = calibration(tmp_path, unit="W", full_scale=0.1, percent=2.0, serial="7")
    with live("serial-text") as it:
        with closing(it.open(calibration=path, serial_number="7")) as meter:
            info = meter.info()
        raised(DataError, it.open, calibration=path, serial_number="8")
        assert raised(DataError, it.open, calibration=path).remedy == "Give its serial_number"
    accuracy = info.rails[0].accuracy
    assert info.serial_number == "7"
    assert accuracy is not None and accuracy.of_reading == pytest.approx(0.02)
