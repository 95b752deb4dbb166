"""Keysight 34465A / 34470A as a power meter: the current of a supply, or the voltage over a shunt in it.

rig measure --device ... --meter scpi-dmm --option address=TCPIP::192.0.2.7::5025::SOCKET
    --option rate_hz=50000 --option range_max=0.1 --option supply_v=1.8
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from drivers.failures import released_on_error
from drivers.meters.scpi.dmm.truevolt import APERTURE_LEAST_S, OVER_RANGE, CaptureSettings, Truevolt, range_for
from drivers.meters.scpi.session import Visa, identified
from drivers.meters.settings import Instrument
from drivers.meters.threaded import sampled_meter
from rig.bench.connected import Connected
from rig.bench.option_checks import within
from rig.bench.settings import Positive, of_settings
from rig.errors import refused
from rig.types import Clock, Conversion, Meter, Rail

MODES = ("hardware",)
FEEDS = True


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Every 34465A and 34470A on USB or at the addresses."""
    yield from identified(addresses, r"344(65|70)A")


@dataclass(frozen=True)
class Dmm:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("scpi-dmm")
    rail: str = "core"
    visa: Visa = Visa()
    function: Literal["current", "voltage"] = "current"
    rate_hz: Positive = 1000.0
    range_max: Positive = 0.1
    aperture_s: Positive | None = None
    supply_v: Positive | None = None
    burden_ohm: float = 0.0
    shunt_ohm: Annotated[float, partial(within, 0.0, math.inf)] = 0.0


@of_settings
def open_meter(settings: Dmm, clock: Clock | None = None) -> Meter:
    """Open a 34465A or 34470A at a VISA ``address``, with fixed range, aperture and sample timer, autozero off.

    ``function`` is ``current``, or ``voltage`` over a resistor of ``shunt_ohm``; ``supply_v`` is the voltage of the
    supply. ``range_max`` is the largest reading expected, in A or V. ``aperture_s`` is by default as long as
    ``rate_hz`` allows. ``burden_ohm`` is the resistance between supply and device, the meter's own included.
    ``clock_tolerance`` limits the sample timer's rate (relative). ``calibration`` names a calibration file with limits
    in the rail's unit, for autozero off and this aperture; ``calibration_range`` is the range in it, by default the
    multimeter's. Without a file no accuracy is stated. ``timeout_s`` is how long the instrument may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for an instrument that cannot do it.
    """
    s = settings
    if s.function == "voltage" and not s.shunt_ohm > 0:
        remedy = "Give the resistance of the shunt (shunt_ohm), or measure the current (function=current)"
        raise refused("shunt_ohm", s.shunt_ohm, remedy, "power cannot be computed from a voltage alone")
    if s.supply_v is None:
        what = "power cannot be computed from a current without the supply voltage"
        raise refused("supply_v", None, "Add --option supply_v=VOLTS", what)
    session = s.visa.open()
    with released_on_error(session.close):
        dmm = Truevolt(session)
        who, got = dmm.identity, dmm.configure(_capture(dmm, s))
        scale = 1.0 if s.function == "current" else 1.0 / s.shunt_ohm
        rail = Rail(
            s.rail, conversion=Conversion("A", s.supply_v, s.burden_ohm),
            rate_hz=round(1.0 / got.period_s, 6), aperture_s=got.aperture_s, resolution=dmm.resolution(got) * scale,
            range_max=OVER_RANGE * got.range * scale, gain_id=f"{who.serial}:{got.function}:{got.range:g}",
        )  # fmt: skip
        on = f" on its {got.terminals_a:g} A terminals" if got.terminals_a else ""
        info = s.own.info(
            f"{who.maker} {who.model}{on}, {rail.rate_hz:g} readings/s",
            s.own.limited(rail, who.serial, got.range * scale), simulated=who.simulated,
            buffer_s=dmm.memory / rail.rate_hz, **who.described(),
            details={
                "supply_v": s.supply_v, "shunt_ohm": s.shunt_ohm, "address": session.address,
                "options": list(dmm.options), "memory_readings": dmm.memory, "function": got.function,
                "range": got.range, "terminals_a": got.terminals_a, "aperture_s": got.aperture_s,
                "period_s": got.period_s, "autozero": "off", "autorange": "off",
            },
        )  # fmt: skip
        dmm.rail, dmm.scale = rail.name, scale
        return sampled_meter(info, dmm, clock, s.visa.timeout_s + 1.0)


def _capture(dmm: Truevolt, s: Dmm) -> CaptureSettings:
    """Choose timer (step 1 us) and aperture (step 2 us), with 1 us left between them (manual, SAMP:TIM)."""
    least_s = APERTURE_LEAST_S[dmm.fast]
    period_s = round(1.0 / s.rate_hz, 6)
    if period_s < least_s * (1.0 - 1e-9):
        option = "" if dmm.fast else " without the option DIG"
        what = f"{s.rate_hz:g} readings/s are too many for the {dmm.identity.model}{option}"
        raise refused("rate_hz", s.rate_hz, f"Give {1.0 / least_s:.0f} or less", what)
    longest_s = max(least_s, 2e-6 * math.floor((period_s - 1e-6) / 2e-6 + 1e-6))
    chosen_s = longest_s if s.aperture_s is None else s.aperture_s
    if not least_s * (1.0 - 1e-9) <= chosen_s <= period_s:
        what = f"an aperture of {chosen_s:g} s does not fit {s.rate_hz:g} readings/s"
        raise refused("aperture_s", chosen_s, f"Give {least_s:g} to {longest_s:g} s, or leave it out", what)
    return CaptureSettings(s.function, range_for(s.function, s.range_max), period_s, chosen_s)
