"""Independent-set local search on this computer as an anytime QUBO solver on one core.

The search is in ``drivers/devices/cpu/mis/search.py``. The walk depends on the seed and not on the budget: with a
shorter budget, the same walk ends earlier. ``stage`` compiles the search and loads the graph. The clock is read between
slices of the walk, which become shorter towards the deadline.
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

from drivers.devices.cpu.dwave import device_of
from rig.plugins import imported
from rig.solving.device import Tally, solver_info
from rig.types import Device
from scenarios.workloads.qubo_mis.graph import Graph

NAME = "cpu-mis"
_MEASURED_MOVES = 4096
_LONGEST_SLICE_S = 0.01
_SHARE = 0.25
"""One slice takes at most this share of the remaining time, but at least ``_LEAST_MOVES``."""
_LEAST_MOVES = 4


def open_device(*, seed: int = 0, default_s: float = 1.0, longest_s: float = 120.0) -> Device:
    """Open the local search. The seed of solve number k is drawn from ``seed`` and k.

    ``default_s`` is the budget of a solve that has none. ``longest_s`` is the longest budget. A solve that states only
    a cost at which to stop has this budget too. Raises ``UsageError`` for options out of range, and
    ``MissingExtraError`` without numba.
    """
    walker = _Walker(imported("drivers.devices.cpu.mis.search", f"device {NAME}", "qubo", field="device", value=NAME))
    info = solver_info(
        NAME, "independent-set local search on one core of this computer", ("numba", "numpy"), longest_s,
        schedule_depends_on_budget=False, cost="tracked by the solver within the span",
        solver="local search over independent sets by swaps, drivers/devices/cpu/mis/search.py",
        tuning="drivers/devices/cpu/mis/search.py, from nodes and density alone; every answer states the values",
    )  # fmt: skip
    return device_of(walker, info, seed, default_s, longest_s)


@dataclass(frozen=True)
class _Walker:
    """The search, from a module imported when the device opens."""

    search: Any

    def load(self, graph: Graph) -> tuple[Any, float]:
        """Return the graph in the form for the search, and the moves per second, measured in a separate walk."""
        loaded = self.search.load(graph)
        walk = self.search.Search(loaded, -1)
        walk.advance(_MEASURED_MOVES)
        before, began = walk.moves, time.perf_counter()
        while walk.moves - before < _MEASURED_MOVES:
            walk.advance(_MEASURED_MOVES)
        return loaded, (walk.moves - before) / (time.perf_counter() - began)

    def solve(self, loaded: tuple[Any, float], tally: Tally) -> None:
        """Walk until the time left is too short for another slice, at the measured moves per second."""
        graph, moves_per_s = loaded
        walk = self.search.Search(graph, tally.seed)
        tally.tuning = asdict(graph.parameters)
        least_s = _LEAST_MOVES / moves_per_s
        while (spare_s := tally.spare_s()) > least_s:
            moves = max(_LEAST_MOVES, int(moves_per_s * min(_SHARE * spare_s, _LONGEST_SLICE_S)))
            tally.begin(moves / moves_per_s)
            if walk.advance(moves):
                tally.offer(walk.cost, walk.solution())
