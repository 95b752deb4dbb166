"""Judge two results by a limit: is a figure of the second worse than that of the first by more than the limit?"""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from msgspec.structs import replace

from rig.analysis.result.distributions import normal_quantile
from rig.analysis.result.figure_catalogue import CATALOGUE
from rig.analysis.result.quantity import FigureKey, Quantity, coverage_factor
from rig.comparing.compare import METERS, RAILS, Comparison, apart, of_instrument
from rig.errors import UsageError, closest, refused
from rig.terminal import command

EXAMPLE = "energy_per_inference_j > +5%"
POWER = 0.8
"""The chance that the named number of samples decides, if the change is as large as found."""
MOST_TIMES = 1000.0
"""A required number of samples is named only up to this many times the present number."""
MAY_DIFFER = ("device:", "rules:", METERS, RAILS)
"""Declarations in which two compared results may differ; for powers and energies see ``_other_power``."""
_CHANGE = r"(?P<change>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_FORM = re.compile(rf"\s*(?P<figure>[^\s<>=]+)\s*(?P<sign>[<>])\s*{_CHANGE}\s*(?P<of>%?)\s*")
Outcome = Literal["not worse", "not decided", "worse"]


@dataclass(frozen=True)
class Limit:
    """By how much a figure may change, in its unit or relative to its magnitude in the first result."""

    text: str
    figure: str
    above: bool
    """Whether more is worse."""
    change: float
    relative: bool


@dataclass(frozen=True)
class Judged:
    """A limit and the change that was found, with its 95 % interval; in the figure's unit, or relative (1 is 100 %)."""

    limit: Limit
    outcome: Outcome
    change: float
    low: float
    high: float
    samples_more: int | None
    """How many more samples of each result would probably decide.

    None if the outcome is decided, or if more than ``MOST_TIMES`` as many samples would be needed.
    """
    of_counts: bool = False
    """Whether the figure is a share of counts; then more trials of the same samples add no evidence."""

    def to_json(self) -> dict[str, Any]:
        """Return the limit and what was found as a JSON object."""
        return {**asdict(self), "limit": self.limit.text}


def limit_of(text: str) -> Limit:
    """Read a limit. Raises ``UsageError`` for a text that is no limit."""
    found = _FORM.fullmatch(text)
    change = float(found["change"]) if found else math.nan
    if found is None or not math.isfinite(change):
        remedy = f"Write a figure, > or <, and a change, such as '{EXAMPLE}'"
        raise refused("fail-if", text, remedy, f"{text!r} is no limit")
    relative = bool(found["of"])
    return Limit(text.strip(), found["figure"], found["sign"] == ">", change / 100 if relative else change, relative)


def judged(c: Comparison, limit: Limit) -> Judged:
    """Judge one figure of two results: it is decided if the 95 % interval of the change excludes the limit.

    Each decision is wrong in at most 2.5 % of the cases. Raises ``UsageError`` for results that cannot be compared,
    and for a figure that one of them lacks or states without an interval.
    """
    key = _checked(c, limit)
    a, b = c.first.result.quantities[key], c.second.result.quantities[key]
    one = abs(a.value) if limit.relative else 1.0
    (d,) = (d for d in c.differences if d.key == key)
    beyond = limit.change * one
    if d.paired is not None and d.low is not None and d.high is not None:
        over = Quantity(d.value, a.unit, limits=(d.low, d.high), n=max(a.n, b.n))
    else:
        factor = 1.0 + limit.change * math.copysign(1.0, a.value) if limit.relative else 1.0
        over = apart(key, c.first, c.second, c.instruments, factor)
        if not over.stated:
            why = "has a single execution in one of the two, which does not show how executions scatter"
            raise _refused(limit, f"{limit.figure} {why}", "Measure several samples, or with --trials 5")
        beyond = 0.0 if limit.relative else beyond
    limits = None if over.limits is None else (over.limits[0] - beyond, over.limits[1] - beyond)
    over = replace(over, value=over.value - beyond, limits=limits)
    low, high = over.interval()
    worse, fine = (low > 0.0, high < 0.0) if limit.above else (high < 0.0, low > 0.0)
    outcome: Outcome = "worse" if worse else "not worse" if fine else "not decided"
    more = None if worse or fine else _samples_more(over, max(a.n, b.n))
    change, low, high = (limit.change + x / one for x in (over.value, low, high))
    return Judged(limit, outcome, change, low, high, more, over.limits is not None)


def _samples_more(over: Quantity, n: int) -> int | None:
    """Return how many more samples of each result suffice to decide with the chance ``POWER``; None for too many.

    Errors shrink with the root of the number of samples, except a calibration, limits of a level, and a bias.
    """
    if over.limits is not None:
        own, fixed, sure = (over.limits[1] - over.limits[0]) / (2 * coverage_factor(math.inf)), 0.0, 0.0
    else:
        calibration = replace(over, components=tuple(x for x in over.components if of_instrument(x.shared)))
        fixed, sure = calibration.u, over.bias
        own = math.sqrt(max(over.u**2 - fixed**2, 0.0))

    def missing(times: float) -> float:
        left = own / math.sqrt(times)
        doubt = coverage_factor(over.dof) * math.hypot(left, fixed) + sure
        return doubt + normal_quantile(POWER) * left - abs(over.value)

    if missing(MOST_TIMES) > 0.0:
        return None
    few, many = 1.0, MOST_TIMES
    while many - few > 1e-3 * few:
        times = math.sqrt(few * many)
        few, many = (times, many) if missing(times) > 0.0 else (few, times)
    return max(math.ceil((many - 1.0) * n), 1)


def _checked(c: Comparison, limit: Limit) -> FigureKey:
    """Return the key of the figure that a limit names. Raises ``UsageError`` if the figure cannot be judged."""
    if unlike := [what for what in c.unlike if not what.startswith(MAY_DIFFER)]:
        remedy = f"Measure the second as the first: {command('measure', '--like', c.first.path)}"
        raise _refused(limit, f"{c.first.path} and {c.second.path} cannot be compared: {'; '.join(unlike)}", remedy)
    for subject in (c.first, c.second):
        if (validity := subject.result.validity) is not None and not validity.valid:
            remedy = f"See what it breaks: {command('report', subject.path)}"
            raise _refused(limit, f"{subject.path} is INVALID", remedy)
    a, b = ({str(key): key for key in subject.result.quantities} for subject in (c.first, c.second))
    for subject, known in ((c.first, a), (c.second, b)):
        if limit.figure not in known:
            near = closest(limit.figure, a.keys() & b.keys(), "`rig compare --verbose` shows every figure")
            why = next(iter(subject.result.refusals if limit.figure in CATALOGUE else ()), None)
            what = f"{subject.path} does not state {limit.figure}"
            raise _refused(limit, f"{what}: {why.reason}" if why else what, why.remedy if why else near)
    key = a[limit.figure]
    one, other = c.first.result.quantities[key], c.second.result.quantities[key]
    if not (one.stated and other.stated):
        raise _refused(limit, f"{limit.figure} states no uncertainty", "Name a figure with an interval")
    if one.unit in ("W", "J", "1/J") and (other_power := _other_power(c, key)):
        what = f"{limit.figure} of {c.first.path} and {c.second.path} cannot be compared: {other_power}"
        instead = ", or name a figure of a rail that both have" if other_power.startswith(RAILS) else ""
        raise _refused(limit, what, f"Measure the second as the first{instead}")
    if limit.relative and one.value == 0.0:
        raise _refused(limit, f"{limit.figure} of {c.first.path} is 0", "Give the change in its unit, without %")
    if not limit.relative and abs(limit.change) > abs(one.value) > 0.0:
        what = f"{limit.change:g} {one.unit} is more than the figure itself, {one.value:.3g} {one.unit}"
        raise _refused(limit, what, f"For a part of the figure write %, such as '{limit.figure} > +5%'")
    return key


def _other_power(c: Comparison, key: FigureKey) -> str:
    """Return the difference that forbids comparing two powers: modes of meters, or rails in totals of one device."""
    other_device = any(what.startswith("device:") for what in c.unlike)
    kinds = (METERS,) if key.rail or other_device else (METERS, RAILS)
    return next((what for what in c.unlike if what.startswith(kinds)), "")


def _refused(limit: Limit, what: str, remedy: str) -> UsageError:
    return refused("fail-if", limit.text, remedy, what)
