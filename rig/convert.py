"""Raw readings to watts."""

from __future__ import annotations

from rig.errors import DataError
from rig.types import Conversion, Floats


def to_watts(raw: Floats, conversion: Conversion) -> Floats:
    """Power at the device: ``i * v - i**2 * r`` for a current through a burden, as is for watts.

    Raises ``DataError`` for a current whose supply voltage nobody declared.
    """
    if conversion.unit in ("W", "J"):
        return raw
    if conversion.supply_v is None or not conversion.supply_v > 0:
        raise DataError(
            "a current has no declared supply voltage",
            field="supply_v",
            value=conversion.supply_v,
            remedy="Declare the voltage of the rail in its conversion",
        )
    return raw * conversion.supply_v - raw * raw * conversion.burden_ohm
