"""Helpers for tests of SCPI meters: a scripted instrument, an owner's calibration file."""

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from drivers.meters.scpi.session import ScpiSession, Visa
from fixtures.instruments.scpi_server import ScpiServer

Dialogue = Sequence[tuple[str, str | bytes | None]]
T = TypeVar("T")


class Scripted:
    """An instrument with one written dialogue: each line that it gets must be the next one of the dialogue."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.left = list(dialogue)
        self.strange: list[str] = []

    def execute(self, line: str) -> bytes:
        if self.left and self.left[0][0] == line:
            answer = self.left.pop(0)[1]
            return b"" if answer is None else (answer.encode() if isinstance(answer, str) else answer) + b"\n"
        self.strange.append(line)
        return b"\n"


def spoken(dialogue: Dialogue, use: Callable[[ScpiSession], T]) -> T:
    """Return what ``use`` returns with an instrument that knows only this dialogue, which must be completed."""
    instrument = Scripted(dialogue)
    with ScpiServer(instrument) as server, closing(Visa(server.address, timeout_s=20.0).open()) as session:
        value = use(session)
    assert (instrument.strange, instrument.left) == ([], [])
    return value


class Fixed:
    """An instrument that answers every line with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.lines: list[str] = []

    def execute(self, line: str) -> bytes:
        self.lines.append(line)
        return self.answer


STATED = {"unit": "A", "full_scale": 0.1, "percent": 0.05, "serial": "SIM0000001", "since": -1, "until": 1}
"""What a calibration file states; it is valid from ``since`` to ``until``, in days from today."""


def certificate(**changes: object) -> str:
    """Return the text of a calibration file with one range, valid today."""
    said: dict[str, Any] = STATED | changes
    since, until = (datetime.now(UTC).date() + timedelta(days=said[name]) for name in ("since", "until"))
    return (
        f'instrument = "34465A"\nserial = "{said["serial"]}"\nreference = "certificate 4711"\n'
        f"valid_from = {since}\nvalid_until = {until}\n"
        f'[[range]]\nunit = "{said["unit"]}"\nfull_scale = {said["full_scale"]}\n'
        f"of_reading_percent = {said['percent']}\nof_range_percent = {said['percent'] / 5}\n"
    )


def calibration(folder: Path, **changes: object) -> str:
    (folder / "calibration.toml").write_text(certificate(**changes), encoding="utf-8")
    return str(folder / "calibration.toml")
