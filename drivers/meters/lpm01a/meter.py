"""ST X-NUCLEO-LPM01A (and the STM32L562E-DK's built-in one): PowerShield firmware on a serial port at 3686400 baud.

    rig measure --device mlperf-tiny --option device.port=/dev/ttyACM0 --meter lpm01a --option meter.port=/dev/ttyACM1

It supplies the board that it measures. Sources: UM2269 (firmware), UM2243 (board), the firmware's own ``help``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from drivers.failures import released_on_error
from drivers.links.serial_line import METER, open_line
from drivers.meters.lpm01a.powershield import BAUD, PowerShield, ShieldSettings
from drivers.meters.lpm01a.stream import step_at
from drivers.meters.settings import Instrument
from drivers.meters.threaded import sampled_meter
from rig.bench.settings import Positive, of_settings
from rig.errors import refused
from rig.types import Clock, Conversion, Meter, Rail

MODES = ("hardware",)
FEEDS = True

RANGE_A = 0.05
"""The range of the dynamic mode (UM2243, chapter 10); the instrument's protection acts from 59 mA on."""
ENERGY_MOST_HZ = 1e4
APERTURE_S = 1e-5
"""The aperture of a current, "instantaneous" in ``help``: the analog path has 100 kHz (UM2243, chapter 10)."""
BUFFER_S = 0.2
"""The port is emptied ten times in this time (s). An LPM01A's memory holds more."""


@dataclass(frozen=True)
class Lpm01a:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("lpm01a")
    rail: str = "core"
    shield: ShieldSettings = ShieldSettings()
    port: str = ""
    largest_a: Positive = RANGE_A
    timeout_s: Positive = 3.0
    baud: int = BAUD


@of_settings
def open_meter(settings: Lpm01a, clock: Clock | None = None) -> Meter:
    """Open an LPM01A on a serial ``port``; pyserial opens it (extra ``serial``).

    ``output`` is ``energy`` (each reading is the energy of its whole period; 10 kHz at most) or ``current``
    (instantaneous; 100 kHz at most). ``rate_hz`` is 1, 2 or 5 times a power of ten, 1 Hz to 100 kHz. ``supply_v`` (1.8
    to 3.3) is set if the instrument supplies another voltage; without ``supply_v`` its supply stays. ``largest_a`` is
    the largest current expected; the step between readings at this current is declared as the resolution.
    ``high_current`` chooses ``funcmode high``. ``power`` is ``on``, or ``keep`` to leave the target's switch alone.
    ``clock_tolerance`` limits its sample clock's rate (relative). ``calibration`` names a calibration file in the
    rail's unit (W for energy, A for current).

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no PowerShield or a refusal.
    """
    s, p = settings, settings.shield
    if p.energy and p.rate_hz > ENERGY_MOST_HZ:
        what = f"{p.rate_hz:g} readings/s are too many for energy"
        raise refused("rate_hz", p.rate_hz, f"Give {ENERGY_MOST_HZ:g} or less, or output=current", what)
    line = open_line(s.port, s.baud, METER)
    with released_on_error(line.close):
        shield = PowerShield(line, p, s.rail, s.timeout_s)
        who = shield.introduce()
        held_v = shield.configure()
        rail = _rail(s, held_v, who["serial"])
        info = s.own.info(
            f"ST PowerShield, {p.output}, {p.rate_hz:g} readings/s",
            s.own.limited(rail, who["serial"], one_range=False), simulated=who["serial"].startswith("SIM"),
            omitted=("every supply but the one that the PowerShield feeds",), buffer_s=BUFFER_S,
            versions={f"PowerShield {who['serial']}": who["firmware"], "pyserial": version("pyserial")},
            details={
                "port": line.port, "output": p.output, "funcmode": "high" if p.high_current else "optim",
                "supply": {"volts": held_v, "from": "the instrument's own answer to `volt get`"},
                "stamps": "its own, once a second, good to 1 ms: fewer readings than that may be lost unnoticed",
            },
            serial_number=who["serial"], firmware=who["firmware"],
        )  # fmt: skip
        return sampled_meter(info, shield, clock, s.timeout_s + 1.0)


def _rail(s: Lpm01a, held_v: float, serial: str) -> Rail:
    rate_hz, period_s = s.shield.rate_hz, 1.0 / s.shield.rate_hz
    if s.shield.energy:
        step_w = step_at(s.largest_a * held_v * period_s) * rate_hz
        return Rail(
            s.rail, "mean", Conversion("W"), rate_hz, period_s,
            resolution=step_w, range_max=RANGE_A * held_v, gain_id=serial,
        )  # fmt: skip
    return Rail(
        s.rail, "mean", Conversion("A", held_v), rate_hz, min(APERTURE_S, period_s),
        resolution=step_at(s.largest_a), range_max=RANGE_A, gain_id=serial,
    )  # fmt: skip
