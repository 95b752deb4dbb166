"""ST X-NUCLEO-LPM01A (and the STM32L562E-DK's built-in one): PowerShield firmware on a serial port at 3686400 baud.

    rig measure --device mlperf-tiny --option device.port=/dev/ttyACM0 --meter lpm01a --option meter.port=/dev/ttyACM1

It supplies the board that it measures. Sources: UM2269 (firmware), UM2243 (board), the firmware's own ``help``.
"""

from __future__ import annotations

from importlib.metadata import version

from drivers.cleanup import released_on_error
from drivers.links.serial_line import METER, SerialLine, open_line
from drivers.meters.calibrated import calibrated, calibration_details
from drivers.meters.lpm01a.powershield import BAUD, SUPPLY_V, PowerShield, ShieldSettings
from drivers.meters.lpm01a.stream import step_at
from drivers.meters.sampled import sampled_meter
from rig.bench.options import one_of, positive, within
from rig.errors import refused
from rig.types import Clock, ClockInfo, Conversion, Meter, MeterInfo, Rail

MODES = ("hardware",)
FEEDS = True

TICK_HZ = 1e9
RANGE_A = 0.05
"""The range of the dynamic mode (UM2243, chapter 10); its protection acts from 59 mA on."""
RATES_HZ = (1e5, 5e4, 2e4, 1e4, 5e3, 2e3, 1e3, 5e2, 2e2, 1e2, 5e1, 2e1, 1e1, 5.0, 2.0, 1.0)
ASCII_MOST_HZ, ENERGY_MOST_HZ = 5e3, 1e4
APERTURE_S = 1e-5
"""The aperture of a current, which ``help`` calls instantaneous: the analog path has 100 kHz (UM2243, chapter 10)."""
FORMATS = ("auto", "ascii_dec", "bin_hexa")
BUFFER_S = 0.2
"""The port is emptied ten times as often. An LPM01A holds more."""


def open_meter(
    clock: Clock | None = None,
    *,
    port: str = "",
    name: str = "lpm01a",
    rail: str = "core",
    rate_hz: float = 1000.0,
    output: str = "energy",
    format: str = "auto",
    supply_v: float | None = None,
    largest_a: float = RANGE_A,
    high_current: bool = False,
    power: str = "on",
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    timeout_s: float = 3.0,
    baud: int = BAUD,
) -> Meter:
    """An LPM01A on a serial ``port``; pyserial opens it (extra ``serial``).

    ``output`` is ``energy`` (each reading is the energy of its whole period; 10 kHz at most) or ``current``
    (instantaneous; 100 kHz at most). ``format`` is ``ascii_dec`` (5 kHz at most), ``bin_hexa`` or ``auto``.
    ``rate_hz`` is 1, 2 or 5 times a power of ten, 1 Hz to 100 kHz. ``supply_v`` (1.8 to 3.3) is set where it differs
    from what the instrument supplies; without it that is left as it is. ``largest_a`` is the largest current
    expected; the step between readings there is declared as the resolution. ``high_current`` chooses ``funcmode
    high``. ``power`` is ``on``, or ``keep`` to leave the target's switch alone. ``clock_tolerance`` limits its sample
    clock's rate (relative). ``calibration`` names a calibration file in the rail's unit (W for energy, A for current).

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no PowerShield, or one that refuses them.
    """
    settings = _settings(rate_hz, output, format, supply_v, high_current, power)
    positive(largest_a=largest_a, clock_tolerance=clock_tolerance, timeout_s=timeout_s)
    line = open_line(port, baud, METER)
    with released_on_error(line.close):
        shield = PowerShield(line, settings, rail, timeout_s)
        who = shield.introduce()
        held_v = shield.configure()
        described = _rail(rail, settings, held_v, largest_a, who["serial"])
        described = calibrated(described, calibration, who["serial"], calibration_range, temperature_c, one_range=False)
        simulated = who["serial"].startswith("SIM")
        info = MeterInfo(
            name=name,
            mode="simulator" if simulated else "hardware",
            clock=ClockInfo(name, TICK_HZ, clock_tolerance),
            rails=(described,),
            omitted=("every supply but the one that the PowerShield feeds",),
            description=f"{'SIMULATED ' if simulated else ''}ST PowerShield, {output}, {rate_hz:g} readings/s",
            buffer_s=BUFFER_S,
            versions={f"PowerShield {who['serial']}": who["firmware"], "pyserial": version("pyserial")},
            details=_details(line, settings, held_v, calibration),
            serial_number=who["serial"],
            firmware=who["firmware"],
        )
        return sampled_meter(info, shield, clock, timeout_s + 1.0)


def _settings(rate_hz: float, output: str, form: str, supply_v: float | None, high: bool, power: str) -> ShieldSettings:
    one_of(("energy", "current"), output=output)
    one_of(FORMATS, format=form)
    one_of(("on", "keep"), power=power)
    one_of(RATES_HZ, rate_hz=rate_hz)
    binary = form == "bin_hexa" or (form == "auto" and rate_hz > ASCII_MOST_HZ)
    most_hz = min(RATES_HZ[0] if binary else ASCII_MOST_HZ, ENERGY_MOST_HZ if output == "energy" else RATES_HZ[0])
    if rate_hz > most_hz:
        what = f"{rate_hz:g} readings/s are too many for {output} as {'bin_hexa' if binary else 'ascii_dec'}"
        raise refused("rate_hz", rate_hz, f"Give {most_hz:g} or less, or output=current and format=bin_hexa", what)
    if supply_v is not None:
        within(*SUPPLY_V, "V", supply_v=supply_v)
    return ShieldSettings(rate_hz, output == "energy", binary, supply_v, high, power)


def _rail(name: str, settings: ShieldSettings, held_v: float, largest_a: float, serial: str) -> Rail:
    period_s = 1.0 / settings.rate_hz
    if settings.energy:
        largest_j = largest_a * held_v * period_s
        return Rail(
            name,
            conversion=Conversion("W"),
            rate_hz=settings.rate_hz,
            aperture_s=period_s,
            resolution=step_at(largest_j, settings.binary) * settings.rate_hz,
            range_max=RANGE_A * held_v,
            gain_id=serial,
        )
    return Rail(
        name,
        conversion=Conversion("A", held_v),
        rate_hz=settings.rate_hz,
        aperture_s=min(APERTURE_S, period_s),
        resolution=step_at(largest_a, settings.binary),
        range_max=RANGE_A,
        gain_id=serial,
    )


def _details(line: SerialLine, settings: ShieldSettings, held_v: float, calibration: str | None) -> dict[str, object]:
    return {
        "port": line.port,
        "supply": {"volts": held_v, "from": "the instrument's own answer to `volt get`"},
        "output": "energy" if settings.energy else "current",
        "format": "bin_hexa" if settings.binary else "ascii_dec",
        "funcmode": "high" if settings.high else "optim",
        "stamps": "its own, once a second, good to 1 ms: fewer readings than that may be lost unnoticed",
        "calibration": calibration_details(calibration),
    }
