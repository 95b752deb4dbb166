"""Keysight N6705 / N6700 power systems: the external data log (Elog) of one output, as a power meter.

    rig measure --device ... --meter scpi-smu --option address=TCPIP::192.0.2.8::5025::SOCKET --option channel=1

The module that supplies the device (such as an N6781A) logs voltage and current at once, averaged over consecutive
periods without a gap. Only the log is set up: the instrument is not reset, since it may already supply the device.
Commands and facts are from the operating guides of the N6700C (External Data Logging) and N6705C. In each record,
current comes before voltage, in single precision. The buffer stores about 20 s; then the instrument drops the oldest
records and reports no error.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed, released_on_error
from drivers.meters.common_options import Instrument
from drivers.meters.scpi.session import ScpiSession, Visa, identified
from drivers.meters.threaded import Batch, sampled_meter
from rig.bench.settings import Positive, of_settings
from rig.errors import MeterError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, Conversion, Meter, Rail

MODES = ("hardware",)
FEEDS = True

STEP_S = 20.48e-6
LEAST_S = 102.4e-6
"""Shortest period for each logged parameter (s)."""
BUFFER_S = 18.0
"""The time that the buffer stores for certain (s); the guides say about 20 s."""
PIECE = 4096
TRIGGER_WAIT_S, TRIGGER_AGAIN_S = 2.0, 2e-3


BOTH = re.compile(r"N676|N678(?!3)")
"""Modules with one converter for voltage and one for current; other modules log only one (N6705C guide, p. 158)."""
SEAMLESS = ("N6781A", "N6782A", "N6785A", "N6786A")
"""Modules that change range without a gap (same guide). Such changes are off for current, as in Keysight's driver."""


def setup_lines(
    channel: int, columns: Sequence[str], ranges: Sequence[float], period_s: float, module: str
) -> list[str]:
    """Return the commands that set up the log.

    A parameter that is not logged is switched off before the other is switched on, because some modules log only one.
    """
    at = f"(@{channel})"
    lines = ["*CLS", f"ABOR:ELOG {at}", "FORM REAL", "FORM:BORD NORM", "SENS:SWE:TINT:RES RES20"]
    for node in sorted(("CURR", "VOLT"), key=columns.__contains__):
        lines.append(f"SENS:ELOG:FUNC:{node}:MINM OFF,{at}")
        lines.append(f"SENS:ELOG:FUNC:{node} {'ON' if node in columns else 'OFF'},{at}")
    for node, range_ in zip(columns, ranges, strict=True):
        lines += [f"SENS:ELOG:{node}:RANG:AUTO OFF,{at}"] if node == "CURR" and module in SEAMLESS else []
        lines.append(f"SENS:ELOG:{node}:RANG {range_:g},{at}")
    return [*lines, f"SENS:ELOG:PER {period_s:.6g},{at}", f"TRIG:ELOG:SOUR BUS,{at}"]


@dataclass
class Elog:
    """The ``Source``: the log of one output. If voltage is not logged, the readings stay in amperes."""

    session: ScpiSession
    channel: int
    columns: tuple[str, ...]
    rail: str
    fetched_s: float = math.inf

    def begin(self, clock: Clock) -> Bracket:
        """Start the log. A trigger before the log is ready is refused (-211), so the trigger is repeated.

        The error queue is queried in a separate line, because an instrument may ignore the rest of a line after an
        error.
        """
        self.session.write(f"*CLS;:INIT:ELOG (@{self.channel})")
        give_up_s = time.monotonic() + TRIGGER_WAIT_S
        while True:
            before_ns = clock.now_ns()
            self.session.write(f"TRIG:ELOG (@{self.channel})")
            said = self.session.query("SYST:ERR?")
            after_ns = clock.now_ns()
            if float(said.partition(",")[0]) == 0:
                self.fetched_s = time.monotonic()
                return Bracket(before_ns, 0, after_ns)
            if time.monotonic() > give_up_s:
                what = f"the log does not start within {TRIGGER_WAIT_S:g} s: {said}"
                remedy = "Check that the module of this output can log these parameters"
                raise MeterError(what, field="trigger", value=said, remedy=remedy)
            time.sleep(TRIGGER_AGAIN_S)

    def fetch(self) -> Iterator[Batch]:
        """Yield new records. Raises ``MeterError`` if the buffer may have overflowed since the last call."""
        more = True
        while more:
            record = self._records()
            over = np.any(np.abs(record) > 9e36, axis=1)
            value = np.prod(np.where(over[:, None], np.nan, record), axis=1)
            more = len(record) >= PIECE
            yield [Chunk(self.rail, value, flags=over.astype(np.uint8))]

    def finish(self) -> Iterator[Batch]:
        """Yield the rest of the log; then end the log, which clears the buffer."""
        yield from self.fetch()
        self.session.write(f"ABOR:ELOG (@{self.channel})")
        self.session.check("it logs")

    def close(self) -> None:
        self.session.close()

    def _records(self) -> NDArray[np.float64]:
        """Return complete records, shape (n, columns)."""
        payload = self.session.block(f"FETC:ELOG? {PIECE},(@{self.channel})")
        now_s = time.monotonic()
        silent_s, self.fetched_s = now_s - self.fetched_s, now_s
        if silent_s > BUFFER_S:
            what = f"the log was not read for {silent_s:.1f} s, and its buffer holds about 20 s: records were lost"
            raise meter_failed(what, "buffer_s", silent_s, "Use a link that does not stall")
        if len(payload) % (4 * len(self.columns)):
            what = f"the log sent {len(payload)} bytes, not whole records of {len(self.columns)} numbers"
            remedy = "Check that no other program changes what is logged"
            raise meter_failed(what, "address", self.session.address, remedy)
        return np.frombuffer(payload, ">f4").astype(np.float64).reshape(-1, len(self.columns))


connected = partial(identified, model=r"N67\d\d")
"""Yields every N6700 and N6705 on USB or at the addresses."""


@dataclass(frozen=True)
class Smu:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("scpi-smu")
    rail: str = "core"
    visa: Visa = Visa()
    channel: int = 1
    rate_hz: Positive = 1000.0
    range_max: float = 0.1
    voltage_range_max: float = 5.0
    supply_v: float | None = None
    power: Literal["keep", "on"] = "keep"


@of_settings
def open_meter(settings: Smu, clock: Clock | None = None) -> Meter:
    """Open the data log of one output: watts, from voltage and current of each period.

    With ``power=keep`` the output must already be on; ``on`` switches it on, at the voltage that it is set to. With
    ``supply_v`` only the current is logged, twice as fast, and readings are amperes. A module that cannot log both also
    gives amperes: without ``supply_v`` it measures the voltage once, when the meter is opened. ``rate_hz`` is rounded
    to periods of n x 20.48 us. ``range_max`` and ``voltage_range_max`` are the largest readings expected.
    ``clock_tolerance`` limits the relative rate error of the log's clock. ``calibration`` names a calibration file with
    limits in the readings' unit, watts or amperes. ``calibration_range`` is the range in this file, if it has several.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` when no instrument answers.
    """
    s, supply_v = settings, settings.supply_v
    columns = ("CURR", "VOLT") if supply_v is None else ("CURR",)
    period_s = _period_s(s.rate_hz, len(columns))
    session = s.visa.open()
    with released_on_error(session.close):
        identity = session.identity()
        at = f"(@{s.channel})"
        module = session.query(f"SYST:CHAN:MOD? {at}").strip('"')
        if s.power == "on":
            session.write(f"OUTP ON,{at}")
        elif not session.numbers(f"OUTP? {at}", 1)[0]:
            what = f"output {s.channel} of the {identity.model} is off, so what it supplies has no power"
            remedy = "Switch it on at the instrument, or give power=on"
            raise SetupError(what, field="power", value=s.power, remedy=remedy)
        watts = "voltage times current of each period" if supply_v is None else "current times supply_v"
        if supply_v is None and not BOTH.match(module):
            supply_v = session.numbers(f"MEAS:VOLT? {at}", 1)[0]
            columns, watts = ("CURR",), f"current times {supply_v:g} V, which the module measured when it was opened"
        ranges = (s.range_max, s.voltage_range_max)[: len(columns)]
        for line in setup_lines(s.channel, columns, ranges, period_s, module):
            session.write(line)
        query = ";:".join([f"SENS:ELOG:{node}:RANG? {at}" for node in columns])
        *got_ranges, got_s = session.numbers(f"{query};:SENS:ELOG:PER? {at}", len(columns) + 1)
        session.check("its log is set up")
        rail = Rail(
            s.rail, "mean", Conversion("W") if supply_v is None else Conversion("A", supply_v),
            round(1.0 / got_s, 6), got_s, gain_id=f"{identity.serial}:{s.channel}:{got_ranges[0]:g}",
        )  # fmt: skip
        info = s.own.info(
            f"{identity.maker} {identity.model} with {module}, {rail.rate_hz:g} records/s",
            s.own.limited(rail, identity.serial), simulated=identity.simulated,
            omitted=("every supply but this output",), buffer_s=BUFFER_S, **identity.described(),
            details={"channel": s.channel, "module": module, "period_s": got_s,
                     "ranges": dict(zip(columns, got_ranges, strict=True)), "watts": watts},
        )  # fmt: skip
        return sampled_meter(info, Elog(session, s.channel, columns, rail.name), clock, s.visa.timeout_s + 1.0)


def _period_s(rate_hz: float, parameters: int) -> float:
    steps = round(1.0 / rate_hz / STEP_S)
    if steps * STEP_S < LEAST_S * parameters * (1.0 - 1e-9):
        remedy = f"Give {1.0 / (LEAST_S * parameters):.0f} or less; with supply_v only the current is logged"
        what = f"{rate_hz:g} records/s of {parameters} parameters are too many for the log"
        raise refused("rate_hz", rate_hz, remedy, what)
    return steps * STEP_S
