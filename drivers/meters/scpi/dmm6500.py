"""Keithley DMM6500 over SCPI: its current digitizer, read from the reading buffer while the buffer fills.

    rig measure --device ... --meter dmm6500 --option address=TCPIP::192.0.2.9::5025::SOCKET --option supply_v=1.8

Commands and facts are from its reference manual (DMM6500-901-01): TRIGger:BLOCk:MDIGitize, TRACe:DATA?, FORMat:DATA,
SENSe:DIGitize. Readings are numbered in the buffer, and reading k begins k sample intervals after the first. A full
buffer takes no more readings, so the run then ends. This driver was never tested with an instrument.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from drivers.failures import meter_failed, released_on_error
from drivers.meters.common_options import Instrument
from drivers.meters.scpi.session import ScpiSession, Visa, identified
from drivers.meters.threaded import Batch, sampled_meter
from rig.bench.settings import Positive, of_settings, within
from rig.errors import SetupError, refused
from rig.types import Bracket, Chunk, Clock, Conversion, Meter, Rail

MODES = ("hardware",)
FEEDS = True

RATE_HZ = (1e3, 1e6)
BUFFER = '"defbuffer1"'
READINGS_MOST, PIECE = 7_000_000, 25_000
STEPS = 65_536
"""The number of digitizer steps: 16 bits (data sheet) cover 120 % of the range in both directions."""


def setup_lines(rate_hz: float, range_max: float, readings: int) -> list[str]:
    """Return the commands that set up a series of readings.

    The rate is set before the aperture, which becomes as long as the rate allows.
    """
    return [
        "*RST", "*CLS", 'DIG:FUNC "CURR"', f"DIG:CURR:RANG {range_max:g}", f"DIG:CURR:SRAT {rate_hz:g}",
        "DIG:CURR:APER AUTO", 'TRAC:POIN 10,"defbuffer2"', f"TRAC:POIN {readings},{BUFFER}",
        f"TRAC:FILL:MODE ONCE,{BUFFER}", 'TRIG:LOAD "Empty"', f"TRIG:BLOC:MDIG 1,{BUFFER},{readings}",
        "FORM REAL", "FORM:BORD NORM",
    ]  # fmt: skip


@dataclass
class Digitizer:
    """The ``Source``: the buffer of one series, read by index."""

    session: ScpiSession
    rail: str
    readings: int
    taken: int = 0

    def begin(self, clock: Clock) -> Bracket:
        """Clear the buffer and start; the series has begun when the next query is answered."""
        self.session.write(f"TRAC:CLE {BUFFER}")
        self.taken, before_ns = 0, clock.now_ns()
        self.session.write("INIT")
        state = self.session.query("TRIG:STAT?")
        after_ns = clock.now_ns()
        if not state.upper().startswith(("RUNNING", "WAITING")):
            self.session.check("it starts")
            raise meter_failed(f"the DMM6500 does not start: {state}", "trigger", state, "Look at its event log")
        return Bracket(before_ns, 0, after_ns)

    def fetch(self) -> Iterator[Batch]:
        """Yield new readings. Raises ``MeterError`` when the buffer is full, because it then takes no more readings."""
        yield from self._held()
        if self.taken >= self.readings:
            what = f"the buffer of the DMM6500 is full after {self.taken} readings"
            raise meter_failed(what, "readings", self.taken, f"Lower rate_hz, or give readings={READINGS_MOST}")

    def finish(self) -> Iterator[Batch]:
        self.session.write("ABOR")
        yield from self._held()
        self.session.check("it measures")

    def close(self) -> None:
        self.session.close()

    def _held(self) -> Iterator[Batch]:
        end = int(self.session.numbers(f"TRAC:ACT:END? {BUFFER}", 1)[0])
        while self.taken < end:
            last = min(end, self.taken + PIECE)
            line = f"TRAC:DATA? {self.taken + 1},{last},{BUFFER},READ"
            value = np.frombuffer(self.session.block(line, 8 * (last - self.taken)), ">f8").astype(np.float64)
            over = np.abs(value) > 9e37
            self.taken = last
            yield [Chunk(self.rail, np.where(over, np.nan, value), flags=over.astype(np.uint8))]


connected = partial(identified, model=r"DMM6500")
"""Yields every DMM6500 on USB or at the addresses."""


@dataclass(frozen=True)
class Dmm6500:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("dmm6500")
    rail: str = "core"
    visa: Visa = Visa()
    rate_hz: Annotated[float, partial(within, *RATE_HZ, "Hz")] = 10_000.0
    range_max: Positive = 0.1
    supply_v: Positive | None = None
    burden_ohm: float = 0.0
    readings: Annotated[int, partial(within, 1, READINGS_MOST)] = 1_000_000


@of_settings
def open_meter(settings: Dmm6500, clock: Clock | None = None) -> Meter:
    """Open a DMM6500 in series with a supply of ``supply_v``, digitizing the current at ``rate_hz`` (1 kHz to 1 MHz).

    ``range_max`` is the largest current expected; above 3 A the instrument needs the rear terminals. The run ends with
    an error after ``readings`` readings. The other options are the same as in ``scpi-dmm``.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for another instrument.
    """
    s = settings
    if s.supply_v is None:
        what = "a current gives no power without the supply voltage"
        raise refused("supply_v", None, "Add --option supply_v=VOLTS", what)
    session = s.visa.open()
    with released_on_error(session.close):
        who, language = session.identity(), session.query("*LANG?")
        if "DMM6500" not in who.model or language != "SCPI":
            what = f"the instrument at {session.address} is a {who.model} with the command language {language}"
            raise SetupError(what, field="address", value=who.model, remedy="Use a DMM6500; send it *LANG SCPI once")
        for line in setup_lines(s.rate_hz, s.range_max, s.readings):
            session.write(line)
        terminals = session.query("ROUT:TERM?")
        range_, hz = session.numbers("DIG:CURR:RANG?;:DIG:CURR:SRAT?", 2)
        session.check("it is set up")
        rail = Rail(
            s.rail, conversion=Conversion("A", s.supply_v, s.burden_ohm), rate_hz=hz, aperture_s=1.0 / hz,
            resolution=2.4 * range_ / STEPS, range_max=1.2 * range_, gain_id=f"{who.serial}:{range_:g}",
        )  # fmt: skip
        info = s.own.info(
            f"{who.maker} {who.model}, {terminals} terminals, {hz:g} readings/s",
            s.own.limited(rail, who.serial, range_), buffer_s=s.readings / hz, **who.described(),
            details={"range": range_, "terminals": terminals},
        )  # fmt: skip
        return sampled_meter(info, Digitizer(session, rail.name, s.readings), clock, s.visa.timeout_s + 1.0)
