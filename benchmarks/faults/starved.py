"""Starved recordings: a disk that is full at every size, and limits on files, open files and memory.

python -m benchmarks.faults.starved DIRECTORY     one recording in a small file system, judged there
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.faults.outcome import Outcome, Tally, left_by, rig

SAMPLES = 40
WORDS = (
    "measure", "--device", "mock", "--simulate", "--mode", "together", "--option", "idle_s=0.2", "--option",
    f"workload.samples={SAMPLES}", "--option", "rate_hz=20000",
)  # fmt: skip


def campaign(points: int, workers: int) -> Tally:
    """Record into file systems of ``points`` sizes, from nothing to all that is needed, and under other limits."""
    tally = Tally("full disks and limits")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        whole = Path(folder) / "whole"
        rig([*WORDS, "--out", str(whole)])
        events = [f for f in whole.rglob("*") if f.is_file() and "derived" not in f.parts]
        size = sum(f.stat().st_size for f in events)
        sizes = [max(4096, round(1.2 * size * (k + 1) / points)) for k in range(points)]
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
            tally.defects.append("no file system of limited size can be made here: unshare -Urm is not permitted")
            sizes = []
        for case, outcome, said in pool.map(full_disk, sizes):
            tally.add(case, outcome, said)
        for case, limit in limits(size):
            out = Path(folder) / f"limited-{len(tally.counts)}-{sum(tally.counts.values())}"
            tally.add(case, *left_by(rig([*WORDS, "--out", str(out)], before=("prlimit", limit)), out, SAMPLES))
    return tally


def full_disk(size: int) -> tuple[str, Outcome, str]:
    """Record into a file system of ``size`` bytes in memory."""
    with tempfile.TemporaryDirectory() as folder:
        script = f"mount -t tmpfs -o size={size} tmpfs {folder} && exec {sys.executable} -m {__spec__.name} {folder}"
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=False)
    case = f"disk of {size} bytes"
    try:
        outcome, said = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return case, Outcome.TRACEBACK, done.stdout + done.stderr
    return case, Outcome(outcome), said


def limits(size: int) -> Iterator[tuple[str, str]]:
    """Limits by name, each as an option of ``prlimit``."""
    for option, values in (
        ("fsize", [1 << 12, 1 << 14, 1 << 16, size // 4, size // 2, size]),
        ("nofile", [8, 12, 14, 16, 18, 20, 24, 32]),
        ("as", [int(g * 2**30) for g in (0.3, 0.5, 0.7, 0.9, 1.2, 1.6, 2.0)]),
    ):
        yield from ((f"{option} limited to {value}", f"--{option}={value}") for value in values)


if __name__ == "__main__":
    target = Path(sys.argv[1]) / "run"
    print(json.dumps(left_by(rig([*WORDS, "--out", str(target)]), target, SAMPLES)))
