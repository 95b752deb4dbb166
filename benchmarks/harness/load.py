"""Common parts of the harnesses of the rig and of LoadGen: samples, the wait for an answer, and the process's cost.

Besides numpy, this module imports no package, so that neither side loads the other side's packages.
"""

import json
import os
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SAMPLES = 1000
FIRST = "BENCHMARK_AT_REAL_TIME_PRIORITY"
Wait = Literal["spin", "sleep"]


def arrays() -> list[NDArray[np.float32]]:
    """Return the payloads of the samples. They are small, because no harness reads them."""
    return [np.zeros(4, np.float32) for _ in range(SAMPLES)]


def waiting(how: Wait) -> Callable[[int], int]:
    """Return the function that waits until a time of the monotonic clock (ns) and then returns the time."""
    now_ns, sleep = time.monotonic_ns, time.sleep

    def spin(until_ns: int) -> int:
        at_ns = now_ns()
        while at_ns < until_ns:
            at_ns = now_ns()
        return at_ns

    def asleep(until_ns: int) -> int:
        sleep(max(until_ns - now_ns(), 0) * 1e-9)
        return spin(until_ns)

    return spin if how == "spin" else asleep


def parser_of(about: str, out: str) -> ArgumentParser:
    """Return the command-line parser of one side; ``out`` describes what it writes into a new directory."""
    parser = ArgumentParser(description=about)
    parser.add_argument("scenario", choices=("single", "server"))
    parser.add_argument("--out", type=Path, required=True, help=f"a new directory: {out}")
    parser.add_argument("--queries", type=int, default=1000, help="single: queries; the rig issues at least these")
    parser.add_argument("--rate", type=float, default=200.0, help="server: mean arrivals per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="server: how long")
    parser.add_argument("--seed", type=int, default=1, help="server: seed of the arrivals")
    parser.add_argument("--answer-s", type=float, default=0.0, help="time until the answer (s)")
    parser.add_argument("--wait", choices=("spin", "sleep"), default="spin")
    return parser


@dataclass(frozen=True)
class Cost:
    """The cost of a call in its process: wall time, CPU time and wait for a CPU (s), peak resident memory (bytes)."""

    wall_s: float
    cpu_s: float
    queued_s: float
    peak_b: int


def costed(call: Callable[[], object]) -> Cost:
    """Run ``call``, at real-time priority if ``FIRST`` is set in the environment.

    The peak comes from VmHWM, because a process inherits the ``ru_maxrss`` of the process that starts it.
    """
    if FIRST in os.environ:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    queued_s, cpu_s, wall_s = _queued_s(), time.process_time(), time.perf_counter()
    call()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return Cost(wall_s, cpu_s, _queued_s() - queued_s, status_b("VmHWM"))


def said(cost: Cost) -> None:
    """Print the cost as a child's last line, for its parent process."""
    print(json.dumps(asdict(cost)))


def _queued_s() -> float:
    """Return the seconds that the main thread waited for a CPU (Linux, /proc/PID/schedstat, second field)."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9


def status_b(name: str) -> int:
    """Return a size of this process in bytes from Linux's /proc/self/status, such as its peak ``VmHWM``."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024
