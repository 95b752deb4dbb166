"""ST X-NUCLEO-LPM01A (and the STM32L562E-DK's built-in one): PowerShield firmware on a serial port at 3686400 baud.

    rig measure --device mlperf-tiny --option device.port=/dev/ttyACM0 --meter lpm01a --option meter.port=/dev/ttyACM1

The instrument supplies the board that it measures. Sources: UM2269 (firmware), UM2243 (board), the firmware's ``help``.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Literal

import numpy as np

from drivers.failures import quietly, raising, released_on_error
from drivers.links.serial_line import METER, SerialLine, open_line
from drivers.meters.common_options import Instrument
from drivers.meters.lpm01a.stream import Parsed, Stream, StreamError, Timekeeper, step_at
from drivers.meters.threaded import Batch, sampled_meter
from rig.bench.settings import Positive, of_settings, one_of, within
from rig.errors import MeterError, SetupError
from rig.types import Bracket, Chunk, Clock, Conversion, Meter, Rail

BAUD = 3686400
PROMPT = "PowerShield >"
SUPPLY_V = (1.8, 3.3)
RATES_HZ = (1e4, 5e3, 2e3, 1e3, 5e2, 2e2, 1e2, 5e1, 2e1, 1e1, 5.0, 2.0, 1.0)
QUIET_S = 0.05

_VOLT = re.compile(r"(\d+)([+-]\d+)")
MODES = ("hardware",)
FEEDS = True

RANGE_A = 0.05
"""The range of the dynamic mode (UM2243, chapter 10); the instrument's protection acts from 59 mA on."""
BUFFER_S = 0.2
"""The port is emptied ten times in this time (s). An LPM01A can store readings for longer than this."""


@dataclass(frozen=True)
class Lpm01a:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("lpm01a")
    rail: str = "core"
    port: str = ""
    rate_hz: Annotated[float, partial(one_of, RATES_HZ)] = 1000.0
    supply_v: Annotated[float, partial(within, *SUPPLY_V, "V")] | None = None
    power: Literal["on", "keep"] = "on"
    largest_a: Positive = RANGE_A
    timeout_s: Positive = 3.0


class PowerShield:
    """The instrument, and the ``Source`` of the readings of its only rail, ``rail``."""

    def __init__(self, line: SerialLine, settings: Lpm01a) -> None:
        self._line, self._settings, self._timeout_s = line, settings, settings.timeout_s
        self._stream = Stream()
        self._early: list[Parsed] = []

    # ---- setting up -----------------------------------------------------------------------

    def introduce(self) -> dict[str, str]:
        """Take remote control; return serial number and firmware. Raises ``SetupError`` if no PowerShield answers."""
        try:
            self._line.quiet(QUIET_S, 6 * QUIET_S)
            self._line.write(b"stop\n")  # in case an earlier run was not stopped
            self._line.quiet(QUIET_S)
            self._command("htc")
            return {"serial": self._command("powershield"), "firmware": self._command("version")}
        except MeterError as error:
            what = f"no PowerShield answers: {error.message}"
            remedy = f"Check the port, and that no other program uses it; its rate is {BAUD} baud"
            raise SetupError(what, field="port", value=self._line.port, remedy=remedy) from error

    def configure(self) -> float:
        """Set the instrument; return the supply voltage that it states. Raises ``SetupError`` if it refuses."""
        p = self._settings
        held_v = self._volts()
        if p.supply_v is not None and abs(held_v - p.supply_v) > 0.01:  # setting it again would recalibrate
            self._command(f"volt {round(p.supply_v * 1e3)}m")
            held_v = self._volts()
        if p.power == "on":
            self._command("pwr on nostatus")
        freq = f"{p.rate_hz / 1e3:g}k" if p.rate_hz >= 1e3 else f"{p.rate_hz:g}"
        for command in (
            "pwrend on", "acqmode dyn", "funcmode optim", "output energy", "format bin_hexa", f"freq {freq}",
            "acqtime inf", "trigsrc sw", "trigdelay 0",
        ):  # fmt: skip
            self._command(command)
        return held_v

    # ---- as a source ----------------------------------------------------------------------

    def begin(self, clock: Clock) -> Bracket:
        """Start. The first reading begins after the command, and at least one reading's length before it arrives."""
        p = self._settings
        self._stream, self._keeper = Stream(), Timekeeper(p.rate_hz)
        self._early = []
        before_ns = clock.now_ns()
        self._command("start")
        until_s = time.monotonic() + self._timeout_s + 1.0 / p.rate_hz
        while not any(parsed.value for parsed in self._early):
            if time.monotonic() > until_s:
                raise self._line.failed("acknowledged the start but sends no reading", silent=True)
            self._early.append(self._parsed())
            time.sleep(min(1e-3, 0.1 / p.rate_hz))
        began_ns = clock.now_ns() - round(1e9 / p.rate_hz)
        return Bracket(before_ns, 0, max(began_ns, before_ns))

    def fetch(self) -> Iterator[Batch]:
        """Yield new readings. Raises ``MeterError`` for lost readings and for errors that the instrument reports."""
        early, self._early = self._early, []
        yield self._batch([*early, self._parsed()])

    def finish(self) -> Iterator[Batch]:
        self._line.write(b"stop\n")
        until_s = time.monotonic() + self._timeout_s
        pieces: list[Parsed] = []
        while not (pieces and pieces[-1].ended):
            if time.monotonic() > until_s:
                raise self._line.failed(f"did not stop within {self._timeout_s:g} s", silent=True)
            time.sleep(2e-3)
            pieces.append(self._parsed())
        self._line.quiet(0.4 * QUIET_S)
        yield self._batch(pieces)

    def close(self) -> None:
        """End remote control if the instrument still answers, and close the port. The target stays powered."""
        quietly(self._line.write, b"stop\nhrc\n")
        self._line.close()

    # ---- parts ----------------------------------------------------------------------------

    def _parsed(self) -> Parsed:
        with raising(lambda error: self._line.failed(str(error)), StreamError):
            parsed = self._stream.feed(self._line.waiting())
            for stamp in parsed.stamps:
                self._keeper.check(stamp)
        return parsed

    def _batch(self, pieces: Sequence[Parsed]) -> Batch:
        value, flags = (np.concatenate(parts) for parts in zip(*(piece.arrays() for piece in pieces), strict=True))
        return [Chunk(self._settings.rail, value * self._settings.rate_hz, flags=flags)]

    def _volts(self) -> float:
        answer = self._command("volt get")
        found = _VOLT.search(answer)
        volts = float(f"{found[1]}e{found[2]}") if found else 0.0
        if not 0.5 * SUPPLY_V[0] <= volts <= 1.5 * SUPPLY_V[1]:
            what = f"the PowerShield states a supply of {answer!r}"
            raise SetupError(what, field="supply_v", value=answer, remedy="Reset it")
        return volts

    def _command(self, command: str) -> str:
        """Send a command; return the text that follows the command in its acknowledgement.

        Raises ``SetupError`` with the firmware's message for a refusal, ``MeterError`` for no answer.
        """
        self._line.write(command.encode("ascii") + b"\n")
        until_s = time.monotonic() + self._timeout_s
        while (line := self._line.line(until_s)) is not None:
            text = line.removeprefix(PROMPT).strip()
            if text.startswith(f"ack {command}"):
                return text.removeprefix(f"ack {command}").lstrip(": ").strip()
            if text.startswith("error stop") and command != "stop":
                continue  # an answer to the first ``stop``, which a busy host reads late
            if text.startswith(("error", "err ")):
                detail = self._line.line(min(until_s, time.monotonic() + 0.2)) or ""
                what = f"the PowerShield refuses {command!r}: {text} {detail}".strip()
                remedy = "Change the option that it refuses"
                raise SetupError(what, field=command.partition(" ")[0], value=command, remedy=remedy)
        raise self._line.failed(f"gave no answer to {command!r} within {self._timeout_s:g} s", silent=True)


@of_settings
def open_meter(settings: Lpm01a, clock: Clock | None = None) -> Meter:
    """Open an LPM01A on a serial ``port``; pyserial opens it (extra ``serial``).

    Each reading is the energy of its whole period. ``rate_hz`` is 1, 2 or 5 times a power of ten, 1 Hz to 10 kHz.
    ``supply_v`` (1.8 to 3.3) is set if the instrument supplies another voltage; without ``supply_v`` its supply stays.
    ``largest_a`` is the largest current expected; the step between readings at this current is declared as the
    resolution. ``power`` is ``on``, or ``keep`` to leave the target's switch alone. ``clock_tolerance`` limits the
    relative rate error of its sample clock. ``calibration`` names a calibration file in W.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no PowerShield or a refusal.
    """
    s = settings
    line = open_line(s.port, BAUD, METER)
    with released_on_error(line.close):
        shield = PowerShield(line, s)
        who = shield.introduce()
        held_v = shield.configure()
        rail = Rail(
            s.rail, "mean", Conversion("W"), s.rate_hz, 1.0 / s.rate_hz, range_max=RANGE_A * held_v,
            resolution=step_at(s.largest_a * held_v / s.rate_hz) * s.rate_hz, gain_id=who["serial"],
        )  # fmt: skip
        info = s.own.info(
            f"ST PowerShield, energy, {s.rate_hz:g} readings/s",
            s.own.limited(rail, who["serial"], one_range=False), simulated=who["serial"].startswith("SIM"),
            omitted=("every supply but the one that the PowerShield feeds",), buffer_s=BUFFER_S,
            versions={f"PowerShield {who['serial']}": who["firmware"], "pyserial": version("pyserial")},
            details={
                "port": line.port, "output": "energy", "funcmode": "optim",
                "supply": {"volts": held_v, "from": "the instrument's own answer to `volt get`"},
                "stamps": "its own, once a second, good to 1 ms: a loss of up to 1 ms and one reading may go unnoticed",
            },
            serial_number=who["serial"], firmware=who["firmware"],
        )  # fmt: skip
        return sampled_meter(info, shield, clock, s.timeout_s + 1.0)
