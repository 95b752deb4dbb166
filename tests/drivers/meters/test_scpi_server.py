"""The simulated SCPI instruments follow the manuals: headers, errors in a queue, and the memory of a 34465A."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fixtures.bench.mock_device import open_device
from fixtures.bench.true_power import SimPlant, VirtualClock
from fixtures.instruments.front_end import Wiring
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiError, ScpiParser, ScpiServer, block, number, only, range_above
from rig.types import Floats
from tests.support.raised import raised

pytestmark = pytest.mark.real_time


def language() -> ScpiParser:
    said = ScpiParser(
        {
            "*IDN?": lambda a: "me", "[SENSe:]CURRent[:DC]:APERture?": lambda a: "1",
            "[SENSe:]CURRent[:DC]:RANGe?": lambda a: ",".join(a) or "2", "SYSTem:ERRor?": lambda a: said.next_error(),
            "BAD": lambda a: str(number("2", 0, 1)), "R?": lambda a: block(b"\n;\n"),
        }
    )  # fmt: skip
    return said


# ---- the language -------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "known"), [
    ("SENSE:CURRENT:DC:APERTURE?", True), ("CURR:APER?", True), ("SENS:CURRENT:APER?", True),
    ("sens:curr:dc:aper?", True), ("CUR:APER?", False), ("CURRE:APER?", False), ("CURR:APER", False),
    ("DC:APER?", False), ("SENS:APER?", False), ("CURR:DC:DC:APER?", False),
])  # fmt: skip
def test_a_header_has_only_long_and_short_forms(text: str, known: bool) -> None:
    assert language().execute(text) == (b"1\n" if known else b"")


def test_a_command_without_a_colon_follows_the_last_path() -> None:
    assert language().execute("CURR:DC:APER?;RANG?;*IDN?;RANG?") == b"1;2;me;2\n"


def test_an_error_ends_its_line_and_is_queued() -> None:
    said = language()

    assert said.execute("CURR:APER?;:NOPE;:CURR:APER?") == b"1\n"
    assert said.execute("BAD") == b""
    assert [said.execute("SYST:ERR?") for _ in range(3)] == [
        b'-113,"Undefined header"\n',
        b'-222,"Data out of range"\n',
        b'+0,"No error"\n',
    ]


@given(st.integers(0, 60))
def test_the_error_queue_holds_twenty_errors(count: int) -> None:
    said = language()
    for _ in range(count):
        said.execute("BAD")
    found = [said.next_error() for _ in range(count + 1)]

    assert len([e for e in found if e.startswith(("-222", "-350"))]) == min(count, 20)
    assert (found[19].startswith("-350") if count > 20 else not any(e.startswith("-350") for e in found)) is True
    assert found[-1] == '+0,"No error"'


def test_parameters_are_checked() -> None:
    assert range_above((0.1, 1.0, 10.0), "0.11") == 1.0
    for code, text in (("-104", "x"), ("-222", "2")):
        assert raised(ScpiError, number, text, 0, 1).entry.startswith(code)
    assert raised(ScpiError, only, "SOMETHING", "TIM").entry.startswith("-224")


def test_split_and_joined_lines_are_parsed() -> None:
    with ScpiServer(language()) as server, socket.create_connection(("127.0.0.1", server.port), 2.0) as peer:
        for piece in (b"*ID", b"N?\n*IDN?\nCURR:", b"APER?\n"):
            peer.sendall(piece)
        with peer.makefile("rb") as answers:
            assert answers.read(8) == b"me\nme\n1\n"


# ---- the simulated 34465A, in virtual time -------------------------------------------------------

IDLE_W, SUPPLY_V = 0.018, 1.8
QUIET = Wiring(
    supply_v=SUPPLY_V, noise=0.0, gain_limit=0.0, offset_limit=0.0, resolution=0.0, drift_ppm=0.0, ready_s=0.0
)
S = 1_000_000_000


@dataclass
class Desk:
    """A simulator in virtual time."""

    plant: SimPlant
    sim: TruevoltSim

    def say(self, *lines: str) -> str:
        """Send lines; return the last answer."""
        answer = b""
        for line in lines:
            answer = self.sim.execute(line)
        return answer.decode("latin-1").strip()

    def wait(self, seconds: float) -> None:
        self.plant.clock.sleep_until(self.plant.clock.now_ns() + round(seconds * S))

    def taken(self, line: str = "R?") -> Floats:
        """Return the readings of a block."""
        answer = self.sim.execute(line)
        digits = int(answer[1:2])
        return np.frombuffer(answer[2 + digits : -1], ">f8")


def desk(wiring: Wiring = QUIET, options: Sequence[str] = ("DIG", "MEM")) -> Desk:
    plant = SimPlant(VirtualClock())
    open_device(plant, idle_w=IDLE_W, inference_w=0.054)
    return Desk(plant, TruevoltSim(plant, wiring, options=options))


def running(rate_hz: float = 1e3, wiring: Wiring = QUIET, options: Sequence[str] = ("DIG", "MEM"), **more: str) -> Desk:
    d = desk(wiring, options)
    aperture_s = max(20e-6, 0.5 / rate_hz)
    d.say("*RST", "CONF:CURR:DC 0.1", f"CURR:APER {aperture_s}", "SAMP:COUN 1000000000", "SAMP:SOUR TIM")
    d.say(f"SAMP:TIM {1 / rate_hz}", "TRIG:SOUR BUS", "FORM:DATA REAL,64", "INIT", "*TRG")
    assert d.sim.language.failures == []
    return d


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 80_000)), min_size=1, max_size=8))
def test_read_dropped_and_held_readings_add_up(plan: list[tuple[float, int]]) -> None:
    d = running(50_000.0, options=("DIG",))
    read = 0
    for seconds, most in plan:
        d.wait(seconds)
        read += len(d.taken(f"R? {most}"))
    held = len(d.taken())
    counts = d.sim.counts()

    assert read + counts["dropped"] + held == counts["taken"]
    assert held <= 50_000
    assert bool(int(d.say("STAT:QUES:EVEN?")) & 1 << 14) is (counts["dropped"] > 0)


def test_a_full_memory_drops_its_oldest_readings() -> None:
    d = running(1000.0, options=("DIG",))
    d.plant.occupy("inference", d.plant.clock.now_ns(), d.plant.clock.now_ns() + S)  # the first second has more power
    d.wait(50.5)
    held = d.taken()

    assert len(held) == 50_000
    assert held[499] == pytest.approx(0.03) and held[-1] == pytest.approx(0.01)  # half of the first second is gone
    assert d.say("STAT:QUES:EVEN?") == "+16384"
    assert d.say("STAT:QUES:EVEN?") == "+0"
    assert d.say("SYST:ERR?") == '+0,"No error"'


def test_readings_are_averaged_over_the_aperture() -> None:
    d = running(10.0)  # apertures of 50 ms, every 100 ms
    on_ns = d.plant.clock.now_ns() + 125_000_000
    d.plant.occupy("inference", on_ns, on_ns + 1_000_000_000)
    d.wait(0.46)

    assert d.taken() == pytest.approx(np.array([0.01, 0.02, 0.03, 0.03, 0.03]), rel=1e-3)  # half of the second one


@given(st.integers(0, 10_000))
def test_errors_stay_within_limits(seed: int) -> None:
    limits = Wiring(supply_v=SUPPLY_V, noise=0.0, gain_limit=1e-3, offset_limit=1e-3, resolution=1e-5, seed=seed)
    d = running(1000.0, limits)
    d.wait(0.1)
    off = np.abs(d.taken() - IDLE_W / SUPPLY_V)

    assert np.all(off <= 1e-3 * IDLE_W / SUPPLY_V + 1e-3 * 0.1 + 0.5e-5 * 0.1 + 1e-12)
