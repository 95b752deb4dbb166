"""Nordic Power Profiler Kit II on its serial port: the current of one supply, 100,000 readings a second.

    rig measure --device ... --meter ppk2 --option port=/dev/ttyACM0 --option supply_v=3.0

Readings that were lost are NaN in the trace: those that its counter shows (``words``), and multiples of 64, which only
the times of arrival show (``loss_detection``). A loss that can be neither found nor excluded ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, get_args

from drivers.cleanup import released_on_error
from drivers.links.serial_line import METER, open_line
from drivers.meters.calibrated import calibrated, calibration_details
from drivers.meters.ppk2 import commands
from drivers.meters.ppk2.acquisition import EMPTY_EVERY_S, Ppk2Meter, Ppk2Source
from drivers.meters.ppk2.words import RANGE_MOST_A, RATE_HZ, TYPICAL_OFF, Modifiers
from drivers.meters.threaded import ThreadedMeter
from rig.bench.connected import Connected
from rig.bench.options import one_of, positive, within
from rig.plugins import imported
from rig.types import Accuracy, Clock, ClockInfo, Conversion, Meter, MeterInfo, Mode, Pin, Rail

MODES = ("hardware",)
FEEDS = True

SOURCE_V = (0.8, 5.0)
POWERS = ("on", "off-at-close", "keep")


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Every kit on USB, by what its port says of itself."""
    imported("serial", "a serial port", "serial")
    for serial_number, port in commands.ports().items():
        yield Connected(f"Power Profiler Kit II, serial {serial_number}", {"port": port})


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
    modifiers: str = "own",
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
    """A PPK2 on a serial ``port``, and the current through it.

    ``mode`` is ``source`` (it supplies ``supply_v``, 0.8 to 5 V) or ``ampere`` (it lies in a supply of ``supply_v``).
    ``supply_v`` must be stated in both, since the instrument measures no voltage and its calibration needs one.
    ``power`` is ``on`` (its output is switched on and left on), ``off-at-close``, or ``keep`` (it stays as it is).
    ``largest_a`` is the largest current expected; the step of the range for it is declared as the resolution, and
    readings on a coarser range are flagged as overload. ``modifiers`` are its ``own``; with ``default`` typical values
    take the place of those that cannot be, and the accuracy is stated accordingly. ``mark_channel`` (D0 to D7) is a
    logic input, recorded as a rail of edges of that name; ``pin`` (level, stamp or toggle) is what the device does
    with it, ``pin_lag_s`` how far it may be from what it marks. ``clock_tolerance`` limits the rate of its sample
    timer (relative). ``calibration`` names a calibration file, limits in A; without one no accuracy is stated.
    ``hold_s`` of readings are held unread at most, ``timeout_s`` is how long it may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port that is not a PPK2's.
    """
    one_of(commands.POWER_MODES, mode=mode)
    one_of(POWERS, power=power)
    one_of(("own", "default"), modifiers=modifiers)
    one_of(("", *(f"D{k}" for k in range(8))), mark_channel=mark_channel)
    one_of(get_args(Pin), pin=pin)
    within(*SOURCE_V, "V, since a PPK2 measures no voltage", supply_v=supply_v)
    within(0.0, math.inf, "s", pin_lag_s=pin_lag_s)
    within(0.0, RANGE_MOST_A[-1], "A", largest_a=largest_a)
    positive(clock_tolerance=clock_tolerance, hold_s=hold_s, timeout_s=timeout_s, largest_a=largest_a)
    range_ = next(k for k, most_a in enumerate(RANGE_MOST_A) if largest_a <= most_a)
    line = open_line(port, commands.BAUD, METER)
    with released_on_error(line.close):
        stated = commands.metadata(line, timeout_s, modifiers == "default")
        if power != "keep":
            commands.configure(line, mode, supply_v)
        resolution = max(stated.steps_a()[: range_ + 1])
        described = Rail(
            rail, "mean", Conversion("A", supply_v), RATE_HZ, resolution=resolution, gain_id=f"{name}:{rail}"
        )
        own = calibrated(
            described, calibration, commands.serial_number(line), calibration_range, temperature_c, one_range=False
        )
        if stated.defaults and calibration is None:
            source = f"typical values for {', '.join(stated.defaults)}, of which the PPK2 states none that can be"
            offset_a = TYPICAL_OFF[1] * max(stated.steps_a()[: range_ + 1]) / 4.0
            own = replace(own, accuracy=Accuracy(TYPICAL_OFF[0], offset_a, source))
        rails: tuple[Rail, ...] = (own,)
        if mark_channel:
            does: Pin | None = next((known for known in get_args(Pin) if known == pin), None)
            rails += (Rail(mark_channel, "edges", rate_hz=RATE_HZ, pin=does, pin_lag_s=pin_lag_s),)
        details = {
            "port": port, "mode": mode, "supply_v": supply_v, "power": power, "largest_a": largest_a,
            "mark_channel": mark_channel, "metadata": stated.other, "step_a_by_range": stated.steps_a(),
            "default_modifiers": list(stated.defaults),
            "spike_filter": "none", "lost_readings": "NaN; told by its six-bit counter, and by the times of arrival",
            "calibration": calibration_details(calibration),
        }  # fmt: skip
        info = _info(name, rails, clock_tolerance, hold_s, stated, details)
        readings = Ppk2Source(line, info, stated, range_, timeout_s)
        most = round(hold_s * RATE_HZ)
        return Ppk2Meter(ThreadedMeter(info, readings, clock, every_s=EMPTY_EVERY_S, most=most), readings)


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
