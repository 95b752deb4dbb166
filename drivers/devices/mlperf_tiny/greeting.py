"""Finds the board on a serial line; it may be booting, or in the middle of a command of an earlier run."""

from __future__ import annotations

import time
from collections.abc import Callable

from drivers.devices.mlperf_tiny.protocol import Board, Unwraps
from drivers.links.serial_line import SerialLine
from rig.errors import RigError, SetupError

HELLO_S = 1.0
QUIET_S = 0.05


def introduced(
    line: SerialLine, clock: Callable[[], Unwraps], boot_s: float, answer_s: float, on_pin: bool = False
) -> tuple[Board, dict[str, str]]:
    """Return the board on a line, and what it states of itself.

    ``clock`` makes the object that unwraps its counter. Raises ``SetupError`` when no board names itself within
    ``boot_s``, or when it stamps in another way than ``on_pin`` states.
    """
    until_s = time.monotonic() + boot_s
    last = "it said nothing"
    while (left_s := until_s - time.monotonic()) > 0:
        board = Board(line, clock(), answer_s, on_pin)
        allowed_s = min(HELLO_S, left_s)
        try:
            line.quiet(QUIET_S)
            said = board.converse(board.hello(), allowed_s)
            line.quiet(QUIET_S)
            if "name" in said:
                if board.converse(board.stamps(), allowed_s) == on_pin:
                    raise _other_mode(on_pin)
                return board, said
            last = "it gave no name"
        except SetupError:
            raise
        except RigError as error:
            last = error.message
            if " is gone" in last:
                break
    what = f"no MLPerf Tiny board answers on {line.port} at {line.baud} baud: {last}"
    remedy = "Check the port and the baud rate (115200; 9600 means energy mode), and that its firmware runs"
    raise SetupError(what, field="port", value=line.port, remedy=remedy)


def _other_mode(on_pin: bool) -> SetupError:
    """Return the error for a board that stamps in text instead of by a pin, or by a pin instead of in text."""
    found, asked, how, remedy = "performance", "energy", "answers `timestamp` in text", "Give mode=performance"
    if not on_pin:
        found, asked = asked, found
        how = "does not answer `timestamp` in text, but marks times by a falling edge of a pin"
        remedy = "Give mode=energy, with its pin on a logic input of the power meter; or build its firmware for "
        remedy += "performance mode"
    what = f"the board's firmware was built for {found} mode: it {how}"
    return SetupError(what, field="mode", value=asked, remedy=remedy)
