"""Keysight 34465A / 34470A as a power meter: the current from a supply, or the voltage over a shunt in its line.

    rig measure --device ... --meter scpi-dmm --option address=TCPIP::192.0.2.7::5025::SOCKET \\
        --option rate_hz=50000 --option range_max=0.1 --option supply_v=1.8

Range and sample timer are fixed. Commands and facts are from the Keysight Truevolt Series Operating and Service Guide
(SCPI programming reference: SAMPle, TRIGger, R?, DATA, STATus). Readings have no time stamp: by the instrument's own
clock, reading k starts at trigger + TRIG:DEL + k * SAMP:TIM. ``R?`` erases the readings that it returns. If the memory
is full, the instrument drops the oldest readings and reports no error; only Questionable bit 14 is set.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed, released_on_error
from drivers.meters.common_options import Instrument
from drivers.meters.scpi.session import ScpiSession, Visa, identified
from drivers.meters.threaded import Batch, sampled_meter
from rig.bench.settings import Positive, of_settings, within
from rig.errors import MeterError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, Conversion, Floats, Meter, Rail

MODELS = ("34465A", "34470A")
RANGES = {"current": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0), "voltage": (0.1, 1.0, 10.0, 100.0, 1000.0)}
NODE = {"current": "CURR:DC", "voltage": "VOLT:DC"}
OVER_RANGE = 1.2
"""Readings go up to 120 % of the range; a larger value is reported as 9.9E37."""
APERTURE_LEAST_S = {True: 20e-6, False: 300e-6}
"""The shortest aperture (s) with and without the digitizing option (DIG), which is standard since firmware 3.0."""
MEMORY = {True: 2_000_000, False: 50_000}
"""The largest number of stored readings, with and without the option MEM."""
COUNT_MOST = 1_000_000_000
STARTED_S = 5.0
"""The instrument must become ready within this time, and must start within this time after the trigger (s)."""
PIECE = 25_000
"""The number of readings in one query."""
MEASURING, WAITING = 1 << 4, 1 << 5
TIMING, OVERFLOW = 1 << 2, 1 << 14
# smallest integration times, in power line cycles of 20 ms, and the resolution at each, relative to the range
RESOLUTION = {
    "34465A": ((1.0, 0.3e-6), (0.2, 0.7e-6), (0.06, 1.5e-6), (0.02, 3e-6), (0.006, 6e-6), (0.002, 15e-6)),
    "34470A": ((1.0, 0.1e-6), (0.2, 0.3e-6), (0.06, 0.5e-6), (0.02, 1e-6), (0.006, 3e-6), (0.002, 10e-6)),
}
RESOLUTION_WORST = 30e-6
MODES = ("hardware",)
FEEDS = True


@dataclass(frozen=True)
class CaptureSettings:
    """The sampling of one multimeter. ``range`` is one of ``RANGES``; ``terminals_a`` is the rating of the input."""

    function: str
    range: float
    period_s: float
    aperture_s: float
    terminals_a: float = 0.0


def setup_lines(settings: CaptureSettings) -> list[str]:
    """Return the commands for the settings in the manual's order: settings that limit the timer come before it."""
    node = NODE[settings.function]
    return [
        "*RST;*CLS", f"CONF:{node} {settings.range:g}", f"{node}:RANG:AUTO OFF",
        f"{node}:APER {settings.aperture_s:.6g}", f"{node}:ZERO:AUTO OFF", "TRIG:SOUR BUS", "TRIG:COUN 1", "TRIG:DEL 0",
        f"SAMP:COUN {COUNT_MOST}", "SAMP:SOUR TIM", f"SAMP:TIM {settings.period_s:.6g}", "FORM:DATA REAL,64",
    ]  # fmt: skip


class Truevolt:
    """One multimeter, and the ``Source`` of ``rail``. The rail's readings are the multimeter's times ``scale``.

    ``fast`` and ``memory`` are what its options and firmware allow.
    """

    def __init__(self, session: ScpiSession) -> None:
        self.session, self.rail, self.scale = session, "core", 1.0
        self.identity = session.identity()
        if (model := self.identity.model) not in MODELS:
            what = f"the instrument at {session.address} is a {model}, whose sample timer is not supported"
            raise SetupError(what, field="address", value=model, remedy=f"Use a {' or a '.join(MODELS)}")
        options = [option.strip(' "') for option in session.query("*OPT?").split(",")]
        self.options = tuple(option for option in options if option not in ("", "0"))
        self.fast = "DIG" in self.options or _major(self.identity.firmware) >= 3
        self.memory = MEMORY["MEM" in self.options]
        self._range = 0.0

    def configure(self, settings: CaptureSettings) -> CaptureSettings:
        """Set the instrument; return the settings that it confirms.

        Raises ``UsageError`` if the instrument changed the sample timer or the aperture, ``MeterError`` for any other
        error that it reports.
        """
        for line in setup_lines(settings):
            self.session.write(line)
        node = NODE[settings.function]
        query, terminals_a = f"{node}:RANG?;:{node}:APER?;:SAMP:TIM?", 0.0
        if settings.function == "current":
            range_, aperture_s, period_s, terminals_a = self.session.numbers(f"{query};:{node}:TERM?", 4)
            range_ = 10.0 if terminals_a == 10.0 else range_  # RANG? is for the 3 A terminals only (manual, p. 192)
        else:
            range_, aperture_s, period_s = self.session.numbers(query, 3)
        asked = (("aperture_s", settings.aperture_s, aperture_s), ("rate_hz", settings.period_s, period_s))
        for name, asked_s, got_s in asked:
            if abs(got_s - asked_s) > 1e-3 * asked_s:
                said = "; ".join(self.session.errors()) or "no error"
                what = f"the instrument set {got_s:g} s where {asked_s:g} s was requested for {name} ({said})"
                remedy = "Leave a microsecond or more between aperture_s and 1/rate_hz, or leave aperture_s out"
                raise refused(name, asked_s, remedy, what)
        self.session.check("it is set up")
        self._range = range_
        return replace(settings, range=range_, period_s=period_s, aperture_s=aperture_s, terminals_a=terminals_a)

    def begin(self, clock: Clock) -> Bracket:
        """Clear the memory, wait until the instrument is ready, and trigger it. Return the bracket of tick 0."""
        self.session.write("ABOR;*CLS")
        self.session.write("INIT")
        self._reached("STAT:OPER:COND?", WAITING, 0, clock)
        return self._reached("*TRG;:STAT:OPER:COND?", MEASURING, WAITING, clock)

    def fetch(self) -> Iterator[Batch]:
        """Yield the content of the memory in pieces; a reading over the range is flagged."""
        more = True
        while more:
            value, flags, more = self.readings()
            yield [Chunk(self.rail, value * self.scale, flags=flags)]

    def finish(self) -> Iterator[Batch]:
        """Stop sampling; the memory can still be fetched. Raises ``MeterError`` for errors in the queue."""
        self.session.write("ABOR")
        self.session.check("it measures")
        return self.fetch()

    def close(self) -> None:
        self.session.close()

    def readings(self) -> tuple[Floats, NDArray[np.uint8], bool]:
        """Return readings and overload flags (1: over range) of shape (n,), and whether there may be more readings.

        Raises ``MeterError`` if the memory overflowed, because readings are then missing, if the instrument reports a
        timing violation, and for readings that are not on its range.
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
            raise self._garbage(f"a reading of {float(np.nanmax(np.abs(value))):g} on its range {self._range:g}")
        return value, over.astype(np.uint8), len(value) >= PIECE

    def resolution(self, settings: CaptureSettings) -> float:
        """Return the resolution that the manual states for this integration time, in the function's unit."""
        table = RESOLUTION[self.identity.model]
        share = next((share for cycles, share in table if settings.aperture_s >= cycles * 20e-3), RESOLUTION_WORST)
        return share * settings.range

    def _reached(self, line: str, wanted: int, ended: int, clock: Clock) -> Bracket:
        """Send ``line``, and query the state until the bit ``wanted`` is set and ``ended`` is not; return the bracket.

        The bracket begins before the last query that found the instrument still waiting for its trigger.
        """
        began_ns = before_ns = clock.now_ns()
        while True:
            asked_ns = clock.now_ns()
            state = int(self.session.numbers(line, 1)[0])
            if state & wanted and not state & ended:
                return Bracket(before_ns, 0, clock.now_ns())
            before_ns, line = asked_ns if state & WAITING else before_ns, "STAT:OPER:COND?"
            if (clock.now_ns() - began_ns) * 1e-9 > STARTED_S:
                what = f"the instrument at {self.session.address} does not start: its state stays at {state}"
                raise MeterError(what, field="trigger", value=state, remedy="Check that no other program uses it")

    def _refuse(self, questionable: int) -> None:
        if questionable & OVERFLOW:
            what = (
                f"the memory of the {self.identity.model} ({self.memory} readings) overflowed. Its oldest readings "
                "are lost, so the times of the later readings are not known"
            )
            remedy = "Lower rate_hz, use a faster link, or an instrument with the option MEM"
            raise meter_failed(what, "rate_hz", questionable, remedy)
        if questionable & TIMING:
            what = f"the {self.identity.model} reports a timing violation: its readings are not on its timer's grid"
            raise meter_failed(what, "rate_hz", questionable, "Lower rate_hz or shorten aperture_s")

    def _garbage(self, what: str) -> MeterError:
        message = f"the instrument at {self.session.address} sent {what}"
        remedy = "Check its connection, and that no other program changes its settings"
        return meter_failed(message, "address", self.session.address, remedy)


def range_for(function: str, largest: float) -> float:
    """Return the smallest range that includes ``largest``. Raises ``UsageError`` if no range does."""
    fitting = [r for r in RANGES.get(function, ()) if r >= largest * (1.0 - 1e-9)]
    if not fitting or not largest > 0:
        known = ", ".join(f"{r:g}" for r in RANGES.get(function, ()))
        raise refused("range_max", largest, f"Known: {known}", f"no {function} range holds {largest:g}")
    return fitting[0]


def _major(firmware: str) -> int:
    """Return the first number of the main firmware ``h.ff.ff-pp.pp-...`` (manual: *IDN?); 0 if none is stated."""
    parts = firmware.partition("-")[0].split(".")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0


connected = partial(identified, model=r"344(65|70)A")
"""Yields every 34465A and 34470A on USB or at the addresses."""


@dataclass(frozen=True)
class Dmm:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("scpi-dmm")
    rail: str = "core"
    visa: Visa = Visa()
    function: Literal["current", "voltage"] = "current"
    rate_hz: Positive = 1000.0
    range_max: Positive = 0.1
    aperture_s: Positive | None = None
    supply_v: Positive | None = None
    burden_ohm: float = 0.0
    shunt_ohm: Annotated[float, partial(within, 0.0, math.inf)] = 0.0


@of_settings
def open_meter(settings: Dmm, clock: Clock | None = None) -> Meter:
    """Open a 34465A or 34470A at a VISA ``address``, with fixed range, aperture and sample timer, autozero off.

    ``function`` is ``current``, or ``voltage`` over a resistor of ``shunt_ohm``. ``supply_v`` is the voltage of the
    supply. ``range_max`` is the largest reading expected, in A or V. ``aperture_s`` is by default as long as
    ``rate_hz`` allows. ``burden_ohm`` is the resistance between supply and device, including the meter's own.
    ``clock_tolerance`` limits the relative rate error of the sample timer. ``calibration`` names a calibration file
    with limits in the rail's unit, for autozero off and this aperture. ``calibration_range`` is the range in this file,
    by default the multimeter's. Without a file no accuracy is stated. The instrument may be silent for ``timeout_s``.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no instrument or another model.
    """
    s = settings
    if s.function == "voltage" and not s.shunt_ohm > 0:
        remedy = "Give the resistance of the shunt (shunt_ohm), or measure the current (function=current)"
        raise refused("shunt_ohm", s.shunt_ohm, remedy, "power cannot be computed from a voltage alone")
    if s.supply_v is None:
        what = "power cannot be computed from a current without the supply voltage"
        raise refused("supply_v", None, "Add --option supply_v=VOLTS", what)
    session = s.visa.open()
    with released_on_error(session.close):
        dmm = Truevolt(session)
        who, got = dmm.identity, dmm.configure(_capture(dmm, s))
        scale = 1.0 if s.function == "current" else 1.0 / s.shunt_ohm
        rail = Rail(
            s.rail, conversion=Conversion("A", s.supply_v, s.burden_ohm),
            rate_hz=round(1.0 / got.period_s, 6), aperture_s=got.aperture_s, resolution=dmm.resolution(got) * scale,
            range_max=OVER_RANGE * got.range * scale, gain_id=f"{who.serial}:{got.function}:{got.range:g}",
        )  # fmt: skip
        on = f" on its {got.terminals_a:g} A terminals" if got.terminals_a else ""
        info = s.own.info(
            f"{who.maker} {who.model}{on}, {rail.rate_hz:g} readings/s",
            s.own.limited(rail, who.serial, got.range * scale), simulated=who.simulated,
            buffer_s=dmm.memory / rail.rate_hz, **who.described(),
            details={
                "supply_v": s.supply_v, "shunt_ohm": s.shunt_ohm, "address": session.address,
                "options": list(dmm.options), "memory_readings": dmm.memory, "function": got.function,
                "range": got.range, "terminals_a": got.terminals_a, "aperture_s": got.aperture_s,
                "period_s": got.period_s, "autozero": "off", "autorange": "off",
            },
        )  # fmt: skip
        dmm.rail, dmm.scale = rail.name, scale
        return sampled_meter(info, dmm, clock, s.visa.timeout_s + 1.0)


def _capture(dmm: Truevolt, s: Dmm) -> CaptureSettings:
    """Choose timer (step 1 us) and aperture (step 2 us) with 1 us between them (manual, SAMP:TIM)."""
    least_s = APERTURE_LEAST_S[dmm.fast]
    period_s = round(1.0 / s.rate_hz, 6)
    if period_s < least_s * (1.0 - 1e-9):
        option = "" if dmm.fast else " without the option DIG"
        what = f"{s.rate_hz:g} readings/s are too many for the {dmm.identity.model}{option}"
        raise refused("rate_hz", s.rate_hz, f"Give {1.0 / least_s:.0f} or less", what)
    longest_s = max(least_s, 2e-6 * math.floor((period_s - 1e-6) / 2e-6 + 1e-6))
    chosen_s = longest_s if s.aperture_s is None else s.aperture_s
    if not least_s * (1.0 - 1e-9) <= chosen_s <= period_s:
        what = f"an aperture of {chosen_s:g} s does not fit {s.rate_hz:g} readings/s"
        raise refused("aperture_s", chosen_s, f"Give {least_s:g} to {longest_s:g} s, or leave it out", what)
    return CaptureSettings(s.function, range_for(s.function, s.range_max), period_s, chosen_s)
