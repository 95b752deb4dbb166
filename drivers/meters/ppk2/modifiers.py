"""The modifiers of a Nordic PPK2 (its calibration), their plausible limits, and the conversion of words to amperes.

With the modifiers of a word's range, ``x = (4 adc - O) 1.8 / 163840 / R`` and ``i = UG (x (GS x + GI) + S v + I)``.
``i`` is in amperes, and ``v`` is the supply in volts (Nordic, pc-nrfconnect-ppk, src/device/serialDevice.ts). Nordic's
program smooths readings after a change of range. This driver does not: its readings are as the ADC took them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers.meters.ppk2.words import RANGES
from rig.errors import SetupError
from rig.types import Floats

ADC_VOLTS = 1.8 / 163_840.0
NEUTRAL = {"S": 0.0, "I": 0.0, "UG": 1.0}
"""Values for the three modifiers that old firmware does not send."""
TYPICAL = {"R": (1031.64, 101.65, 10.15, 0.94, 0.043), "GS": 1.0, "GI": 1.0, "O": 0.0, "S": 0.0, "I": 0.0, "UG": 1.0}
"""The values that Nordic's program uses for a modifier that is absent, 0 or no number (``serialDevice.ts``).

With them a reading may be wrong by half, so a kit is refused if a modifier is implausible, or absent and not in
``NEUTRAL``.
"""
FARTHEST_OFF = {"GS": 1e3, "O": 1e3, "S": 0.1, "I": 0.1}
"""Limits that real kits, some damaged, keep (Nordic's thread 92921). R, GI and UG: half to twice ``TYPICAL``."""
THREAD = "https://devzone.nordicsemi.com/f/nordic-q-a/92921"


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
