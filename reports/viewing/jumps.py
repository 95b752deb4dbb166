"""Find spans of a run that readers may want to see: the first, and the extremes of duration, energy and power."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reports.format import si
from rig.terminal import clean
from rig.types import Floats, Indices

EACH = 3
"""At most this many spans are listed for each title and phase."""
MOST_PHASES = 6


@dataclass(frozen=True)
class Jump:
    """One span to go to, in run seconds, with its title and text."""

    title: str
    text: str
    low: float
    high: float


def jumps_of(
    phases: Mapping[str, Floats], energy_j: Mapping[str, Floats], clipped: Mapping[str, Indices] | None = None
) -> list[Jump]:
    """Return spans to look at: first, slowest, fastest, most energetic, farthest from the phase's mean, and clipped.

    ``phases`` hold windows (k, 2) in run seconds. For each span of a phase, ``energy_j`` (k,) is its energy, NaN if
    unknown, and ``clipped`` (k,) the number of its clipped readings.
    """
    found: list[Jump] = []
    for name, windows in list(phases.items())[:MOST_PHASES]:
        if not len(windows):
            continue
        length = windows[:, 1] - windows[:, 0]
        order = np.argsort(length, kind="stable")
        for title, which in (("first", np.arange(1)), ("slowest", order[::-1]), ("fastest", order)):
            found += _rows(title, name, windows, which, [si(x, "s") for x in length[which[:EACH]].tolist()])
        if name in energy_j:
            found += _by_energy(name, windows, length, energy_j[name])
        if clipped is not None and name in clipped:
            counts = clipped[name]
            most = np.argsort(-counts, kind="stable")[: int(np.count_nonzero(counts))]
            found += _rows("clipped", name, windows, most, [f"{k} readings" for k in counts[most[:EACH]].tolist()])
    titles = list(dict.fromkeys(jump.title for jump in found))
    return sorted(found, key=lambda jump: titles.index(jump.title))


def _by_energy(name: str, windows: Floats, length: Floats, energy: Floats) -> list[Jump]:
    known = np.flatnonzero(np.isfinite(energy) & (length > 0))
    if not len(known):
        return []
    most = known[np.argsort(-energy[known], kind="stable")]
    watts = energy[known] / length[known]
    off = watts - energy[known].sum() / length[known].sum()
    far = np.argsort(-np.abs(off), kind="stable")
    said = [f"{'+' if x > 0 else '−'}{si(abs(x), 'W', 3)}" for x in off[far[:EACH]].tolist()]
    return [
        *_rows("most energetic", name, windows, most, [si(x, "J", 3) for x in energy[most[:EACH]].tolist()]),
        *_rows("farthest from the mean power of their phase", name, windows, known[far], said),
    ]


def _rows(title: str, phase: str, windows: Floats, which: Indices, said: list[str]) -> list[Jump]:
    return [
        Jump(title, f"{clean(phase)} {k + 1}: {text}", *windows[k].tolist())
        for k, text in zip(which[:EACH].tolist(), said, strict=True)
    ]
