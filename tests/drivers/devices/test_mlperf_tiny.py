"""Boards with the MLPerf Tiny protocol: their answers are recorded as stamped, or the run soon ends."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.devices.arduino.device import open_device as open_arduino
from drivers.devices.mlperf_tiny.device import Model, open_device
from drivers.devices.mlperf_tiny.protocol import BoardClock
from fixtures.instruments.pty_wire import PtyWire
from rig.conformance.device import check_device
from rig.errors import DataError, DeviceError, DeviceTimeoutError, RigError, SetupError, UnknownNameError, UsageError
from rig.factories import Factory, split_options
from rig.types import UNSTAMPED, Clocked, Device, Sample
from scenarios.single_stream import single_stream
from tests.support.raised import raised
from tests.support.remote_workers import answer, awaited
from tests.support.tiny_board import Chip, Spoil, TinyBoardSim, scores
from tests.support.waiting import within

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("quiet_soon")]

pytest.importorskip("serial", reason="extra serial is not installed")


LABELS = ("down", "go", "left", "right")
OPTIONS: dict[str, Any] = {"labels": ",".join(LABELS), "timeout_s": 10.0, "boot_s": 10.0}
"""Far longer than anything takes on an idle machine; a test of a timeout gives ``SHORT_S``."""
SHORT_S = 0.4


def sample(k: int = 0) -> Sample:
    return Sample(f"s{k}", np.arange(16, dtype=np.int8) - 8 + k)


@contextmanager
def bench(chip: Chip | None = None, baud: int = 921600, **options: Any) -> Iterator[tuple[TinyBoardSim, Any]]:
    options = {"baud": baud} | OPTIONS | options
    with TinyBoardSim(chip, baud=baud) as board, closing(open_device(port=board.port, **options)) as device:
        yield board, device


def begun(device: Device) -> float:
    """Stage and submit a sample; return the time of the submission (s)."""
    device.stage([sample()])
    began_s = time.monotonic()
    device.submit([sample()], None)
    return began_s


# ---- what is answered ---------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "rules"), [
    ("performance", {"repeat.executions", "timer.rate", "span.clock"}), ("energy", {"repeat.executions"}),
])  # fmt: skip
def test_a_board_keeps_every_rule(mode: str, rules: set[str]) -> None:
    with bench(Chip(energy_mode=mode == "energy"), mode=mode, timeout_s=2.0) as (_, device):
        assert rules <= set(check_device(device, [sample(k) for k in range(3)]))


def test_the_answer_is_the_label_of_the_highest_score() -> None:
    with bench() as (board, device):
        for k in (3, 4):
            reply = answer(device, sample(k))
            data = np.asarray(sample(k).payload).tobytes()
            expected = scores(data)

            assert bytes(board._buffer) == data
            assert reply.output["label"] == LABELS[int(np.argmax(expected))]
            assert reply.output["scores"] == pytest.approx(expected, abs=1e-3)
            assert sum(reply.output["probability"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize("prints_first", [False, True])
def test_a_span_excludes_printing_time_only_if_declared(prints_first: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with bench(Chip(inference_s=0.03, drift_ppm=0.0), 115200, prints_first=prints_first) as (_, device):
        spans = answer(device, sample()).spans

    assert [(s.phase, s.executions) for s in spans] == [("inference", 1)]
    lasted_s = (spans[0].off_tick - spans[0].on_tick) * 1e-6
    line_s = 0.0 if prints_first else len("m-lap-us-1234567\r\n") * 10 / 115200
    assert 0.03 + line_s - 2e-6 <= lasted_s <= 0.03 + line_s + 10e-3
    assert ("a span includes the 0.0016 s" in capsys.readouterr().err) is not prints_first


def test_an_inference_shorter_than_its_stamp_line_is_refused() -> None:
    with bench(Chip(inference_s=1e-4), prints_first=True) as (board, device):
        board.spoil = stopped_clock()
        begun(device)
        assert "prints_first=false" in raised(RigError, awaited, device).remedy


@pytest.mark.parametrize(("iterations", "times"), [(3, 1), (1, 1), (1, 5)])
def test_a_loop_is_one_span_without_warm_ups(iterations: int, times: int) -> None:
    """If the command states no number of warm-ups, the firmware warms up ten times."""
    with bench(Chip(inference_s=0.01), iterations=iterations) as (board, device):
        (span,) = answer(device, sample(), times=times).spans
        assert span.executions == board.counted == iterations * times
        assert span.off_tick - span.on_tick >= span.executions * 0.01e6
        assert board.commands[-1] == f"infer {iterations * times} 0"


@pytest.mark.parametrize("opens", [open_device, open_arduino])
def test_the_board_has_no_option_for_warm_ups(opens: Factory) -> None:
    caught = raised(UnknownNameError, split_options, ["warmups=10"], {"device": opens, "scenario": single_stream})
    assert "warmup" in caught.remedy and "warmups" not in caught.remedy


def test_samples_issued_together_are_loaded_once_each() -> None:
    with bench(Chip(inference_s=0.005)) as (board, device):
        device.submit([sample(0), sample(1), sample(1)], None)
        labels = [awaited(device).output["label"] for _ in range(3)]

    wanted = [scores(np.asarray(sample(k).payload).tobytes()) for k in (0, 1, 1)]
    assert labels == [LABELS[int(np.argmax(each))] for each in wanted]
    assert [c for c in board.commands if "load" in c or "infer" in c] == ["db load 16", "infer 1 0"] * 2 + ["infer 1 0"]


def test_poll_returns_in_time_while_the_board_computes() -> None:
    with bench(Chip(inference_s=2.0)) as (_, device):
        began_s = begun(device)
        assert not device.poll(0.02) and time.monotonic() - began_s < 2.0
        raised(RigError, device.timer, says="during an inference")
        assert awaited(device).sample_id == "s0"


def test_a_board_states_its_name_and_firmware(tmp_path: Any) -> None:
    image = tmp_path / "firmware.bin"
    image.write_bytes(b"\x7fELF")
    with bench(baud=115200, firmware=str(image)) as (_, device):
        info = device.info()

    assert info.mode == "simulator" and "SIM-board" in info.description
    assert info.versions["model"] == "kws01" and info.details["baud"] == 115200
    assert len(info.artifacts["firmware"]) == 64


# ---- its clock ----------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.0, 3 * 86400.0), max_size=6), st.floats(-500e-6, 500e-6))
def test_the_clock_is_unwrapped_over_any_gap(begin: int, gaps_s: list[float], drift: float) -> None:
    clock, now_ns, true = BoardClock(32), 10**12, float(begin)
    first = clock.unwrap(begin, now_ns, now_ns + 1000)
    for gap_s in gaps_s:
        now_ns += round(gap_s * 1e9)
        true += gap_s * 1e6 * (1.0 + drift)
        assert clock.unwrap(round(true) % 2**32, now_ns, now_ns + 1000) - first == round(true) - begin


@given(st.integers(16, 32), st.floats(0.05, 2.5), st.floats(0.0, 3.0))
def test_a_span_longer_than_a_counter_wrap_is_refused(bits: int, wraps: float, gap: float) -> None:
    """Both stamps of a query arrive when it has ended."""
    clock, lasts_us, on_us = BoardClock(bits), round(wraps * 2**bits), round(gap * 2**bits)
    clock.unwrap(0, 0, 0)
    query_ns = (on_us - 1) * 1000, (on_us + lasts_us + 1) * 1000
    try:
        on, off = (clock.unwrap(at % 2**bits, *query_ns) for at in (on_us, on_us + lasts_us))
    except ValueError as error:
        assert "wraps every" in str(error) and wraps > 0.98
    else:
        assert off - on == lasts_us and wraps < 1


def test_a_counter_may_run_fast_within_its_tolerance() -> None:
    def advanced(tolerance: float) -> int:
        clock = BoardClock(32, tolerance)
        clock.unwrap(0, 0, 0)
        return clock.unwrap(103_000_000, 10**11, 10**11)

    assert advanced(0.05) == 103_000_000
    raised(ValueError, advanced, 1e-3, says="its clock advanced")


# ---- faults -------------------------------------------------------------------------------


def replaced(begins: str, *instead: bytes) -> Spoil:
    return lambda line: list(instead) if line.startswith(begins) else [line.encode() + b"\r\n"]


def stopped_clock() -> Spoil:
    """Every stamp repeats the first one."""
    first: list[str] = []

    def again(line: str) -> list[bytes]:
        if line.startswith("m-lap-us-"):
            first.append(line)
            line = first[0]
        return [line.encode() + b"\r\n"]

    return again


FAULTS = {
    "garbled stamp": (replaced("m-lap-us-", b"m-lap-us-12x4\r\n"), "not part of the protocol"),
    "garbage": (replaced("m-infer-done", b"\xff\x00\x8a\x91\r\n"), "not part of the protocol"),
    "wrong stamp": (replaced("m-lap-us-", b"m-lap-us-4000000000\r\n"), "its clock advanced"),
    "lost stamp": (replaced("m-lap-us-"), "no m-lap-us"),
    "twice": (replaced("m-infer-done", b"m-lap-us-1\r\nm-infer-done\r\n"), "stamped 3 times"),
    "out of order": (replaced("m-infer-start", b"m-lap-us-1\r\n"), "stamped 3 times"),
    "early results": (replaced("m-infer-done", b"m-results-[1,0,0,0]\r\n"), "lost or came out of order"),
    "no results": (replaced("m-results"), "lost or came out of order"),
    "results of letters": (replaced("m-results", b"m-results-[0.1,nan,0.2]\r\n"), "results that are not numbers"),
    "cut results": (replaced("m-results", b"m-results-[0.1,0.2\r\n"), "not part of the protocol"),
    "another count": (replaced("m-infer-start", b"m-infer-start-7\r\n"), "said m-infer-start-7"),
    "an error": (replaced("m-infer-start", b"e-[Out of memory]\r\n"), "reports an error: 'Out of memory'"),
    "plain text": (replaced("m-warmup-start", b"Input db has 0 elemented, expected 16\r\n"),
                   "not part of the protocol"),
    "too few outputs": (replaced("m-results", b"m-results-[0.5,0.5]\r\n"), "2 scores, but there are 4 labels"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_malformed_answer_raises_a_typed_device_error(fault: str) -> None:
    spoil, text = FAULTS[fault]
    with bench() as (board, device):
        device.stage([sample()])
        board.spoil = spoil
        with within(OPTIONS["timeout_s"]):
            begun(device)
            raised(DeviceError, awaited, device, says=text)


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "is cut"])
def test_silence_is_a_timeout_within_the_declared_time(hangs: bool) -> None:
    with bench(timeout_s=SHORT_S) as (board, device):
        device.stage([sample()])
        if hangs:
            board.hang()
        board.spoil = replaced("m-re", b"m-results-[0.9")  # results, and then m-ready
        with within(device.info().timeout_s + 10.0):
            begun(device)
            raised(DeviceTimeoutError, awaited, device)


@pytest.mark.parametrize(("does", "text"), [("restart", "has restarted"), ("unplug", "is gone")])
def test_a_restarted_or_unplugged_board_raises_an_error_at_once(does: str, text: str) -> None:
    with bench(Chip(inference_s=30.0), timeout_s=60.0) as (board, device), within(30.0):
        begun(device)
        assert not device.poll(0.05)
        getattr(board, does)()
        first = raised(RigError, awaited, device)
        assert text in first.message
        assert f"earlier it {text}" in raised(RigError, device.stage, [sample(1)]).message


@pytest.mark.parametrize(("begins", "instead", "text"), [
    ("m-load-done", (), "did not report the end of 16 bytes"),
    ("m-[Expecting", (b"m-[Expecting 17 bytes]\r\n",), "did not confirm that it will load 16"),
    ("m-ready", (), "gave no answer within"),
])  # fmt: skip
def test_a_failed_load_is_reported(begins: str, instead: tuple[bytes, ...], text: str) -> None:
    with bench(timeout_s=SHORT_S) as (board, device):
        board.spoil = replaced(begins, *instead)
        assert text in raised(DeviceError, device.stage, [sample()]).message


def test_a_sample_of_wrong_size_is_reported_verbatim() -> None:
    with bench() as (_, device):
        caught = raised(RigError, device.stage, [Sample("long", np.zeros(17, np.int8))], says="exceeds maximum of 16")
        assert "MAX_DB_INPUT_SIZE" in caught.remedy


# ---- opening ------------------------------------------------------------------------------


@pytest.mark.parametrize("booting", [False, True])
def test_an_interrupted_or_booting_board_still_answers(booting: bool) -> None:
    with TinyBoardSim() as board:
        if booting:
            board.restart()
        else:
            board._command = "db 00ff"
        with closing(open_device(port=board.port, **OPTIONS)) as device:
            assert answer(device, sample()).sample_id == "s0"


@pytest.mark.parametrize(("mode", "other"), [("performance", "energy"), ("energy", "performance")])
def test_a_board_in_another_mode_is_refused(mode: str, other: str) -> None:
    with TinyBoardSim(Chip(energy_mode=other == "energy"), baud=9600) as board:
        error = raised(SetupError, open_device, port=board.port, mode=mode, baud=9600, **OPTIONS)
    assert error.field == "mode" and f"mode={other}" in error.remedy


def test_spans_in_energy_mode_have_no_time_stamps() -> None:
    chip = Chip(energy_mode=True, input_bytes=4)
    options = OPTIONS | {"mode": "energy", "iterations": 3}
    with TinyBoardSim(chip, baud=9600) as board, closing(open_device(port=board.port, **options)) as device:
        info, reply = device.info(), answer(device, Sample("s", np.arange(4, dtype=np.int8)))
        assert isinstance(device, Clocked)
        raised(RigError, device.timer, says="sends no time")
    assert info.details["baud"] == 9600 and info.clock is None and info.spans_on_pin
    assert [(s.phase, s.on_tick, s.executions) for s in reply.spans] == [("inference", UNSTAMPED, 3)]
    assert reply.output["label"] in LABELS


def test_a_printed_time_stamp_is_refused_in_energy_mode() -> None:
    with bench(Chip(energy_mode=True), mode="energy") as (board, device):
        lap = b"m-lap-us-5\r\n"
        board.spoil = lambda line: [line.encode() + b"\r\n", *([lap] if "infer-start" in line else [])]
        raised(DeviceError, answer, device, sample(), says="energy mode")


def test_a_silent_missing_or_busy_port_is_a_setup_error() -> None:
    with PtyWire(115200, lambda data: None) as wire:
        error = raised(SetupError, open_device, port=wire.port, boot_s=0.3, says=r"gave no answer within 0\.\d+ s")
    assert wire.port in error.message and "9600" in error.remedy
    raised(SetupError, open_device, port="/dev/tty-nothing")
    with bench() as (board, _):
        assert "cannot be opened" in raised(RigError, open_device, port=board.port).message


@pytest.mark.parametrize(("field", "options"), [
    ("port", {"port": ""}), ("baud", {"baud": 0}), ("input_type", {"input_type": "int7"}),
    ("input_scale", {"input_scale": 0.0}), ("labels", {"labels": "a,a"}),
    ("labels", {"labels": "a,b,c", "threshold": 0.5}), ("iterations", {"iterations": 0}),
    ("chunk_bytes", {"chunk_bytes": 39}), ("timer_bits", {"timer_bits": 65}),
    ("timeout_s", {"timeout_s": float("inf")}), ("firmware", {"firmware": "no/such/file"}),
])  # fmt: skip
def test_an_impossible_option_is_a_usage_error(field: str, options: dict[str, Any]) -> None:
    assert raised(UsageError, open_device, **{"port": "/dev/tty-nothing"} | options).field == field


# ---- the model's input and output ----------------------------------------------------------


@given(
    st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=8),
    st.floats(1e-3, 0.1),
    st.integers(-20, 20),
    st.sampled_from(["int8", "uint8", "int16"]),
)
def test_quantising_rounds_to_a_step_or_saturates(xs: list[float], scale: float, zero: int, kind: str) -> None:
    data = Model(kind, scale, zero).encoded(Sample("s", np.array(xs)))
    back = (np.frombuffer(data, dtype=f"<{np.dtype(kind).str[1:]}").astype(float) - zero) * scale
    limits = np.iinfo(kind)
    inside = np.clip(xs, (limits.min - zero) * scale, (limits.max - zero) * scale)
    assert np.all(np.abs(back - inside) <= 0.5 * scale * (1 + 1e-9) + 1e-12)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_float_inputs_are_little_endian_and_exact(xs: list[float]) -> None:
    data = Model("float32").encoded(Sample("s", np.array(xs)))
    assert np.array_equal(np.frombuffer(data, "<f4"), np.array(xs, np.float32))


@pytest.mark.parametrize(("kind", "payload"), [
    ("int8", np.array([0.5])), ("int8", np.array([128])), ("uint8", np.array([-1])), ("int8", np.array([np.nan])),
    ("float32", np.array([1e300])), ("int8", np.array(["x"])), ("int8", np.zeros(0)),
])  # fmt: skip
def test_a_payload_outside_the_input_range_is_refused(kind: str, payload: Any) -> None:
    assert "s7" in raised(DataError, Model(kind).encoded, Sample("s7", payload)).message


def test_a_threshold_decides_a_single_output() -> None:
    model = Model(labels="normal,anomaly", threshold=10.0)
    assert [model.answer((x,))["label"] for x in (9.9, 10.0)] == ["normal", "anomaly"]
    assert Model().answer((3.5,)) == {"scores": [3.5]}
    model = Model(labels="a,b")
    assert "probability" not in model.answer((-3.0, 12.0))
    assert model.answer((0.25, 0.75))["probability"] == {"a": 0.25, "b": 0.75}
