"""Readings of text lines: the plan by which a line becomes one, and where each lies on the meter's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from drivers.meters.serial_text.lines import Layout
from drivers.meters.serial_text.loss_detection import Expected
from rig.types import Chunk, Rail

Stamped = Literal["count", "column"]
STAMP_AT = {"start": 0.0, "middle": 0.5, "end": 1.0, "": 0.5}
"""Where in its reading a time stands; empty where it is not known."""


@dataclass(frozen=True)
class CapturePlan:
    """How lines become readings, stamped by a time ``column`` or by their ``count``.

    ``start`` and ``stop`` are sent; ``banner`` begins what only a restart prints. A mean lasts ``aperture_s`` (0: a
    point); ``stamp_at`` is where in it its time stands, one of ``STAMP_AT``.
    """

    layout: Layout
    expected: Expected
    stamp: Stamped
    stamp_at: str
    aperture_s: float
    start: bytes
    stop: bytes
    banner: str

    @property
    def at(self) -> float:
        """Where in a reading its time stands: 0 is the start, 1 the end."""
        return STAMP_AT[self.stamp_at] if self.stamp == "column" else 1.0

    @property
    def stamp_uncertainty_s(self) -> float:
        """How far that may be off, where it is not known."""
        return 0.5 * self.aperture_s if self.stamp == "column" and not self.stamp_at else 0.0


@dataclass
class Readings:
    """Readings in order: what each is stamped with (ns of the meter's clock), and values and flags by rail."""

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

    def chunks(self, rails: Sequence[Rail], plan: CapturePlan) -> list[Chunk]:
        """One chunk for each rail: on the grid when stamped by count, else with the ticks that each reading covers."""
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
