"""The port of a Nordic PPK2: its commands, its statement of itself, and a thread that empties the port.

Commands are one byte and their values (Nordic, pc-nrfconnect-ppk, src/constants.ts and src/device/serialDevice.ts).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from drivers.links.serial_line import SerialLine
from drivers.meters.ppk2.stream import RATE_HZ, WORD, Modifiers, modifiers_of
from drivers.meters.usb_stream import KEPT
from rig.errors import MeterError, MeterSilentError, RigError, SetupError
from rig.types import Clock

BAUD = 115_200
"""What a USB serial port ignores."""
START, STOP, RUNNING, REGULATOR, POWER_MODE, METADATA = 0x06, 0x07, 0x0C, 0x0D, 0x11, 0x19
POWER_MODES = {"ampere": 1, "source": 2}
QUIET_S = 0.02
TAP_S = 1e-3
SLOT_NS = 10_000_000
BYTE_NS = 1e9 / RATE_HZ / WORD


def begin(line: SerialLine) -> None:
    """Start the stream."""
    line.write(bytes([START]))


def end(line: SerialLine) -> None:
    """Stop the stream; what is on its way still comes."""
    line.write(bytes([STOP]))


def switch_off(line: SerialLine) -> None:
    """Switch the output off."""
    line.write(bytes([RUNNING, 0]))


def configure(line: SerialLine, mode: str, supply_v: float) -> None:
    """Mode, voltage (two bytes, the higher first, in 0.001 V), and the output on."""
    line.write(bytes([POWER_MODE, POWER_MODES[mode]]))
    if mode == "source":
        line.write(bytes([REGULATOR, *round(supply_v * 1000.0).to_bytes(2, "big")]))
    line.write(bytes([RUNNING, 1]))


def metadata(line: SerialLine, timeout_s: float) -> Modifiers:
    """Silence the instrument, ask for its calibration and read it up to END.

    Raises ``SetupError`` for what is no PPK2.
    """
    silence(line, timeout_s)
    line.write(bytes([METADATA]))
    said, until_s = b"", time.monotonic() + timeout_s
    while b"END" not in said:
        if time.monotonic() > until_s:
            raise SetupError(
                f"what is on {line.port} does not state a PPK2's calibration: {said[:60]!r}",
                field="port",
                value=line.port,
                remedy="A PPK2 has two ports on some firmware: try the other. Close every other program that uses it",
            )
        said += line.waiting()
        time.sleep(1e-3)
    return modifiers_of(said.decode("latin-1"))


def silence(line: SerialLine, timeout_s: float) -> None:
    """Stop a stream that somebody left running, and let what is on its way pass."""
    end(line)
    until_s = time.monotonic() + timeout_s
    quiet_s = time.monotonic() + QUIET_S
    while time.monotonic() < quiet_s:
        if line.waiting():
            quiet_s = time.monotonic() + QUIET_S
        if time.monotonic() > until_s:
            raise line.failed("goes on sending although it was told to stop")
        time.sleep(1e-3)


def serial_number(line: SerialLine) -> str:
    """The serial number of the USB device at this port, "" where the system does not tell."""
    from serial.tools.list_ports import comports

    return next((str(p.serial_number or "") for p in comports() if p.device == line.port), "")


@dataclass(frozen=True)
class Piece:
    """Bytes that followed those before, and the host's time by which the last of them had arrived."""

    data: bytes
    at_ns: int


class Tap:
    """A thread that empties the port every millisecond: a serial port's own memory may hold no more than 10 ms.

    Of each 10 ms it keeps the arrival with the least lag, and cuts the bytes there: the others say less about time.
    At most ``most`` bytes are held.
    """

    def __init__(self, line: SerialLine, clock: Clock, most: int, name: str, timeout_s: float) -> None:
        self._line, self._clock, self._most = line, clock, most
        self._name, self._timeout_s = name, timeout_s
        self._pieces: list[Piece] = []
        self._held = self._total = 0
        self._heard_s = time.monotonic()
        self._error: RigError | None = None
        self._lock, self._halt = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tap {line.port}", daemon=True)
        self._thread.start()

    def take(self) -> list[Piece]:
        """What has come, without waiting; after it, the error that ended it, or ``MeterSilentError``."""
        with self._lock:
            pieces, self._pieces, self._held = self._pieces, [], 0
        if pieces:
            return pieces
        if self._error is not None:
            raise self._error
        silent_s = time.monotonic() - self._heard_s
        if silent_s > self._timeout_s:
            raise MeterSilentError(
                f"meter {self._name} has sent nothing for {self._timeout_s:g} s",
                field="timeout_s",
                value=silent_s,
                remedy=f"Check the PPK2's cable. {KEPT}",
            )
        return pieces

    def close(self) -> None:
        """End the thread; what it held stays."""
        self._halt.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        slot, best, best_ns, lag_ns, until_ns = bytearray(), 0, 0, 0.0, 0
        try:
            while not self._halt.wait(TAP_S):
                data = self._line.waiting()
                at_ns = self._clock.now_ns()
                if data:
                    self._heard_s = time.monotonic()
                    slot += data
                    self._total += len(data)
                    until_ns = until_ns or at_ns + SLOT_NS
                    own_ns = at_ns - self._total * BYTE_NS
                    if not best or own_ns < lag_ns:
                        best, best_ns, lag_ns = len(slot), at_ns, own_ns
                if best and at_ns >= until_ns:
                    self._hand_over(Piece(bytes(slot[:best]), best_ns))
                    del slot[:best]
                    best, until_ns = 0, 0
        except RigError as error:
            self._error = error

    def _hand_over(self, piece: Piece) -> None:
        with self._lock:
            self._pieces.append(piece)
            self._held += len(piece.data)
            held = self._held
        if held > self._most:
            raise MeterError(
                f"{held // WORD} readings of the meter were waiting to be read, and {self._most // WORD} are the most "
                "that are held",
                field="hold_s",
                value=held // WORD,
                remedy=f"Raise hold_s, or read more often. {KEPT}",
            )
