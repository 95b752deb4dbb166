"""Describe Lava's QUBO network and count what Lava's CPU backend does in each step.

This module is shipped as source, for Python 3.10.

Variables are stochastic neurons. A variable sends its flips to its neighbours, and its local cost to one neuron that
sums costs. A spike arrives one step after it was sent. An execution is one step.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

_VARIABLES = ("flips", "operations", "active", "updates", "costs", "graded")
_COST = ("active", "updates")


def description(nodes: int, edges: Any) -> dict[str, Any]:
    """Return the fields of ``rig.network.description.NetworkInfo`` for a graph; ``edges`` has shape (m, 2).

    Bit widths are those that Lava's models declare. A sparse connection stores only weights that are not zero.
    """
    pairs, used = nodes * (nodes - 1), 2 * len(edges)
    degrees = np.bincount(edges.ravel(), minlength=nodes)
    ends = {"source": "variables", "delay": 1}
    memory = [
        ("weights variables-variables", "weights", used, 8),
        ("weights variables-cost", "weights", nodes, 8),
        ("temperature", "parameters", 1, 8),
        ("refractory times", "parameters", nodes, 8),
        ("refractory counters", "states", nodes, 8),
        ("histories of spikes", "states", nodes, 8),
        ("local costs", "states", nodes, 24),
        ("cost and least cost", "states", 2, 32),
    ]
    return {
        "layers": [{"name": "variables", "neurons": nodes}, {"name": "cost", "neurons": 1}],
        "connections": [
            {"name": "variables-variables", "target": "variables", "weights": pairs, "zeros": pairs - used,
             "dense": pairs, "fan_out_max": int(degrees.max()), **ends},
            {"name": "variables-cost", "target": "cost", "weights": nodes, "zeros": 0, "dense": nodes,
             "fan_out_max": 1, **ends},
        ],
        "memory": [dict(zip(("name", "kind", "elements", "bits"), row, strict=True)) for row in memory],
        "convention": "Lava's NEBM network: the bits that its models declare, weights of 0 and addresses not counted",
    }  # fmt: skip


class Counters:
    """The counters, kept in two files. In each step, processes of the network append one row to each file.

    These processes are forks of the worker. ``fan_out`` is the number of synapses of each variable, int, shape (n,).
    """

    def __init__(self, run_config: Any, fan_out: Any) -> None:
        self._files: dict[tuple[str, ...], Any] = {columns: tempfile.TemporaryFile() for columns in (_VARIABLES, _COST)}  # noqa: SIM115
        _wire_variables(run_config, self._files[_VARIABLES].fileno(), fan_out)
        _wire_cost(run_config, self._files[_COST].fileno())

    def output(self) -> dict[str, int]:
        """Return how many spikes variables have sent, one for each flip, and how many synapses these spikes reach."""
        rows = self._rows(_VARIABLES)
        return {"spikes": int(rows["flips"].sum()), "synaptic_operations": int(rows["operations"].sum())}

    def activity(self) -> dict[str, dict[str, bytes]]:
        """Return the counters of every step, in the form that ``drivers/workers/serve.py`` describes."""
        variables, cost = self._rows(_VARIABLES), self._rows(_COST)
        # if any cost in a step is not -1, 0 or 1, all operations of this step are counted as multiply-accumulates
        graded = variables["costs"] * variables["graded"]
        counted = {
            "variables": {name: variables[name] for name in ("active", "updates")},
            "cost": cost,
            "variables-variables": {"acs": _later(variables["operations"]), "macs": 0 * graded},
            "variables-cost": {"acs": _later(variables["costs"] - graded), "macs": _later(graded)},
        }
        return {part: {name: a.tobytes() for name, a in counts.items()} for part, counts in counted.items()}

    def close(self) -> None:
        """Delete the files."""
        for file in self._files.values():
            file.close()

    def _rows(self, columns: tuple[str, ...]) -> dict[str, Any]:
        file = self._files[columns].fileno()
        data = os.pread(file, os.fstat(file).st_size, 0)
        return dict(zip(columns, np.frombuffer(data, "<i8").reshape(-1, len(columns)).T, strict=True))


def _later(counts: Any) -> Any:
    """Shift counts by one step: from the step in which spikes are sent to the step in which they arrive."""
    return np.concatenate((np.zeros(min(1, len(counts)), "<i8"), counts[:-1]))


def _wire_variables(run_config: Any, file: int, fan_out: Any) -> None:
    """Make Lava's NEBM neurons count their own operations."""
    from lava.lib.optimization.solvers.generic.nebm.models import NEBMPyModel
    from lava.lib.optimization.solvers.generic.nebm.process import NEBM
    from lava.magma.core.decorator import implements, requires, tag
    from lava.magma.core.resources import CPU
    from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

    @implements(proc=NEBM, protocol=LoihiProtocol)
    @requires(CPU)
    @tag("fixed_pt")
    class CountedNebm(NEBMPyModel):  # type: ignore[misc]
        def _generate_wta_spikes(self, spk_hist_buffer: Any) -> Any:
            self.sent = super()._generate_wta_spikes(spk_hist_buffer)
            return self.sent

        def _generate_sigma_spikes(self, spk_hist_buffer: Any) -> Any:
            costs = super()._generate_sigma_spikes(spk_hist_buffer)
            flipped, telling = np.ravel(self.sent) != 0, np.ravel(costs) != 0
            row = (
                flipped.sum(),
                fan_out[flipped].sum(),
                (flipped | telling).sum(),
                np.count_nonzero(self.a_in_data),
                telling.sum(),
                np.any(np.abs(costs) > 1),
            )
            os.write(file, np.array(row, "<i8").tobytes())
            return costs

    run_config.exception_proc_model_map[NEBM] = CountedNebm


def _wire_cost(run_config: Any, file: int) -> None:
    """Make the neuron that sums costs count the better costs that it sends, and the changes of its own cost."""
    from lava.lib.optimization.solvers.generic.cost_integrator.models import CostIntegratorModel
    from lava.lib.optimization.solvers.generic.cost_integrator.process import CostIntegrator
    from lava.magma.core.decorator import implements, requires
    from lava.magma.core.resources import CPU
    from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

    @implements(proc=CostIntegrator, protocol=LoihiProtocol)
    @requires(CPU)
    class CountedCost(CostIntegratorModel):  # type: ignore[misc]
        def run_spk(self) -> None:
            before = self._costs()
            super().run_spk()
            changed = before != self._costs()  # the best cost so far, then the current cost
            os.write(file, changed.astype("<i8").tobytes())

        def _costs(self) -> Any:
            first = np.concatenate((self.cost_min_first_byte, self.cost_first_byte)).astype(int)
            return (first << 24) + np.concatenate((self.cost_min_last_bytes, self.cost_last_bytes))

    run_config.exception_proc_model_map[CostIntegrator] = CountedCost
