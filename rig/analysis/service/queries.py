"""What was asked and when it was answered, one row per sample handed over, on the host's clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rig.recording.reader import Run
from rig.types import Bools, Floats, Indices


@dataclass(frozen=True)
class Queries:
    """Samples that count (no warm-up), in the order of their issue numbers; arrays have shape (n,).

    Seconds are the run's. ``due_s`` is nan without a schedule, ``issued_s`` where a sample was dropped,
    ``done_s`` where no answer came. ``sample`` is a row of the samples table, ``output`` a row of ``outputs``
    (-1: none), ``inferences`` what the sample stands for, looped executions included.
    """

    issue: Indices
    sample: Indices
    due_s: Floats
    issued_s: Floats
    done_s: Floats
    inferences: Indices
    output: Indices
    outputs: tuple[str, ...]
    holds: int | None = None
    """How many samples the device can hold unanswered; None where it takes one batch at a time."""

    def __len__(self) -> int:
        return len(self.issue)

    @property
    def scheduled(self) -> bool:
        """Whether every sample had a time at which it was due."""
        return bool(len(self)) and not np.any(np.isnan(self.due_s))

    @property
    def asked_s(self) -> Floats:
        """When each was asked for: due where it was scheduled, else issued."""
        return np.where(np.isnan(self.due_s), self.issued_s, self.due_s)

    @property
    def answered(self) -> Bools:
        """Which were answered."""
        return np.isfinite(self.done_s)

    @property
    def dropped(self) -> Bools:
        """Which were never handed over."""
        return np.isnan(self.issued_s)

    def latency_s(self) -> Floats:
        """From when it was asked for to when the host had the answer, of those answered; the link included."""
        # host stamps are whole nanoseconds: what is just in time must not be late by a rounding
        return np.asarray(np.round((self.done_s - self.asked_s)[self.answered], 9))

    def window_s(self) -> tuple[float, float]:
        """From the first sample asked for to the last answer; (nan, nan) without an answer."""
        if not np.any(self.answered):
            return float("nan"), float("nan")
        return float(np.nanmin(self.asked_s)), float(np.nanmax(self.done_s))


def queries_of(run: Run) -> Queries:
    """The queries of a run."""
    table = run.replies
    counts = ~_flags(table["warmup"])
    issue = table["issue"].to_numpy()
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
    said = _first_said(output[order], first, len(order))
    executions = np.nan_to_num(_numbers(table["executions"]), nan=1.0).astype(np.int64)
    holds = run.start.device.max_pending
    which = where[sample[rows]] if len(where) else np.full(len(rows), -1, np.int64)
    return Queries(
        issue=issue[rows],
        sample=which,
        due_s=_seconds(table["due_ns"], rows, t0_ns),
        issued_s=_seconds(table["issued_ns"], rows, t0_ns),
        done_s=_seconds(table["completed_ns"], rows, t0_ns),
        inferences=size[which] * executions[rows],
        output=said,
        outputs=tuple(outputs),
        holds=holds if holds is not None and holds > 0 else None,
    )


def _first_said(output: Indices, first: Indices, n: int) -> Indices:
    """The output of each issue: that of its first row that has one."""
    ends = np.append(first[1:], n)
    said = output[first]
    for k in np.flatnonzero(said < 0):
        spoken = output[first[k] : ends[k]]
        said[k] = spoken[spoken >= 0][0] if np.any(spoken >= 0) else -1
    return said


def _coded(column: pa.ChunkedArray) -> tuple[Indices, list[str]]:
    """Texts by number, -1 for null."""
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    return coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist()


def _seconds(column: pa.ChunkedArray, rows: Indices, t0_ns: int) -> Floats:
    null = np.asarray(column.is_null())[rows]
    ns = column.fill_null(0).to_numpy()[rows]
    return np.where(null, np.nan, (ns - t0_ns) * 1e-9)


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.to_numpy(), dtype=float)


def _flags(column: pa.ChunkedArray) -> Bools:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
