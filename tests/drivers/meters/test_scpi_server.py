"""The SCPI server follows the manuals: long and short headers, compound lines, errors in a queue."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.instruments.scpi_server import ScpiError, ScpiParser, ScpiServer, block, choice, number, range_above
from tests.support.raised import raised

pytestmark = pytest.mark.real_time


def refuse(_: object) -> None:
    raise ScpiError(-222, "Data out of range")


def language() -> ScpiParser:
    said = ScpiParser(
        {
            "*IDN?": lambda a: "me", "[SENSe:]CURRent[:DC]:APERture?": lambda a: "1",
            "[SENSe:]CURRent[:DC]:RANGe?": lambda a: ",".join(a) or "2", "SYSTem:ERRor?": lambda a: said.next_error(),
            "BAD": refuse, "R?": lambda a: block(b"\n;\n"),
        }
    )  # fmt: skip
    return said


# ---- the language -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("SENSE:CURRENT:DC:APERTURE?", True), ("CURR:APER?", True), ("SENS:CURRENT:APER?", True),
        ("sens:curr:dc:aper?", True), ("CUR:APER?", False), ("CURRE:APER?", False), ("CURR:APER", False),
        ("DC:APER?", False), ("SENS:APER?", False), ("CURR:DC:DC:APER?", False),
    ],
)  # fmt: skip
def test_a_header_is_known_in_its_long_and_short_forms_alone(text: str, known: bool) -> None:
    assert language().execute(text) == (b"1\n" if known else b"")


def test_a_command_without_a_colon_follows_the_path_of_the_one_before() -> None:
    assert language().execute("CURR:DC:APER?;RANG?;*IDN?;RANG?") == b"1;2;me;2\n"


def test_an_error_ends_its_line_and_waits_in_the_queue() -> None:
    said = language()

    assert said.execute("CURR:APER?;:NOPE;:CURR:APER?") == b"1\n"
    assert said.execute("BAD") == b""
    assert [said.execute("SYST:ERR?") for _ in range(3)] == [
        b'-113,"Undefined header"\n',
        b'-222,"Data out of range"\n',
        b'+0,"No error"\n',
    ]


@given(st.integers(0, 60))
def test_the_error_queue_is_twenty_deep_and_ends_in_350(count: int) -> None:
    said = language()
    for _ in range(count):
        said.execute("BAD")
    found = [said.next_error() for _ in range(count + 1)]

    assert len([e for e in found if e.startswith(("-222", "-350"))]) == min(count, 20)
    assert (found[19].startswith("-350") if count > 20 else not any(e.startswith("-350") for e in found)) is True
    assert found[-1] == '+0,"No error"'


def test_parameters_are_checked_as_scpi_asks() -> None:
    assert choice("TIMER", ("IMM", "TIM")) == "TIM"
    assert range_above((0.1, 1.0, 10.0), "0.11") == 1.0
    for code, text in (("-104", "x"), ("-222", "2")):
        assert raised(ScpiError, number, text, 0, 1).entry.startswith(code)
    assert raised(ScpiError, choice, "SOMETHING", ("IMM", "TIM")).entry.startswith("-224")


def test_lines_may_arrive_in_pieces_and_together() -> None:
    with ScpiServer(language()) as server, socket.create_connection(("127.0.0.1", server.port), 2.0) as peer:
        for piece in (b"*ID", b"N?\n*IDN?\nCURR:", b"APER?\n"):
            peer.sendall(piece)
        with peer.makefile("rb") as answers:
            assert answers.read(8) == b"me\nme\n1\n"
