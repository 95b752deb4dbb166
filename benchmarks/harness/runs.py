"""Children started in turn on a machine that others may be using: who disturbed, and when to look again."""

from __future__ import annotations

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
"""CPUs that others (and the hypervisor) may use during a run that counts as undisturbed."""
Row = dict[str, float]
Read = Callable[[Path], Row]


@dataclass(frozen=True)
class Job:
    """One side's run: ``ours`` or ``peer``, the child's arguments, and what is read from what it left."""

    side: str
    arguments: tuple[str, ...]
    read: Read


@dataclass(frozen=True)
class Stage:
    """Where children run: a scratch folder, how often to repeat what was disturbed, how long to wait for calm."""

    folder: Path
    tries: int
    patience_s: float

    def turn(self, jobs: Mapping[str, Job], timed: bool = True) -> dict[str, Row]:
        """Run every job once, one after the other, until a turn was calm; else the calmest of ``tries``.

        A turn is chosen by what others did meanwhile, never by its result. Without ``timed`` it does not
        matter what others do.
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
    """One child to its end; what it said. Raises ``CalledProcessError`` when it fails.

    Ours allocates Arrow's buffers from the system, as the command line of the rig does: the pool that Arrow
    takes by itself keeps what it was once given.
    """
    command = [sys.executable, "-m", f"benchmarks.harness.{side}", *arguments]
    environment = os.environ | ({"ARROW_DEFAULT_MEMORY_POOL": "system"} if side == "ours" else {})
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=root)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def disturbance(rows: Mapping[str, Row]) -> float:
    """CPUs that others used, at the worst of these runs."""
    return max(row["others"] for row in rows.values())


def calm(patience_s: float) -> None:
    """Wait until others leave the machine alone for half a second, or until patience ends."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        before, began_s = _busy_s(), time.monotonic()
        time.sleep(0.5)
        if (_busy_s() - before) / (time.monotonic() - began_s) <= CALM:
            return


def _busy_s() -> float:
    """CPU seconds that this machine was at work for anyone, or was not given by its hypervisor (Linux)."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
