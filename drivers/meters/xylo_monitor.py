"""The power monitor on the Xylo board: four rails. The simulated one runs on a clock of its own."""

from __future__ import annotations

import math

from rig.errors import SetupError, UsageError
from rig.types import Device, Meter, Plant

MODES = ("simulator",)

NAME = "xylo-monitor"


def open_meter(device: Device, plant: Plant | None = None, *, rate_hz: float = 1280.0) -> Meter:
    """Open the monitor of ``device``; the published baseline read it at 1280 Hz.

    Raises UsageError for a rate that is no positive number, SetupError for a device without this
    monitor, for hardware (not in this version), and for a simulation without surroundings.
    """
    if not (math.isfinite(rate_hz) and rate_hz > 0):
        raise UsageError(f"the rate is {rate_hz} Hz", field="rate_hz", value=rate_hz, remedy="Use a number above zero")
    info = device.info()
    if info.onboard_meter != NAME:
        raise SetupError(
            f"device {info.name!r} has no power monitor of this kind",
            field="meter",
            value=NAME,
            remedy=f"It has {info.onboard_meter or 'none'}; choose another meter",
        )
    if info.mode == "hardware":
        raise SetupError(
            "reading the monitor of a real Xylo board is not in this version",
            field="meter",
            value=NAME,
            remedy="Add --simulate, or measure with an external meter",
        )
    if plant is None:
        raise SetupError(
            "the simulated monitor needs the plant that the device runs in",
            field="plant",
            remedy="Use the simulated bench, or pass plant=",
        )
    return plant.meter(NAME, rate_hz)
