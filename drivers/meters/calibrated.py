"""Rails with the limits of error from their owner's calibration file. See docs/reference/calibration.md."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rig.bench.calibration import load, stated
from rig.errors import DataError
from rig.types import Rail


def calibrated(
    rail: Rail,
    path: str | None,
    serial: str,
    range_: float | None,
    temperature_c: float | None,
    *,
    one_range: bool = True,
) -> Rail:
    """A rail with the limits of its owner's calibration file, today; without a file none is stated.

    ``one_range`` is false for an instrument that changes its range by itself: the linearity of one range says nothing
    of two of its readings. Raises ``DataError`` for a file of another instrument or another time, ``UsageError`` for
    one that does not fit.
    """
    if path is None:
        return stated(rail, None, temperature_c=temperature_c)
    own = load(Path(path)).serial
    if own and own != serial:
        what = f"the calibration {Path(path).name} is for the instrument {own}, but this instrument is {serial}"
        raise DataError(what, field="calibration", value=own, remedy="Give the calibration of this instrument")
    found = stated(rail, path, range_max=range_, temperature_c=temperature_c, on=datetime.now(UTC).date())
    if one_range or found.accuracy is None:
        return found
    return replace(found, accuracy=replace(found.accuracy, linearity=None))


def calibration_details(path: str | None) -> dict[str, str] | None:
    """Which file the limits are from, for the record: its name and SHA-256."""
    if path is None:
        return None
    return {"file": Path(path).name, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
