"""Define a quantity, a number with its uncertainty, and the key of a figure.

The key names the quantity, its phase and rail, and its method. A quantity has value, unit, components, bias bound,
count and method. It follows the GUM (JCGM 100:2008). Components combine in quadrature (5.1.2). Components with a shared
origin combine linearly first (5.2.2). The interval uses Student's t at the effective degrees of freedom (G.4.1,
Welch-Satterthwaite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.result.distributions import normal_quantile, student_quantile

CONFIDENCE = 0.95

TRIMMED = "trimmed"
"""The method of a cross-check: powers and energies from windows whose ends are cut off."""
CALIBRATION = ("gain:", "offset:")
"""Prefixes of origins of error that belong to an instrument. Most other origins, such as a clock, belong to one run."""
LITERAL = "literal"
"""The method of NeuroBench's text: mean power over exactly the spans, and energy from this power."""
PEER = "peer"
"""The method of the program that recorded the trace, for the figures that it would compute."""


_MOST_LOG = 7.0
"""No interval reaches further above its value than this on a logarithmic scale, which is a factor of about 1100."""


class Component(Struct, frozen=True):
    """One source of error, as a signed standard uncertainty in the unit of the quantity.

    ``shared`` names an origin of error that can also affect other quantities, such as the gain of one meter. The sign
    of ``u`` says in which direction the origin changes this quantity.
    """

    source: str
    u: float
    dof: float = math.inf
    shared: str | None = None


class Quantity(Struct, frozen=True):
    """A measured or derived number.

    ``bias`` is a bound for errors that repeating the measurement does not reveal.
    """

    value: float
    """In ``unit``."""
    unit: str
    """An SI unit, "B" (bytes) or "1"."""
    components: tuple[Component, ...] = ()
    """The sources of its uncertainty; if empty, no uncertainty is stated."""
    bias: float = 0.0
    """In ``unit``."""
    n: int = 0
    """The number of values from which it is computed."""
    method: str = ""
    """How it was computed, in words."""
    limits: tuple[float, float] | None = None
    """The 95 % interval of a share of counts, of an exact count or of a percentile, which is not symmetric.

    If None, it follows from components and bias.
    """
    positive: bool = False
    """Whether it is above zero by its nature, as a time is; then the interval is on a logarithmic scale."""

    @property
    def stated(self) -> bool:
        """Return whether an uncertainty is stated; a number without a stated uncertainty need not be exact."""
        return bool(self.components or self.bias or self.limits)

    @property
    def u(self) -> float:
        """Return the combined standard uncertainty; shared components are added with their signs first."""
        return _combined(self.components)[0]

    @property
    def dof(self) -> float:
        """Return the effective degrees of freedom (GUM G.2b)."""
        return _combined(self.components)[1]

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Return half of the stated interval, ``t(dof) * u + bias``, or its wider side."""
        return max(abs(side - self.value) for side in self.interval(confidence))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the stated interval as (low, high)."""
        if self.limits is not None and confidence == CONFIDENCE:
            return self.limits
        u, dof = _combined(self.components)
        half = coverage_factor(dof, confidence) * u + self.bias
        if self.positive and self.value > 0.0:
            factor = math.exp(min(half / self.value, _MOST_LOG))
            return self.value / factor, self.value * factor
        return self.value - half, self.value + half

    def scaled(self, factor: float, unit: str, method: str | None = None) -> Quantity:
        """Return this quantity times an exact number."""
        ends = sorted(factor * side for side in self.limits or ())
        return replace(
            self,
            value=self.value * factor,
            unit=unit,
            components=tuple(replace(c, u=c.u * factor) for c in self.components),
            bias=self.bias * abs(factor),
            limits=(ends[0], ends[1]) if ends else None,
            method=self.method if method is None else method,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form in ``results.json``.

        Infinite degrees of freedom become null, and so does an uncertainty that is not stated.
        """
        u, dof = _combined(self.components)
        return {
            "value": self.value,
            "unit": self.unit,
            "standard_uncertainty": u if self.stated else None,
            "dof": _finite(dof),
            "bias_bound": self.bias,
            "interval_95": list(self.interval()) if self.stated else None,
            "n": self.n,
            "method": self.method,
            "components": [
                {"source": c.source, "u": c.u, "dof": _finite(c.dof), "shared": c.shared} for c in self.components
            ],
        }


def from_json(data: Mapping[str, Any]) -> Quantity:
    """Return the quantity of a JSON form; this is the inverse of ``Quantity.to_json``."""
    found = Quantity(
        value=data["value"],
        unit=data["unit"],
        components=tuple(
            Component(c["source"], c["u"], math.inf if c["dof"] is None else c["dof"], c["shared"])
            for c in data["components"]
        ),
        bias=data["bias_bound"],
        n=data["n"],
        method=data["method"],
    )
    low, high = data["interval_95"] or found.interval()
    return found if (low, high) == found.interval() else replace(found, limits=(low, high))


def linear(terms: Iterable[tuple[float, Quantity]], unit: str, method: str, n: int | None = None) -> Quantity:
    """Return the sum of ``factor * quantity``; components with a shared origin stay correlated.

    ``n`` is by default the largest count among the terms.
    """
    terms = list(terms)
    merged: dict[tuple[str, str], Component] = {}
    loose: list[Component] = []
    for factor, quantity in terms:
        for c in quantity.components:
            u = c.u * factor
            if c.shared is None:
                loose.append(Component(c.source, u, c.dof))
            else:
                key = (c.source, c.shared)
                u += merged[key].u if key in merged else 0.0
                merged[key] = Component(c.source, u, c.dof, c.shared)
    return Quantity(
        value=sum(factor * q.value for factor, q in terms),
        unit=unit,
        components=(*loose, *merged.values()),
        bias=sum(abs(factor) * q.bias for factor, q in terms),
        n=max((q.n for _, q in terms), default=0) if n is None else n,
        method=method,
    )


def product(a: Quantity, b: Quantity, unit: str, method: str) -> Quantity:
    """Return the first-order product (GUM 5.1.3): each factor's components are scaled by the other's value."""
    summed = linear([(b.value, a), (a.value, b)], unit, method, n=max(a.n, b.n))
    return replace(summed, value=a.value * b.value)


def widened(value: float, limits: tuple[float, float], u: float) -> tuple[float, float]:
    """Return the limits of a number above zero with a further error added in quadrature, on a logarithmic scale."""
    more = coverage_factor(math.inf) * u / value
    below, above = (math.hypot(math.log(end / value), more) for end in limits)
    return value * math.exp(-below), value * math.exp(min(above, _MOST_LOG))


def owned(q: Quantity, owner: str, common: Callable[[str], bool]) -> Quantity:
    """Return the quantity with ``owner`` before each origin of error, except those that ``common`` says are shared."""
    parts = (
        c if c.shared is None or common(c.shared) else replace(c, shared=f"{owner}:{c.shared}") for c in q.components
    )
    return replace(q, components=tuple(parts))


def coverage_factor(dof: float, confidence: float = CONFIDENCE) -> float:
    """Return the quantile of Student's t for a two-sided interval."""
    p = 0.5 * (1.0 + confidence)
    return normal_quantile(p) if math.isinf(dof) else student_quantile(p, max(dof, 1.0))


def _combined(components: tuple[Component, ...]) -> tuple[float, float]:
    """Return the standard uncertainty and the degrees of freedom of the sum of the components."""
    shared: dict[str, tuple[float, float]] = {}
    parts: list[tuple[float, float]] = []
    for c in components:
        if c.shared is None:
            parts.append((c.u, c.dof))
        else:
            u, dof = shared.get(c.shared, (0.0, math.inf))
            shared[c.shared] = (u + c.u, min(dof, c.dof))
    parts += shared.values()
    total = sum(u * u for u, _ in parts)
    spread = sum(u**4 / dof for u, dof in parts if math.isfinite(dof))
    return math.sqrt(total), total * total / spread if spread > 0 else math.inf


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


class FigureKey(Struct, frozen=True, order=True):
    """The key of one figure; ``quantity`` is the name of an entry in ``rig.analysis.result.figure_catalogue``.

    An empty ``phase`` or ``rail`` means all phases or all rails. An empty ``method`` means the rig's own method. The
    name of a quantity can contain ``{target}``, ``{threshold}`` or ``{percentile}``, which stand for the fields of
    these names. ``window`` counts from 1. ``layer`` is a layer or connection of the network, and ``sample`` a sample of
    the workload, or a session of learning. ``str(key)`` is the name of the figure in ``results.json``.
    """

    quantity: str
    phase: str = ""
    rail: str = ""
    method: str = ""
    target: str = ""
    threshold: float = 0.0
    percentile: float = 0.0
    window: int = 0
    layer: str = ""
    sample: str = ""

    @property
    def of_whole(self) -> bool:
        """Return whether the figure is the rig's own and covers the whole device."""
        return not (self.phase or self.rail or self.method or self.layer or self.sample)

    def __str__(self) -> str:
        target = self.target.replace(".", "_") if self.threshold else self.target
        digits = {name: f"{getattr(self, name):g}".replace(".", "_") for name in ("threshold", "percentile")}
        quantity = self.quantity.format(target=target, **digits)
        where = [self.method] if self.method else []
        for name in ("phase", "rail", "layer", "sample", "window"):
            where += [name, str(value)] if (value := getattr(self, name)) else []
        return ".".join([*where, quantity])


class Figures(Mapping[FigureKey, Quantity]):
    """Quantities by key, in the order in which they were computed.

    A name from ``results.json``, such as ``figures["active_power_w"]``, also finds its figure.
    """

    def __init__(self, quantities: Mapping[FigureKey, Quantity] | None = None) -> None:
        self._quantities = dict(quantities or {})

    @cached_property
    def _by_name(self) -> dict[str, Quantity]:
        return {str(key): quantity for key, quantity in self._quantities.items()}

    def __getitem__(self, key: FigureKey | str) -> Quantity:
        found = None if isinstance(key, str) else self._quantities.get(key)
        return self._by_name[str(key)] if found is None else found

    def __iter__(self) -> Iterator[FigureKey]:
        return iter(self._quantities)

    def __len__(self) -> int:
        return len(self._quantities)

    def __or__(self, other: Mapping[FigureKey, Quantity]) -> Figures:
        return Figures({**self._quantities, **other})

    def __repr__(self) -> str:
        return f"Figures({self._by_name})"
