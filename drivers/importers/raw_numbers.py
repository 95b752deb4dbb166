"""A file of raw numbers, which a user's own program writes if text would be too long."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drivers.importers.files import bad_file, unstated
from drivers.importers.single_trace import Readings, SingleTrace, conversion, single_trace
from drivers.importers.time_axis import BLOCK, TimeAxis
from drivers.units import expect, with_overloads
from rig.errors import reason, refused
from rig.types import Floats, Rail

TYPES = {".f32": "<f4", ".f64": "<f8", ".i16": "<i2"}
_REMEDY = f"Name a .npy with one axis of real numbers, or little-endian numbers in a file of {', '.join(TYPES)}"


@single_trace
def open_import(
    source: Path,
    *,
    rate_hz: float | None = None,
    unit: str = "W",
    scale: float = 1.0,
    offset: float = 0.0,
    supply_v: float | None = None,
    simulated: bool = False,
    meter: str = "recorded trace",
    system: str = "device under test",
) -> SingleTrace:
    """Import readings at ``rate_hz``, stored as little-endian numbers: ``.f32``, ``.f64``, ``.i16``, or a ``.npy``.

    Reading k is the mean from ``k / rate_hz`` to ``(k + 1) / rate_hz``. Its value is the stored number times ``scale``
    plus ``offset``, in ``unit``: W, mW and the like, or A, mA and the like at ``supply_v``. ``simulated`` states that
    the trace was computed. ``meter`` and ``system`` name the instrument and the device.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for a file of another format.
    """
    if rate_hz is None:
        raise unstated("rate_hz", "the rate of the readings is not stated", "rate_hz=NUMBER")
    if not 1e-6 <= rate_hz <= 1e9:
        raise refused("rate_hz", rate_hz, "Give Hz, from 1e-6 to 1e9")
    si, factor = expect(unit, ("W", "A"), "unit", "a number", "State it, such as unit=mW or unit=uA")
    rail = Rail("power", "mean", conversion("W" if si == "W" else "A", supply_v))
    readings = Readings(rail, TimeAxis(0, rate_hz), _Numbers(source, *_layout(source), factor * scale, factor * offset))
    return SingleTrace(meter, [readings], device=system, mode="simulator" if simulated else "hardware")


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a file from a given byte on. Each iteration yields them in blocks."""

    source: Path
    kind: np.dtype[Any]
    begin: int
    scale: float
    offset: float

    def __iter__(self) -> Iterator[tuple[None, Floats]]:
        at = self.begin
        while len(block := np.fromfile(self.source, self.kind, BLOCK, offset=at)):
            yield None, with_overloads(block.astype(np.float64)) * self.scale + self.offset
            at += block.nbytes


def _layout(source: Path) -> tuple[np.dtype[Any], int]:
    """Return the type of the numbers, and the byte at which they begin."""
    try:
        if source.suffix.lower() == ".npy":
            held: Any = np.load(source, mmap_mode="r", allow_pickle=False)
            if held.ndim == 1 and held.dtype.kind in "iuf":
                return held.dtype, held.offset
            raise bad_file(source, f"holds {held.dtype} of shape {held.shape}", _REMEDY)
        kind, size = np.dtype(TYPES[source.suffix.lower()]), source.stat().st_size
    except (OSError, ValueError) as error:
        raise bad_file(source, f"cannot be read: {reason(error)}", _REMEDY) from error
    except KeyError as error:
        raise bad_file(source, "is of no known type", _REMEDY) from error
    if size % kind.itemsize:
        raise bad_file(source, f"ends within a number: {size} bytes are no multiple of {kind.itemsize}", _REMEDY)
    return kind, 0
