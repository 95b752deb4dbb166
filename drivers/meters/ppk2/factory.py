"""Nordic Power Profiler Kit II on its serial port: the current of one supply, 100,000 readings a second.

    rig measure --device ... --meter ppk2 --option port=/dev/ttyACM0 --option supply_v=3.0

Readings that were lost are NaN in the trace, never averaged over: those that its counter tells (``ppk2_stream``), and
multiples of 64, which only the times of arrival tell (``ppk2_follow``). What can be neither told nor excluded ends the
run with an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, get_args

from drivers.links.serial_line import METER, open_line, positive
from drivers.meters.ppk2 import link
from drivers.meters.ppk2.meter import Ppk2Meter
from drivers.meters.ppk2.stream import RANGE_MOST_A, RATE_HZ, Modifiers
from drivers.meters.sampled import calibrated, calibration_details
from rig.engine.clock import HostClock
from rig.errors import UsageError
from rig.types import Clock, ClockInfo, Conversion, Meter, MeterInfo, Mode, Pin, Rail

MODES = ("hardware",)

SOURCE_V = (0.8, 5.0)
POWERS = ("on", "off-at-close", "keep")


def open_meter(
    clock: Clock | None = None,
    *,
    port: str = "",
    name: str = "ppk2",
    rail: str = "supply",
    mode: str = "source",
    supply_v: float = 0.0,
    power: str = "on",
    largest_a: float = RANGE_MOST_A[-1],
    mark_channel: str = "",
    pin: str = "level",
    pin_lag_s: float = 0.0,
    clock_tolerance: float = 1e-4,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    hold_s: float = 20.0,
    timeout_s: float = 2.0,
) -> Meter:
    """A PPK2 on a serial ``port``. ``mode`` is ``source`` (it supplies ``supply_v``, 0.8 to 5 V) or ``ampere`` (it lies

    in a supply of ``supply_v``, which must be stated since it measures no voltage; the offset of its calibration and
    the watts both need it). ``power`` says what becomes of its output: switched ``on`` and left on, ``off-at-close``,
    or ``keep`` it as it is. ``largest_a`` is the largest current expected; the step of the range for it is declared as
    the resolution, and readings on a coarser range are flagged as overload. ``mark_channel`` (D0 to D7) is a logic
    input, recorded as a rail of edges of that name; ``pin`` (level, stamp or toggle) is what the device does
    with it, ``pin_lag_s`` how far it may be from what it marks. ``clock_tolerance`` limits the rate of its sample
    timer against the host's clock (relative). ``calibration`` names a calibration file, limits in A; without one no
    accuracy is stated. ``hold_s`` of readings are held unread at most, ``timeout_s`` is how long it may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port that is no PPK2's.
    """
    _check(mode, supply_v, power)
    _check_mark(mark_channel, pin, pin_lag_s)
    positive(clock_tolerance=clock_tolerance, hold_s=hold_s, timeout_s=timeout_s, largest_a=largest_a)
    range_ = _range_of(largest_a)
    line = open_line(port, link.BAUD, METER)
    try:
        modifiers = link.metadata(line, timeout_s)
        if power != "keep":
            link.configure(line, mode, supply_v)
        resolution = max(modifiers.steps_a()[: range_ + 1])
        described = Rail(
            rail, "mean", Conversion("A", supply_v), RATE_HZ, resolution=resolution, gain_id=f"{name}:{rail}"
        )
        own = calibrated(described, calibration, link.serial_number(line), calibration_range, temperature_c)
        rails: tuple[Rail, ...] = (own,)
        if mark_channel:
            does: Pin | None = next((known for known in get_args(Pin) if known == pin), None)
            rails += (Rail(mark_channel, "edges", rate_hz=RATE_HZ, pin=does, pin_lag_s=pin_lag_s),)
        details = {
            "port": port, "mode": mode, "supply_v": supply_v, "power": power, "largest_a": largest_a,
            "mark_channel": mark_channel, "metadata": modifiers.other, "step_a_by_range": modifiers.steps_a(),
            "spike_filter": "none", "lost_readings": "NaN; told by its six-bit counter, and by the times of arrival",
            "calibration": calibration_details(calibration),
        }  # fmt: skip
        info = _info(name, rails, clock_tolerance, hold_s, modifiers, details)
        return Ppk2Meter(line, info, clock or HostClock(), modifiers, range_, timeout_s)
    except BaseException:
        line.close()
        raise


def _range_of(largest_a: float) -> int:
    for k, most_a in enumerate(RANGE_MOST_A):
        if largest_a <= most_a:
            return k
    raise UsageError(
        f"option largest_a is {largest_a:g}: a PPK2 measures up to {RANGE_MOST_A[-1]:g} A",
        field="largest_a",
        value=largest_a,
        remedy=f"Give {RANGE_MOST_A[-1]:g} or less",
    )


def _check(mode: str, supply_v: float, power: str) -> None:
    _one_of("mode", mode, tuple(link.POWER_MODES))
    _one_of("power", power, POWERS)
    low, high = SOURCE_V
    if not low <= supply_v <= high:
        raise UsageError(
            f"option supply_v is {supply_v}: a PPK2 measures no voltage, so it must be stated",
            field="supply_v",
            value=supply_v,
            remedy=f"Give {low} to {high} V",
        )


def _check_mark(channel: str, pin: str, lag_s: float) -> None:
    _one_of("mark_channel", channel, ("", *(f"D{k}" for k in range(8))))
    _one_of("pin", pin, get_args(Pin))
    if not 0.0 <= lag_s < math.inf:
        raise UsageError(
            f"option pin_lag_s is {lag_s}", field="pin_lag_s", value=lag_s, remedy="Give seconds, 0 or more"
        )


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        names = ", ".join(k for k in known if k)
        raise UsageError(f"option {name} is {value!r}", field=name, value=value, remedy=f"Give one of {names}")


def _info(
    name: str, rails: tuple[Rail, ...], tolerance: float, hold_s: float, modifiers: Modifiers, details: dict[str, Any]
) -> MeterInfo:
    simulated = modifiers.other.get("Simulated", "") == "1"
    mode: Mode = "simulator" if simulated else "hardware"
    return MeterInfo(
        name=name,
        mode=mode,
        clock=ClockInfo(name, RATE_HZ, tolerance),
        rails=rails,
        omitted=("every supply but the one that the meter is in",),
        description=f"{'SIMULATED ' if simulated else ''}Nordic PPK2, {details['mode']} mode, {RATE_HZ:g} readings/s",
        buffer_s=hold_s,
        versions={"PPK2 hardware": modifiers.other.get("HW", ""), "pyserial": version("pyserial")},
        details=details,
    )
