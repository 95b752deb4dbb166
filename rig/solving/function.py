"""Your own solver as a device: a function that takes a model of dimod and returns or yields dimod sample sets."""

import inspect
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rig.engine.blocking_device import Power
from rig.errors import DeviceError, unfit
from rig.plugins import imported
from rig.solving.device import SolverDevice, Tally, solver_info
from rig.solving.model import Qubo, from_bqm, problem_in
from rig.types import DeviceInfo

PATIENCE_S = 10.0
"""A solve ends if its generator neither yields nor returns for this long (s) after its time; no other solve begins."""
ROUNDED = 1e-6
"""A sampler's energy may differ from the cost by this, relative or absolute, because of rounding."""
GIVES = ("timeout_s", "stop_at_cost", "seed")
"""Parameters that a solver gets if it has them."""
Solve = Callable[..., Any]


def solver(
    solve: Solve,
    info: DeviceInfo | None = None,
    *,
    seed: int = 0,
    default_s: float = 1.0,
    longest_s: float = 120.0,
    power: Power | None = None,
) -> SolverDevice[Any]:
    """Make a device of a function that solves a ``dimod.BinaryQuadraticModel``.

    The function gets a copy of the model, of bits 0 to n - 1, and returns a ``dimod.SampleSet``; its best sample is the
    answer. A generator is an anytime solver: it yields a sample set for each solution, and is closed when its time is
    up or the cost to stop at is reached. If the function has these parameters, ``timeout_s`` gets the budget of the
    solve in seconds, ``stop_at_cost`` the cost to stop at or None, and ``seed`` a new seed for each solve. A solution
    found after the time is up is not valid. A solve without a budget gets ``default_s``; ``longest_s`` is the
    longest budget. ``power`` is as for ``blocking``.

    Raises ``UsageError`` for an object that is not a function of a model, and for options out of range.

    Example::

        import dimod
        import rig

        def open_device() -> rig.Device:
            return rig.solver(lambda model: dimod.ExactSolver().sample(model))
    """
    given = _given(solve)
    name = getattr(solve, "__name__", type(solve).__name__)
    anytime = inspect.isgeneratorfunction(solve)
    about = solver_info(
        name, "a function of a binary quadratic model on this computer", ("dimod", "numpy"), longest_s,
        schedule_depends_on_budget="timeout_s" in given, solver=name, anytime=anytime,
    )  # fmt: skip
    about = about if info is None else replace(info, details={**about.details, **info.details})
    return SolverDevice(
        about, _loaded, lambda loaded, tally: _solved(solve, given, loaded, tally), seed=seed, default_s=default_s,
        longest_s=longest_s, problem_of=problem_in, fresh=lambda loaded: (loaded[0], loaded[1].copy()), power=power,
        from_empty=False, patience_s=PATIENCE_S if anytime else math.inf,
    )  # fmt: skip


def _given(solve: Solve) -> list[str]:
    """Return the parameters that a solver gets besides the model. Raises ``UsageError`` for an unsuitable function."""
    if not callable(solve):
        raise unfit("solve", type(solve).__name__, "is no function", "Give a function of a dimod.BinaryQuadraticModel")
    parameters = inspect.signature(solve).parameters
    given = [name for name in GIVES if name in parameters]
    try:
        inspect.signature(solve).bind(None, **dict.fromkeys(given))
    except TypeError as error:
        remedy = f"It gets a model, and by name what it takes of {', '.join(GIVES)}. Give its other parameters defaults"
        raise unfit("solve", getattr(solve, "__name__", "function"), f"cannot be called: {error}", remedy) from error
    return given


def _loaded(problem: Any) -> tuple[Qubo, Any]:
    model = problem.to_bqm()
    return (problem if isinstance(problem, Qubo) else from_bqm(model)[0]), model


def _solved(solve: Solve, given: list[str], loaded: tuple[Qubo, Any], tally: Tally) -> None:
    """Call the solver, and offer what it returns or yields, until no time is left."""
    problem, model = loaded
    stop = tally.stop_at_cost if np.isfinite(tally.stop_at_cost) else None
    values = {"timeout_s": max(tally.left_s(), 0.0), "stop_at_cost": stop, "seed": tally.seed}
    found = solve(model, **{name: values[name] for name in given})
    if not isinstance(found, Iterator):
        tally.offer(*_best(found, problem))
        return
    step_s = 0.0  # a step begins only if there is time for one as long as the last
    while (left_s := tally.left_s()) > 0 and left_s > step_s:
        began_ns = time.monotonic_ns()
        if (answer := next(found, None)) is None:
            break
        tally.offer(*_best(answer, problem))
        step_s = (time.monotonic_ns() - began_ns) * 1e-9
    if hasattr(found, "close"):
        found.close()


def _best(answer: Any, problem: Qubo) -> tuple[float, Any, float | None]:
    """Return the cost and the bits of the best sample of a sample set, and its energy if that is another number.

    Raises ``DeviceError`` for anything but a sample set of the problem.
    """
    dimod = imported("dimod", "a solver", "qubo", field="device")
    remedy = "Return a dimod.SampleSet; dimod.SampleSet.from_samples_bqm(samples, model) makes one"
    if not isinstance(answer, dimod.SampleSet):
        raise DeviceError(f"the solver gave a {type(answer).__name__}", field="solver", remedy=remedy)
    if not len(answer) or set(answer.variables) != set(range(problem.nodes)):
        what = f"the solver gave {len(answer)} samples of {len(answer.variables)} variables for {problem.nodes} bits"
        raise DeviceError(what, field="solver", remedy=f"{remedy}, with the variables of the model")
    best = int(np.argmin(answer.record.energy))
    bits = np.zeros(problem.nodes, np.uint8)
    bits[np.asarray(list(answer.variables))] = answer.record.sample[best] > 0
    cost, stated = problem.cost(bits), float(answer.record.energy[best])
    differs = math.isfinite(stated) and not math.isclose(stated, cost, rel_tol=ROUNDED, abs_tol=ROUNDED)
    return cost, bits, stated if differs else None
