"""The power monitor on the Xylo board, with four rails. The simulated one has its own clock."""

from __future__ import annotations

from rig.bench.options import positive
from rig.errors import SetupError
from rig.types import Device, Meter, Plant

MODES = ("simulator",)

NAME = "xylo-monitor"


def open_meter(device: Device, plant: Plant | None = None, *, rate_hz: float = 1280.0) -> Meter:
    """Open the monitor of ``device``; the published baseline read it at 1280 Hz.

    Raises ``UsageError`` for a rate that is not positive, ``SetupError`` for a device without this monitor, for
    hardware (which this version does not support), and for a simulation without its bench.
    """
    positive(rate_hz=rate_hz)
    info = device.info()
    if info.onboard_meter != NAME:
        what = f"device {info.name!r} has no power monitor of this kind"
        remedy = f"It has {info.onboard_meter or 'none'}; choose another meter"
        raise SetupError(what, field="meter", value=NAME, remedy=remedy)
    if info.mode == "hardware":
        what = "reading the monitor of a real Xylo board is not in this version"
        raise SetupError(what, field="meter", value=NAME, remedy="Add --simulate, or measure with an external meter")
    if plant is None:
        what = "the simulated monitor needs the simulated bench of its device"
        raise SetupError(what, field="plant", remedy="Use the simulated bench, or pass plant=")
    return plant.meter(NAME, rate_hz)
