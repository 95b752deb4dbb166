"""The findings of ``rig doctor``: one line each, ok, doubtful or broken, with a remedy."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rig.errors import RigError, SetupError

Level = Literal["ok", "doubtful", "broken"]
LEVELS: tuple[Level, ...] = ("ok", "doubtful", "broken")
Number = float | int | str | None
PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9), ("p", 1e-12))


@dataclass(frozen=True)
class Finding:
    """One result about ``topic`` of ``item``. ``values`` are in SI units.

    The unit is in the name of a value, or in the value ``unit``. ``exit_code`` is that of the error behind a broken
    finding, else 0.
    """

    item: str
    topic: str
    level: Level
    text: str
    remedy: str = ""
    values: Mapping[str, Number] = field(default_factory=dict)
    exit_code: int = 0

    def line(self) -> str:
        """Return the finding as one printed line."""
        mend = f". {self.remedy}" if self.remedy else ""
        return " ".join(f"{self.level:9}{self.item:12} {self.topic:11} {self.text}{mend}".split("\n"))

    def to_json(self) -> dict[str, Any]:
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in self.values.items()}
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"values": plain}


def ok(item: str, topic: str, text: str, **values: Number) -> Finding:
    """Return a finding that needs no remedy."""
    return Finding(item, topic, "ok", text, values=values)


def checked(item: str, topic: str, text: str, remedy: str, **values: Number) -> Finding:
    """Return a finding that is doubtful if there is a remedy, else ok."""
    return Finding(item, topic, "doubtful" if remedy else "ok", text, remedy, values)


def broken(
    item: str, topic: str, text: str, remedy: str, error: type[RigError] = SetupError, **values: Number
) -> Finding:
    """Return a finding for an item that does not measure, or measures wrongly; ``error`` gives the exit code."""
    return Finding(item, topic, "broken", text, remedy, values, error.exit_code)


def of_error(item: str, topic: str, error: RigError) -> Finding:
    return Finding(item, topic, "broken", error.message, error.remedy, exit_code=error.exit_code)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return the largest exit code of the findings."""
    return max((f.exit_code for f in findings), default=0)


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each level, with the items that are not ok."""
    count = Counter(f.level for f in findings)
    parts = [f"{count[level]} {level}" for level in LEVELS]
    for k, level in ((1, "doubtful"), (2, "broken")):
        who = dict.fromkeys(f.item for f in findings if f.level == level)
        parts[k] += f" ({', '.join(who)})" if who else ""
    return f"{len(findings)} findings: {', '.join(parts)}"


def si(value: float, unit: str, digits: int = 3) -> str:
    """Return a value with an SI prefix: ``si(2e-5, "s")`` is ``20 us``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    letter, scale = next((p for p in PREFIXES if abs(value) >= p[1] * (1 - 1e-9)), PREFIXES[-1])
    return f"{rounded(value / scale, digits)} {letter}{unit}"


def rounded(value: float, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits; ``rounded(345.6, 2)`` is ``350``, not 3.5e+02."""
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"
