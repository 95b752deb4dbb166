"""Benches of labs by kind and seed: recorded, evaluated, and how far off their figures are."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run
from tests.support.figures import POWER, refused, said


def lab_of(kind: str, seed: int) -> Lab:
    """Return a lab of a kind, or of several kinds that are joined by +."""
    lab = plain_lab(seed, kind)
    for each in kind.split("+"):
        KINDS[each](lab)
    return lab


def measured(lab: Lab, folder: Path) -> Result:
    """Return the result of a lab's recording, which is made in ``folder``."""
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run"))


def evaluated(kind: str, seed: int, folder: Path) -> tuple[Lab, Result]:
    """Return the lab and the result of a kind."""
    lab = lab_of(kind, seed)
    return lab, measured(lab, folder)


def off(lab: Lab, result: Result, key: FigureKey = POWER) -> float:
    """Return the error of a figure in half-widths; one in twenty errors is above 1."""
    q = result.quantities[key]
    return abs(q.value - lab.truth()[key.quantity]) / q.half_width()


@dataclass(frozen=True)
class World:
    """A bench of a kind, perhaps changed, and what its result must show."""

    kind: str
    seeds: tuple[int, ...]
    change: Callable[[Lab], object] = lambda lab: None
    off: float = 1.5
    """The errors of ``figures`` in half-widths are at most this."""
    figures: tuple[FigureKey, ...] = (POWER,)
    narrow: float = math.inf
    """The half-width of dynamic power over its value is at most this."""
    bias: tuple[float, float] = (0.0, math.inf)
    """The bias of dynamic power over its value is between these."""
    says: str = ""
    never_says: str = ""
    part: str = ""
    """Dynamic power has this source of uncertainty."""
    no_part: str = ""
    failed: tuple[str, ...] | None = None
    """Exactly these checks fail."""
    refused: str = ""
    """Dynamic power is refused for this reason."""

    def check(self, seed: int, folder: Path) -> None:
        """Measure one bench, and check that its result shows what it must."""
        lab = lab_of(self.kind, seed)
        self.change(lab)
        result = measured(lab, folder)
        assert self.failed in (None, tuple(f.rule for f in result.findings if f.effect == "check" and not f.ok))
        if self.refused:
            assert refused(result, self.refused) and all(r.remedy for r in result.refusals), result.refusals
            return
        assert {key: by for key in self.figures if (by := off(lab, result, key)) > self.off} == {}
        assert not self.says or said(result, self.says), result.notes
        assert not self.never_says or not said(result, self.never_says), result.notes
        power = result.quantities[POWER]
        sources = {c.source for c in power.components}
        assert power.half_width() <= self.narrow * abs(power.value)
        assert self.bias[0] <= power.bias / abs(power.value) <= self.bias[1]
        assert self.part in {"", *sources} and self.no_part not in sources
