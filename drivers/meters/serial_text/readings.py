"""Readings of text lines: the options, the plan by which a line becomes a reading, and the time of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal

import numpy as np

from drivers.meters.serial_text.lines import Layout
from drivers.meters.settings import Instrument
from rig.bench.option_checks import within
from rig.bench.settings import Positive
from rig.types import Chunk, Rail

Stamped = Literal["count", "column"]
STAMP_AT = {"start": 0.0, "middle": 0.5, "end": 1.0, "": 0.5}
"""The point of a reading that its time refers to; empty if unknown."""


@dataclass(frozen=True)
class Board:
    """The options. See ``meter.open_meter``."""

    own: Instrument = Instrument("serial-text", 5e-3)
    port: str = ""
    baud: int = 115200
    columns: str = ""
    separator: str = "comma"
    prefix: str = ""
    ignore: str = "#"
    banner: str = ""
    start_command: str = ""
    stop_command: str = ""
    stamp_at: Literal["start", "middle", "end", ""] = "end"
    rate_hz: Annotated[float, partial(within, 0.0, 1e6, "Hz")] = 0.0
    kind: str = "mean"
    aperture_s: Positive | None = None
    filter_tau_s: Annotated[float, partial(within, 0.0, 1e3, "s")] = 0.0
    timer_bits: Annotated[int, partial(within, 0, 64)] = 32
    counter_wrap: Annotated[int, partial(within, 0, 2**62)] = 0
    supply_v: str | None = None
    voltage: str | None = None
    resolution: str | None = None
    range_max: str | None = None
    latency_s: Annotated[float, partial(within, 0.0, 10.0, "s")] | None = None
    bad_share: Annotated[float, partial(within, 0.0, 0.5)] = 0.01
    timeout_s: Positive = 3.0
    boot_s: Positive = 5.0
    dtr: bool = True
    serial_number: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class Plan:
    """How the lines of a ``board`` become readings, stamped by a time ``column`` or by their ``count``.

    A mean lasts ``aperture_s`` (0: a point). A line comes at most ``latency_s`` after its reading.
    """

    board: Board
    layout: Layout
    stamp: Stamped
    aperture_s: float
    latency_s: float = 0.0

    @property
    def at(self) -> float:
        """Return the point of a reading that its time refers to: 0 is the start, 1 the end."""
        return STAMP_AT[self.board.stamp_at] if self.stamp == "column" else 1.0

    @property
    def stamp_uncertainty_s(self) -> float:
        """Return how far a time may be off if its point in the reading is unknown."""
        return 0.5 * self.aperture_s if self.stamp == "column" and not self.board.stamp_at else 0.0

    @property
    def wrap_ns(self) -> int:
        """Return the value at which the board's time wraps; 0 if it never wraps."""
        unit_ns = next((column.factor for column in self.layout.columns if column.role == "time"), 0.0)
        return round(unit_ns) << self.board.timer_bits if self.board.timer_bits else 0


@dataclass
class Readings:
    """Readings in order: stamps (ns of the meter's clock), and values and flags by rail."""

    tick: list[int] = field(default_factory=list)
    value: list[tuple[float, ...]] = field(default_factory=list)
    flag: list[tuple[bool, ...]] = field(default_factory=list)

    def add(self, tick: int, value: tuple[float, ...], flag: tuple[bool, ...]) -> None:
        """Add one reading."""
        self.tick.append(tick)
        self.value.append(value)
        self.flag.append(flag)

    def fill(self, after: int, tick: int, missing: int, rails: int) -> None:
        """Add NaN for each missing reading, evenly between two ticks."""
        for k in range(missing):
            self.add(after + (tick - after) * (k + 1) // (missing + 1), (np.nan,) * rails, (False,) * rails)

    def chunks(self, rails: Sequence[Rail], plan: Plan) -> list[Chunk]:
        """Return one chunk for each rail: on the grid if stamped by count, else with the ticks that each covers."""
        if not self.value:
            return []
        value = np.array(self.value, dtype=np.float64)
        flags = np.array(self.flag, dtype=np.uint8)
        if plan.stamp == "count":
            return [Chunk(rail.name, value[:, k], flags=flags[:, k]) for k, rail in enumerate(rails)]
        tick = np.array(self.tick, dtype=np.int64)
        end = tick + round((1.0 - plan.at) * plan.aperture_s * 1e9)
        start = end - round(plan.aperture_s * 1e9)
        return [
            Chunk(rail.name, value[:, k], *((tick, tick) if rail.kind == "cumulative" else (start, end)), flags[:, k])
            for k, rail in enumerate(rails)
        ]
