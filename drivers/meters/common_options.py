"""Options of every meter that is connected in a supply line, and the rail and description that follow from them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rig.bench.calibration import certificate, load, stated
from rig.bench.settings import Tolerance
from rig.errors import DataError
from rig.types import CLOCK_TOLERANCE, ClockInfo, MeterInfo, Mode, Rail

IN_ONE_SUPPLY = ("every supply but the one that the meter is in",)


def described(
    name: str, clock: ClockInfo, description: str, rails: Iterable[Rail], *, simulated: bool, **more: Any
) -> MeterInfo:
    """Return a meter's description, marked if it is simulated; ``more`` are further fields of ``MeterInfo``."""
    mode: Mode = "simulator" if simulated else "hardware"
    told = f"SIMULATED {description}" if simulated else description
    return MeterInfo(name, mode, clock, tuple(rails), description=told, **more)


@dataclass(frozen=True)
class Instrument:
    """The options that meters have in common.

    ``clock_tolerance`` limits the relative rate error of the meter's sample timer. ``calibration`` names a calibration
    file with limits of error in the rail's unit. ``calibration_range`` names one of its ranges, if it has several.
    ``temperature_c`` is the temperature at the measurement. Without a file no accuracy is stated. See
    docs/reference/calibration.md.
    """

    name: str
    clock_tolerance: Tolerance = CLOCK_TOLERANCE
    calibration: str | None = None
    calibration_range: float | None = None
    temperature_c: float | None = None

    def limited(self, rail: Rail, serial: str, range_: float | None = None, *, one_range: bool = True) -> Rail:
        """Return a rail with today's limits from the calibration file; without a file no limits are stated.

        ``one_range`` is false for an instrument that changes its range by itself: the linearity of one range does not
        apply to readings in two. Raises ``DataError`` for a file of another instrument or another time, ``UsageError``
        for a file that does not fit.
        """
        path = self.calibration
        if path is None:
            return stated(rail, None, range_max=self.calibration_range, temperature_c=self.temperature_c)
        own = load(Path(path)).serial
        if own and own != serial:
            told = f"this instrument is {serial}" if serial else "the serial number of this one is not known"
            what = f"the calibration {Path(path).name} is for the instrument {own}, but {told}"
            remedy = "Give the calibration of this instrument" if serial else "Give its serial_number"
            raise DataError(what, field="calibration", value=own, remedy=remedy)
        chosen, today = self.calibration_range or range_, datetime.now(UTC).date()
        found = stated(rail, path, range_max=chosen, temperature_c=self.temperature_c, on=today)
        if one_range or found.accuracy is None:
            return found
        return replace(found, accuracy=replace(found.accuracy, linearity=None))

    def info(
        self,
        description: str,
        *rails: Rail,
        simulated: bool = False,
        tick_hz: float = 1e9,
        details: Mapping[str, Any],
        **more: Any,
    ) -> MeterInfo:
        """Return the meter's description; ``more`` are further fields of ``MeterInfo``.

        By default, the description states that the meter measures one supply and omits every other.
        """
        path = None if self.calibration is None else Path(self.calibration)
        file = path and {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        clock, about = ClockInfo(self.name, tick_hz, self.clock_tolerance), {**details, "calibration": file}
        more = {"omitted": IN_ONE_SUPPLY, **more, "details": about, "calibration": certificate(self.calibration)}
        return described(self.name, clock, description, rails, simulated=simulated, **more)
