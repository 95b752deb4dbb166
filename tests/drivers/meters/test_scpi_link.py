"""The link to a SCPI instrument, on the libraries of laboratories: it soon reports every failure by name."""

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from drivers.meters.scpi.session import ScpiSession, Visa, identified
from fixtures.instruments.scpi_server import ScpiServer, block
from rig.bench.connected import find
from rig.errors import MeterError, SetupError
from tests.support.raised import raised, raising
from tests.support.scpi_bench import Fixed, spoken
from tests.support.waiting import until, within

pytestmark = pytest.mark.real_time

pyvisa = pytest.importorskip("pyvisa", reason="extra visa is not installed")
pytest.importorskip("pyvisa_py", reason="extra visa is not installed")


@contextmanager
def linked(answer: bytes = b"", timeout_s: float = 20.0) -> Iterator[tuple[ScpiSession, Fixed, ScpiServer]]:
    instrument = Fixed(answer)
    with ScpiServer(instrument) as server, closing(Visa(server.address, timeout_s=timeout_s).open()) as link:
        yield link, instrument, server


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300_000))
def test_a_block_with_any_content_arrives_unchanged(payload: bytes) -> None:
    with linked(block(payload) + b"\n") as (link, _, _):
        assert link.block("R?") == payload
        assert link.block("R?") == payload


def test_a_query_returns_the_answer_without_line_end() -> None:
    with linked(b"+1.5\r\n") as (link, instrument, _):
        assert link.query("SAMP:TIM?;:CURR:RANG?") == "+1.5"
        assert instrument.lines == ["SAMP:TIM?;:CURR:RANG?"]


def test_numbers_are_counted() -> None:
    with linked(b"+1.00000000E-01;2;-3\n") as (link, _, _):
        assert link.numbers("A?;:B?;:C?", 3) == [0.1, 2.0, -3.0]
        raised(MeterError, link.numbers, "A?;:B?", 2, says="which is not 2 numbers")


NO_BLOCKS = [b"1,2,3\n", b"#0abc\n", b"#A\n", b"#3abc\n", b"#19999\n", b"#9999999999\n"]


@pytest.mark.parametrize("answer", [*NO_BLOCKS, b"#13abcd\n"], ids=repr)
def test_a_damaged_block_is_refused(answer: bytes) -> None:
    with linked(answer, timeout_s=0.1) as (link, _, _), pytest.raises(MeterError):
        link.block("R?")


def test_silence_times_out_and_names_the_query() -> None:
    with linked(timeout_s=0.1) as (link, _, _), within(15.0):
        raised(MeterError, link.query, "*IDN?", says=r"no answer to '\*IDN\?' within 0\.1 s")


def test_an_endless_line_is_refused_before_memory_is_full() -> None:
    with linked(b"1," * (1 << 20)) as (link, _, _), pytest.raises(MeterError, match="without a line end"):
        link.query("R?")


def test_a_slow_endless_line_meets_a_deadline() -> None:
    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            while True:
                peer.sendall(b"1")
                time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        address = f"TCPIP::127.0.0.1::{listener.getsockname()[1]}::SOCKET"
        with closing(Visa(address, timeout_s=0.1).open()) as link:
            raised(MeterError, link.query, "R?", says=r"has not ended its answer to 'R\?' after 1 s")


def test_a_broken_link_stays_broken() -> None:
    with linked(timeout_s=0.05) as (link, instrument, _):
        raised(MeterError, link.query, "FIRST?")
        until(lambda: instrument.lines == ["FIRST?"])
        instrument.answer = b"late\n"
        raised(MeterError, link.query, "SECOND?", says="cannot be sent 'SECOND\\?'")
        assert instrument.lines == ["FIRST?"]


def test_a_link_may_be_closed_twice() -> None:
    with linked(b"x\n") as (link, _, _):
        link.close()
        link.close()
        raised(MeterError, link.query, "*IDN?", says="closed")


# ---- the error queue ----------------------------------------------------------------------


def test_every_error_of_the_queue_is_in_the_exception() -> None:
    queue = ['-113,"Undefined header"', '-222,"Data out of range"', '+0,"No error"']
    says = r'setting up: -113,"Undefined header"; -222,"Data out of range"'
    asked = [("SYST:ERR?", each) for each in queue]
    spoken(asked, lambda link: raised(MeterError, link.check, "setting up", says=says))


def test_an_endless_queue_is_abandoned() -> None:
    with linked(b'-350,"Error queue overflow"\n') as (link, instrument, _):
        raised(MeterError, link.errors, says="more errors than its queue can hold")
        assert len(instrument.lines) == 25


# ---- opening ------------------------------------------------------------------------------


def test_a_missing_instrument_is_a_setup_error_with_its_address() -> None:
    with ScpiServer(Fixed(b"")) as server:
        address = server.address
    error = raised(SetupError, Visa(address, timeout_s=0.5).open)
    assert error.field == "address" and "5025" in error.remedy


@pytest.mark.parametrize("address", ["nonsense", "TCPIP::", "GPIB0::9::INSTR"])
def test_an_unreachable_address_is_a_setup_error(address: str) -> None:
    raised(SetupError, Visa(address, timeout_s=0.2).open)


def test_a_link_without_identity_is_refused() -> None:
    with linked(b"SSH-2.0-OpenSSH\n") as (link, _, _), pytest.raises(SetupError, match="SSH"):
        link.identity()


# ---- the libraries of laboratories ---------------------------------------------------------------

USB = "USB0::10893::257::MY57501111::0::INSTR"
WHO = "Keysight Technologies,34465A,MY57501111,A.03.01-03.15-03.01-00.52-03-01"


# ---- pyvisa-sim -----------------------------------------------------------------------------------------------------

SIM = f"""
spec: "1.1"
devices:
  dmm:
    eom:
      USB INSTR: {{q: "\\n", r: "\\n"}}
    dialogues:
      - {{q: "*IDN?", r: "{WHO}"}}
      - {{q: "SYST:ERR?", r: '+0,"No error"'}}
resources:
  {USB}: {{device: dmm}}
"""


def test_pyvisa_sim_works(tmp_path: Path) -> None:
    pytest.importorskip("pyvisa_sim", reason="pyvisa-sim is not installed")
    (tmp_path / "sim.yaml").write_text(SIM, encoding="utf-8")
    with closing(Visa(USB, visa_library=f"{tmp_path / 'sim.yaml'}@sim", timeout_s=1.0).open()) as session:
        assert session.identity().model == "34465A"
        assert session.errors() == []


# ---- USB under pyvisa-py --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("says", "remedy"), [
    ("Please install PyUSB to use this resource type.\nNo module named 'usb'", "pip install pyusb libusb-package"),
    ("No device found.", "udev"),
])  # fmt: skip
def test_the_remedy_on_usb_does_not_name_the_network(says: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = SimpleNamespace(open_resource=raising(ValueError(says)))
    monkeypatch.setattr(pyvisa, "ResourceManager", lambda library: manager)
    error = raised(SetupError, Visa(USB).open)
    assert remedy in error.remedy
    assert "its network and the address" not in error.remedy


def test_a_silent_usb_instrument_names_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_out = raising(RuntimeError("VI_ERROR_TMO (-1073807339): Timeout expired before operation completed."))
    resource = SimpleNamespace(
        session=1, visalib=SimpleNamespace(read=timed_out), write_raw=len, close=lambda: None,
        ignore_warning=lambda *_: nullcontext(),
    )  # fmt: skip
    manager = SimpleNamespace(open_resource=lambda *_, **__: resource)
    monkeypatch.setattr(pyvisa, "ResourceManager", lambda library: manager)
    with closing(Visa(USB, timeout_s=0.1).open()) as session:
        caught = raised(MeterError, session.query, "*IDN?")
    assert "pyvisa-py issue 262" in caught.remedy
    assert "visa_library=" in caught.remedy


def test_an_address_is_searched_without_usb_access(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = pytest.importorskip("pyvisa_py.sessions")
    monkeypatch.setattr(sessions.Session, "iter_valid_session_classes", list)
    with ScpiServer(Fixed(WHO.encode() + b"\n")) as server:
        found = {each.driver: each for each in find([server.address])}["scpi-dmm"]
    assert [item.options for item in found.items] == [{"address": server.address}]
    assert "USB" in found.problem and "pip install pyusb" in found.problem


def test_rig_init_lists_a_silent_usb_instrument(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = pytest.importorskip("pyvisa_py.sessions")
    kinds = [((pyvisa.constants.InterfaceType.usb, "INSTR"), SimpleNamespace(list_resources=lambda: [USB]))]
    monkeypatch.setattr(sessions.Session, "iter_valid_session_classes", lambda: kinds)
    monkeypatch.setitem(sys.modules, "pyvisa_py.protocols.usbtmc", SimpleNamespace(find_tmc_devices=lambda: [1, 2]))
    monkeypatch.setattr(pyvisa, "ResourceManager", lambda library: SimpleNamespace())
    looked = identified((), "344")
    found = [next(looked)]
    raised(SetupError, next, looked, says="1 instruments on USB may not be opened")
    assert [(item.options, item.sure) for item in found] == [({"address": USB}, False)]
    assert found[0].what.startswith("no answer")
