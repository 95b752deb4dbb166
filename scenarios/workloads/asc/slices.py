"""One-second slices of audio: choose and order them, and make samples of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.types import Sample

SLICE_S = 1.0

Loader = Callable[["Slice"], NDArray[np.float32]]


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

    At the end, the remaining slices of all labels are joined to sequences with the label None. Slices that do not fill
    a sequence are dropped.
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
