"""The conversion of raw readings to watts."""

import numpy as np

from rig.errors import DataError
from rig.types import Conversion, Floats

PLAUSIBLE = 1e12
"""The largest reading in W, A, V or J: above it, the unit is wrong or the file is damaged."""
SUPPLIES_V = (1e-6, 1e6)
"""The least and the largest plausible supply voltage."""


def to_watts(raw: Floats, conversion: Conversion, volts: Floats | None = None) -> Floats:
    """Return the power at the device (W): ``i * v - i**2 * r`` for a current through a shunt.

    Watts, and the joules of a counter, are returned unchanged. ``volts``, in the shape of ``raw``, are the readings of
    the rail in ``supply_rail``. Raises ``DataError`` for a current whose voltage was neither measured nor plausibly
    declared, and for a voltage, from which no power follows.
    """
    if conversion.unit in ("W", "J"):
        return raw
    if conversion.unit == "V":
        what = "power cannot be computed from a voltage alone"
        raise DataError(what, field="unit", value="V", remedy="Name this rail as the supply_rail of a rail in amperes")
    if conversion.supply_rail is not None and volts is not None:
        return np.asarray(raw * volts - raw * raw * conversion.burden_ohm)
    if conversion.supply_v is None or not SUPPLIES_V[0] <= conversion.supply_v <= SUPPLIES_V[1]:
        what = "a current has no declared supply voltage, or an implausible one"
        remedy = "Declare the voltage of the rail in its conversion, or the rail that holds it (supply_rail)"
        raise DataError(what, field="supply_v", value=conversion.supply_v, remedy=remedy)
    return raw * conversion.supply_v - raw * raw * conversion.burden_ohm
