"""Cost of the watchdog that observes each call of a driver: processor time per issue, with and without the watch.

    python -m benchmarks.harness.watched [--pairs 200] [--issues 20000]

The side without the watch is the same dispatcher, compiled without the lines that report a call to the watch. Runs of
both sides alternate in one process, and each pair gives one difference. Processor time does not include the time of
other processes. Prints the median of the differences and its 95 % interval (order statistics), for two scenarios:
single-stream, and a server that is always late, so that it never waits. Exits 1 if a whole interval is above 3 %.
"""

import argparse
import functools
import inspect
import math
import re
import shutil
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import concluded, parser_of
from benchmarks.harness.ours import AtOnce, steps, workload
from rig.engine import dispatcher, play_steps, record
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.device_errors import guard
from rig.engine.watchdog import Watch
from rig.errors import RigError
from rig.recording.writer import Recorder
from scenarios.rules import quick

MOST = 0.03


class Unwatched(Watch):
    """Makes calls without watching them."""

    def guard(self, call: Callable[[], Any], kind: type[RigError], what: str, name: str) -> Any:
        """Make a call as the engine does without a watch."""
        return guard(call, kind, what)

    @contextmanager
    def watching(self, give_up: Callable[[RigError], object], *, gaps: bool = False) -> Iterator[None]:
        """Start no thread."""
        yield


def unwatched() -> type[dispatcher.Dispatcher]:
    """Compile the dispatcher without the assignments that report a call to the watch."""
    source, stores = re.subn(r"^ +watch\.call = \w+\n", "", inspect.getsource(dispatcher), flags=re.M)
    assert stores >= 5, "the dispatcher no longer reports to the watch in this way"
    module = types.ModuleType("unwatched")
    sys.modules["unwatched"] = module
    exec(compile(source, "unwatched", "exec"), module.__dict__)
    found: type[dispatcher.Dispatcher] = module.Dispatcher
    return found


def issue_s(scenario: str, issues: int, kind: type[dispatcher.Dispatcher], watch: Watch, folder: Path) -> float:
    """Play a run, and return the processor time per issue (s)."""
    given = argparse.Namespace(scenario=scenario, rate=1e6, seed=1, seconds=0.0)
    work, clock = workload(), HostClock()
    rules = replace(quick("single-stream" if scenario == "single" else "server"), min_queries=issues)
    played, path = steps(given, work, rules, clock), folder / "run"
    began_s = time.process_time()
    with Recorder(path) as recorder:
        recorder.event(record.start_document(Bench(AtOnce(), (), clock), work, "run", {"name": scenario}, []))
        play_steps.__dict__["Dispatcher"] = kind
        play_steps.collect(played, Bench(AtOnce(), (), clock), recorder, watch=watch)
    took_s = time.process_time() - began_s
    shutil.rmtree(path)
    return took_s / issues


def difference(scenario: str, issues: int, pairs: int, folder: Path) -> dict[str, float]:
    """Return the median relative difference of ``pairs`` pairs, its 95 % interval, and the time without the watch."""
    without = unwatched()
    shares, bare = [], []
    for k in range(pairs + 1):
        sides = [(dispatcher.Dispatcher, Watch()), (without, Unwatched())]
        found = {kind: issue_s(scenario, issues, kind, watch, folder) for kind, watch in sides[:: 1 if k % 2 else -1]}
        if k:  # the first pair warms up
            shares.append(found[dispatcher.Dispatcher] / found[without] - 1.0)
            bare.append(found[without])
    shares.sort()
    wide = 0.98 * math.sqrt(pairs)  # distance of the interval's ranks, by the binomial distribution
    low, high = max(math.floor(pairs / 2 - wide), 0), min(math.ceil(pairs / 2 + wide), pairs - 1)
    return {
        "median": float(np.median(shares)), "low": shares[low], "high": shares[high], "issue_s": float(np.median(bare)),
    }  # fmt: skip


def main() -> int:
    a = parser_of(__doc__, pairs=200, issues=20_000).parse_args()
    record.environment = functools.cache(record.environment)
    found = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for scenario in ("single", "server"):
            f = found[scenario] = difference(scenario, a.issues, a.pairs, Path(folder))
            said = f"{f['median']:+.2%}, {f['low']:+.2%} to {f['high']:+.2%}"
            print(f"{scenario}: {f['issue_s'] * 1e6:.2f} us for an issue without a watch; with it {said}", flush=True)
    passed = all(f["low"] <= MOST for f in found.values())
    return concluded({"benchmark": "watched", "found": found, "most": MOST, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
