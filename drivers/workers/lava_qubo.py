"""Lava's QUBO solver as a worker of ``drivers/workers/serve.py``. It is shipped as source, for Python 3.10.

A span begins when the graph is loaded and compiled. A budget in seconds is spent in slices of Lava's time steps. Their
length follows from the time of a step, which is measured on a separate network when the graph is staged, and then on
each slice but the first.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import time
import warnings
from typing import Any

import numpy as np

from drivers.workers import lava_network as net
from drivers.workers.common import decoded, unimportable, versions
from drivers.workers.lava_counting import description

PACKAGES = ("lava-nc", "lava-optimization", "numpy", "scipy")
NODE_COST, PAIR_COST = -1, 4
_KEPT_RATES = 64
PLACE = ("partition", "board", "address", "loihi_gen")


def open_worker(options: dict[str, Any]) -> Solver:
    """Open the solver. Raises a ``Refusal`` if Lava or a board is missing.

    Options: ``simulate``, ``neuron_model``, ``hyperparameters``, ``refract`` (None: chosen from the graph), ``seed``,
    ``longest_s``, and the names in ``PLACE``.
    """
    warnings.simplefilter("ignore")
    os.register_at_fork(after_in_child=net.die_with_parent)
    try:
        importlib.import_module("lava.lib.optimization.solvers.generic.solver")
    except Exception as error:  # a Python too new for Lava's dataclasses raises ValueError
        remedy = "Name an interpreter of Python 3.10 with lava-optimization 0.5.0 (option interpreter)"
        raise unimportable("Lava", error, remedy) from error
    if not options["simulate"]:
        net.use_board(*(options[key] for key in PLACE))
    return Solver(options)


class Problem:
    """A graph: ``edges`` (shape (m, 2)) and a digest of its bytes."""

    def __init__(self, payload: dict[str, Any]) -> None:
        flat = decoded(payload)
        self.nodes, self.edges = int(flat[0]), flat[2:].reshape(-1, 2)
        self.digest = hashlib.sha256(payload["data"]).hexdigest()
        self.degree = 2.0 * len(self.edges) / self.nodes
        self.network = description(self.nodes, self.edges)

    def q(self) -> Any:
        """Return the benchmark's matrix, integers: -1 on the diagonal, and 4 for each ordered pair that is an edge."""
        q = np.zeros((self.nodes, self.nodes), dtype=int)
        q[self.edges[:, 0], self.edges[:, 1]] = PAIR_COST
        q[self.edges[:, 1], self.edges[:, 0]] = PAIR_COST
        np.fill_diagonal(q, NODE_COST)
        return q

    def cost(self, x: Any) -> int:
        """Return x^T Q x."""
        inside = int(np.count_nonzero(x[self.edges[:, 0]] & x[self.edges[:, 1]]))
        return 2 * PAIR_COST * inside + NODE_COST * int(np.count_nonzero(x))


class Solver:
    """The worker. It has one network at a time, which is built before its solve begins."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._backend = "CPU" if options["simulate"] else "Loihi2"
        self._problems: dict[str, Problem] = {}
        self._rates: dict[str, net.Rate] = {}
        self._ready: tuple[str, int, net.Network] | None = None
        self._solves = 0
        self.about = self._about()

    def stage(self, samples: list[dict[str, Any]]) -> None:
        """Keep the graphs, measure the step rate of each, and load the first."""
        self._problems = {sample["id"]: Problem(sample["payload"]) for sample in samples}
        for problem in self._problems.values():
            self._rate(problem)
        if samples:
            self._loaded(self._problems[samples[0]["id"]])

    def run(self, sample_id: str, budget: list[Any]) -> dict[str, Any]:
        """Solve. The span begins when the graph is loaded and ends with the last slice."""
        problem = self._problems[sample_id]
        rate, network = self._rate(problem), self._loaded(problem)
        self._ready = None
        solve = Solve(problem, budget, self._seed())
        self._solves += 1
        solve.spend(network, rate)
        answer = solve.answer()
        if network.counters is not None:
            answer["output"] |= network.counters.output()
            answer |= {"network": problem.network, "activity": network.counters.activity()}
        network.stop()  # not in a ``finally``: stopping a failed network would hide the error
        return answer

    def close(self) -> None:
        """End a loaded network that no solve has used."""
        if self._ready is not None:
            self._ready[2].stop()
            self._ready = None

    def _loaded(self, problem: Problem) -> net.Network:
        """Return the network for the next solve of a problem; build it unless it is ready."""
        seed = self._seed()
        if self._ready is None or self._ready[:2] != (problem.digest, seed):
            self.close()
            self._ready = (problem.digest, seed, self._network(problem, seed))
        return self._ready[2]

    def _seed(self) -> int:
        """Return the seed of the next solve, drawn from the device's seed and the number of the solve."""
        return int(np.random.SeedSequence([self._options["seed"], self._solves]).generate_state(1)[0]) >> 1

    def _network(self, problem: Problem, seed: int) -> net.Network:
        drawn: dict[str, Any] = {"refract_seed": seed}
        if self._options["neuron_model"] == "nebm":
            given, draw = self._options["refract"], np.random.default_rng(seed)
            most = max(3, round(problem.degree / 12)) if given is None else int(given)
            drawn = {name: draw.integers(0, most + 1, problem.nodes) for name in ("refract", "refract_counter")}
        hyperparameters = {**drawn, **self._options["hyperparameters"], "neuron_model": self._options["neuron_model"]}
        return net.Network(problem.q(), self._backend, hyperparameters, seed)

    def _rate(self, problem: Problem) -> net.Rate:
        if problem.digest not in self._rates:
            self.close()
            network = self._network(problem, self._options["seed"])
            rate = net.measured(network)
            network.stop()
            while len(self._rates) >= _KEPT_RATES:
                self._rates.pop(next(iter(self._rates)))
            self._rates[problem.digest] = rate
        return self._rates[problem.digest]

    def _about(self) -> dict[str, Any]:
        options, simulate = self._options, self._options["simulate"]
        where = "Lava's CPU backend, stepped in Python processes" if simulate else "a Loihi 2 board, through Lava"
        details = {
            "schedule_depends_on_budget": False,
            "solver": f"Lava's QUBO solver, neuron model {options['neuron_model']}",
            "tuning": "hyperparameters alike for all problems, refract by nodes and density alone",
            "cost": "tracked by the solver within the span, computed again from each solution after it",
            "backend": self._backend,
            "neuron_model": options["neuron_model"],
            "hyperparameters": dict(options["hyperparameters"]),
            "refract": "max(3, mean degree / 12)" if options["refract"] is None else options["refract"],
            "slices": f"{net.SHARE} of the time left, {net.LONGEST_SLICE_S} s or 4 steps at most",
            "processor": platform.processor() or platform.machine(),
            **{key: options[key] for key in PLACE},
        }
        details |= {"times_of": "Lava's CPU backend on this computer"} if simulate else {}
        if simulate and options["neuron_model"] == "nebm":
            details["wiring"] = "Lava's NEBM process and CPU model, which lava-optimization 0.5 no longer connects"
        return {
            "name": "loihi2",
            "mode": "simulator" if simulate else "hardware",
            "description": f"Lava's QUBO solver ({options['neuron_model']}) on {where}",
            "phases": ["solve"],
            "timeout_s": 1.1 * options["longest_s"] + 120.0,
            "versions": {"python": platform.python_version(), **versions(PACKAGES)},
            "details": details,
        }


class Solve:
    """One solve, from the loaded graph to the end of its last slice. It starts with the empty set, whose cost is 0."""

    def __init__(self, problem: Problem, budget: list[Any], seed: int) -> None:
        self._problem, self._seed = problem, seed
        self._budget_s, stop = float(budget[0]), budget[1]
        self._stop = float("-inf") if stop is None else float(stop)
        self._found: list[net.Found] = []
        self._steps, self._running_s = 0, 0.0
        self._on_ns = self._off_ns = time.monotonic_ns()
        self._deadline_ns = self._on_ns + round(self._budget_s * 1e9)

    def spend(self, network: net.Network, rate: net.Rate) -> None:
        """Run slices until the deadline, or until the best cost is at most the budget's cost to stop at."""
        best = 0
        while best > self._stop and (steps := rate.steps(self._left_s(), first=not self._steps)) > 0:
            began_s = time.monotonic()
            network.run(steps)
            found = network.found()
            took_s = time.monotonic() - began_s
            if self._steps:
                rate.saw(steps, took_s)
            self._steps, self._running_s = self._steps + steps, self._running_s + took_s
            self._found += found
            best = min([best, *(one.cost for one in found)])
        self._off_ns = time.monotonic_ns()

    def _left_s(self) -> float:
        return (self._deadline_ns - time.monotonic_ns()) * 1e-9

    def answer(self) -> dict[str, Any]:
        """Return the reply in builtins, with costs computed again from the solutions.

        ``late_cost`` is the least cost of better solutions that came after the deadline, None without any.
        """
        empty = np.packbits(np.zeros(self._problem.nodes, np.uint8)).tobytes()
        progress: list[list[Any]] = [[self._on_ns, 0.0, empty]]
        late_cost, miscounted, best_step = None, 0, -1
        for one in self._found:
            cost = self._problem.cost(np.unpackbits(np.frombuffer(one.packed, np.uint8))[: self._problem.nodes])
            miscounted += cost != one.cost
            if cost >= progress[-1][1]:
                continue
            if one.ns > self._deadline_ns:
                late_cost = cost if late_cost is None else min(cost, late_cost)
                continue
            progress.append([one.ns, float(cost), one.packed])
            best_step = one.step
        output = {
            "cost": int(progress[-1][1]),
            "solution": progress[-1][2].hex(),
            "budget_s": self._budget_s,
            "overrun_s": max(0, self._off_ns - self._deadline_ns) * 1e-9,
            "late_cost": late_cost,
            "seed": self._seed,
            "schedule_depends_on_budget": False,
            "solver_cost": min([0, *(one.cost for one in self._found)]),
            "miscounted": miscounted,
            "best_step": best_step,
            "steps": self._steps,
            "steps_hz": self._steps / self._running_s if self._steps else 0.0,
        }
        return {"output": output, "spans": [["solve", self._on_ns, self._off_ns, 1]], "progress": progress}
