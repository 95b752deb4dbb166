"""The two data streams of ST's PowerShield firmware (UM2269): readings, with time stamps and messages between them.

In ``ascii_dec`` the line ``6409-07`` is 6409e-7; other lines are messages. In ``bin_hexa`` a reading has two bytes:
0x52A0 is 0x2A0 / 16**5, the same 640.9e-6. A message begins with 0xF0 and ends with 0xFF 0xFF, since no reading has the
exponent 15. Both parsers accept bytes in pieces of any length, and raise ``StreamError`` for anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rig.types import Floats

LARGEST = 1.0
"""No PowerShield measures more (A, or J in a reading): then bytes were lost or garbled."""
ASCII_WRAP_S, BINARY_WRAP_S = 1000.0, float(1 << 31) * 1e-3
LINE_MOST = 256

_READING = re.compile(rb"\d{4}[+-]\d{2}")
_STAMP = re.compile(rb"TimeStamp:[ ><]*(\d+)s (\d+)ms, buff (\d+)%")
_QUIET = (b"event ", b"pwr ", b"ack ", b"summary ", b"info")
_POWERS = 16.0 ** -np.arange(16.0)


class StreamError(ValueError):
    """The bytes are not a stream of readings. The text completes a sentence that begins with the instrument."""


@dataclass(frozen=True)
class Stamp:
    """The instrument's time after ``count`` readings since the start, and how full its buffer was (0 to 1)."""

    count: int
    seconds: float
    load: float


@dataclass
class Parsed:
    """What was parsed: readings in the instrument's unit, where an overcurrent was, stamps, and whether it ended."""

    value: list[Floats] = field(default_factory=list)
    flagged: list[int] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    ended: bool = False

    @property
    def owed(self) -> list[int]:
        """What the next bytes begin with: a message after the last reading also flags the next reading."""
        n = sum(map(len, self.value))
        return [0] if any(at >= n for at in self.flagged) else []

    def arrays(self) -> tuple[Floats, NDArray[np.uint8]]:
        """Readings and flags, shapes (n,)."""
        value = np.concatenate(self.value) if self.value else np.zeros(0)
        flags = np.zeros(len(value), np.uint8)
        near = np.array(self.flagged, dtype=np.int64)
        for at in (near - 1, near):  # the reading before and the one after the message
            flags[at[(at >= 0) & (at < len(flags))]] = 1
        return value, flags


class Stream(Protocol):
    """A parser. ``feed`` returns what these bytes complete."""

    def feed(self, data: bytes) -> Parsed: ...


class AsciiStream:
    """The parser of ``ascii_dec``; stamps count modulo 1000 s."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = 0
        self._ended = False
        self._owed: list[int] = []

    def feed(self, data: bytes) -> Parsed:
        """Parse whole lines."""
        found = Parsed(flagged=self._owed, ended=self._ended)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MOST:
            raise StreamError(f"sent {len(self._rest)} bytes without a line end: {self._rest[:40]!r}")
        readings: list[bytes] = []
        for line in lines:
            text = line.replace(b"\0", b"").strip()
            if found.ended or not text:
                continue
            if _READING.fullmatch(text):
                readings.append(text)
            else:
                self._message(text, self._count + len(readings), len(readings), found)
        if readings:
            value = np.array([float(r[:4] + b"e" + r[4:]) for r in readings])
            _check(value)
            found.value.append(value)
            self._count += len(readings)
        self._ended, self._owed = found.ended, found.owed
        return found

    def _message(self, text: bytes, count: int, here: int, found: Parsed) -> None:
        lower = text.lower()
        if stamp := _STAMP.fullmatch(text):
            found.stamps.append(Stamp(count, int(stamp[1]) + int(stamp[2]) * 1e-3, int(stamp[3]) * 1e-2))
        elif text == b"end" or b"Acquisition completed" in text:
            found.ended = True
        elif b"overcurrent" in lower:
            found.flagged.append(here)
        elif b"error" in lower:
            raise StreamError(f"reports: {_plain(text)}")
        elif not text.startswith(_QUIET):
            raise StreamError(f"sent {_plain(text)!r}, which is neither a reading nor a message")


class BinaryStream:
    """The parser of ``bin_hexa``; stamps count milliseconds modulo 2**31."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = 0
        self._ended = self._begun = False
        self._owed: list[int] = []

    def feed(self, data: bytes) -> Parsed:
        """Parse whole readings and messages."""
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
        """Parse the message at ``at``; its length, or 0 when it is not complete yet."""
        kind = rest[at + 1]
        if rest[at] != 0xF0 or not 0xF1 <= kind <= 0xF9:
            raise StreamError(
                f"sent {rest[at : at + 8].hex(' ')}, which is neither a reading nor a message: bytes were lost"
            )
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
            raise StreamError(f"reports: {_plain(text)}")
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

    A stamp is exact to a millisecond: a loss is found once it exceeds that and one reading. Losses add up.
    """

    def __init__(self, rate_hz: float, wrap_s: float) -> None:
        self._rate_hz, self._wrap_s = rate_hz, wrap_s
        self._first: Stamp | None = None
        self._last_s = 0.0

    def check(self, stamp: Stamp) -> None:
        """Raise ``StreamError`` when readings are missing, or there are too many, or the buffer overflows."""
        if self._first is None:
            self._first, self._last_s = stamp, stamp.seconds
            return
        self._last_s += (stamp.seconds - self._last_s) % self._wrap_s
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


def step_at(value: float, binary: bool) -> float:
    """The distance between neighbouring readings at a value: 12 bits of mantissa, or four digits."""
    if binary:
        exponent = int(np.flatnonzero(value / _POWERS[:15] <= 4095.0)[-1])
        return float(_POWERS[exponent])
    return float(10.0 ** (np.floor(np.log10(value) + 1e-12) - 3.0))


def _decoded(data: bytes) -> Floats:
    raw = np.frombuffer(data, ">u2")
    value = (raw & 0x0FFF) * _POWERS[raw >> 12]
    _check(value)
    return np.asarray(value, dtype=np.float64)


def _check(value: Floats) -> None:
    if np.any(value > LARGEST):
        raise StreamError(f"sent a reading of {float(np.max(value)):g}, which it cannot measure: bytes were lost")


def _plain(text: bytes) -> str:
    return text.decode("latin-1").strip()[:120]
