"""What both harnesses are given: the same samples, the same wait for an answer, the same look at the process.

Imports nothing but numpy, so that neither side pays for the other's packages.
"""

from __future__ import annotations

import json
import os
import time
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
    """The samples' payloads: small, since neither harness looks at them."""
    return [np.zeros(4, np.float32) for _ in range(SAMPLES)]


def waiting(how: Wait) -> Callable[[int], int]:
    """How a device passes the time until a moment of the monotonic clock (ns); gives the time then."""
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


@dataclass(frozen=True)
class Cost:
    """What a call cost its process: wall, CPU and queue for a CPU in seconds, peak of resident memory in bytes."""

    wall_s: float
    cpu_s: float
    queued_s: float
    peak_b: int


def costed(call: Callable[[], object]) -> Cost:
    """Run ``call``, at real-time priority where ``FIRST`` is set.

    The peak is VmHWM: ``ru_maxrss`` of a process started from a large one is that one's.
    """
    if FIRST in os.environ:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    queued_s, cpu_s, wall_s = _queued_s(), time.process_time(), time.perf_counter()
    call()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return Cost(wall_s, cpu_s, _queued_s() - queued_s, _peak_b())


def said(cost: Cost) -> None:
    """What a child says last: one line for its parent."""
    print(json.dumps(asdict(cost)))


def _queued_s() -> float:
    """Seconds that the main thread stood ready without a CPU (Linux, /proc/PID/schedstat, second field)."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9


def _peak_b() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
