"""A continuous stream made of slices, cut by a moving window into the frames that a microphone would deliver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.errors import unfit
from rig.types import Sample
from scenarios.lazy import Lazy
from scenarios.workloads.asc.slices import SLICE_S, Loader, Slice, grouped

EDGE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the stream with one label: it begins at ``begin_s`` and plays its slices one after the other."""

    label: str
    begin_s: float
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream cut into frames: frame k is ``window_s`` of sound from ``k * stride_s`` on, float32, shape (window,)."""

    scenes: tuple[Scene, ...]
    window_s: float
    stride_s: float
    rate_hz: float
    load: Loader

    def frame(self, k: int) -> Sample:
        """Cut and return frame ``k``."""
        begin = round(k * self.stride_s * self.rate_hz)
        width = round(self.window_s * self.rate_hz)
        end_s = k * self.stride_s + self.window_s
        begun = np.searchsorted([scene.begin_s for scene in self.scenes], end_s - EDGE_S, side="right")
        scene = self.scenes[max(int(begun) - 1, 0)]
        return Sample(
            f"frame-{k:06d}", self._heard(begin, begin + width), scene.label,
            duration_s=self.window_s, rate_hz=self.rate_hz, label_age_s=end_s - scene.begin_s,
        )  # fmt: skip

    def _heard(self, begin: int, end: int) -> NDArray[np.float32]:
        """Return the samples ``begin`` to ``end`` of the stream at ``rate_hz``."""
        parts: list[NDArray[np.float32]] = []
        per_slice = round(SLICE_S * self.rate_hz)
        firsts = [round(scene.begin_s * self.rate_hz) for scene in self.scenes]
        lasts = [*firsts[1:], max(end, firsts[-1])]
        for scene, first, last in zip(self.scenes, firsts, lasts, strict=True):
            low, high = max(begin, first), min(end, last)
            while low < high:
                number, offset = divmod(low - first, per_slice)
                take = min(high - low, per_slice - offset)
                parts.append(self.load(scene.slices[number % len(scene.slices)])[offset : offset + take])
                low += take
        return np.concatenate(parts).astype(np.float32, copy=False)


def frames_of(
    slices: Sequence[Slice], load: Loader, rate_hz: float, *, window_s: float, stride_s: float, scene_s: float,
    duration_s: float, seed: int,
) -> Lazy[int]:  # fmt: skip
    """Cut a stream of ``duration_s`` into frames.

    Successive scenes have different labels. Slices are drawn with ``seed``; none repeats before all slices of its label
    were used. Raises ``UsageError`` for lengths shorter than a sample of audio, and for a set of fewer than two labels.
    """
    lengths = {"window_s": window_s, "stride_s": stride_s, "scene_s": scene_s}
    for name, value in lengths.items():
        if not (math.isfinite(value) and value * rate_hz >= 1.0):
            raise unfit(name, value, "is less than one sample of audio", "Give a positive number of seconds")
    by_label = grouped(slices)
    if len(by_label) < 2:
        raise unfit("workload", len(by_label), "label(s): too few for scenes to change", "Use a set of two or more")
    count = math.floor((duration_s - window_s) / stride_s + EDGE_S) + 1
    scenes = _scenes(by_label, math.ceil(duration_s / scene_s), scene_s, np.random.default_rng(seed))
    return Lazy(range(count), Stream(tuple(scenes), window_s, stride_s, rate_hz, load).frame)


def _scenes(by_label: dict[str, list[Slice]], count: int, scene_s: float, rng: np.random.Generator) -> list[Scene]:
    piles = {label: [parts[k] for k in rng.permutation(len(parts))] for label, parts in sorted(by_label.items())}
    each = math.ceil(scene_s / SLICE_S)
    scenes: list[Scene] = []
    for k in range(count):
        others = [label for label in piles if not scenes or label != scenes[-1].label]
        label = others[int(rng.integers(len(others)))]
        taken = piles[label][:each]
        piles[label] = piles[label][each:] + taken  # used slices move to the back, so that none repeats early
        scenes.append(Scene(label, k * scene_s, tuple(taken)))
    return scenes
