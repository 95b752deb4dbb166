"""The binary data of ST's PowerShield firmware (UM2269, ``bin_hexa``): readings, with messages between them.

A reading has two bytes: 0x52A0 is 0x2A0 / 16**5. A message begins with 0xF0 and ends with 0xFF 0xFF. No reading begins
with 0xF0, because none has the exponent 15. The parser accepts bytes in pieces of any length, and raises
``StreamError`` for anything else.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rig.types import Floats

LARGEST = 1.0
"""No PowerShield measures more than this (A, or J per reading): a larger value means lost or garbled bytes."""
WRAP_S = float(1 << 31) * 1e-3
"""Stamps count milliseconds modulo 2**31."""
LINE_MOST = 256

_POWERS = 16.0 ** -np.arange(16.0)


class StreamError(ValueError):
    """The bytes are not a stream of readings. The message completes a sentence whose subject is the instrument."""


@dataclass(frozen=True)
class Stamp:
    """The instrument's time after ``count`` readings since the start, and the filled share of its buffer (0 to 1)."""

    count: int
    seconds: float
    load: float


@dataclass
class Parsed:
    """Parsed data: readings in the instrument's unit, places of overcurrents, stamps, and whether the stream ended."""

    value: list[Floats] = field(default_factory=list)
    flagged: list[int] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    ended: bool = False

    @property
    def owed(self) -> list[int]:
        """Return the flags for the next bytes: a message after the last reading also flags the reading that follows."""
        n = sum(map(len, self.value))
        return [0] if any(at >= n for at in self.flagged) else []

    def arrays(self) -> tuple[Floats, NDArray[np.uint8]]:
        """Return readings and flags, shapes (n,)."""
        value = np.concatenate(self.value) if self.value else np.zeros(0)
        flags = np.zeros(len(value), np.uint8)
        near = np.array(self.flagged, dtype=np.int64)
        for at in (near - 1, near):  # the readings before and after the message
            flags[at[(at >= 0) & (at < len(flags))]] = 1
        return value, flags


class Stream:
    """The parser. ``feed`` returns the readings and messages that the new bytes complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = 0
        self._ended = self._begun = False
        self._owed: list[int] = []

    def feed(self, data: bytes) -> Parsed:
        """Parse all complete readings and messages."""
        found = Parsed(flagged=self._owed, ended=self._ended)
        rest = self._rest + data
        if not self._begun:
            rest = rest.lstrip(b"\r\n")  # the end of the line that acknowledged the start
            self._begun = bool(rest)
        here = at = 0
        while not found.ended and len(rest) - at >= 2:
            high = np.frombuffer(rest, np.uint8)[at:-1:2]
            special = np.flatnonzero(high >= 0xF0)
            n = int(special[0]) if len(special) else len(high)
            if n:
                found.value.append(_decoded(rest[at : at + 2 * n]))
                here, at = here + n, at + 2 * n
                self._count += n
            if len(special):
                length = self._message(rest, at, here, found)
                if not length:
                    break
                at += length
        self._rest = b"" if found.ended else rest[at:]
        self._ended, self._owed = found.ended, found.owed
        return found

    def _message(self, rest: bytes, at: int, here: int, found: Parsed) -> int:
        """Parse the message at ``at``; return its length, or 0 if it is not complete yet."""
        kind = rest[at + 1]
        if rest[at] != 0xF0 or not 0xF1 <= kind <= 0xF9:
            what = f"sent {rest[at : at + 8].hex(' ')}, which is neither a reading nor a message: bytes were lost"
            raise StreamError(what)
        body = {0xF3: 5, 0xF4: 0, 0xF5: 0, 0xF6: 0, 0xF7: 2}.get(kind)
        end = at + 2 + body if body is not None else rest.find(b"\xff\xff", at + 2)
        if end < 0 or len(rest) < end + 2:
            if len(rest) - at > LINE_MOST:
                raise StreamError("sent a message without an end: bytes were lost")
            return 0
        if rest[end : end + 2] != b"\xff\xff":
            raise StreamError(f"sent a message that does not end: {rest[at : end + 2].hex(' ')}: bytes were lost")
        text = rest[at + 2 : end]
        if kind == 0xF1:
            raise StreamError(f"reports: {text.decode('latin-1').strip()[:120]}")
        if kind == 0xF3:
            milliseconds = int.from_bytes(text[:4], "big") & 0x7FFF_FFFF
            found.stamps.append(Stamp(self._count, milliseconds * 1e-3, text[4] * 1e-2))
        elif kind == 0xF4:
            found.ended = True
        elif kind == 0xF5:
            found.flagged.append(here)
        elif kind == 0xF6:
            raise StreamError("has switched its target off")
        return end + 2 - at


class Timekeeper:
    """Compares the count of readings with the instrument's own stamps, which come once a second.

    A stamp is exact to 1 ms. So a loss is found as soon as all losses together exceed 1 ms and one reading.
    """

    def __init__(self, rate_hz: float) -> None:
        self._rate_hz = rate_hz
        self._first: Stamp | None = None
        self._last_s = 0.0

    def check(self, stamp: Stamp) -> None:
        """Raise ``StreamError`` if readings are missing, if there are too many, or if the buffer is full."""
        if self._first is None:
            self._first, self._last_s = stamp, stamp.seconds
            return
        self._last_s += (stamp.seconds - self._last_s) % WRAP_S
        due = (self._last_s - self._first.seconds) * self._rate_hz
        missing = due - (stamp.count - self._first.count)
        if abs(missing) > 1.0 + 1e-3 * self._rate_hz:
            lost = f"lost {missing:.0f}" if missing > 0 else f"sent {-missing:.0f} too many"
            raise StreamError(
                f"{lost} of {due:.0f} readings, according to its time stamp at {self._last_s:.3f} s "
                f"(its buffer was {100 * stamp.load:.0f} % full)"
            )
        if stamp.load >= 1.0:
            raise StreamError(f"has a full buffer at {self._last_s:.3f} s: it loses readings from here on")


def step_at(value: float) -> float:
    """Return the distance between neighbouring readings at a value; a reading has 12 bits of mantissa."""
    return float(_POWERS[int(np.flatnonzero(value / _POWERS[:15] <= 4095.0)[-1])])


def _decoded(data: bytes) -> Floats:
    raw = np.frombuffer(data, ">u2")
    value = (raw & 0x0FFF) * _POWERS[raw >> 12]
    if np.any(value > LARGEST):
        raise StreamError(f"sent a reading of {float(np.max(value)):g}, which it cannot measure: bytes were lost")
    return np.asarray(value, dtype=np.float64)
