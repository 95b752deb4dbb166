"""Keysight 34465A / 34470A as a power meter: the current of a supply, or the voltage over a shunt in it.

    rig measure --device ... --meter scpi-dmm --option address=TCPIP::192.0.2.7::5025::SOCKET
        --option rate_hz=50000 --option range_max=0.1 --option supply_v=1.8

Watts need the supply's voltage. ``supply_v`` states it; ``voltage_address`` names a second multimeter that measures it.
Two multimeters on one external trigger give a rail of amperes and a rail of volts, both raw; power is their product
reading by reading. Otherwise the second one measures the mean voltage when it is opened, and that is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import numpy as np

from drivers.meters.calibrated import calibrated, calibration_details
from drivers.meters.sampled import sampled_meter
from drivers.meters.scpi.dmm.truevolt import (
    APERTURE_LEAST_S,
    MEASURING,
    NODE,
    OVER_RANGE,
    TRIGGERS,
    CaptureSettings,
    TriggeredTogether,
    Truevolt,
    range_for,
)
from drivers.meters.scpi.session import await_state, identified, open_session
from rig.bench.connected import Connected
from rig.bench.options import one_of, positive
from rig.errors import SetupError, refused
from rig.types import Clock, ClockInfo, Conversion, Meter, MeterInfo, Rail

MODES = ("hardware",)
FEEDS = True

TICK_HZ = 1e9
SUPPLY_READINGS, SUPPLY_APERTURE_S, SUPPLY_PERIOD_S = 10, 0.02, 0.021
TOGETHER = "measured reading by reading by the second multimeter, on one trigger; the timers of both run free"


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Every 34465A and 34470A on USB or at the addresses."""
    yield from identified(addresses, r"344(65|70)A")


def open_meter(
    clock: Clock | None = None,
    *,
    address: str = "",
    name: str = "scpi-dmm",
    rail: str = "core",
    function: str = "current",
    rate_hz: float = 1000.0,
    range_max: float = 0.1,
    aperture_s: float | None = None,
    trigger: str = "bus",
    trigger_wait_s: float = 10.0,
    supply_v: float | None = None,
    burden_ohm: float = 0.0,
    shunt_ohm: float = 0.0,
    voltage_address: str = "",
    voltage_range_max: float = 10.0,
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    voltage_calibration: str | None = None,
    voltage_calibration_range: float | None = None,
    visa_library: str = "@py",
    timeout_s: float = 4.0,
) -> Meter:
    """A 34465A or 34470A at a VISA ``address``, with fixed range, aperture and sample timer, autozero off.

    ``function`` is ``current``, or ``voltage`` over a resistor of ``shunt_ohm``. ``range_max`` is the largest
    reading expected, in A or V. ``aperture_s`` is by default as long as ``rate_hz`` allows. ``trigger`` is ``bus``,
    ``immediate`` or ``external`` (awaited for ``trigger_wait_s``). ``burden_ohm`` is the resistance between
    supply and device, the meter's own included. ``clock_tolerance`` limits the sample timer's rate (relative).
    ``calibration`` names a calibration file with limits in the rail's unit, for autozero off and this aperture;
    ``calibration_range`` is the range in it, by default the multimeter's. Without a file no accuracy is stated.
    ``voltage_calibration`` and ``voltage_calibration_range`` are the same for a second multimeter on the same trigger.
    Its volts are before ``burden_ohm``, or at the device where that is 0.
    ``timeout_s`` is how long the instrument may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for an instrument that cannot do it.
    """
    one_of(NODE, function=function)
    one_of(TRIGGERS, trigger=trigger)
    positive(rate_hz=rate_hz, range_max=range_max, voltage_range_max=voltage_range_max)
    positive(aperture_s=aperture_s, supply_v=supply_v)
    together = bool(voltage_address) and trigger == "external"
    _check_voltages(function, shunt_ohm, supply_v, voltage_address, None if together else voltage_calibration)
    with ExitStack() as opened:
        dmms = []
        for each in [address, *([voltage_address] if voltage_address else [])]:
            session = open_session(each, visa_library=visa_library, timeout_s=timeout_s)
            opened.callback(session.close)
            dmms.append(Truevolt(session))
        wanted = _settings(dmms[0], function, range_max, rate_hz, aperture_s, trigger)
        settings = [dmms[0].configure(wanted)]
        supply: dict[str, Any] = {"volts": supply_v, "from": "the option supply_v"}
        if together:
            wanted = _settings(dmms[1], "voltage", voltage_range_max, rate_hz, aperture_s, trigger)
            settings.append(dmms[1].configure(wanted))
        elif voltage_address:
            supply = _measured_supply(dmms[1], voltage_range_max)
            dmms.pop().session.close()
        scale = 1.0 if function == "current" else 1.0 / shunt_ohm
        volts = f"{rail}-volts" if together else None
        conversion = Conversion("A", None if volts else supply["volts"], burden_ohm, volts)
        files = ((calibration, calibration_range), (voltage_calibration, voltage_calibration_range))
        limits = [(*file, temperature_c if file[0] or not any(path for path, _ in files) else None) for file in files]
        rails = [_rail(dmms[0], settings[0], rail, conversion, scale, *limits[0])]
        if volts:
            rails.append(_rail(dmms[1], settings[1], volts, Conversion("V"), 1.0, *limits[1]))
        details = {
            "supply": TOGETHER if together else supply,
            "shunt_ohm": shunt_ohm,
            "calibration": calibration_details(calibration),
            "voltage_calibration": calibration_details(voltage_calibration),
            "multimeters": [_details(dmm, own) for dmm, own in zip(dmms, settings, strict=True)],
        }
        info = _info(ClockInfo(name, TICK_HZ, clock_tolerance), dmms, rails, details)
        source = TriggeredTogether(tuple(dmms), trigger, tuple(own.name for own in rails), scale, trigger_wait_s)
        meter = sampled_meter(info, source, clock, timeout_s + 1.0)
        opened.pop_all()
        return meter


def _check_voltages(
    function: str, shunt_ohm: float, supply_v: float | None, voltage_address: str, unused_calibration: str | None
) -> None:
    if function == "voltage" and not shunt_ohm > 0:
        remedy = "Give the resistance of the shunt (shunt_ohm), or measure the current (function=current)"
        raise refused("shunt_ohm", shunt_ohm, remedy, "power cannot be computed from a voltage alone")
    if supply_v is None and not voltage_address:
        remedy = "Give supply_v, or the address of a second multimeter on the supply (voltage_address)"
        raise refused("supply_v", None, remedy, "power cannot be computed from a current without the supply voltage")
    if unused_calibration is not None:
        remedy = "Give voltage_address and trigger=external, or leave voltage_calibration out"
        what = "a calibration of volts needs a second multimeter on the same trigger"
        raise refused("voltage_calibration", unused_calibration, remedy, what)


def _settings(
    dmm: Truevolt, function: str, largest: float, rate_hz: float, aperture_s: float | None, trigger: str
) -> CaptureSettings:
    """The timer's step is 1 us, the aperture's 2 us, and a microsecond is left between them (manual, SAMP:TIM)."""
    least_s = APERTURE_LEAST_S[dmm.fast]
    period_s = round(1.0 / rate_hz, 6)
    if period_s < least_s * (1.0 - 1e-9):
        option = "" if dmm.fast else " without the option DIG"
        what = f"{rate_hz:g} readings/s are too many for the {dmm.identity.model}{option}"
        raise refused("rate_hz", rate_hz, f"Give {1.0 / least_s:.0f} or less", what)
    longest_s = max(least_s, 2e-6 * math.floor((period_s - 1e-6) / 2e-6 + 1e-6))
    chosen_s = longest_s if aperture_s is None else aperture_s
    if not least_s * (1.0 - 1e-9) <= chosen_s <= period_s:
        what = f"an aperture of {chosen_s:g} s does not fit {rate_hz:g} readings/s"
        raise refused("aperture_s", chosen_s, f"Give {least_s:g} to {longest_s:g} s, or leave it out", what)
    return CaptureSettings(function, range_for(function, largest), period_s, chosen_s, trigger)


def _measured_supply(dmm: Truevolt, range_max: float) -> dict[str, Any]:
    """The present mean voltage of a constant supply. Raises ``SetupError`` where there is none."""
    range_ = range_for("voltage", range_max)
    dmm.configure(CaptureSettings("voltage", range_, SUPPLY_PERIOD_S, SUPPLY_APERTURE_S, "immediate", SUPPLY_READINGS))
    dmm.arm("immediate")
    dmm.session.write("INIT")
    await_state(dmm.session, "STAT:OPER:COND?", MEASURING, 0, SUPPLY_READINGS * SUPPLY_PERIOD_S + 2.0)
    value, over, _ = dmm.fetch()
    if len(value) < SUPPLY_READINGS or np.any(over) or not np.mean(value) > 0:
        raise SetupError(
            f"the {dmm.identity.model} on the supply reads {value.tolist()} V",
            field="voltage_address",
            value=float(np.mean(value)) if len(value) else None,
            remedy="Check its wires and voltage_range_max, and that the supply is on",
        )
    return {
        "volts": float(np.mean(value)),
        "deviation": float(np.std(value, ddof=1)),
        "readings": len(value),
        "from": f"{dmm.identity.model} {dmm.identity.serial}, mean before the run",
    }


def _rail(
    dmm: Truevolt,
    settings: CaptureSettings,
    name: str,
    conversion: Conversion,
    scale: float,
    calibration: str | None,
    calibration_range: float | None,
    temperature_c: float | None,
) -> Rail:
    """One multimeter's readings, times ``scale``."""
    range_ = settings.range * scale
    rail = Rail(
        name=name,
        rate_hz=round(1.0 / settings.period_s, 6),
        aperture_s=settings.aperture_s,
        conversion=conversion,
        resolution=dmm.resolution(settings) * scale,
        range_max=OVER_RANGE * settings.range * scale,
        gain_id=f"{dmm.identity.serial}:{settings.function}:{settings.range:g}",
    )
    chosen = None if calibration is None else calibration_range or range_
    return calibrated(rail, calibration, dmm.identity.serial, chosen, temperature_c)


def _info(clock: ClockInfo, dmms: list[Truevolt], rails: list[Rail], details: dict[str, Any]) -> MeterInfo:
    simulated = any(dmm.identity.simulated for dmm in dmms)
    who = " and ".join(f"{dmm.identity.maker} {dmm.identity.model}" for dmm in dmms)
    return MeterInfo(
        name=clock.name,
        mode="simulator" if simulated else "hardware",
        clock=clock,
        rails=tuple(rails),
        omitted=("every supply but the one that the meter is in",),
        description=f"{'SIMULATED ' if simulated else ''}{who}{_terminals(details)}, {rails[0].rate_hz:g} readings/s",
        buffer_s=min(dmm.memory for dmm in dmms) / rails[0].rate_hz,
        versions={f"{d.identity.model} {d.identity.serial}": d.identity.firmware for d in dmms}
        | {"pyvisa": version("pyvisa")},
        details=details,
        serial_number=", ".join(dmm.identity.serial for dmm in dmms),
        firmware=", ".join(dmm.identity.firmware for dmm in dmms),
    )


def _terminals(details: dict[str, Any]) -> str:
    terminals_a = details["multimeters"][0]["terminals_a"]
    return f" on its {terminals_a:g} A terminals" if terminals_a else ""


def _details(dmm: Truevolt, settings: CaptureSettings) -> dict[str, Any]:
    return {
        "address": dmm.session.address,
        "options": list(dmm.options),
        "memory_readings": dmm.memory,
        "function": settings.function,
        "range": settings.range,
        "terminals_a": settings.terminals_a,
        "aperture_s": settings.aperture_s,
        "period_s": settings.period_s,
        "trigger": settings.trigger,
        "autozero": "off",
        "autorange": "off",
    }
