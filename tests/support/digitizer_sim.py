"""A DMM6500 for one series of its digitizer, from its reference manual (DMM6500-901-01)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fixtures.instruments.scpi_server import Handler, ScpiError, ScpiParser, choice, number, range_above


class DigitizerSim:
    """A DMM6500 in real time, on its front terminals: reading ``k`` of a series is ``k`` microamperes, from 0."""

    RANGES_A = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.0)

    def __init__(self) -> None:
        self.language = ScpiParser(self._commands(), self._advance)
        self.execute = self.language.execute
        self._reset()

    def _reset(self) -> None:
        self._set: dict[str, Any] = {"range": 1.0, "rate_hz": 1e6, "real": False, "swapped": True}
        self._asked = self._taken = 0
        self._began_s: float | None = None

    def _commands(self) -> dict[str, Handler]:
        return {
            "*IDN?": lambda a: "KEITHLEY INSTRUMENTS,MODEL DMM6500,SIM0000001,1.7.3c",
            "*LANG?": lambda a: "SCPI",
            "*RST": lambda a: self._reset(),
            "*CLS": lambda a: self.language.clear_errors(),
            "SYSTem:ERRor[:NEXT]?": lambda a: self.language.next_error(),
            "ROUTe:TERMinals?": lambda a: "FRON",
            "[SENSe:]DIGitize:FUNCtion": lambda a: self._set.update(function=choice(a[0].strip('"'), ("CURR",))),
            "[SENSe:]DIGitize:CURRent:RANGe": lambda a: self._set.update(range=range_above(self.RANGES_A, a[0])),
            "[SENSe:]DIGitize:CURRent:RANGe?": lambda a: f"{self._set['range']:g}",
            "[SENSe:]DIGitize:CURRent:SRATe": lambda a: self._set.update(rate_hz=number(a[0], 1e3, 1e6)),
            "[SENSe:]DIGitize:CURRent:SRATe?": lambda a: f"{self._set['rate_hz']:g}",
            "[SENSe:]DIGitize:CURRent:APERture": lambda a: self._set.update(aperture=choice(a[0], ("AUTO",))),
            "FORMat[:DATA]": lambda a: self._set.update(real=choice(a[0], ("ASC", "REAL")) == "REAL"),
            "FORMat:BORDer": lambda a: self._set.update(swapped=choice(a[0], ("NORM", "SWAP")) == "SWAP"),
            "TRACe:POINts": lambda a: self._set.update({a[1]: int(number(a[0], 10, 7e6))}),
            "TRACe:FILL:MODE": lambda a: self._set.update(fill=choice(a[0], ("ONCE",))),
            "TRACe:CLEar": lambda a: setattr(self, "_taken", 0),
            "TRACe:ACTual:END?": lambda a: f"{self._taken}",
            "TRACe:DATA?": self._data,
            "TRIGger:LOAD": lambda a: setattr(self, "_asked", 0),
            "TRIGger:BLOCk:MDIGitize": lambda a: setattr(self, "_asked", int(number(a[2], 1, self._set[a[1]]))),
            "TRIGger:STATe?": lambda a: "IDLE;IDLE;0" if self._began_s is None else "RUNNING;RUNNING;1",
            "INITiate[:IMMediate]": self._initiate,
            "ABORt": lambda a: setattr(self, "_began_s", None),
        }

    def _initiate(self, a: Sequence[str]) -> None:
        if self._began_s is not None:
            raise ScpiError(-213, "Init ignored")
        self._began_s = time.perf_counter()

    def _advance(self) -> None:
        if self._began_s is not None:
            self._taken = min(self._asked, int((time.perf_counter() - self._began_s) * self._set["rate_hz"]))
            self._began_s = self._began_s if self._taken < self._asked else None

    def _data(self, a: Sequence[str]) -> bytes:
        first, last = int(a[0]), int(a[1])
        if not (1 <= first <= last <= self._taken and self._set["real"]):
            raise ScpiError(-222, "Data out of range")
        value = np.arange(first - 1, last) * 1e-6
        return b"#0" + value.astype("<f8" if self._set["swapped"] else ">f8").tobytes()
