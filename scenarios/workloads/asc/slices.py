"""One-second slices of audio: choose and order them, and make samples of them.

A continuous stream of slices is cut by a moving window into the frames that a microphone would deliver.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.errors import unfit
from rig.types import Sample
from scenarios.lazy_samples import Lazy

SLICE_S = 1.0

Loader = Callable[["Slice"], NDArray[np.float32]]
EDGE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Slice:
    """One second of one clip (or of one synthetic scene), not decoded yet."""

    id: str
    label: str
    clip: str
    start_s: int
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One sample before it is decoded: its id, its label, and its slices, which are played one after the other."""

    id: str
    label: str | None
    slices: tuple[Slice, ...]


def sample_of(unit: Unit, load: Loader, rate_hz: float) -> Sample:
    """Decode and return a sample; its payload is float32, shape (seconds * rate_hz,)."""
    return Sample(
        unit.id, np.concatenate([load(part) for part in unit.slices]), unit.label,
        duration_s=len(unit.slices) * SLICE_S, rate_hz=rate_hz, inferences=len(unit.slices),
        seed=unit.slices[0].seed if len(unit.slices) == 1 else None,
        cut_from=unit.slices[0].clip if len({part.clip for part in unit.slices}) == 1 else None,
    )  # fmt: skip


def draw(slices: Sequence[Slice], count: int, seed: int) -> list[Slice]:
    """Return ``count`` of the slices in their order, with labels as equal in number as possible.

    Slices are shuffled with ``seed``, and one slice of each label is taken in turn. If the numbers cannot be equal, the
    labels with one slice more are also random. ``count`` must not exceed ``len(slices)``.
    """
    rng = np.random.default_rng(seed)
    by_label = grouped(slices)
    labels = [sorted(by_label)[i] for i in rng.permutation(len(by_label))]
    piles = [[by_label[label][i] for i in rng.permutation(len(by_label[label]))] for label in labels]
    chosen = {part.id for part in _in_turns(piles)[:count]}
    return [part for part in slices if part.id in chosen]


def interleave(slices: Sequence[Slice]) -> list[Slice]:
    """Return the slices in an order in which labels alternate, so that an interrupted run includes every label."""
    return _in_turns([parts for _, parts in sorted(grouped(slices).items())])


def join(slices: Sequence[Slice], size: int) -> tuple[Unit, ...]:
    """Join slices to sequences of ``size`` slices, of one label if possible.

    At the end, the remaining slices of all labels are joined; such a sequence has the label None if its labels differ.
    Slices that do not fill a sequence are dropped.
    """
    whole: list[list[Slice]] = []
    rest: list[Slice] = []
    for _, parts in sorted(grouped(slices).items()):
        end = len(parts) - len(parts) % size
        whole += [parts[at : at + size] for at in range(0, end, size)]
        rest += parts[end:]
    whole += [rest[at : at + size] for at in range(0, len(rest) - size + 1, size)]
    labels = [{part.label for part in parts} for parts in whole]
    named = ((own.pop() if len(own) == 1 else None, parts) for own, parts in zip(labels, whole, strict=True))
    return tuple(Unit(f"sequence-{i:05d}", label, tuple(parts)) for i, (label, parts) in enumerate(named))


def grouped(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    """Return the slices of each label, in their order."""
    found: defaultdict[str, list[Slice]] = defaultdict(list)
    for part in slices:
        found[part.label].append(part)
    return dict(found)


def _in_turns(piles: Sequence[Sequence[Slice]]) -> list[Slice]:
    longest = max((len(pile) for pile in piles), default=0)
    return [pile[turn] for turn in range(longest) for pile in piles if turn < len(pile)]


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
