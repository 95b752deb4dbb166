"""Early stopping: compare LoadGen's results on its own latencies with ours on the same latencies."""

import math
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import reading
from benchmarks.harness.goals import Found, Goal, Say
from benchmarks.harness.runs import Job, Row, Stage
from rig.analysis.service.early_stopping import allowed, estimate, needed

COUNTS = {
    0.9: (63, 64, 100, 1000, 10_007, 100_000, 738_666, 1_000_000),
    0.99: (661, 662, 1000, 10_007, 100_000, 1_000_000),
    0.999: (6635, 6636, 10_007, 1_000_000),
}
LEAST = (64, 662, 6636)
ALSO = 0.99
"""LoadGen also gives an estimate of this percentile, besides the requested one."""
TRACED = 100_000
"""Up to this many queries, latencies come from LoadGen's trace, so that estimates can be compared."""


def early(_: Namespace, stage: Stage, say: Say) -> Found:
    """Compare the number of discarded latencies, by count and percentile, and the estimates if latencies are known."""
    rows = []
    say("\nearly stopping: discarded by LoadGen, by us (-1: too few); estimates in ns, LoadGen's and ours")
    for p, counts in COUNTS.items():
        for n in counts:
            arguments = ("single", "--queries", str(n), "--percentile", str(p), *(("--trace",) if n <= TRACED else ()))
            row = stage.turn({"peer": Job("peer", arguments, partial(_compared, p, n))}, timed=False)["peer"]
            pairs = (f"{row[f'{key}_peer']:.0f}, {row[f'{key}_ours']:.0f}" for key in ("discarded", "estimate", "also"))
            say(f"  p{100 * p:<4g} of {n:8}: " + "   ".join(pairs) + ("   DIFFERENT" if row["different"] else ""))
            rows.append(row)
    least = [needed(1, p) for p in COUNTS]
    say(f"  fewest queries for an estimate, ours: {least}")
    goals = [
        Goal("early: runs on which LoadGen and we differ", sum(row["different"] for row in rows), 0),
        Goal("early: percentiles whose fewest queries are not 64, 662, 6636", sum(map(_unequal, least, LEAST)), 0),
    ]
    return {"runs": rows, "least": least}, goals


def _compared(p: float, n: int, path: Path) -> Row:
    said = reading.detail(path)
    count, estimates = reading.stopped(said)
    row: Row = {"p": p, "n": n, "discarded_peer": count, "discarded_ours": allowed(n, p) - 1}
    theirs = dict(zip(("estimate", "also"), [*map(float, estimates), math.nan, math.nan], strict=False))
    ordered = np.sort(reading.traced(path).latency_ns).astype(float) if n <= TRACED else None
    for key, percentile in (("estimate", p), ("also", ALSO)):
        row[f"{key}_peer"] = theirs[key]
        # if LoadGen cannot estimate the requested percentile, it estimates no other percentile either
        gives = ordered is not None and count >= 0
        row[f"{key}_ours"] = estimate(ordered, percentile) if ordered is not None and gives else math.nan
    compared = ("discarded", "estimate", "also") if n <= TRACED else ("discarded",)
    differ = any(_unequal(row[f"{key}_peer"], row[f"{key}_ours"]) for key in compared)
    return row | {"different": float(differ or said["result_query_count"] != n)}


def _unequal(one: float, other: float) -> bool:
    return one != other and not (math.isnan(one) and math.isnan(other))
