"""Server: how exactly each harness follows Poisson arrivals. LoadGen's stamps come from its own trace."""

import statistics
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import reading
from benchmarks.harness.goals import Found, Goal, Say, Turn, crowd, ratio, values
from benchmarks.harness.runs import Job, Row, Stage
from rig.analysis.result.order_statistics import nearest_rank

REJECTED_AT = 0.01
OWN_LIMIT_HZ = 2000.0
"""Up to this rate, the error of the gaps has a fixed limit; above it, the error is compared with LoadGen's."""
FIGURES = {
    "gaps_kept": ("gaps, issued to scheduled", 1.0),
    "gaps_issued": ("gaps, issued to exponential", 1.0),
    "gaps_scheduled": ("gaps, scheduled to exponential", 1.0),
    "slip_p50": ("slip p50, us", 1e6),
    "slip_p99": ("slip p99, us", 1e6),
    "slip_p99.9": ("slip p99.9, us", 1e6),
}


def server(a: Namespace, stage: Stage, say: Say) -> Found:
    """Run both sides at each rate with several seeds, and LoadGen once more without its trace, which costs time."""
    found: dict[str, Any] = {}
    goals: list[Goal] = []
    for rate in a.rates:
        turns = []
        for seed in range(1, a.seeds + 1):
            arguments = ("server", "--rate", f"{rate:g}", "--seconds", f"{a.seconds:g}", "--seed", str(seed))
            ours = Job("ours", arguments, partial(_figures, reading.recorded, rate))
            turns.append(
                stage.turn(
                    {
                        "ours": ours,
                        "peer": Job("peer", (*arguments, "--trace"), partial(_figures, reading.traced, rate)),
                    }
                )
            )
        bare = stage.turn({"bare": Job("peer", arguments, _untraced)})["bare"]
        _tell(rate, turns, bare, say)
        found[f"{rate:g}"] = {"turns": turns, "untraced": bare}
        goals += _goals(rate, turns)
    return found, goals


def _figures(read: Any, rate_hz: float, path: Path) -> Row:
    played: reading.Played = read(path)
    return {
        "n": len(played),
        **{f"slip_{name}": value for name, value in reading.slips(played).items()},
        **{f"gaps_{name}": value for name, value in reading.gaps(played, rate_hz).items()},
        "latency_p99": nearest_rank(np.sort(played.latency_ns) * 1e-9, 0.99),
    }


def _untraced(path: Path) -> Row:
    """Return LoadGen's figures without a trace: the latency from due to answered, including slip and callback."""
    said = reading.detail(path)
    return {f"latency_p{100 * p:g}": reading.percentile_ns(said, p) * 1e-9 for p in (0.5, 0.99)}


def _tell(rate_hz: float, turns: list[Turn], bare: Row, say: Say) -> None:
    say(f"\nserver, answered at once, {rate_hz:g} queries/s, {len(turns)} seeds; {crowd(turns)}")
    for side in ("ours", "peer"):
        rows = [turn[side] for turn in turns]
        for key, (head, scale) in FIGURES.items():
            say(f"  {side}  {head:31} {values([row[key] * scale for row in rows])}")
        used, queued = ([row[key] / row["wall_s"] for row in rows] for key in ("cpu_s", "queued_s"))
        rejected = sum(row["gaps_scheduled_p"] < REJECTED_AT for row in rows)
        say(f"  {side}  CPUs used {values(used)}; ready without a CPU {values(queued)} of the time")
        say(f"  {side}  schedules that are not exponential at {REJECTED_AT:.0%}: {rejected}")
    bare_us = [bare[f"latency_{p}"] * 1e6 for p in ("p50", "p99")]
    traced_us = statistics.median(turn["peer"]["latency_p99"] for turn in turns) * 1e6
    say(f"  peer  latency p99 with its trace {traced_us:.1f} us; without {bare_us[1]:.1f} us (p50 {bare_us[0]:.1f} us)")


def _goals(rate_hz: float, turns: list[Turn]) -> list[Goal]:
    name = f"server {rate_hz:g}/s: "
    rejected = sum(turn["ours"]["gaps_scheduled_p"] < REJECTED_AT for turn in turns)
    if rate_hz <= OWN_LIMIT_HZ:
        kept = Goal(name + "distance of gaps", statistics.median(turn["ours"]["gaps_kept"] for turn in turns), 0.01)
    else:
        kept = Goal(name + "distance of gaps, ours / LoadGen", ratio(turns, "ours", "peer", "gaps_kept"), 0.5)
    return [
        Goal(name + "schedules of ours rejected", rejected, 1),
        kept,
        Goal(name + "slip p99, ours / LoadGen", ratio(turns, "ours", "peer", "slip_p99"), 0.5),
    ]
