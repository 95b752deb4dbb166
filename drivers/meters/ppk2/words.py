"""Cut the bytes that a Nordic PPK2 streams into words, and convert words to amperes. Uses no port and no clock.

A word is four bytes, least significant first: ADC in bits 0 to 13, range in 14 to 16, a counter of six bits in 18 to
23, eight logic inputs in 24 to 31. There are 100,000 words a second (Nordic, pc-nrfconnect-ppk,
src/device/serialDevice.ts).

The modifiers are the calibration. With the modifiers of a word's range, ``x = (4 adc - O) 1.8 / 163840 / R`` and
``i = UG (x (GS x + GI) + S v + I)``. ``i`` is in amperes, and ``v`` is the supply in volts (same source). Nordic's
program smooths readings after a change of range. This driver does not: its readings are as the ADC took them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.errors import MeterError, SetupError
from rig.types import Bools, Floats

RATE_HZ = 100_000.0
RANGES = 5
ADC_FULL = 0x3FFF
WORD = 4
RANGE_MOST_A = (50e-6, 500e-6, 5e-3, 60e-3, 1.0)
"""The approximate largest current of each range. Every reading contains its range."""
SURE = 8
"""The stream is aligned when the counters of this many words are consecutive."""
HELD = 3
"""A word is used only after this many valid words have followed it: 1 % of misaligned words look valid."""
FARTHEST = 1 << 14
"""If this many bytes cannot be aligned, the instrument at the port is no PPK2."""


Words = tuple[NDArray[np.uint32], Bools]
"""Successive words, and whether each is known; shapes (n,). A word that the counter reveals as lost is unknown."""
ADC_VOLTS = 1.8 / 163_840.0
NEUTRAL = {"S": 0.0, "I": 0.0, "UG": 1.0}
"""Values for the three modifiers that old firmware does not send."""
TYPICAL = {"R": (1031.64, 101.65, 10.15, 0.94, 0.043), "GS": 1.0, "GI": 1.0, "O": 0.0, "S": 0.0, "I": 0.0, "UG": 1.0}
"""The values that Nordic's program uses for a modifier that is absent, 0 or no number (``serialDevice.ts``).

With them a reading may be wrong by half, so a kit is refused if a modifier is implausible, or absent and not in
``NEUTRAL``.
"""
FARTHEST_OFF = {"GS": 1e3, "O": 1e3, "S": 0.1, "I": 0.1}
"""Limits that no known kit exceeds, damaged or not (Nordic's thread 92921). R, GI and UG: half to twice ``TYPICAL``."""
THREAD = "https://devzone.nordicsemi.com/f/nordic-q-a/92921"


class Aligner:
    """Cuts a stream of bytes into words by their counter. The bytes may come in pieces of any length.

    If the counter jumps, the stream continues at the next place with ``SURE`` consecutive words. The first word there
    is dropped, because it may be joined from two torn words. The last ``HELD`` words before the jump are dropped too.
    The skipped words are counted modulo 64: ``losses_by_arrival_time`` excludes the loss of further multiples of 64.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._expected: int | None = None
        self._astray = True

    def feed(self, data: bytes) -> Words:
        """Add bytes. Return the words that are now complete and certain, and the missing words before them."""
        self._bytes += data
        words, known = [np.zeros(0, np.uint32)], [np.zeros(0, np.bool_)]
        while True:
            missing = 0
            if self._astray:
                place = self._next_run()
                if place is None:
                    break
                if self._expected is not None:
                    missing = (self._counter(place) - self._expected) % 64 + 1
                    place += WORD
                self._expected, self._astray = self._counter(place), False
                del self._bytes[:place]
            run = self._run()
            words += [np.zeros(missing, np.uint32), run]
            known += [np.zeros(missing, np.bool_), np.ones(len(run), np.bool_)]
            if not self._astray:
                break
        return np.concatenate(words), np.concatenate(known)

    def _run(self) -> NDArray[np.uint32]:
        """Return the consecutive words from the expected counter on, except the last ``HELD``."""
        whole = len(self._bytes) // WORD
        word = np.frombuffer(bytes(self._bytes[: whole * WORD]), dtype="<u4").astype(np.uint32)
        first = self._expected or 0
        jumps = (word >> 18) & 63 != (first + np.arange(whole)) % 64
        wrong = np.flatnonzero(jumps | ((word >> 14) & 7 >= RANGES))
        n = int(wrong[0]) if len(wrong) else whole
        sure = max(0, n - HELD)
        self._astray = n < whole
        self._expected = (first + sure) % 64
        del self._bytes[: (n if self._astray else sure) * WORD]
        return word[:sure]

    def _next_run(self) -> int | None:
        """Return the byte at which ``SURE`` consecutive words begin; None until enough bytes have arrived."""
        seen = np.frombuffer(bytes(self._bytes[: FARTHEST + SURE * WORD]), dtype=np.uint8)
        places = len(seen) - SURE * WORD + 1
        if places <= 0:
            return None
        counter, range_ = seen[2:] >> 2, seen[1:-1] >> 6 | (seen[2:] & 1) << 2  # if a word begins at this byte
        good = np.ones(places, dtype=bool)
        for k in range(SURE):
            good &= range_[k * WORD : k * WORD + places] < RANGES
            good &= (counter[k * WORD : k * WORD + places] - counter[:places]) % 64 == k
        if np.any(good):
            return int(np.argmax(good))
        if places > FARTHEST:
            what = f"{FARTHEST} bytes in a row are not readings of a PPK2"
            remedy = "Check that the port is a PPK2's, and that no other program reads it"
            raise MeterError(what, field="port", value=FARTHEST, remedy=remedy)
        return None

    def _counter(self, place: int) -> int:
        return int.from_bytes(self._bytes[place : place + WORD], "little") >> 18 & 63


@dataclass(frozen=True)
class Stretch:
    """Consecutive readings from number ``first`` on: the word (uint32), and whether it is known; shapes (n,)."""

    first: int
    word: NDArray[np.uint32]
    known: Bools


class PendingReadings:
    """Words that have arrived and wait until it is proved that none of them is missing; ``count`` have arrived."""

    def __init__(self) -> None:
        self._word, self._known = np.zeros(0, np.uint32), np.zeros(0, np.bool_)
        self._first = self.count = 0

    def add(self, words: Words) -> None:
        self._word, self._known = (np.concatenate(pair) for pair in zip((self._word, self._known), words, strict=True))
        self.count += len(words[0])

    def release(self, until: int) -> Stretch:
        """Remove and return the readings up to number ``until``."""
        n = max(0, until - self._first)
        stretch = Stretch(self._first, self._word[:n], self._known[:n])
        self._word, self._known = self._word[n:], self._known[n:]
        self._first += n
        return stretch


@dataclass(frozen=True)
class Modifiers:
    """The calibration that the instrument reports: arrays of shape (5,), one value per range; other lines as text."""

    r: Floats
    gs: Floats
    gi: Floats
    o: Floats
    s: Floats
    i: Floats
    ug: Floats
    other: dict[str, str]

    def amperes(self, range_: NDArray[np.intp], adc: Floats, supply_v: float) -> Floats:
        """Return readings in A, float64 of the same shape as ``adc``."""
        x = (4.0 * adc - self.o[range_]) * (ADC_VOLTS / self.r[range_])
        linear = x * (self.gs[range_] * x + self.gi[range_])
        return np.asarray(self.ug[range_] * (linear + self.s[range_] * supply_v + self.i[range_]))

    def steps_a(self) -> list[float]:
        """Return the amperes per count of the ADC, by range."""
        return [float(v) for v in 4.0 * ADC_VOLTS / self.r]


def modifiers_of(text: str) -> Modifiers:
    """Return the modifiers in a metadata reply: lines such as ``R0: 1031.64`` up to ``END``.

    Raises ``SetupError`` for a modifier that is no number or implausible, or that is absent and not in ``NEUTRAL``.
    """
    lines = dict(line.split(": ", 1) for line in text.replace("\r", "").split("\n") if ": " in line)
    found = {}
    for key, typical in TYPICAL.items():
        stated = [lines.get(f"{key}{k}", str(NEUTRAL.get(key, ""))) for k in range(RANGES)]
        value = np.array([_number(text) for text in stated])
        if key in FARTHEST_OFF:
            good = np.abs(value) <= FARTHEST_OFF[key]
        else:
            good = np.abs(np.log2(np.where(value > 0.0, value, np.nan) / np.array(typical))) <= 1.0
        if not np.all(good):
            k = int(np.argmin(good))
            name, said = f"{key}{k}", stated[k].strip()
            what = f"the PPK2 states its modifier {name} as {said or 'nothing'!r}, so its readings give no amperes"
            remedy = f"Ask Nordic for the values of this kit, as in {THREAD}"
            raise SetupError(what, field=name, value=said, remedy=remedy)
        found[key] = value
    other = {k: v.strip() for k, v in lines.items() if k.rstrip("01234") not in found}
    return Modifiers(**{key.lower(): value for key, value in found.items()}, other=other)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
