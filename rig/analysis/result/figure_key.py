"""Define the key of a figure, which names its quantity, its phase and rail, and its method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rig.analysis.result.quantity import Quantity

TRIMMED = "trimmed"
"""The method of a cross-check: powers and energies from windows whose ends are cut off."""
LITERAL = "literal"
"""The method of NeuroBench's text: mean power over exactly the spans, and energy from this power."""
PEER = "peer"
"""The method of the program that recorded the trace, for the figures that it would compute."""


@dataclass(frozen=True, order=True, slots=True)
class FigureKey:
    """The key of one figure; ``quantity`` is the name of an entry in ``rig.analysis.result.catalogue``.

    An empty ``phase`` or ``rail`` means all phases or all rails. An empty ``method`` means the rig's own method. The
    name of a quantity can contain ``{target}``, ``{threshold}`` or ``{percentile}``, which stand for the fields of
    these names. ``window`` counts from 1. ``layer`` is a layer of the network, and ``sample`` one of
    the workload. ``str(key)`` is the name of the figure in ``results.json``.
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
