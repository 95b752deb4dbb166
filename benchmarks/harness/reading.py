"""Read the files of the rig and of LoadGen into one form, and compute figures from it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.result.order_statistics import nearest_rank
from rig.analysis.service.serving import gap_distance
from rig.recording.reader import open_run
from rig.types import Indices

_SAMPLE = re.compile(
    r'"name":"Sample".*"ph":"b".*"ts":(-?\d+)\.(\d{3}).*"sample_seq":(\d+).*"issue_start_ns":(-?\d+),"complete_ns":(-?\d+)'
)
_DISCARD = re.compile(r"Would discard (\d+) highest")
_ESTIMATE = re.compile(r"Early stopping [\d.]+th percentile estimate: (\d+)")
_LATENCY = "result_{:.2f}_percentile_latency_ns"


@dataclass(frozen=True)
class Played:
    """Queries in scheduled order, shapes (n,), in nanoseconds of the harness's own clock.

    ``due_ns`` is the scheduled time of each query, or its issue time if nothing is scheduled.
    """

    due_ns: Indices
    issued_ns: Indices
    done_ns: Indices

    def __len__(self) -> int:
        return len(self.due_ns)

    @property
    def slip_ns(self) -> Indices:
        """Return the time from due to issued, for each query (ns)."""
        return self.issued_ns - self.due_ns

    @property
    def latency_ns(self) -> Indices:
        """Return the time from due to done, for each query (ns)."""
        return self.done_ns - self.due_ns


# ---- ours ---------------------------------------------------------------------------------


def recorded(path: Path) -> Played:
    """Read and check one of our runs. Raises ``RigError``; ``ValueError`` if a row lacks a stamp or is there twice."""
    table = open_run(path).replies
    columns = {name: table[name] for name in ("issued_ns", "completed_ns", "on_tick", "off_tick")}
    lacking = [name for name, column in columns.items() if column.null_count]
    if lacking or len(np.unique(table["issue"].to_numpy())) != len(table):
        raise ValueError(f"not one whole row per query in {path}: {lacking or 'issue numbers repeat'}")
    issued = columns["issued_ns"].to_numpy()
    due = table["due_ns"].to_numpy() if not table["due_ns"].null_count else issued
    return Played(due.astype(np.int64), issued.astype(np.int64), columns["completed_ns"].to_numpy().astype(np.int64))


# ---- LoadGen's ----------------------------------------------------------------------------


def details(lines: Iterable[str]) -> dict[str, Any]:
    """Return the last value of each key in those lines of ``mlperf_log_detail.txt`` that are JSON, as most are."""
    found = {}
    for line in lines:
        try:
            entry = json.loads(line.removeprefix(":::MLLOG "))
        except ValueError:
            continue
        if isinstance(entry, dict) and "key" in entry:
            found[str(entry["key"])] = entry.get("value")
    return found


def detail(path: Path) -> dict[str, Any]:
    """Return LoadGen's details of its run. Raises ``ValueError`` if LoadGen reports errors."""
    with (path / "mlperf_log_detail.txt").open() as file:
        found = details(file)
    if found.get("num_errors") != 0:
        raise ValueError(f"LoadGen reports errors: {found.get('num_errors')}; see {path}")
    return found


def percentile_ns(found: dict[str, Any], p: float) -> int:
    """Return one of the percentiles that LoadGen lists: 0.5, 0.9, 0.95, 0.97, 0.99, 0.999."""
    return int(found[_LATENCY.format(100 * p)])


def stopped(found: dict[str, Any]) -> tuple[int, list[int]]:
    """Return how many latencies LoadGen would discard (-1: too few queries), and its estimates in ns.

    The first estimate is for the percentile that LoadGen was set to. The second is for p99, if LoadGen gives it.
    """
    text = str(found["early_stopping_result"])
    count = _DISCARD.search(text)
    return (int(count[1]) if count else -1), [int(ns) for ns in _ESTIMATE.findall(text)]


def traced(path: Path) -> Played:
    """Return every query of a run that kept a trace."""
    with (path / "mlperf_log_trace.json").open() as file:
        return trace(file)


def trace(lines: Iterable[str]) -> Played:
    """Read LoadGen's trace: when each query was due, and how much later it was issued and answered.

    LoadGen stamps the issue before it enters the callback, so the stamp may be too early.
    """
    rows = [tuple(map(int, m.groups())) for line in lines if (m := _SAMPLE.search(line))]
    if not rows:
        raise ValueError("the trace holds no samples")
    table = np.array(rows, dtype=np.int64)
    table = table[np.argsort(table[:, 2], kind="stable")]
    if not np.array_equal(table[:, 2], np.arange(len(table))):
        raise ValueError(f"the trace lacks samples: {len(table)} lines, numbered up to {table[-1, 2]}")
    due = np.where(table[:, 0] < 0, table[:, 0] * 1000 - table[:, 1], table[:, 0] * 1000 + table[:, 1])
    return Played(due, due + table[:, 3], due + table[:, 4])


# ---- figures ------------------------------------------------------------------------------


def slips(played: Played) -> dict[str, float]:
    """Return the slip, the time from due to issued, in seconds: p50, p99, p99.9 and the largest."""
    ordered = np.sort(played.slip_ns) * 1e-9
    return {f"p{100 * p:g}": nearest_rank(ordered, p) for p in (0.5, 0.99, 0.999)} | {"max": float(ordered[-1])}


def gaps(played: Played, rate_hz: float) -> dict[str, float]:
    """Return Kolmogorov distances of issued gaps from scheduled gaps, and of both from the exponential distribution.

    For the scheduled gaps, the p-value of the test against the exponential distribution is also returned.
    """
    from scipy.stats import kstest

    due, issued = (np.diff(np.sort(at)) * 1e-9 for at in (played.due_ns, played.issued_ns))
    schedule = kstest(due, "expon", args=(0.0, 1.0 / rate_hz))
    return {
        "kept": gap_distance(due, issued),
        "issued": float(kstest(issued, "expon", args=(0.0, 1.0 / rate_hz)).statistic),
        "scheduled": float(schedule.statistic),
        "scheduled_p": float(schedule.pvalue),
    }
