"""One session on the libraries of laboratories: pyvisa-py over USB, and pyvisa-sim in the place of a maker's."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivers.meters.scpi.session import Visa, identified
from fixtures.instruments.scpi_server import ScpiServer
from rig.bench.connected import find
from rig.errors import MeterError, SetupError
from tests.support.raised import raised
from tests.support.scpi_bench import Fixed

pyvisa = pytest.importorskip("pyvisa", reason="extra visa is not installed")
pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
pytestmark = pytest.mark.real_time

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


def test_a_session_on_pyvisa_sim(tmp_path: Path) -> None:
    pytest.importorskip("pyvisa_sim", reason="pyvisa-sim is not installed")
    (tmp_path / "sim.yaml").write_text(SIM, encoding="utf-8")
    with closing(Visa(USB, visa_library=f"{tmp_path / 'sim.yaml'}@sim", timeout_s=1.0).open()) as session:
        assert session.identity().model == "34465A"
        assert session.errors() == []


# ---- USB under pyvisa-py --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "remedy"),
    [
        ("Please install PyUSB to use this resource type.\nNo module named 'usb'", "pip install pyusb libusb-package"),
        ("No device found.", "udev"),
    ],
)
def test_an_instrument_on_usb_that_cannot_be_opened_is_no_matter_of_the_network(
    says: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Any:
        raise ValueError(says)

    monkeypatch.setattr(pyvisa, "ResourceManager", lambda library: SimpleNamespace(open_resource=failing))
    error = raised(SetupError, Visa(USB).open)
    assert remedy in error.remedy
    assert "its network and the address" not in error.remedy


def test_an_instrument_on_usb_that_is_silent_under_pyvisa_py_is_told_of_other_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed_out(*_: object) -> None:
        raise RuntimeError("VI_ERROR_TMO (-1073807339): Timeout expired before operation completed.")

    resource = SimpleNamespace(
        session=1, visalib=SimpleNamespace(read=timed_out), write_raw=len, close=lambda: None,
        ignore_warning=lambda *_: nullcontext(),
    )  # fmt: skip
    monkeypatch.setattr(
        pyvisa, "ResourceManager", lambda library: SimpleNamespace(open_resource=lambda *_, **__: resource)
    )
    with closing(Visa(USB, timeout_s=0.1).open()) as session:
        caught = raised(MeterError, session.query, "*IDN?")
    assert "pyvisa-py issue 262" in caught.remedy
    assert "visa_library=" in caught.remedy


def test_an_address_is_still_asked_where_usb_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = pytest.importorskip("pyvisa_py.sessions")
    monkeypatch.setattr(sessions.Session, "iter_valid_session_classes", list)
    with ScpiServer(Fixed(WHO.encode() + b"\n")) as server:
        found = {each.driver: each for each in find([server.address])}["scpi-dmm"]
    assert [item.options for item in found.items] == [{"address": server.address}]
    assert "USB" in found.problem and "pip install pyusb" in found.problem


def test_rig_init_keeps_an_instrument_on_usb_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
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
