"""One PowerShield on its port: asked and set, started, its stream read, stopped. See ``lpm01a`` for the options."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drivers.links.serial_line import SerialLine
from drivers.meters.lpm01a.stream import (
    ASCII_WRAP_S,
    BINARY_WRAP_S,
    AsciiStream,
    BinaryStream,
    Parsed,
    Stream,
    StreamError,
    Timekeeper,
)
from drivers.meters.sampled import Fetched
from rig.errors import MeterError, RigError, SetupError
from rig.types import Bracket, Clock, MeterInfo

BAUD = 3686400
PROMPT = "PowerShield >"
SUPPLY_V = (1.8, 3.3)
QUIET_S = 0.05

_VOLT = re.compile(r"(\d+)([+-]\d+)")


@dataclass(frozen=True)
class Plan:
    """What it is set to."""

    rate_hz: float
    energy: bool
    binary: bool
    supply_v: float | None
    high: bool
    power: str

    @property
    def per_reading(self) -> float:
        """From a reading as it is sent to the rail's unit: joules of a period to watts, amperes as they are."""
        return self.rate_hz if self.energy else 1.0


class PowerShield:
    """The instrument, as ``SampledMeter`` needs it: describe, begin, fetch, finish, close."""

    def __init__(self, line: SerialLine, plan: Plan, timeout_s: float) -> None:
        self._line, self._plan, self._timeout_s = line, plan, timeout_s
        self._info: MeterInfo | None = None
        self._stream: Stream = AsciiStream()
        self._keeper = Timekeeper(plan.rate_hz, BINARY_WRAP_S)
        self._early: list[Parsed] = []

    # ---- setting up -----------------------------------------------------------------------

    def introduce(self) -> dict[str, str]:
        """Take control. Its serial number and firmware. Raises ``SetupError`` when nobody answers."""
        try:
            self._line.quiet(QUIET_S, 6 * QUIET_S)
            self._line.write(b"stop\n")  # of an earlier run that was not ended; nothing to stop is no harm
            self._line.quiet(QUIET_S)
            self._asked("htc")
            return {"serial": self._asked("powershield"), "firmware": self._asked("version")}
        except MeterError as error:
            raise SetupError(
                f"no PowerShield answers: {error.message}",
                field="port",
                value=self._line.port,
                remedy=f"Check the port, and that nothing else holds it; its rate is {BAUD} baud",
            ) from error

    def configure(self) -> float:
        """Set it to the plan; the supply voltage as it says. Raises ``SetupError`` for what it refuses."""
        p = self._plan
        held_v = self._volts()
        if p.supply_v is not None and abs(held_v - p.supply_v) > 0.01:  # setting it anew recalibrates
            self._asked(f"volt {round(p.supply_v * 1e3)}m")
            held_v = self._volts()
        if p.power == "on":
            self._asked("pwr on nostatus")
        self._asked("pwrend on")
        self._asked("acqmode dyn")
        self._asked(f"funcmode {'high' if p.high else 'optim'}")
        self._asked(f"output {'energy' if p.energy else 'current'}")
        self._asked(f"format {'bin_hexa' if p.binary else 'ascii_dec'}")
        self._asked(f"freq {short_hz(p.rate_hz)}")
        for command in ("acqtime inf", "trigsrc sw", "trigdelay 0"):
            self._asked(command)
        return held_v

    def declare(self, info: MeterInfo) -> None:
        """What ``describe`` says from now on."""
        self._info = info

    # ---- as a source ----------------------------------------------------------------------

    def describe(self) -> MeterInfo:
        """What it was set to."""
        assert self._info is not None
        return self._info

    def begin(self, clock: Clock) -> Bracket:
        """Start; the first reading begins between the command and its own arrival less its length."""
        p = self._plan
        self._stream = BinaryStream() if p.binary else AsciiStream()
        self._keeper = Timekeeper(p.rate_hz, BINARY_WRAP_S if p.binary else ASCII_WRAP_S)
        self._early = []
        before_ns = clock.now_ns()
        self._asked("start")
        until_s = time.monotonic() + self._timeout_s + 1.0 / p.rate_hz
        while not any(parsed.value for parsed in self._early):
            if time.monotonic() > until_s:
                raise self._line.failed("acknowledged the start and sends no reading", silent=True)
            self._early.append(self._parsed())
            time.sleep(min(1e-3, 0.1 / p.rate_hz))
        began_ns = clock.now_ns() - round(1e9 / p.rate_hz)
        return Bracket(before_ns, 0, max(began_ns, before_ns))

    def fetch(self) -> Fetched:
        """What has arrived. Raises ``MeterError`` for lost readings and for whatever it reports."""
        early, self._early = self._early, []
        return self._fetched([*early, self._parsed()])

    def finish(self) -> Sequence[Fetched]:
        """Stop, and read what it still had to say."""
        self._line.write(b"stop\n")
        until_s = time.monotonic() + self._timeout_s
        pieces: list[Parsed] = []
        while not (pieces and pieces[-1].ended):
            if time.monotonic() > until_s:
                raise self._line.failed(f"did not stop within {self._timeout_s:g} s", silent=True)
            time.sleep(2e-3)
            pieces.append(self._parsed())
        self._line.quiet(0.4 * QUIET_S)
        return [self._fetched(pieces)]

    def close(self) -> None:
        """Give control back, if it still listens, and let go of the port; its target stays powered."""
        with contextlib.suppress(RigError):
            self._line.write(b"stop\nhrc\n")
        self._line.close()

    # ---- parts ----------------------------------------------------------------------------

    def _parsed(self) -> Parsed:
        try:
            parsed = self._stream.feed(self._line.waiting())
            for stamp in parsed.stamps:
                self._keeper.check(stamp)
        except StreamError as error:
            raise self._line.failed(str(error)) from error
        return parsed

    def _fetched(self, pieces: Sequence[Parsed]) -> Fetched:
        arrays = [piece.arrays() for piece in pieces]
        value = np.concatenate([own for own, _ in arrays]) * self._plan.per_reading
        rail = self.describe().rails[0].name
        return Fetched({rail: value}, {rail: np.concatenate([flags for _, flags in arrays])}, False)

    def _volts(self) -> float:
        answer = self._asked("volt get")
        found = _VOLT.search(answer)
        volts = float(f"{found[1]}e{found[2]}") if found else 0.0
        if not 0.5 * SUPPLY_V[0] <= volts <= 1.5 * SUPPLY_V[1]:
            raise SetupError(
                f"the PowerShield says that it supplies {answer!r}", field="supply_v", value=answer, remedy="Reset it"
            )
        return volts

    def _asked(self, command: str) -> str:
        """Send a command; what its acknowledgement says beyond the command itself.

        Raises ``SetupError`` with the firmware's own words for a refusal, ``MeterError`` for silence.
        """
        self._line.write(command.encode("ascii") + b"\n")
        until_s = time.monotonic() + self._timeout_s
        while (line := self._line.line(until_s)) is not None:
            text = line.removeprefix(PROMPT).strip()
            if text.startswith(f"ack {command}"):
                return text.removeprefix(f"ack {command}").lstrip(": ").strip()
            if text.startswith("error stop") and command != "stop":
                continue  # what opening stops may not be running; on a busy host that is said late
            if text.startswith(("error", "err ")):
                detail = self._line.line(min(until_s, time.monotonic() + 0.2)) or ""
                raise SetupError(
                    f"the PowerShield refuses {command!r}: {text} {detail}".strip(),
                    field=command.partition(" ")[0],
                    value=command,
                    remedy="Change the option that it objects to",
                )
        raise self._line.failed(f"gave no answer to {command!r} within {self._timeout_s:g} s", silent=True)


def short_hz(rate_hz: float) -> str:
    """A rate as the firmware writes it: 500, 1k, 100k."""
    return f"{rate_hz / 1e3:g}k" if rate_hz >= 1e3 else f"{rate_hz:g}"
