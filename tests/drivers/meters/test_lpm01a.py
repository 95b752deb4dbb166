"""An LPM01A: its stream is recorded, and its losses and messages are reported."""

from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.meters.lpm01a import meter as lpm01a_powershield
from drivers.meters.lpm01a.meter import open_meter
from drivers.meters.lpm01a.stream import WRAP_S, Parsed, Stamp, Stream, StreamError, Timekeeper, step_at
from fixtures.instruments.front_end import Wiring
from fixtures.instruments.lpm01a_sim import _binary
from fixtures.instruments.pty_wire import PtyWire
from rig.errors import SetupError
from tests.support.instruments import live
from tests.support.meters import column, error_of, taken, values
from tests.support.raised import raised

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("quiet_soon")]

pytest.importorskip("serial", reason="extra serial is not installed")


PROMPT = Wiring(supply_v=3.3, resolution=0.0, ready_s=1e-3)


# ---- the format ----------------------------------------------------------------------


def fed(stream: Any, data: bytes, cuts: Sequence[int] = ()) -> Parsed:
    """Return everything in the bytes, fed in pieces."""
    whole = Parsed()
    ends = [*sorted({c % (len(data) + 1) for c in cuts}), len(data)]
    begin, n = 0, 0
    for end in ends:
        piece = stream.feed(data[begin:end])
        whole.value += piece.value
        whole.flagged += [n + at for at in piece.flagged]
        whole.stamps += piece.stamps
        whole.ended = piece.ended
        begin, n = end, n + sum(map(len, piece.value))
    return whole


def test_manual_examples_match() -> None:
    assert fed(Stream(), b"\x52\xa0").arrays()[0] == pytest.approx([640.9e-6], rel=1e-4)


currents = st.lists(st.floats(1e-7, 0.0599), min_size=1, max_size=40)
cuts = st.lists(st.integers(0, 10_000), max_size=5)


@given(currents, cuts)
def test_readings_survive_any_cut(amperes: list[float], at: list[int]) -> None:
    value = np.array(amperes)
    binary = fed(Stream(), _binary(value), at).arrays()[0]

    assert np.all(np.abs(binary - value) <= [0.500001 * step_at(v) for v in np.maximum(binary, value)])


@given(currents, currents, st.integers(0, 2**31 - 1), st.integers(0, 99), cuts)
def test_stamps_keep_their_places(a: list[float], b: list[float], ms: int, load: int, at: list[int]) -> None:
    stamp = b"\xf0\xf3" + ms.to_bytes(4, "big") + bytes([load]) + b"\xff\xff"
    found = fed(Stream(), b"\r\n" + _binary(np.array(a)) + stamp + _binary(np.array(b)) + b"\xf0\xf4\xff\xff\r\nx", at)

    assert found.stamps == [Stamp(len(a), ms * 1e-3, load * 1e-2)]
    assert len(found.arrays()[0]) == len(a) + len(b) and found.ended


@pytest.mark.parametrize("cut", range(9))
def test_an_overcurrent_flags_the_neighbouring_readings(cut: int) -> None:
    binary = _binary(np.full(2, 1e-3)) + b"\xf0\xf5\xff\xff" + _binary(np.full(2, 1e-3))
    stream = Stream()
    pieces = [stream.feed(binary[:cut]), stream.feed(binary[cut:])]
    flags = np.concatenate([piece.arrays()[1] for piece in pieces])

    assert flags[2] == 1 and flags[0] == flags[3] == 0
    assert flags[1] == (cut not in (4, 5, 6, 7))  # it may already be delivered


@given(st.binary(max_size=200), cuts)
def test_any_bytes_are_readings_or_an_error(data: bytes, at: list[int]) -> None:
    try:
        value, flags = fed(Stream(), data, at).arrays()
    except StreamError:
        return
    assert len(value) == len(flags) and np.all(value <= 1.0)


@pytest.mark.parametrize(("data", "text"), [
    (b"\xf3\x00\x01", "bytes were lost"), (b"\xf0\xf3\0\0\0\0\0\0\0", "does not end"),
    (b"\xf0\xf1Short circuit\xff\xff", "reports: Short circuit"), (b"\xf0\xf6\xff\xff", "switched its target off"),
    (b"\x05\xa0", "cannot measure"),
])  # fmt: skip
def test_malformed_data_is_reported(data: bytes, text: str) -> None:
    raised(StreamError, Stream().feed, data, says=text)


# ---- counting -----------------------------------------------------------------------------


@given(
    st.integers(2**31 // 1000 - 999, 2**31 // 1000), st.integers(2, 2000), st.sampled_from([1.0, 100.0, 1000.0, 1e5])
)
def test_a_steady_count_is_accepted_across_wraps(begin_s: int, stamps: int, rate_hz: float) -> None:
    keeper = Timekeeper(rate_hz)
    for k in range(0, stamps, 17):
        keeper.check(Stamp(round(k * rate_hz), (begin_s + k) % WRAP_S, 0.0))


@given(st.integers(3, 500), st.sampled_from([-1, 1]))
def test_losses_above_a_millisecond_are_reported(lost: int, sign: int) -> None:
    keeper = Timekeeper(1000.0)
    keeper.check(Stamp(0, 0.0, 0.0))
    keeper.check(Stamp(1000, 1.0, 0.0))
    with pytest.raises(StreamError, match=f"lost {lost} of" if sign > 0 else f"sent {lost} too many"):
        keeper.check(Stamp(2000 - sign * lost, 2.0, 0.31))


def test_small_losses_add_up() -> None:
    keeper = Timekeeper(1000.0)
    for k in range(3):
        keeper.check(Stamp(999 * k, float(k), 0.0))
    raised(StreamError, keeper.check, Stamp(2997, 3.0, 0.0), says="lost 3 of 3000")


def test_a_full_buffer_is_reported() -> None:
    keeper = Timekeeper(1000.0)
    keeper.check(Stamp(0, 0.0, 0.0))
    raised(StreamError, keeper.check, Stamp(1000, 1.0, 1.0), says="full buffer")


# ---- against the simulated instrument -----------------------------------------------------


def test_the_supply_is_set_only_if_different() -> None:
    with live("lpm01a") as it:
        with closing(it.open(supply_v=3.3)) as meter:
            assert it.sim.set["volt"] == "3300m" and meter.info().details["supply"]["volts"] == pytest.approx(3.3)
        it.sim.set["volt"] = ""
        with closing(it.open(supply_v=1.8)):
            assert it.sim.set["volt"] == "1800m"


# ---- faults -------------------------------------------------------------------------------


def test_only_a_long_stall_is_reported_as_a_loss() -> None:
    with live("lpm01a") as it:
        with closing(it.open(rate_hz=1e4)) as meter:
            assert len(values(taken(meter, 0.3, lambda: it.sim.stall(0.1)))) == it.sim.taken
        with closing(it.open(rate_hz=1e4)) as meter:
            meter.start()
            it.sim.stall(1.5)
            assert "lost" in error_of(meter).message


def test_an_overcurrent_does_not_end_the_measurement() -> None:
    with live("lpm01a") as it, closing(it.open(rate_hz=1e4)) as meter:
        chunks = taken(meter, 0.15, lambda: it.sim.insert("overcurrent"))
    flags = column(chunks, "flags")

    assert 1 <= int(flags.sum()) <= 2 and len(flags) == it.sim.taken


# ---- opening ------------------------------------------------------------------------------


def test_a_running_acquisition_is_stopped_first() -> None:
    with live("lpm01a", wiring=PROMPT) as it:
        it.sim.set |= {"format": "bin_hexa", "freq": "10k"}
        it.sim._start()
        with closing(it.open(rate_hz=1e3)) as meter:
            assert values(taken(meter, 0.1)) == pytest.approx(0.02, rel=0.05)


def test_a_silent_port_is_a_setup_error() -> None:
    with PtyWire(3686400, lambda data: None) as wire:
        assert "3686400" in raised(SetupError, open_meter, port=wire.port, timeout_s=0.2).remedy


def test_a_refused_command_is_reported_verbatim() -> None:
    with live("lpm01a", refuses="funcmode") as it:
        assert raised(SetupError, it.open, says="Argument out of range").field == "funcmode"


def said(*lines: str) -> Any:
    """Return a serial line that takes every command, and on which these answers have already arrived."""
    left = list(lines)
    return SimpleNamespace(write=lambda data: None, line=lambda until_s: left.pop(0) if left else None)


def test_a_late_refusal_is_not_taken_for_the_next_answer() -> None:
    """On a busy host, the answer "nothing to stop" may come after the next command was sent."""
    board = lpm01a_powershield.PowerShield.__new__(lpm01a_powershield.PowerShield)
    board._timeout_s = 1.0
    board._line = said("PowerShield > error stop", "Error detail: No acquisition on going", "PowerShield > ack htc")
    assert board._command("htc") == ""
    board._line = said("PowerShield > error htc", "Error detail: in use")
    raised(SetupError, board._command, "htc", says="refuses 'htc': error htc Error detail: in use")
