"""Keysight 34465A and 34470A over SCPI: set up for a fixed range and sample timer, triggered, drained.

Commands and facts are from the Keysight Truevolt Series Operating and Service Guide (SCPI programming
reference: SAMPle, TRIGger, R?, DATA, STATus). Readings carry no time stamp: reading k starts at
trigger + TRIG:DEL + k * SAMP:TIM, by the instrument's own clock. ``R?`` erases what it returns, and a full
memory drops its oldest readings without an error: only Questionable bit 14 tells.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drivers.meters.sampled import Fetched, drained
from drivers.meters.scpi.link import KEPT, Link, await_state
from rig.errors import MeterError, SetupError, UsageError
from rig.types import Bracket, Clock, Floats, MeterInfo

MODELS = ("34465A", "34470A")
RANGES = {"current": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0), "voltage": (0.1, 1.0, 10.0, 100.0, 1000.0)}
NODE = {"current": "CURR:DC", "voltage": "VOLT:DC"}
TRIGGERS = {"bus": "BUS", "external": "EXT", "immediate": "IMM"}
FIRE = {"bus": "*TRG;:STAT:OPER:COND?", "external": "STAT:OPER:COND?", "immediate": "INIT;:STAT:OPER:COND?"}
OVER_RANGE = 1.2
"""Readings go to 120 % of the range; past it they are 9.9E37."""
APERTURE_LEAST_S = {True: 20e-6, False: 300e-6}
"""With and without the digitizing option (DIG), which is standard from firmware 3.0 on."""
MEMORY = {True: 2_000_000, False: 50_000}
"""Readings, with and without the option MEM."""
COUNT_MOST = 1_000_000_000
PIECE = 25_000
"""Readings asked for at once."""
MEASURING, WAITING = 1 << 4, 1 << 5
TIMING, OVERFLOW = 1 << 2, 1 << 14
# smallest integration times, in power line cycles of 20 ms, and the resolution there relative to the range
RESOLUTION = {
    "34465A": ((1.0, 0.3e-6), (0.2, 0.7e-6), (0.06, 1.5e-6), (0.02, 3e-6), (0.006, 6e-6), (0.002, 15e-6)),
    "34470A": ((1.0, 0.1e-6), (0.2, 0.3e-6), (0.06, 0.5e-6), (0.02, 1e-6), (0.006, 3e-6), (0.002, 10e-6)),
}
RESOLUTION_WORST = 30e-6


@dataclass(frozen=True)
class Plan:
    """What one multimeter is to do. ``range`` is one of ``RANGES``; times in seconds."""

    function: str
    range: float
    period_s: float
    aperture_s: float
    trigger: str
    count: int = COUNT_MOST


def setup_lines(plan: Plan) -> list[str]:
    """The commands that set a plan, in the order that the manual asks for: the timer after what it depends on."""
    node = NODE[plan.function]
    return [
        "*RST;*CLS",
        f"CONF:{node} {plan.range:g}",
        f"{node}:RANG:AUTO OFF",
        f"{node}:APER {plan.aperture_s:.6g}",
        f"{node}:ZERO:AUTO OFF",
        f"TRIG:SOUR {TRIGGERS[plan.trigger]}",
        "TRIG:COUN 1",
        "TRIG:DEL 0",
        f"SAMP:COUN {plan.count}",
        "SAMP:SOUR TIM",
        f"SAMP:TIM {plan.period_s:.6g}",
        "FORM:DATA REAL,64",
    ]


class Truevolt:
    """One multimeter. ``fast`` and ``memory`` are what its options and firmware allow."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.identity = link.identity()
        if self.identity.model not in MODELS:
            raise SetupError(
                f"the instrument at {link.address} is a {self.identity.model}, which has no sample timer that we know",
                field="address",
                value=self.identity.model,
                remedy=f"Use a {' or a '.join(MODELS)}",
            )
        options = [option.strip(' "') for option in link.query("*OPT?").split(",")]
        self.options = tuple(option for option in options if option not in ("", "0"))
        self.fast = "DIG" in self.options or _major(self.identity.firmware) >= 3
        self.memory = MEMORY["MEM" in self.options]
        self._range = 0.0

    def configure(self, plan: Plan) -> Plan:
        """Set the plan and read back what the instrument made of it.

        Raises ``UsageError`` when it changed the sample timer or the aperture, ``MeterError`` for what it
        objects to otherwise.
        """
        for line in setup_lines(plan):
            self.link.write(line)
        node = NODE[plan.function]
        range_, aperture_s, period_s = self.link.numbers(f"{node}:RANG?;:{node}:APER?;:SAMP:TIM?", 3)
        for what, asked, got in (("aperture_s", plan.aperture_s, aperture_s), ("rate_hz", plan.period_s, period_s)):
            if abs(got - asked) > 1e-3 * asked:
                said = "; ".join(self.link.errors()) or "no error"
                raise UsageError(
                    f"the instrument set {got:g} s where {asked:g} s was asked for {what} ({said})",
                    field=what,
                    value=asked,
                    remedy="Leave a microsecond or more between aperture_s and 1/rate_hz, or leave aperture_s out",
                )
        self.link.check("it is set up")
        self._range = range_
        return Plan(plan.function, range_, period_s, aperture_s, plan.trigger, plan.count)

    def arm(self, trigger: str) -> None:
        """Clear what was and wait until the instrument waits; ``immediate`` starts only when it is fired."""
        self.link.write("ABOR;*CLS")
        if trigger != "immediate":
            self.link.write("INIT")
            await_state(self.link, "STAT:OPER:COND?", WAITING, WAITING, 5.0)

    def fetch(self) -> tuple[Floats, NDArray[np.uint8], bool]:
        """Readings, overload flags (1 where it was over range), and whether there may be more.

        Raises ``MeterError`` when the memory overflowed: the readings that stand in it do not follow on
        those before, so none of them is returned.
        """
        payload = self.link.block(f"R? {PIECE}")
        self._refuse(int(self.link.numbers("STAT:QUES:EVEN?", 1)[0]))
        if len(payload) % 8:
            raise self._garbage(f"a block of {len(payload)} bytes, which is no whole number of readings")
        value = np.frombuffer(payload, ">f8").astype(np.float64)
        value[np.abs(value - 9.91e37) < 1e35] = np.nan
        over = np.abs(value) > 9e37
        value[over] = np.copysign(OVER_RANGE * self._range, value[over])
        if np.any(np.abs(value) > 1.3 * self._range):
            worst = float(np.nanmax(np.abs(value)))
            raise self._garbage(f"a reading of {worst:g} on its range {self._range:g}")
        return value, over.astype(np.uint8), len(value) >= PIECE

    def finish(self) -> None:
        """Stop sampling; what the memory holds can still be fetched. Raises for errors that queued up."""
        self.link.write("ABOR")
        self.link.check("it measures")

    def resolution(self, plan: Plan) -> float:
        """The step that the manual gives for this integration time, in the function's unit."""
        table = RESOLUTION[self.identity.model]
        share = next((share for cycles, share in table if plan.aperture_s >= cycles * 20e-3), RESOLUTION_WORST)
        return share * plan.range

    def _refuse(self, questionable: int) -> None:
        if questionable & OVERFLOW:
            raise MeterError(
                f"the memory of the {self.identity.model} ({self.memory} readings) overflowed: its oldest readings "
                "are lost, so those after them cannot be placed in time",
                field="rate_hz",
                value=questionable,
                remedy=f"Lower rate_hz, use a faster link, or an instrument with the option MEM. {KEPT}",
            )
        if questionable & TIMING:
            raise MeterError(
                f"the {self.identity.model} reports a timing violation: its readings are not on its timer's grid",
                field="rate_hz",
                value=questionable,
                remedy=f"Lower rate_hz or shorten aperture_s. {KEPT}",
            )

    def _garbage(self, what: str) -> MeterError:
        return MeterError(
            f"the instrument at {self.link.address} sent {what}",
            field="address",
            value=self.link.address,
            remedy=f"Its link is not sound, or somebody else changes its settings. {KEPT}",
        )


def begin(meters: Sequence[Truevolt], trigger: str, clock: Clock, wait_s: float) -> Bracket:
    """Arm every meter, trigger (or await the external trigger), and bracket the moment: tick 0.

    A meter that still waits when it is asked has its trigger yet to come, so the bracket begins there.
    Raises ``MeterError`` when nothing triggers within ``wait_s``.
    """
    for meter in meters:
        meter.arm(trigger)
    before_ns = clock.now_ns()
    give_up_s = time.monotonic() + wait_s
    states = [_state(meter, FIRE[trigger]) for meter in meters]
    while not all(state & MEASURING and not state & WAITING for state in states):
        if time.monotonic() > give_up_s:
            raise MeterError(
                f"no trigger reached {', '.join(m.link.address for m in meters)} within {wait_s:g} s",
                field="trigger",
                value=trigger,
                remedy="Check the wire to Ext Trig and its edge, or use trigger=bus",
            )
        asked_ns = clock.now_ns()
        states = [_state(meter, "STAT:OPER:COND?") for meter in meters]
        if any(state & WAITING for state in states):
            before_ns = asked_ns
    return Bracket(before_ns, 0, clock.now_ns())


@dataclass
class Together:
    """Multimeters on one trigger as a source: each fills the rail of its place in ``info``.

    One multimeter is the ordinary case; its readings are what it read (amperes, or volts over ``1 / scale`` ohms). A
    second one gives the volts of the supply, as it read them.
    """

    dmms: tuple[Truevolt, ...]
    trigger: str
    info: MeterInfo
    scale: float
    wait_s: float
    waiting: list[tuple[Floats, NDArray[np.uint8]]] = field(default_factory=list)

    def describe(self) -> MeterInfo:
        """What was set."""
        return self.info

    def begin(self, clock: Clock) -> Bracket:
        """Arm all, then trigger or await the trigger."""
        self.waiting = [(np.zeros(0), np.zeros(0, np.uint8))] * len(self.dmms)
        return begin(self.dmms, self.trigger, clock, self.wait_s)

    def fetch(self) -> Fetched:
        """What every multimeter has delivered by now; the rest waits."""
        more = False
        parts = []
        for dmm, (value, flags) in zip(self.dmms, self.waiting, strict=True):
            new_value, new_flags, has_more = dmm.fetch()
            parts.append((np.concatenate([value, new_value]), np.concatenate([flags, new_flags])))
            more |= has_more
        n = min(len(value) for value, _ in parts)
        self.waiting = [(value[n:], flags[n:]) for value, flags in parts]
        names = [rail.name for rail in self.info.rails]
        scales = (self.scale, *[1.0] * (len(parts) - 1))
        taken = {name: part[:n] * k for name, (part, _), k in zip(names, parts, scales, strict=True)}
        return Fetched(taken, {name: flags[:n] for name, (_, flags) in zip(names, parts, strict=True)}, more)

    def finish(self) -> list[Fetched]:
        """Stop sampling; the memories keep what they hold."""
        for dmm in self.dmms:
            dmm.finish()
        return list(drained(self))

    def close(self) -> None:
        """Let go."""
        for dmm in self.dmms:
            dmm.link.close()


def range_for(function: str, largest: float) -> float:
    """The smallest range that holds ``largest``. Raises ``UsageError`` when none does."""
    fitting = [r for r in RANGES.get(function, ()) if r >= largest * (1.0 - 1e-9)]
    if not fitting or not largest > 0:
        known = ", ".join(f"{r:g}" for r in RANGES.get(function, ()))
        raise UsageError(
            f"no {function} range holds {largest:g}", field="range_max", value=largest, remedy=f"Known: {known}"
        )
    return fitting[0]


def _state(meter: Truevolt, line: str) -> int:
    return int(meter.link.numbers(line, 1)[0])


def _major(firmware: str) -> int:
    """The main firmware's major number of ``h.ff.ff-pp.pp-...`` (manual: *IDN?); 0 when it is not to be seen."""
    parts = firmware.partition("-")[0].split(".")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0
