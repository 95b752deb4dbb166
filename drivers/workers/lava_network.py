"""Lava's QUBO network, with each part called separately. This module is shipped as source, for Python 3.10.

``OptimizationSolver.solve`` builds, compiles, starts, runs and stops a network in one call. Here ``_prepare_solver``
and ``create_runtime`` belong to loading, and ``run`` belongs to solving. Each ``run`` continues where the last one
stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time
from typing import Any, NamedTuple

import numpy as np

from drivers.workers.common import Refusal
from drivers.workers.lava_counting import Counters

MARGIN = 1.1
"""A call may take up to this many times its measured time."""
SHARE = 0.25
"""A *slice* is one call of ``run``. It may take this share of the time left."""
LONGEST_SLICE_S = 0.1
_NO_TARGET = -(2**30)
"""No set has a cost this low, so Lava's own target never ends a solve."""
_MEASURED_S = 0.15
_SETTLE_S = 0.2
_FEW_STEPS = 4
"""A slice has at least this many steps, while the time left is enough for them; the last slices may have fewer.

If ``SHARE`` of the time left is too short for them, a slice may take all of the time left.
"""
_HEAD = struct.Struct("=qqqI")
_PR_SET_PDEATHSIG = 1


class Found(NamedTuple):
    """A better solution, and the time at which Lava's readout received it."""

    ns: int
    step: int
    cost: int
    packed: bytes


class Network:
    """A compiled and started network that has made no step yet. ``hyperparameters`` are Lava's own."""

    def __init__(self, q: Any, backend: str, hyperparameters: dict[str, Any], seed: int) -> None:
        from lava.lib.optimization.problems.problems import QUBO
        from lava.lib.optimization.solvers.generic.solver import OptimizationSolver, SolverConfig
        from lava.magma.core.process.process import ProcessServer
        from lava.magma.core.process.variable import VarServer

        for server in (ProcessServer, VarServer):
            server().reset_server()  # otherwise each server would keep every network
        self._pipe, pipe_end = os.pipe()
        os.set_blocking(self._pipe, False)
        np.random.seed(seed)  # the network's processes are forks: their random numbers start from this state
        solver = OptimizationSolver(QUBO(q))
        config = SolverConfig(timeout=1, target_cost=_NO_TARGET, backend=backend, hyperparameters=hyperparameters)
        _, run_config = solver._prepare_solver(config)
        _wire_readout(run_config, pipe_end)
        self.counters: Counters | None = None
        """Counters of the network's activity; None on a board."""
        if backend == "CPU":
            _wire_nebm(run_config)
            self.counters = Counters(run_config, np.count_nonzero(q - np.diag(np.diag(q)), axis=1))
        self._process = solver.solver_process
        self._process.create_runtime(run_cfg=run_config)
        os.close(pipe_end)
        if backend == "CPU":  # on the CPU, starting makes no step (observed); a board starts with its first step
            self.run(0)
            time.sleep(_SETTLE_S)

    def run(self, steps: int) -> None:
        from lava.magma.core.run_conditions import RunSteps

        self._process.run(condition=RunSteps(num_steps=steps))

    def found(self) -> list[Found]:
        """Return the better solutions that were found since the last call, in order."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._pipe, 1 << 16):
                data += part
        found = []
        while data:
            ns, step, cost, size = _HEAD.unpack_from(data)
            end = _HEAD.size + size
            found.append(Found(ns, step, cost, data[_HEAD.size : end]))
            data = data[end:]
        return found

    def stop(self) -> None:
        """End the network's processes."""
        self._process.stop()
        os.close(self._pipe)
        if self.counters is not None:
            self.counters.close()


class Rate:
    """The time of a call of ``run``, the time of each step, and the extra time of a network's first call (s).

    Each slice of a solve but the first updates ``step_s``.
    """

    def __init__(self, call_s: float, step_s: float, first_s: float) -> None:
        self.call_s, self.step_s, self.first_s = call_s, step_s, first_s

    def steps(self, left_s: float, first: bool) -> int:
        """Return the number of steps for the next slice, so that it ends in time."""
        spare_s = left_s / MARGIN - self.call_s - first * self.first_s
        steps = int(min(SHARE * spare_s, max(LONGEST_SLICE_S, _FEW_STEPS * self.step_s)) / self.step_s)
        return steps if steps >= _FEW_STEPS else max(0, int(spare_s / self.step_s))

    def saw(self, steps: int, took_s: float) -> None:
        """Update ``step_s`` from the time that a slice took."""
        self.step_s = max(0.5 * self.step_s, (took_s - self.call_s) / steps)


def measured(network: Network) -> Rate:
    """Measure the rate of a network. The network makes steps, so it cannot be used for a solve afterwards."""
    first_s = _timed(network, _FEW_STEPS)
    short_s = min(_timed(network, 1) for _ in range(3))
    steps = 16
    while (long_s := _timed(network, steps)) < _MEASURED_S:
        steps *= 2
    step_s = max((long_s - short_s) / (steps - 1), 1e-9)
    call_s = max(short_s - step_s, 1e-6)
    return Rate(call_s, step_s, max(0.0, first_s - call_s - _FEW_STEPS * step_s))


def _timed(network: Network, steps: int) -> float:
    began_s = time.monotonic()
    network.run(steps)
    network.found()
    return time.monotonic() - began_s


def _wire_readout(run_config: Any, pipe_end: int) -> None:
    """Make Lava's readout, a process on the host in both backends, write each better solution to a pipe.

    Otherwise a solution would have to be fetched afterwards, with one message for each of its values.
    """
    from lava.lib.optimization.solvers.generic.monitoring_processes.solution_readout.models import (
        SolutionReadoutPyModel,
    )
    from lava.lib.optimization.solvers.generic.monitoring_processes.solution_readout.process import SolutionReadout

    class Readout(SolutionReadoutPyModel):  # type: ignore[misc]
        def _printout_new_solution(self, cost: Any, min_cost_id: Any, timestep: Any) -> None:
            ns = time.monotonic_ns()
            packed = np.packbits(np.asarray(self.solution).ravel() == 1).tobytes()
            # a state reaches the readout two steps late
            head = _HEAD.pack(ns, abs(int(timestep)) - 2, int(np.ravel(cost)[0]), len(packed))
            os.write(pipe_end, head + packed)

    run_config.exception_proc_model_map[SolutionReadout] = Readout


def _wire_nebm(run_config: Any) -> None:
    """Connect Lava's own NEBM neurons: lava-optimization 0.5 still has them, but does not connect them on the CPU."""
    from lava.lib.optimization.solvers.generic.hierarchical_processes import DiscreteVariablesProcess, NEBMAbstract
    from lava.magma.core.decorator import implements, requires
    from lava.magma.core.model.sub.model import AbstractSubProcessModel
    from lava.magma.core.resources import CPU
    from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

    @implements(proc=DiscreteVariablesProcess, protocol=LoihiProtocol)
    @requires(CPU)
    class NebmOnCpu(AbstractSubProcessModel):  # type: ignore[misc]
        def __init__(self, proc: Any) -> None:
            shape, given = proc.proc_params.get("shape"), proc.hyperparameters
            diagonal = np.asarray(proc.proc_params.get("cost_diagonal")).astype(int)
            self.s_bit = NEBMAbstract(
                shape=shape,
                cost_diagonal=diagonal,
                temperature=given.get("temperature", 1),
                refract=given["refract"],
                refract_counter=given["refract_counter"],
                init_value=np.zeros(shape, dtype=int),
                init_state=diagonal,
            )
            proc.in_ports.a_in.connect(self.s_bit.in_ports.added_input)
            self.s_bit.out_ports.messages.connect(proc.out_ports.s_out)
            self.s_bit.out_ports.local_cost.connect(proc.out_ports.local_cost)
            proc.vars.variable_assignment.alias(self.s_bit.prev_assignment)

    run_config.exception_proc_model_map[DiscreteVariablesProcess] = NebmOnCpu


def use_board(partition: str, board: str, address: str, loihi_gen: str) -> None:
    """Point Lava at a board of this host's SLURM, or at the board (a Kapoho Point) with a network ``address``.

    Lava sets LOIHI_GEN to N3B3 by default, so the environment's LOIHI_GEN is passed on. Raises a ``Refusal`` that names
    what is missing.
    """
    from lava.utils import loihi

    remedy = "Add --simulate for Lava's CPU backend, or run on a host of Intel's neuromorphic research cloud"
    if not loihi.is_installed():
        raise Refusal("SetupError", "Lava's extension for Loihi 2 (lava-loihi) is not installed", remedy, "lava-loihi")
    try:
        made = loihi.ChipGeneration(loihi_gen or os.environ.get("LOIHI_GEN") or "N3B3")
        if address:
            loihi.use_ethernet_host(address, loihi_gen=made)
        else:
            loihi.use_slurm_host(partition=partition or None, board=board or None, loihi_gen=made)
    except (ImportError, ValueError, OSError) as error:
        what = f"no Loihi 2 board at {address}" if address else "no Loihi 2 board through SLURM"
        field, value = ("address", address) if address else ("board", board)
        raise Refusal("SetupError", f"{what}: {error}", remedy, field, value) from error


def die_with_parent() -> None:
    """Let each process that Lava forks end together with the worker (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
