"""Keysight 34465A / 34470A as a power meter: the current of a supply, or the voltage over a shunt in it.

    rig measure --device ... --meter scpi-dmm --option address=TCPIP::192.0.2.7::5025::SOCKET
        --option rate_hz=50000 --option range_max=0.1 --option supply_v=1.8

Watts need the supply's voltage. ``supply_v`` states it; ``voltage_address`` names a second multimeter on it.
Two multimeters on one external trigger give a rail of amperes and a rail of volts, both raw, and power is their
product reading by reading; otherwise the second one measures the mean voltage when it is opened, and that is recorded.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from drivers.meters.sampled import SampledMeter, calibrated, calibration_details
from drivers.meters.scpi.link import await_state, open_link
from drivers.meters.scpi.truevolt import (
    APERTURE_LEAST_S,
    MEASURING,
    NODE,
    OVER_RANGE,
    TRIGGERS,
    Plan,
    Together,
    Truevolt,
    range_for,
)
from rig.errors import SetupError, UsageError
from rig.types import Clock, ClockInfo, Conversion, Meter, MeterInfo, Rail

MODES = ("hardware",)

TICK_HZ = 1e9
SUPPLY_READINGS, SUPPLY_APERTURE_S, SUPPLY_PERIOD_S = 10, 0.02, 0.021


@dataclass(frozen=True)
class Wishes:
    """The options of ``open_meter`` that say what to measure."""

    name: str
    rail: str
    function: str
    rate_hz: float
    range_max: float
    aperture_s: float | None
    trigger: str
    supply_v: float | None
    burden_ohm: float
    shunt_ohm: float
    voltage_range_max: float
    clock_tolerance: float
    calibration: str | None
    calibration_range: float | None
    temperature_c: float | None
    voltage_calibration: str | None
    voltage_calibration_range: float | None

    @property
    def scale(self) -> float:
        """From the function's unit to the rail's."""
        return 1.0 if self.function == "current" else 1.0 / self.shunt_ohm


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
    """A 34465A or 34470A at a VISA ``address``, its range, aperture and sample timer fixed, autozero off.

    ``function`` is ``current``, or ``voltage`` over a resistor of ``shunt_ohm``. ``range_max`` is the largest
    reading expected, in A or V. ``aperture_s`` is left as long as ``rate_hz`` allows. ``trigger`` is ``bus``,
    ``immediate`` or ``external`` (awaited for ``trigger_wait_s``). ``burden_ohm`` is the resistance between
    supply and device, the meter's own included. ``clock_tolerance`` limits the sample timer's rate (relative).
    ``calibration`` names a calibration file with limits in the rail's unit, for autozero off and this aperture;
    ``calibration_range`` is the range in it, by default the multimeter's. Without a file no accuracy is stated.
    ``voltage_calibration`` and ``voltage_calibration_range`` are the same for a second multimeter on the same trigger,
    whose volts are before ``burden_ohm``, or at the device where that is 0.
    ``timeout_s`` is how long the link may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for an instrument that cannot do it.
    """
    w = Wishes(
        name, rail, function, rate_hz, range_max, aperture_s, trigger, supply_v, burden_ohm, shunt_ohm,
        voltage_range_max, clock_tolerance, calibration, calibration_range, temperature_c,
        voltage_calibration, voltage_calibration_range,
    )  # fmt: skip
    _check(w, bool(voltage_address))
    with ExitStack() as opened:
        addresses = [address, *([voltage_address] if voltage_address else [])]
        dmms: list[Truevolt] = []
        for each in addresses:
            link = open_link(each, visa_library=visa_library, timeout_s=timeout_s)
            opened.callback(link.close)
            dmms.append(Truevolt(link))
        plans = [dmms[0].configure(_plan(w, dmms[0], function, range_max))]
        supply: dict[str, Any] = {"volts": supply_v, "from": "the option supply_v"}
        if len(dmms) == 2 and trigger == "external":
            plans.append(dmms[1].configure(_plan(w, dmms[1], "voltage", voltage_range_max)))
        elif len(dmms) == 2:
            supply = _measured_supply(w, dmms[1])
            dmms.pop().link.close()
        info = _info(w, dmms, plans, supply)
        source = Together(tuple(dmms), trigger, info, w.scale, trigger_wait_s)
        meter = SampledMeter(source, clock, timeout_s + 1.0)
        opened.pop_all()
        return meter


def _check(w: Wishes, second: bool) -> None:
    for name, value, known in (("function", w.function, NODE), ("trigger", w.trigger, TRIGGERS)):
        if value not in known:
            raise UsageError(
                f"option {name} is {value!r}", field=name, value=value, remedy=f"Give {' or '.join(known)}"
            )
    positive = {"rate_hz": w.rate_hz, "range_max": w.range_max, "voltage_range_max": w.voltage_range_max}
    positive |= {n: v for n, v in (("aperture_s", w.aperture_s), ("supply_v", w.supply_v)) if v is not None}
    for name, number in positive.items():
        if not (math.isfinite(number) and number > 0):
            raise UsageError(f"option {name} is {number}", field=name, value=number, remedy="Give a number above zero")
    if w.function == "voltage" and not w.shunt_ohm > 0:
        raise UsageError(
            "a voltage alone is no power",
            field="shunt_ohm",
            value=w.shunt_ohm,
            remedy="Give the resistance that it falls over (shunt_ohm), or measure the current (function=current)",
        )
    if w.supply_v is None and not second:
        raise UsageError(
            "a current is no power without the supply's voltage",
            field="supply_v",
            value=None,
            remedy="Give supply_v, or the address of a second multimeter on the supply (voltage_address)",
        )
    if w.voltage_calibration is not None and not (second and w.trigger == "external"):
        raise UsageError(
            "a calibration of volts is of no use without a second multimeter on the same trigger",
            field="voltage_calibration",
            value=w.voltage_calibration,
            remedy="Give voltage_address and trigger=external, or leave it out",
        )


def _plan(w: Wishes, dmm: Truevolt, function: str, largest: float) -> Plan:
    """The timer's step is 1 us, the aperture's 2 us, and a microsecond is left between them (manual, SAMP:TIM)."""
    least_s = APERTURE_LEAST_S[dmm.fast]
    period_s = round(1.0 / w.rate_hz, 6)
    if period_s < least_s * (1.0 - 1e-9):
        option = "" if dmm.fast else " without the option DIG"
        raise UsageError(
            f"{w.rate_hz:g} readings/s are more than the {dmm.identity.model}{option} takes",
            field="rate_hz",
            value=w.rate_hz,
            remedy=f"Give {1.0 / least_s:.0f} or less",
        )
    longest_s = max(least_s, 2e-6 * math.floor((period_s - 1e-6) / 2e-6 + 1e-6))
    aperture_s = longest_s if w.aperture_s is None else w.aperture_s
    if not least_s * (1.0 - 1e-9) <= aperture_s <= period_s:
        raise UsageError(
            f"an aperture of {aperture_s:g} s does not fit {w.rate_hz:g} readings/s",
            field="aperture_s",
            value=aperture_s,
            remedy=f"Give {least_s:g} to {longest_s:g} s, or leave it out",
        )
    return Plan(function, range_for(function, largest), period_s, aperture_s, w.trigger)


def _measured_supply(w: Wishes, dmm: Truevolt) -> dict[str, Any]:
    """The mean voltage just now, for a supply that does not move. Raises ``SetupError`` for none."""
    range_ = range_for("voltage", w.voltage_range_max)
    dmm.configure(Plan("voltage", range_, SUPPLY_PERIOD_S, SUPPLY_APERTURE_S, "immediate", SUPPLY_READINGS))
    dmm.arm("immediate")
    dmm.link.write("INIT")
    await_state(dmm.link, "STAT:OPER:COND?", MEASURING, 0, SUPPLY_READINGS * SUPPLY_PERIOD_S + 2.0)
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


def _rails(w: Wishes, dmms: list[Truevolt], plans: list[Plan], supply: dict[str, Any]) -> tuple[Rail, ...]:
    """The amperes of the first multimeter, and the volts of a second on the same trigger, raw both."""
    volts = f"{w.rail}-volts" if len(dmms) == 2 else None
    conversion = Conversion("A", None if volts else supply["volts"], w.burden_ohm, volts)
    own = [(w.rail, w.scale, conversion, w.calibration, w.calibration_range)]
    if volts:
        own.append((volts, 1.0, Conversion("V"), w.voltage_calibration, w.voltage_calibration_range))
    rails = []
    for dmm, plan, (name, scale, unit, file, range_) in zip(dmms, plans, own, strict=True):
        rail = Rail(
            name=name,
            rate_hz=round(1.0 / plan.period_s, 6),
            aperture_s=plan.aperture_s,
            conversion=unit,
            resolution=dmm.resolution(plan) * scale,
            range_max=OVER_RANGE * plan.range * scale,
            gain_id=f"{dmm.identity.serial}:{plan.function}:{plan.range:g}",
        )
        chosen = None if file is None else range_ or plan.range * scale
        temperature_c = w.temperature_c if file is not None or not (w.calibration or w.voltage_calibration) else None
        rails.append(calibrated(rail, file, dmm.identity.serial, chosen, temperature_c))
    return tuple(rails)


def _info(w: Wishes, dmms: list[Truevolt], plans: list[Plan], supply: dict[str, Any]) -> MeterInfo:
    rails = _rails(w, dmms, plans, supply)
    simulated = any(dmm.identity.simulated for dmm in dmms)
    who = " and ".join(f"{dmm.identity.maker} {dmm.identity.model}" for dmm in dmms)
    together = "measured reading by reading by the second multimeter, on one trigger; the timers of both run free"
    return MeterInfo(
        name=w.name,
        mode="simulator" if simulated else "hardware",
        clock=ClockInfo(w.name, TICK_HZ, w.clock_tolerance),
        rails=rails,
        omitted=("every supply but the one that the meter is in",),
        description=f"{'SIMULATED ' if simulated else ''}{who}, {rails[0].rate_hz:g} readings/s",
        buffer_s=min(dmm.memory for dmm in dmms) / rails[0].rate_hz,
        versions={f"{d.identity.model} {d.identity.serial}": d.identity.firmware for d in dmms}
        | {"pyvisa": version("pyvisa")},
        details={
            "supply": together if len(dmms) == 2 else supply,
            "shunt_ohm": w.shunt_ohm,
            "calibration": calibration_details(w.calibration),
            "voltage_calibration": calibration_details(w.voltage_calibration),
            "multimeters": [_details(dmm, plan) for dmm, plan in zip(dmms, plans, strict=True)],
        },
        serial_number=", ".join(dmm.identity.serial for dmm in dmms),
        firmware=", ".join(dmm.identity.firmware for dmm in dmms),
    )


def _details(dmm: Truevolt, plan: Plan) -> dict[str, Any]:
    return {
        "address": dmm.link.address,
        "options": list(dmm.options),
        "memory_readings": dmm.memory,
        "function": plan.function,
        "range": plan.range,
        "aperture_s": plan.aperture_s,
        "period_s": plan.period_s,
        "trigger": plan.trigger,
        "autozero": "off",
        "autorange": "off",
    }
