"""Small workers for the tests of remote devices, run by this interpreter or by one behind a substitute for ssh."""

import os
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from drivers.links.remote_device import RemoteDevice
from drivers.links.worker_link import Worker
from rig.types import Budget, Device, Repeats, Reply, Sample
from tests.support.waiting import until

HONEST = """
import os, subprocess, sys, time

class Worker:
    about = {"name": "honest", "mode": "simulator", "phases": ["inference"], "timeout_s": 60.0, "versions": {"w": "1"}}

    def __init__(self, options):
        self.options, self.samples = options, {}

    def stage(self, samples):
        self.samples = {sample["id"]: sample for sample in samples}

    def run(self, sample_id, budget):
        on_ns = time.monotonic_ns()
        output = self.output(self.samples[sample_id], budget)
        return {"output": output, "spans": [["inference", on_ns, time.monotonic_ns(), 1]]}

    def output(self, sample, budget):
        return {"payload": sample["payload"]["data"].hex(), "shape": sample["payload"]["shape"],
                "dtype": sample["payload"]["dtype"], "budget": budget, "rate_hz": sample["rate_hz"],
                "options": self.options}

    def close(self):
        pass

def open_worker(options):
    return Worker(options)
"""


def worker(body: str = "", *, timeout_s: float = 60.0, **terms: Any) -> Worker:
    """Return an honest worker whose methods of the same name are replaced by those of ``body``."""
    source = HONEST.replace('"timeout_s": 60.0', f'"timeout_s": {timeout_s}')
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    changed = f"{source}\nclass Changed(Worker):\n    pass\n{indented}\n\n"
    changed += "def open_worker(options):\n    return Changed(options)\n"
    return Worker("test", [("changed", changed)], **terms)


def opened(body: str = "", *, load_s: float = 60.0, **terms: Any) -> RemoteDevice:
    return RemoteDevice(worker(body, **terms), load_s=load_s)


def asked(
    device: Device, *samples: Sample, times: int = 1, phase: str | None = None, budget: Budget | None = None,
    within_s: float = 20.0,
) -> list[Reply]:  # fmt: skip
    """Stage, submit and wait for all answers; with ``times`` or a ``phase``, the work is looped."""
    device.stage(samples)
    if times > 1 or phase is not None:
        assert isinstance(device, Repeats)
        device.submit_repeated(samples, times, phase, budget)
    else:
        device.submit(samples, budget)
    return answers(device, len(samples), within_s)


def answer(device: Device, sample: Sample, **how: Any) -> Any:
    """Ask one sample as ``asked`` does."""
    return asked(device, sample, **how)[0]


def of_worker(body: str, sample: Sample, budget: Budget | None = None, **terms: Any) -> Any:
    """Return the answer of a changed worker to a sample, and end it."""
    with closing(opened(body, **terms)) as device:
        return answer(device, sample, budget=budget)


def answers(device: Device, count: int, within_s: float = 20.0) -> list[Reply]:
    until_s = time.monotonic() + within_s
    replies: list[Reply] = []
    while len(replies) < count:
        assert time.monotonic() < until_s, "no answer and no error"
        replies += device.poll(0.2)
    return replies


def awaited(device: Device) -> Reply:
    """Return the next reply, within 50 s."""
    return answers(device, 1, 50.0)[0]


def living() -> dict[int, int]:
    """Return the group of each process that has not ended."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            if state not in "ZX":
                found[int(path.parent.name)] = int(group)
    return found


def members(group: int) -> list[int]:
    """Return the living processes of a group."""
    return [pid for pid, own in living().items() if own == group]


def gone(pids: Iterable[int]) -> None:
    """Fail unless these processes end soon. Unless it is ended, what a test starts lives for a minute."""
    until(lambda: living().keys().isdisjoint(pids), 30.0)


def script(path: Path, text: str) -> str:
    """Write a shell script that can be run, and return its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def stand_in_ssh(folder: Path) -> dict[str, str]:
    """Return an environment in which ``ssh ... HOST COMMAND`` runs the command in a local shell."""
    script(folder / "ssh", 'for last; do :; done\nexec sh -c "$last"')
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
