"""Compare our harness with MLCommons LoadGen on the same queries; each is measured in a separate process.

    pip install mlcommons-loadgen
    python -m benchmarks.harness --queries 1000000 --seeds 10 --seconds 10

single   a device that answers at once: queries/s, added latency, peak of memory. Ours writes every
         issue, span and answer to disk; they are read back here and their hashes verified. LoadGen writes a summary.
server   a device that answers at once, Poisson arrivals: slip (issued minus due) and the Kolmogorov distance between
         issued and scheduled gaps. LoadGen's stamps come from its own trace.
early    how many latencies early stopping discards, and its estimates, from LoadGen's own latencies.
one-ms   a device that answers 1 ms after it was asked: the time that each harness adds.

Both sides take turns. The CPU load from other processes is printed; a disturbed turn is repeated. Prints tables and,
last, one JSON line. Exits 1 if a goal is missed.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.early import early
from benchmarks.harness.goals import Found, Goal, Say
from benchmarks.harness.runs import Stage
from benchmarks.harness.server import server
from benchmarks.harness.single import one_ms, single

PARTS: dict[str, Callable[[argparse.Namespace, Stage, Say], Found]] = {
    "single": single, "server": server, "early": early, "one-ms": one_ms,
}  # fmt: skip


def rates(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--queries", type=int, default=1_000_000, help="single: in each run, a multiple of 10,000")
    parser.add_argument("--repetitions", type=int, default=5, help="single, one-ms: turns")
    parser.add_argument("--rates", type=rates, default=[200.0, 2000.0, 20000.0], help="server: mean arrivals/s")
    parser.add_argument("--seeds", type=int, default=10, help="server: runs at each rate")
    parser.add_argument("--seconds", type=float, default=10.0, help="server: length of each run")
    parser.add_argument("--answers", type=int, default=5000, help="one-ms: queries in each run, a multiple of 1,000")
    parser.add_argument("--tries", type=int, default=3, help="most runs of a disturbed turn")
    parser.add_argument("--patience-s", type=float, default=30.0, help="longest wait for calm before each run")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON line")
    return parser.parse_args()


def plain(found: Any) -> Any:
    """Return ``found`` as JSON allows it: nan becomes null, floats get six digits."""
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, list):
        return [plain(value) for value in found]
    if isinstance(found, (bool, int, str)) or found is None:
        return found
    return float(f"{found:.6g}") if math.isfinite(found) else None


def main() -> int:
    """Run the requested parts, print the results, and judge them."""
    a = arguments()
    say: Say = (lambda _: None) if a.json else lambda line: print(line, flush=True)
    say(f"LoadGen {version('mlcommons-loadgen')}; {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")
    say("medians, with every value or the range in parentheses; on our side, Arrow uses the system's allocator")
    parts, goals = {}, list[Goal]()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), a.tries, a.patience_s)
        for name in PARTS if a.part == "all" else [a.part]:
            parts[name], added = PARTS[name](a, stage, say)
            goals += added
    say("")
    for goal in goals:
        say(str(goal))
    passed = all(goal.held for goal in goals)
    judged = [asdict(goal) | {"held": goal.held} for goal in goals]
    result = {"benchmark": "harness", "parts": parts, "goals": judged, "pass": passed}
    print(json.dumps(plain(result), allow_nan=False))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
