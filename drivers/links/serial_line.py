"""A serial port for drivers: lines with deadlines, bytes without waiting, and errors of the caller's kind.

``pyserial`` is imported when a port is opened. The driver of a device gets ``DeviceError`` and ``DeviceTimeoutError``,
the driver of a meter ``MeterError`` and ``MeterSilentError``: see ``Kinds``.
"""

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drivers.failures import KEPT, brief, raising
from rig.bench.settings import positive
from rig.errors import DeviceError, DeviceTimeoutError, MeterError, MeterSilentError, RigError, SetupError, UsageError
from rig.plugins import imported

SLICE_S = 0.05
"""One wait inside pyserial lasts at most this long (s). Nearer to a deadline, the line is checked each millisecond."""
LINE_MOST = 1 << 16
"""A longer line (bytes) is refused: the baud rate is wrong, or the bytes are not text."""
TAKE_MOST = 1 << 20
BITS_PER_BYTE = 10
"""Start bit, eight data bits, stop bit."""


@dataclass(frozen=True)
class Kinds:
    """The errors for one kind of instrument: ``broken`` if it fails, ``silent`` if it sends nothing."""

    noun: str
    broken: type[RigError]
    silent: type[RigError]


DEVICE = Kinds("device", DeviceError, DeviceTimeoutError)
METER = Kinds("meter", MeterError, MeterSilentError)


class SerialLine:
    """One open port, for one user at a time.

    After an error, reading and writing fail until ``quiet``, because late bytes may still arrive. Only complete lines
    that came before the error are still returned.
    """

    def __init__(self, handle: Any, port: str, baud: int, kinds: Kinds) -> None:
        self.port, self.baud = port, baud
        self._handle, self._kinds = handle, kinds
        self._buffer = bytearray()
        self._broken: str | None = None

    def wire_s(self, count: int) -> float:
        """Return how long ``count`` bytes take on the wire at the baud rate (s)."""
        return count * BITS_PER_BYTE / self.baud

    def write(self, data: bytes) -> None:
        """Send bytes. Raises if the port is gone or does not accept them."""
        self._usable()
        try:
            self._handle.write(data)
        except Exception as error:  # SerialException, SerialTimeoutException, OSError
            raise self.failed(f"did not accept {len(data)} bytes: {brief(error)}") from error

    def line(self, until_s: float) -> str | None:
        """Return the next line without its end and NULs, or None if none came by ``until_s`` (``time.monotonic``)."""
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                text = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return text.decode("latin-1").replace("\0", "").strip()
            if len(self._buffer) > LINE_MOST:
                raise self.failed(f"sent {len(self._buffer)} bytes without a line end, at {self.baud} baud")
            if time.monotonic() >= until_s:
                self._usable()
                return None
            self._pull(until_s)

    def waiting(self) -> bytes:
        """Return the bytes that have arrived, about ``TAKE_MOST`` at most, without waiting.

        The kernel returns about 4 KiB at a time.
        """
        self._usable()
        with raising(self._gone, Exception):
            while len(self._buffer) < TAKE_MOST and (count := self._handle.in_waiting):
                self._buffer += self._handle.read(count)
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken

    def quiet(self, seconds: float, most_s: float = 1.0) -> bool:
        """Drop bytes until none has arrived for ``seconds``; return whether this happened within ``most_s``.

        After this, a broken line can be used again.
        """
        self._broken = None
        now_s = time.monotonic()
        still_s, end_s = now_s, now_s + most_s
        while time.monotonic() < min(still_s + seconds, end_s):
            if self.waiting():
                still_s = time.monotonic()
            time.sleep(0.002)
        return time.monotonic() >= still_s + seconds

    def failed(self, what: str, *, silent: bool = False, remedy: str = "") -> RigError:
        """Mark the line as broken, and return the error to raise."""
        self._broken = self._broken or what
        kind = self._kinds.silent if silent else self._kinds.broken
        remedy = f"{remedy or 'Check its power, its cable and the baud rate'}. {KEPT}"
        return kind(f"the {self._kinds.noun} on {self.port} {what}", field="port", value=self.port, remedy=remedy)

    def close(self) -> None:
        """Release the port. May be called twice; raises nothing."""
        self._broken = self._broken or "was closed"
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(Exception):  # closing fails if the port is gone
                handle.close()

    def _usable(self) -> None:
        if self._broken is not None or self._handle is None:
            what = f"the {self._kinds.noun} on {self.port} cannot be used: earlier it {self._broken}"
            raise self._kinds.broken(what, field="port", value=self.port, remedy="Open it again")

    def _pull(self, until_s: float) -> None:
        """Wait for a byte until ``until_s``, at most for one slice, and fetch all that has arrived."""
        self._usable()
        left_s = until_s - time.monotonic()
        with raising(self._gone, Exception):
            if left_s >= SLICE_S:
                self._buffer += self._handle.read(1)
            elif not self._handle.in_waiting:
                time.sleep(max(0.0, min(0.001, left_s)))
            if count := self._handle.in_waiting:
                self._buffer += self._handle.read(count)

    def _gone(self, error: Exception) -> RigError:
        return self.failed(f"is gone: {brief(error)}")


def open_line(port: str, baud: int, kinds: Kinds, *, dtr: bool = True) -> SerialLine:
    """Open a port for exclusive use: eight data bits, no parity, one stop bit, no flow control.

    If ``dtr`` is false, the DTR line stays low, because raising it resets some boards. Raises ``UsageError`` for an
    empty port or a baud rate that is not positive, ``MissingExtraError`` without pyserial, ``SetupError`` for a port
    that is missing, in use or unable to run at this rate.
    """
    if not port:
        what = f"no port is given for the {kinds.noun}"
        raise UsageError(what, field="port", value=port, example="COM3" if sys.platform == "win32" else "/dev/ttyACM0")
    positive(baud=baud)
    serial = imported("serial", "an instrument on a serial port", "serial", field="port", value="pyserial")
    handle = serial.Serial(baudrate=baud, timeout=SLICE_S, write_timeout=1.0, exclusive=True)
    handle.port = port
    if not dtr:
        handle.dtr = False
    try:
        handle.open()
    except Exception as error:  # SerialException, ValueError for a rate, PermissionError
        what = f"the port {port} cannot be opened at {baud} baud: {brief(error)}"
        remedy = "Check its name, its cable, and your permission to open it (on Linux: the group dialout). "
        remedy += "Close other programs that use it"
        raise SetupError(what, field="port", value=port, remedy=remedy) from error
    return SerialLine(handle, port, baud, kinds)
