"""Benches of labs by kind and seed: recorded, evaluated, and how far off their dynamic power is."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run

POWER = FigureKey("dynamic_power_w")


def lab_of(kind: str, seed: int) -> Lab:
    """A lab of a kind, or of several that are joined by +."""
    lab = plain_lab(seed, kind)
    for each in kind.split("+"):
        KINDS[each](lab)
    return lab


def measured(lab: Lab, folder: Path) -> Result:
    """The result of a lab's recording, which is made in ``folder``."""
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run"))


def evaluated(kind: str, seed: int, folder: Path) -> tuple[Lab, Result]:
    """The lab and the result of a kind."""
    lab = lab_of(kind, seed)
    return lab, measured(lab, folder)


def off(lab: Lab, result: Result, key: FigureKey = POWER) -> float:
    """The error of a figure in half-widths; one interval in twenty is off by more than one."""
    q = result.quantities[key]
    return abs(q.value - lab.truth()[key.quantity]) / q.half_width()
