"""Where readings of text lines lie: the plan by which a line becomes one, and readings on their way to the rig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from drivers.links.serial_line import SerialLine
from drivers.meters.serial_text.lines import Layout
from drivers.meters.serial_text.order import Expected
from rig.types import Chunk, Rail

HOLD_S, HOLD_MOST = 60.0, 1_000_000
BRIDGE_S = 0.03
"""A USB bridge keeps bytes for 16 ms (the default of FTDI's), and the host is not always there at once."""
BOARD_BYTES = 64
"""What Arduino's serial port holds back when a sketch prints faster than the wire is."""
PLACES = {"start": 0.0, "middle": 0.5, "end": 1.0, "": 0.5}
Stamped = Literal["count", "column"]


@dataclass(frozen=True)
class Choice:
    """What was asked for, checked: the options of ``factory.open_meter`` of the same names."""

    layout: Layout
    stamp: Stamped
    stamp_at: str
    rate_hz: float
    aperture_s: float
    tolerance: float
    timer_bits: int
    counter_wrap: int
    latency_s: float | None
    bad_share: float
    timeout_s: float
    start: bytes
    stop: bytes
    banner: str


@dataclass(frozen=True)
class Plan:
    """How lines become readings. ``start`` and ``stop`` are sent; ``banner`` begins what only a restart prints.

    ``aperture_s`` is how long a mean lasts (0: a point), ``at`` where in it its time stands (0 start, 1 end), and
    ``doubt_s`` how far that may be off, since nobody said it. ``hold`` is how many readings may wait unread.
    """

    layout: Layout
    expected: Expected
    stamp: Stamped
    aperture_s: float
    at: float
    doubt_s: float
    start: bytes
    stop: bytes
    banner: str
    timeout_s: float
    hold: int


def plan_of(c: Choice, name: str, line: SerialLine, length: int) -> Plan:
    """The plan for lines of ``length`` bytes: how late they may be, and how many may wait, follow from it."""
    unit_ns = next((column.factor for column in c.layout.columns if column.role == "time"), 0.0)
    expected = Expected(
        name=name,
        rate_hz=c.rate_hz,
        tolerance=c.tolerance,
        wrap_ns=round(unit_ns) << c.timer_bits if c.timer_bits else 0,
        wrap_count=c.counter_wrap,
        falls=tuple(column.si == "J" for column in c.layout.rails),
        bad_share=c.bad_share,
        latency_s=BRIDGE_S + line.wire_s(BOARD_BYTES + length) if c.latency_s is None else c.latency_s,
        stall_s=c.timeout_s,
    )
    by_column = c.stamp == "column"
    hold = max(100, min(HOLD_MOST, round(HOLD_S * max(c.rate_hz, 1.0 / line.wire_s(length)))))
    return Plan(
        layout=c.layout,
        expected=expected,
        stamp=c.stamp,
        aperture_s=c.aperture_s,
        at=PLACES[c.stamp_at] if by_column else 1.0,
        doubt_s=0.5 * c.aperture_s if by_column and not c.stamp_at else 0.0,
        start=c.start,
        stop=c.stop,
        banner=c.banner,
        timeout_s=c.timeout_s,
        hold=hold,
    )


@dataclass
class Batch:
    """Readings in order: what each is stamped with (ns of the meter's clock), and values and flags by rail."""

    tick: list[int] = field(default_factory=list)
    value: list[tuple[float, ...]] = field(default_factory=list)
    flag: list[tuple[bool, ...]] = field(default_factory=list)

    def add(self, tick: int, value: tuple[float, ...], flag: tuple[bool, ...]) -> None:
        """One more reading."""
        self.tick.append(tick)
        self.value.append(value)
        self.flag.append(flag)

    def fill(self, after: int, tick: int, missing: int, rails: int) -> None:
        """So many readings that never came, evenly between two ticks: NaN for each."""
        for k in range(missing):
            self.add(after + (tick - after) * (k + 1) // (missing + 1), (np.nan,) * rails, (False,) * rails)

    def join(self, other: Batch) -> None:
        """The readings of another batch behind these."""
        self.tick += other.tick
        self.value += other.value
        self.flag += other.flag

    def chunks(self, rails: Sequence[Rail], plan: Plan) -> list[Chunk]:
        """One chunk for each rail: on the grid when placed by count, else with the ticks that each reading covers."""
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
