"""Start child processes in turn on a shared machine, measure how others disturb it, and repeat disturbed turns."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALM = 0.15
"""A run is undisturbed if other processes and the hypervisor use at most this many CPUs meanwhile."""
Row = dict[str, float]
Read = Callable[[Path], Row]


@dataclass(frozen=True)
class Job:
    """A run of one side: ``ours`` or ``peer``, the child's arguments, and the function that reads its files."""

    side: str
    arguments: tuple[str, ...]
    read: Read


@dataclass(frozen=True)
class Stage:
    """A scratch folder for children, the number of tries for an undisturbed turn, and the longest wait for calm (s)."""

    folder: Path
    tries: int
    patience_s: float

    def turn(self, jobs: Mapping[str, Job], timed: bool = True) -> dict[str, Row]:
        """Run all jobs in sequence until such a turn is undisturbed; return this turn, or the calmest of ``tries``.

        The choice depends on the load from others, never on the turn's result. If ``timed`` is false, the load is
        ignored.
        """
        best: dict[str, Row] = {}
        for _ in range(max(self.tries, 1) if timed else 1):
            found = {name: self._one(job, self.patience_s if timed else 0.0) for name, job in jobs.items()}
            if not best or disturbance(found) < disturbance(best):
                best = found
            if disturbance(best) <= CALM:
                break
        return best

    def _one(self, job: Job, patience_s: float) -> Row:
        out = self.folder / f"{job.side}-{time.monotonic_ns()}"
        calm(patience_s)
        before, began_s, own_s = _busy_s(), time.monotonic(), _children_s()
        cost = child(job.side, [*job.arguments, "--out", str(out)])
        wall_s = time.monotonic() - began_s
        others = (_busy_s() - before - (_children_s() - own_s)) / wall_s
        try:
            return job.read(out) | cost | {"others": max(others, 0.0)}
        finally:
            shutil.rmtree(out)


def child(side: str, arguments: list[str]) -> dict[str, Any]:
    """Run one child to its end; return its last line. Raises ``CalledProcessError`` if it fails.

    On our side, Arrow allocates its buffers from the system, as in the rig's command line, because Arrow's own pool
    does not give memory back.
    """
    command = [sys.executable, "-m", f"benchmarks.harness.{side}", *arguments]
    environment = os.environ | ({"ARROW_DEFAULT_MEMORY_POOL": "system"} if side == "ours" else {})
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=root)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def disturbance(rows: Mapping[str, Row]) -> float:
    """Return the number of CPUs that others used, in the most disturbed of these runs."""
    return max(row["others"] for row in rows.values())


def calm(patience_s: float) -> None:
    """Wait until others leave the machine alone for half a second, or until ``patience_s`` has passed."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        before, began_s = _busy_s(), time.monotonic()
        time.sleep(0.5)
        if (_busy_s() - before) / (time.monotonic() - began_s) <= CALM:
            return


def _busy_s() -> float:
    """Return the CPU seconds of all processes of this machine, plus those that the hypervisor withheld (Linux)."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
