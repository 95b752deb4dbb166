"""Nordic Power Profiler Kit II on its serial port: the current of one supply, 100,000 readings a second.

    rig measure --device ... --meter ppk2 --option port=/dev/ttyACM0 --option supply_v=3.0

Lost readings are NaN in the trace. The kit's counter reveals most losses (``words``). Only arrival times can exclude
the loss of a multiple of 64 readings (``losses_by_arrival_time``). If they cannot, the run ends.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Literal

from drivers.failures import released_on_error
from drivers.links.serial_line import METER, open_line
from drivers.meters.common_options import Instrument
from drivers.meters.ppk2 import commands
from drivers.meters.ppk2.acquisition import EMPTY_EVERY_S, Ppk2Source
from drivers.meters.ppk2.words import RANGE_MOST_A, RATE_HZ
from drivers.meters.threaded import HOLD_S, ThreadedMeter
from rig.bench.connected import Connected
from rig.bench.settings import Positive, of_settings, positive, within
from rig.plugins import imported
from rig.types import Clock, Conversion, Meter, Pin, Rail

MODES = ("hardware",)
FEEDS = True


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Yield every kit on USB."""
    imported("serial", "a serial port", "serial")
    for serial_number, port in commands.ports().items():
        yield Connected(f"Power Profiler Kit II, serial {serial_number}", {"port": port})


@dataclass(frozen=True)
class Ppk2:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("ppk2", 1e-4)
    rail: str = "supply"
    port: str = ""
    mode: Literal["source", "ampere"] = "source"
    supply_v: Annotated[float, partial(within, 0.8, 5.0, "V, since a PPK2 measures no voltage")] = 0.0
    power: Literal["on", "keep"] = "on"
    largest_a: Annotated[float, partial(within, 0.0, RANGE_MOST_A[-1], "A"), positive] = RANGE_MOST_A[-1]
    mark_channel: Literal["", "D0", "D1", "D2", "D3", "D4", "D5", "D6", "D7"] = ""
    pin: Pin = "level"
    pin_lag_s: Annotated[float, partial(within, 0.0, math.inf, "s")] = 0.0
    timeout_s: Positive = 2.0


@of_settings
def open_meter(settings: Ppk2, clock: Clock | None = None) -> Meter:
    """Open a PPK2 on a serial ``port``. The kit measures the current that flows through it.

    ``mode`` is ``source`` (it supplies ``supply_v``, 0.8 to 5 V) or ``ampere`` (another supply delivers ``supply_v``).
    Both need ``supply_v``: the instrument measures no voltage, and its calibration depends on the voltage. ``power`` is
    ``on`` (its output is switched on and stays on), or ``keep`` (mode, voltage and output stay as they are).
    ``largest_a`` is the largest expected current. The step of the range for this current is declared as the resolution,
    and readings in a coarser range are flagged as overload. ``mark_channel`` (D0 to D7) is a logic input, recorded as a
    rail of edges of that name. ``pin`` (level, stamp or toggle) is how the device uses the input, and ``pin_lag_s`` is
    how early or late an edge may be. ``clock_tolerance`` limits the relative rate error of its sample timer.
    ``calibration`` names a file with limits in A; without a file no accuracy is stated. The kit may be silent for
    ``timeout_s``.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port that is not a PPK2's.
    """
    s = settings
    range_ = next(k for k, most_a in enumerate(RANGE_MOST_A) if s.largest_a <= most_a)
    line = open_line(s.port, commands.BAUD, METER)
    with released_on_error(line.close):
        stated = commands.metadata(line, s.timeout_s)
        if s.power != "keep":
            commands.configure(line, s.mode, s.supply_v)
        step_a = max(stated.steps_a()[: range_ + 1])
        conversion = Conversion("A", s.supply_v)
        rail = Rail(s.rail, "mean", conversion, RATE_HZ, resolution=step_a, gain_id=f"{s.own.name}:{s.rail}")
        rail = s.own.limited(rail, commands.serial_number(line), one_range=False)
        marks = [Rail(s.mark_channel, "edges", rate_hz=RATE_HZ, pin=s.pin, pin_lag_s=s.pin_lag_s)]
        info = s.own.info(
            f"Nordic PPK2, {s.mode} mode, {RATE_HZ:g} readings/s", rail, *(marks if s.mark_channel else []),
            simulated=stated.other.get("Simulated", "") == "1", tick_hz=RATE_HZ, buffer_s=HOLD_S,
            versions={"PPK2 hardware": stated.other.get("HW", ""), "pyserial": version("pyserial")},
            details={
                "port": s.port, "mode": s.mode, "supply_v": s.supply_v, "power": s.power, "largest_a": s.largest_a,
                "mark_channel": s.mark_channel, "metadata": stated.other, "step_a_by_range": stated.steps_a(),
                "spike_filter": "none", "lost_readings": "NaN, as its six-bit counter shows",
            },
        )  # fmt: skip
        readings = Ppk2Source(line, info, stated, range_, s.timeout_s)
        return ThreadedMeter(info, readings, clock, every_s=EMPTY_EVERY_S, most=round(HOLD_S * RATE_HZ))
