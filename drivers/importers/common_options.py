"""Options that all importers share, and the statements about a recording that follow from them."""

import math
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated

from rig.bench.calibration import certificate, stated
from rig.bench.settings import Tolerance, within
from rig.importing.imported import CRYSTAL, ImportedRun
from rig.types import Rail

Limit = Annotated[float, partial(within, 0.0, 1e5)]
Count = Annotated[int, partial(within, 1, math.inf)]


@dataclass(frozen=True)
class Recorded:
    """What is known about a recording besides its files.

    ``clock_tolerance`` limits the relative error of the instrument's clock rate. ``calibration`` names a calibration
    file. ``calibration_range`` and ``temperature_c`` choose the limits of error in it. ``device_description`` and
    ``meter_description`` say what was measured and by which instrument; an audit asks for both.
    """

    clock_tolerance: Tolerance = CRYSTAL
    calibration: str | None = None
    calibration_range: float | None = None
    temperature_c: float | None = None
    device_description: str = ""
    meter_description: str = ""

    def limited(self, rail: Rail, day: date | None, aperture_s: float | None = None) -> Rail:
        """Return a rail with the limits of error on that day, for readings as long as ``aperture_s``."""
        return stated(
            rail, self.calibration, range_max=self.calibration_range, temperature_c=self.temperature_c, on=day,
            aperture_s=aperture_s,
        )  # fmt: skip

    def described(self, run: ImportedRun) -> ImportedRun:
        """Return the run with the descriptions of device and meter, and the certificate of the calibration file.

        Raises what ``rig.bench.calibration.load`` raises.
        """
        held, device = certificate(self.calibration), run.device
        own = replace(device, description=self.device_description or device.description)
        meters = (replace(m, description=self.meter_description or m.description, calibration=held) for m in run.meters)
        file = {f"calibration/{Path(self.calibration).name}": Path(self.calibration)} if self.calibration else {}
        return replace(run, device=own, meters=tuple(meters), originals={**run.originals, **file})
