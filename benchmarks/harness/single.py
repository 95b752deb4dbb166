"""Single-stream: the time that the harness adds to a device that answers at once or after 1 ms, and its memory."""

from argparse import Namespace
from pathlib import Path

import numpy as np

from benchmarks.harness import reading
from benchmarks.harness.goals import Found, Goal, Say, Turn, crowd, ratio, values
from benchmarks.harness.runs import Job, Row, Stage
from rig.analysis.result.order_statistics import nearest_rank

TRACED = 100_000
FIGURES = {
    "rate_hz": ("queries/s, run", 1.0),
    "call_hz": ("queries/s, call", 1.0),
    "p50_s": ("p50, ns", 1e9),
    "p99_s": ("p99, ns", 1e9),
    "peak_b": ("peak, MiB", 2.0**-20),
}


def of_ours(path: Path) -> Row:
    """Return figures of one of our runs, from its recording."""
    played = reading.recorded(path)
    seconds = float(played.done_ns[-1] - played.issued_ns[0]) * 1e-9
    ordered = np.sort(played.latency_ns).astype(float)
    p50, p99 = (nearest_rank(ordered, p) * 1e-9 for p in (0.5, 0.99))
    return {"n": len(played), "rate_hz": len(played) / seconds, "p50_s": p50, "p99_s": p99}


def of_peer(path: Path) -> Row:
    """Return figures of one of LoadGen's runs, from its own log."""
    said = reading.detail(path)
    p50, p99 = (reading.percentile_ns(said, p) * 1e-9 for p in (0.5, 0.99))
    rate_hz = float(said["result_qps_with_loadgen_overhead"])
    return {"n": int(said["result_query_count"]), "rate_hz": rate_hz, "p50_s": p50, "p99_s": p99}


def both(*arguments: str) -> dict[str, Job]:
    """Return the same single-stream run for both sides."""
    return {
        "ours": Job("ours", ("single", *arguments), of_ours),
        "peer": Job("peer", ("single", *arguments), of_peer),
    }


def single(a: Namespace, stage: Stage, say: Say) -> Found:
    """Run both sides; also, without a goal, LoadGen with the leanest system that it accepts, and with its trace."""
    jobs = both("--queries", str(a.queries))
    jobs["lean"] = Job("peer", (*jobs["peer"].arguments, "--sut", "lean"), of_peer)
    kept = Job("peer", ("single", "--queries", str(min(a.queries, TRACED)), "--trace"), of_peer)
    turns = [_with_call(stage.turn(jobs)) for _ in range(a.repetitions)]
    trace = _with_call(stage.turn({"trace": kept}))["trace"]
    say(f"\nsingle-stream, answered at once, {a.queries} queries, {a.repetitions} turns; {crowd(turns)}")
    for key, (head, scale) in FIGURES.items():
        cells = (f"  {side} {values([turn[side][key] * scale for turn in turns])}" for side in jobs)
        say(f"  {head:16}" + "".join(cells))
    found = {key: ratio(turns, "ours", "peer", key) for key in FIGURES}
    lean = {key: ratio(turns, "ours", "lean", key) for key in FIGURES}
    say("  ours / LoadGen with its leanest system: " + ", ".join(f"{key} {value:.3f}" for key, value in lean.items()))
    say(f"  LoadGen that writes every query to disk (its trace): {trace['call_hz']:.0f} queries/s, whole call")
    peaks, growth = memory(a, stage, say)
    goals = [
        Goal("single: rows read back, least", min(turn["ours"]["n"] for turn in turns), a.queries, at_least=True),
        Goal("single: queries/s in the run, ours / LoadGen", found["rate_hz"], 1.5, at_least=True),
        Goal("single: queries/s of the whole call", found["call_hz"], 1.5, at_least=True),
        Goal("single: p50 of what is added", found["p50_s"], 0.5),
        Goal("single: p99 of what is added", found["p99_s"], 0.5),
        Goal("single: peak of memory", found["peak_b"], 0.2),
        growth,
    ]
    return {"turns": turns, "trace": trace, "peak_b": peaks, "ratio": found, "ratio_lean": lean}, goals


def memory(a: Namespace, stage: Stage, say: Say) -> tuple[dict[str, dict[int, float]], Goal]:
    """Measure the peak memory by number of queries. The goal is that ours does not grow."""
    counts = (a.queries // 10, a.queries, 3 * a.queries)
    peaks: dict[str, dict[int, float]] = {"ours": {}, "peer": {}}
    for count in counts:
        found = stage.turn(both("--queries", str(count)))
        for side, row in found.items():
            peaks[side][count] = row["peak_b"]
    for side, by_count in peaks.items():
        say(f"  peak of {side} at: " + ", ".join(f"{n} queries {b * 2**-20:.1f} MiB" for n, b in by_count.items()))
    grown = peaks["ours"][counts[-1]] / peaks["ours"][counts[0]]
    return peaks, Goal(f"single: our peak at {counts[-1]} queries / at {counts[0]}", grown, 1.05)


def one_ms(a: Namespace, stage: Stage, say: Say) -> Found:
    """Measure the time that each side adds to a device of 1 ms, with busy waiting and with sleep. There is no goal."""
    found = {}
    for how in ("spin", "sleep"):
        jobs = both("--queries", str(a.answers), "--answer-s", "0.001", "--wait", how)
        turns = found[how] = [stage.turn(jobs) for _ in range(a.repetitions)]
        say(f"\nsingle-stream, answered 1 ms after it was asked ({how}), {a.answers} queries; {crowd(turns)}")
        for key in ("p50_s", "p99_s"):
            cells = (f"  {side} {values([(turn[side][key] - 1e-3) * 1e6 for turn in turns])}" for side in jobs)
            say(f"  over 1 ms at {key[:3]}, us" + "".join(cells))
    return found, []


def _with_call(turn: Turn) -> Turn:
    return {side: row | {"call_hz": row["n"] / row["wall_s"]} for side, row in turn.items()}
