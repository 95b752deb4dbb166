"""The times when each sample was requested, issued and completed, on the host's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rig.analysis.scores.answers import decoded
from rig.recording.columns.buffers import array_of
from rig.recording.reader import Run
from rig.types import Bools, Floats, Indices


@dataclass(frozen=True)
class Queries:
    """Samples that count (no warm-up), in the order of their issue numbers; arrays have shape (n,).

    Times are in seconds since the run's start. ``due_s`` is NaN without a schedule, ``issued_s`` if a sample was
    dropped, and ``completed_s`` if no reply came. ``sample`` is a row of the samples table. ``output`` is an index into
    ``outputs``, which are decoded, or -1 if there is none. ``executions`` is how often the device executed the sample
    before it answered, as a loop (``--repeat``) does, and ``inferences`` is this times the inferences of the sample.
    """

    issue: Indices
    sample: Indices
    due_s: Floats
    issued_s: Floats
    completed_s: Floats
    executions: Indices
    inferences: Indices
    output: Indices
    outputs: tuple[Any, ...]
    max_pending: int | None = None
    """The number of samples that the device can hold at a time; None if it takes one batch at a time."""

    def __len__(self) -> int:
        return len(self.issue)

    @property
    def scheduled(self) -> bool:
        """Return whether every sample had a due time."""
        return bool(len(self)) and not np.any(np.isnan(self.due_s))

    @property
    def requested_s(self) -> Floats:
        """Return when each sample was requested: its due time if it was scheduled, otherwise its issue."""
        return np.where(np.isnan(self.due_s), self.issued_s, self.due_s)

    @property
    def completed(self) -> Bools:
        """Return which samples were completed."""
        return np.isfinite(self.completed_s)

    @property
    def completed_count(self) -> int:
        """Return how many samples were completed; one that was executed in a loop counts each time."""
        return int(np.sum(self.executions[self.completed]))

    @property
    def dropped(self) -> Bools:
        """Return which samples were never issued."""
        return np.isnan(self.issued_s)

    def latency_s(self) -> Floats:
        """Return the latencies of completed samples: from request to completion at the host, with the link.

        Executions of a loop follow each other as samples of a stream do, so the latency of one is their mean. If a
        loop was due at a time, its answer was late by the whole loop.
        """
        # host stamps are whole nanoseconds, and rounding must not make a sample late
        times_s = np.round(self.completed_s - self.requested_s, 9)
        return np.asarray((times_s / np.where(np.isnan(self.due_s), self.executions, 1))[self.completed])

    def window_s(self) -> tuple[float, float]:
        """Return the times of the first request and the last completion, or (nan, nan) if nothing was completed."""
        if not np.any(self.completed):
            return float("nan"), float("nan")
        return float(np.nanmin(self.requested_s)), float(np.nanmax(self.completed_s))


def queries_of(run: Run) -> Queries:
    """Return the queries of a run."""
    table = run.replies
    counts = ~_flags(table["warmup"])
    issue = array_of(table["issue"])
    order = np.flatnonzero(counts)
    order = order[np.argsort(issue[order], kind="stable")]
    _, first = np.unique(issue[order], return_index=True)
    rows = order[first]
    t0_ns = run.start.t0_ns
    sample, names = _coded(table["sample_id"])
    known = {name: k for k, name in enumerate(run.samples["id"].to_pylist())}
    where = np.array([known.get(name, -1) for name in names], dtype=np.int64)
    size = np.array([s or 1 for s in run.samples["inferences"].to_pylist()] + [1], dtype=np.int64)
    output, outputs = _coded(table["output"])
    first_output = _first_output(output[order], first, len(order))
    executions = _executions(array_of(table["executions"], 1)[order], _coded(table["phase"])[0][order], first)
    holds = run.start.device.max_pending
    which = where[sample[rows]] if len(where) else np.full(len(rows), -1, np.int64)
    return Queries(
        issue=issue[rows],
        sample=which,
        due_s=_seconds(table["due_ns"], rows, t0_ns),
        issued_s=_seconds(table["issued_ns"], rows, t0_ns),
        completed_s=_seconds(table["completed_ns"], rows, t0_ns),
        executions=executions,
        inferences=size[which] * executions,
        output=first_output,
        outputs=tuple(map(decoded, outputs)),
        max_pending=holds if holds is not None and holds > 0 else None,
    )


def _executions(each: Indices, phase: Indices, first: Indices) -> Indices:
    """Return how often each issue executed its sample: in the phase with most, in one span or in one for each time.

    ``each`` and ``phase`` are of the rows of all issues in their order, and ``first`` is the first row of each issue.
    """
    sums = [np.add.reduceat(np.where(phase == k, each, 0), first) for k in np.unique(phase)] if len(first) else []
    return np.asarray(np.max([np.zeros(len(first), np.int64), *sums], axis=0), np.int64)


def _first_output(output: Indices, first: Indices, n: int) -> Indices:
    """Return the output of each issue, which is the first output among its rows."""
    ends = np.append(first[1:], n)
    found = output[first]
    for k in np.flatnonzero(found < 0):
        rows = output[first[k] : ends[k]]
        found[k] = rows[rows >= 0][0] if np.any(rows >= 0) else -1
    return found


def _coded(column: pa.ChunkedArray) -> tuple[Indices, list[str]]:
    """Return the index of each text, -1 for null, and the distinct texts."""
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    return array_of(coded.indices, -1).astype(np.int64), coded.dictionary.to_pylist()


def _seconds(column: pa.ChunkedArray, rows: Indices, t0_ns: int) -> Floats:
    known, ns = array_of(column.is_valid())[rows], array_of(column, 0)[rows]
    return np.where(known, (ns - t0_ns) * 1e-9, np.nan)


def _flags(column: pa.ChunkedArray) -> Bools:
    return array_of(column)
