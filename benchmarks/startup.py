"""How long does a command take before it does anything? ``rig --help`` and ``rig list``, by the wall's clock.

Beside them, the processor time of ``rig report`` of a short run, most of which is imports.

    python -m benchmarks.startup

Medians of processes started in turn, beside an interpreter that does nothing. Prints a table and, last,
one JSON line; exits 1 when a command takes longer than the goal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fixtures.worlds.lab_recording import plain_lab, write

GOAL_S = 0.150


def commands() -> dict[str, list[str]]:
    """What is timed, by name; the installed script where there is one."""
    script = Path(sys.executable).with_name("rig")
    start = [str(script)] if script.exists() else [sys.executable, "-c", "from rig.commands.main import main; main()"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "rig --help": [*start, "--help"],
        "rig list": [*start, "list"],
    }


def one(argv: list[str]) -> float:
    """Seconds from start to exit of one process. Raises ``CalledProcessError`` when it fails."""
    before_s = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - before_s


def report_cpu_s(times: int) -> list[float]:
    """Seconds of processor time of each of so many processes that report the same short run."""

    def used_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write(plain_lab(1, "startup"), run)
        argv = [*commands()["rig list"][:-1], "report", str(run)]
        marks = [used_s()]
        for _ in range(times):
            subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            marks.append(used_s())
    return [after - before for before, after in itertools.pairwise(marks)]


def main() -> int:
    """Time the commands in turn, so that a busy moment hits them alike."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=20, metavar="N")
    times = parser.parse_args().times
    timed = commands()
    for argv in timed.values():
        one(argv)  # compiles what an installation leaves uncompiled
    rounds = [[one(argv) for argv in timed.values()] for _ in range(times)]
    median_s = dict(zip(timed, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    for name, seconds in median_s.items():
        print(f"{name:16} {seconds * 1e3:7.1f} ms")
    report_s = statistics.median(report_cpu_s(max(times // 4, 3)))
    print(f"{'rig report RUN':16} {report_s * 1e3:7.1f} ms of processor time")
    passed = all(seconds <= GOAL_S for name, seconds in median_s.items() if name.startswith("rig"))
    summary = {"benchmark": "startup", "times": times, "median_s": median_s, "goal_s": GOAL_S, "pass": passed}
    summary["report_cpu_s"] = report_s
    print(json.dumps(summary))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
