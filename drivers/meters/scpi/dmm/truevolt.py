"""Keysight 34465A and 34470A over SCPI: configured, triggered and read out, with a fixed range and sample timer.

Commands and facts are from the Keysight Truevolt Series Operating and Service Guide (SCPI programming reference:
SAMPle, TRIGger, R?, DATA, STATus). Readings carry no time stamp: reading k starts at trigger + TRIG:DEL + k * SAMP:TIM,
by the instrument's own clock. ``R?`` erases what it returns. A full memory drops its oldest readings and reports no
error; only Questionable bit 14 shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed
from drivers.meters.scpi.session import ScpiSession, await_state
from drivers.meters.threaded import Batch
from rig.errors import MeterError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, Floats

MODELS = ("34465A", "34470A")
RANGES = {"current": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0), "voltage": (0.1, 1.0, 10.0, 100.0, 1000.0)}
NODE = {"current": "CURR:DC", "voltage": "VOLT:DC"}
TRIGGERS = {"bus": "BUS", "external": "EXT", "immediate": "IMM"}
FIRE = {"bus": "*TRG;:STAT:OPER:COND?", "external": "STAT:OPER:COND?", "immediate": "INIT;:STAT:OPER:COND?"}
OVER_RANGE = 1.2
"""Readings go up to 120 % of the range; beyond it they are 9.9E37."""
APERTURE_LEAST_S = {True: 20e-6, False: 300e-6}
"""With and without the digitizing option (DIG), standard since firmware 3.0."""
MEMORY = {True: 2_000_000, False: 50_000}
"""Readings, with and without the option MEM."""
COUNT_MOST = 1_000_000_000
PIECE = 25_000
"""Readings in one query."""
MEASURING, WAITING = 1 << 4, 1 << 5
TIMING, OVERFLOW = 1 << 2, 1 << 14
# smallest integration times, in power line cycles of 20 ms, and the resolution there relative to the range
RESOLUTION = {
    "34465A": ((1.0, 0.3e-6), (0.2, 0.7e-6), (0.06, 1.5e-6), (0.02, 3e-6), (0.006, 6e-6), (0.002, 15e-6)),
    "34470A": ((1.0, 0.1e-6), (0.2, 0.3e-6), (0.06, 0.5e-6), (0.02, 1e-6), (0.006, 3e-6), (0.002, 10e-6)),
}
RESOLUTION_WORST = 30e-6


@dataclass(frozen=True)
class CaptureSettings:
    """How one multimeter samples. ``range`` is one of ``RANGES``; ``terminals_a`` names those of a current."""

    function: str
    range: float
    period_s: float
    aperture_s: float
    trigger: str
    count: int = COUNT_MOST
    terminals_a: float = 0.0


def setup_lines(settings: CaptureSettings) -> list[str]:
    """The commands for the settings, in the order of the manual: the timer comes after what limits it."""
    node = NODE[settings.function]
    return [
        "*RST;*CLS",
        f"CONF:{node} {settings.range:g}",
        f"{node}:RANG:AUTO OFF",
        f"{node}:APER {settings.aperture_s:.6g}",
        f"{node}:ZERO:AUTO OFF",
        f"TRIG:SOUR {TRIGGERS[settings.trigger]}",
        "TRIG:COUN 1",
        "TRIG:DEL 0",
        f"SAMP:COUN {settings.count}",
        "SAMP:SOUR TIM",
        f"SAMP:TIM {settings.period_s:.6g}",
        "FORM:DATA REAL,64",
    ]


class Truevolt:
    """One multimeter. ``fast`` and ``memory`` are what its options and firmware allow."""

    def __init__(self, session: ScpiSession) -> None:
        self.session = session
        self.identity = session.identity()
        if self.identity.model not in MODELS:
            raise SetupError(
                f"the instrument at {session.address} is a {self.identity.model}, whose sample timer is not supported",
                field="address",
                value=self.identity.model,
                remedy=f"Use a {' or a '.join(MODELS)}",
            )
        options = [option.strip(' "') for option in session.query("*OPT?").split(",")]
        self.options = tuple(option for option in options if option not in ("", "0"))
        self.fast = "DIG" in self.options or _major(self.identity.firmware) >= 3
        self.memory = MEMORY["MEM" in self.options]
        self._range = 0.0

    def configure(self, settings: CaptureSettings) -> CaptureSettings:
        """Set the instrument; the settings as it confirms them.

        Raises ``UsageError`` when it changed the sample timer or the aperture, ``MeterError`` for any other error that
        it reports.
        """
        for line in setup_lines(settings):
            self.session.write(line)
        node = NODE[settings.function]
        query, terminals_a = f"{node}:RANG?;:{node}:APER?;:SAMP:TIM?", 0.0
        if settings.function == "current":
            range_, aperture_s, period_s, terminals_a = self.session.numbers(f"{query};:{node}:TERM?", 4)
            range_ = 10.0 if terminals_a == 10.0 else range_  # RANG? tells of the 3 A terminals only (manual, p. 192)
        else:
            range_, aperture_s, period_s = self.session.numbers(query, 3)
        for what, asked, got in (
            ("aperture_s", settings.aperture_s, aperture_s),
            ("rate_hz", settings.period_s, period_s),
        ):
            if abs(got - asked) > 1e-3 * asked:
                said = "; ".join(self.session.errors()) or "no error"
                raise refused(
                    what,
                    asked,
                    "Leave a microsecond or more between aperture_s and 1/rate_hz, or leave aperture_s out",
                    f"the instrument set {got:g} s where {asked:g} s was requested for {what} ({said})",
                )
        self.session.check("it is set up")
        self._range = range_
        return replace(settings, range=range_, period_s=period_s, aperture_s=aperture_s, terminals_a=terminals_a)

    def arm(self, trigger: str) -> None:
        """Clear the memory and wait until the instrument awaits its trigger; ``immediate`` starts when it is fired."""
        self.session.write("ABOR;*CLS")
        if trigger != "immediate":
            self.session.write("INIT")
            await_state(self.session, "STAT:OPER:COND?", WAITING, WAITING, 5.0)

    def fetch(self) -> tuple[Floats, NDArray[np.uint8], bool]:
        """Readings and overload flags (1: over range) of shape (n,), and whether there may be more.

        Raises ``MeterError`` when the memory overflowed: its readings do not follow those before, so none is returned.
        """
        payload = self.session.block(f"R? {PIECE}")
        self._refuse(int(self.session.numbers("STAT:QUES:EVEN?", 1)[0]))
        if len(payload) % 8:
            raise self._garbage(f"a block of {len(payload)} bytes, which is not a whole number of readings")
        value = np.frombuffer(payload, ">f8").astype(np.float64)
        value[np.abs(value - 9.91e37) < 1e35] = np.nan
        over = np.abs(value) > 9e37
        value[over] = np.copysign(OVER_RANGE * self._range, value[over])
        if np.any(np.abs(value) > 1.3 * self._range):
            worst = float(np.nanmax(np.abs(value)))
            raise self._garbage(f"a reading of {worst:g} on its range {self._range:g}")
        return value, over.astype(np.uint8), len(value) >= PIECE

    def finish(self) -> None:
        """Stop sampling. The memory can still be fetched. Raises ``MeterError`` for errors in the queue."""
        self.session.write("ABOR")
        self.session.check("it measures")

    def resolution(self, settings: CaptureSettings) -> float:
        """The step that the manual gives for this integration time, in the function's unit."""
        table = RESOLUTION[self.identity.model]
        share = next((share for cycles, share in table if settings.aperture_s >= cycles * 20e-3), RESOLUTION_WORST)
        return share * settings.range

    def _refuse(self, questionable: int) -> None:
        if questionable & OVERFLOW:
            raise meter_failed(
                f"the memory of the {self.identity.model} ({self.memory} readings) overflowed. Its oldest readings "
                "are lost, so the times of the later readings are not known",
                "rate_hz",
                questionable,
                "Lower rate_hz, use a faster link, or an instrument with the option MEM",
            )
        if questionable & TIMING:
            what = f"the {self.identity.model} reports a timing violation: its readings are not on its timer's grid"
            raise meter_failed(what, "rate_hz", questionable, "Lower rate_hz or shorten aperture_s")

    def _garbage(self, what: str) -> MeterError:
        message = f"the instrument at {self.session.address} sent {what}"
        remedy = "Check its connection, and that no other program changes its settings"
        return meter_failed(message, "address", self.session.address, remedy)


def begin(meters: Sequence[Truevolt], trigger: str, clock: Clock, wait_s: float) -> Bracket:
    """Arm every meter and trigger it, or await the external trigger; the bracket of that moment, tick 0.

    The bracket begins at the last query at which a meter still awaited its trigger. Raises ``MeterError`` when no
    trigger comes within ``wait_s``.
    """
    for meter in meters:
        meter.arm(trigger)
    before_ns = clock.now_ns()
    give_up_s = time.monotonic() + wait_s
    states = [_state(meter, FIRE[trigger]) for meter in meters]
    while not all(state & MEASURING and not state & WAITING for state in states):
        if time.monotonic() > give_up_s:
            what = f"no trigger reached {', '.join(m.session.address for m in meters)} within {wait_s:g} s"
            remedy = "Check the wire to Ext Trig and its edge, or use trigger=bus"
            raise MeterError(what, field="trigger", value=trigger, remedy=remedy)
        asked_ns = clock.now_ns()
        states = [_state(meter, "STAT:OPER:COND?") for meter in meters]
        if any(state & WAITING for state in states):
            before_ns = asked_ns
    return Bracket(before_ns, 0, clock.now_ns())


@dataclass
class TriggeredTogether:
    """The ``Source``: multimeters on one trigger, each of which fills the rail of its place in ``rails``.

    ``scale`` converts the readings of the first, amperes or volts over ``1 / scale`` ohms, to amperes.
    """

    dmms: tuple[Truevolt, ...]
    trigger: str
    rails: tuple[str, ...]
    scale: float
    wait_s: float
    waiting: list[tuple[Floats, NDArray[np.uint8]]] = field(default_factory=list)

    def begin(self, clock: Clock) -> Bracket:
        self.waiting = [(np.zeros(0), np.zeros(0, np.uint8))] * len(self.dmms)
        return begin(self.dmms, self.trigger, clock, self.wait_s)

    def fetch(self) -> Iterator[Batch]:
        """What every multimeter has delivered by now; the rest waits for the others."""
        more = True
        while more:
            got = [dmm.fetch() for dmm in self.dmms]
            more = any(has_more for _, _, has_more in got)
            parts = [
                (np.concatenate([value, new_value]), np.concatenate([flags, new_flags]))
                for (value, flags), (new_value, new_flags, _) in zip(self.waiting, got, strict=True)
            ]
            n = min(len(value) for value, _ in parts)
            self.waiting = [(value[n:], flags[n:]) for value, flags in parts]
            scales = (self.scale, *[1.0] * (len(parts) - 1))
            yield [
                Chunk(rail, value[:n] * scale, flags=flags[:n])
                for rail, (value, flags), scale in zip(self.rails, parts, scales, strict=True)
            ]

    def finish(self) -> Iterator[Batch]:
        for dmm in self.dmms:
            dmm.finish()
        return self.fetch()

    def close(self) -> None:
        for dmm in self.dmms:
            dmm.session.close()


def range_for(function: str, largest: float) -> float:
    """The smallest range that holds ``largest``. Raises ``UsageError`` when none does."""
    fitting = [r for r in RANGES.get(function, ()) if r >= largest * (1.0 - 1e-9)]
    if not fitting or not largest > 0:
        known = ", ".join(f"{r:g}" for r in RANGES.get(function, ()))
        raise refused("range_max", largest, f"Known: {known}", f"no {function} range holds {largest:g}")
    return fitting[0]


def _state(meter: Truevolt, line: str) -> int:
    return int(meter.session.numbers(line, 1)[0])


def _major(firmware: str) -> int:
    """The major number of the main firmware, ``h.ff.ff-pp.pp-...`` (manual: *IDN?); 0 where it is not stated."""
    parts = firmware.partition("-")[0].split(".")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0
