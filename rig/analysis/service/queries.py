"""Collect when each sample was requested, issued and completed, by the host's clock."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.scores.answers import answer_in
from rig.analysis.warmup import counted_replies
from rig.recording.columns.buffers import array_of, valid
from rig.recording.reader import Run
from rig.types import Bools, Floats, Indices


class Queries(Struct, frozen=True):
    """Samples that count (no warm-up), in the order of their issue numbers; arrays have shape (n,).

    Times are in seconds since the run's start. ``due_s`` is NaN without a schedule, ``issued_s`` is NaN if a sample was
    dropped, ``completed_s`` if no reply came. ``sample`` is a row of the samples table, or -1 if the table lacks
    the sample. ``names`` are the ids in this table, and "" at the end. ``output`` is an index into ``outputs``, which
    are decoded, or -1 if there is none. ``executions`` is how often the device executed the sample before its answer;
    this is above 1 in a loop (``--repeat``). ``inferences`` is this number times the inferences of the sample.
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
    names: tuple[str, ...] = ()
    stride_s: float | None = None
    """The time between frames of a stream; None without a stream."""
    arrival_hz: float = 0.0
    """The mean rate of random arrivals; 0 if arrivals are not random."""
    max_batch: int = 1
    """The most samples of a batch."""

    def __len__(self) -> int:
        return len(self.issue)

    @property
    def scheduled(self) -> bool:
        """Return whether every sample had a due time."""
        return bool(len(self)) and not np.any(np.isnan(self.due_s))

    @property
    def looped(self) -> bool:
        """Return whether a latency is the mean of several executions; see ``latency_s``."""
        return bool(np.any((self.executions > 1) & np.isnan(self.due_s)))

    @property
    def requested_s(self) -> Floats:
        """Return when each sample was requested: its due time if it was scheduled, otherwise its issue."""
        return np.where(np.isnan(self.due_s), self.issued_s, self.due_s)

    @property
    def completed(self) -> Bools:
        return np.isfinite(self.completed_s)

    @property
    def answered(self) -> Bools:
        """Return which samples were completed, except those whose answer is null.

        If every answer is null, all completed samples count.
        """
        said = np.array([*(answer_in(output) is not None for output in self.outputs), True])[self.output]
        return np.asarray(self.completed & (said | ~np.any(said & self.completed)))

    @property
    def answered_count(self) -> int:
        """Return how many samples were answered; a sample that was executed in a loop counts once per execution."""
        return int(np.sum(self.executions[self.answered]))

    @property
    def dropped(self) -> Bools:
        """Return which samples were never issued."""
        return np.isnan(self.issued_s)

    def latency_s(self) -> Floats:
        """Return the latencies of completed samples, from request to completion at the host; they include the link.

        In a loop, one execution begins when the previous one ends, so the latency of one execution is the mean over the
        loop. If the loop was due at a scheduled time, the latency is of the whole loop.
        """
        # host stamps are whole nanoseconds, and rounding must not make a sample late
        times_s = np.round(self.completed_s - self.requested_s, 9)
        return np.asarray((times_s / np.where(np.isnan(self.due_s), self.executions, 1))[self.completed])

    def served_s(self) -> Floats:
        """Return the latencies of completed samples; a scheduled sample without an answer has an infinite latency."""
        return np.where((self.answered | np.isnan(self.due_s))[self.completed], self.latency_s(), np.inf)

    def batches(self, issues: Indices) -> float:
        """Return how many independent latencies these issues count for, if the issues of a batch count as one.

        A batch was issued or completed together. If batches differ in size, they count as Kish's effective number of
        clusters (``rig.analysis.result.proportion``). At least one of the issues must be completed.
        """
        which = self.completed & np.isin(self.issue, issues)
        sizes = (np.unique(s[which], return_counts=True)[1] for s in (self.issued_s, self.completed_s))
        return min(float(k.sum() ** 2 / np.sum(k**2)) for k in sizes)

    def window_s(self) -> tuple[float, float]:
        """Return the times of the first request and the last completion, or (nan, nan) if nothing was completed.

        A stream lasts at least until one stride after its last frame is due, as each frame includes the idle time after
        it.
        """
        if not np.any(self.completed):
            return float("nan"), float("nan")
        ends_s = self.due_s + self.stride_s if self.stride_s else self.completed_s
        return float(np.nanmin(self.requested_s)), float(np.nanmax([self.completed_s, ends_s]))


def in_turn(run: Run) -> Run:
    """Match queries for the same sample to replies in the order in which the device began them.

    A reply names only its sample. If a sample was issued several times, the device begins the earliest issue first. So
    the due and issue times are moved to the replies in this order.
    """
    if run.start.device.holds_one:
        return run
    t, begun = run.replies, dict[str, dict[int, int]]()
    for sample, issue, on in zip(*(t[name].to_pylist() for name in ("sample_id", "issue", "on_tick")), strict=True):
        if on is not None:
            own = begun.setdefault(sample, {})
            own[issue] = min(on, own.get(issue, on))
    turns = (zip(sorted(own, key=lambda k: (own[k], k)), sorted(own), strict=True) for own in begun.values())
    of = {issue: turn for own in turns for issue, turn in own if issue != turn}
    rows = {issue: row for row, issue in enumerate(t["issue"].to_pylist())}
    places = np.array([rows[of.get(issue, issue)] for issue in t["issue"].to_pylist()], np.int64)
    taken = pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])
    for name in ("due_ns", "issued_ns") if of else ():
        t = t.set_column(t.schema.get_field_index(name), t.schema.field(name), t[name].take(taken))
    return replace(run, replies=t)


def queries_of(run: Run) -> Queries:
    table, t0_ns = counted_replies(run), run.start.t0_ns
    issue = array_of(table["issue"])
    sample, asked = _coded(table["sample_id"])
    output, outputs = _coded(table["output"])
    rows, told = np.unique(issue, return_index=True)[1], np.flatnonzero(output >= 0)
    told = told[np.unique(issue[told], return_index=True)[1]]  # the first output of each issue
    first_output = np.full(len(rows), -1, np.int64)
    first_output[np.searchsorted(issue[rows], issue[told])] = output[told]
    names = run.samples["id"].to_pylist()
    known = {name: k for k, name in enumerate(names)}
    which = np.array([*(known.get(name, -1) for name in asked), -1], np.int64)[sample[rows]]
    size = np.array([s or 1 for s in run.samples["inferences"].to_pylist()] + [1], np.int64)
    stamps = ("due_ns", "issued_ns", "completed_ns")
    due_s, issued_s, completed_s = (
        np.where(valid(table[name]), (array_of(table[name], 0) - t0_ns) * 1e-9, np.nan)[rows] for name in stamps
    )
    executions = _executions(issue, array_of(table["executions"], 1), _coded(table["phase"])[0])
    return Queries(
        issue=issue[rows],
        sample=which,
        due_s=due_s,
        issued_s=issued_s,
        completed_s=completed_s,
        executions=executions,
        inferences=size[which] * executions,
        output=first_output,
        outputs=tuple(map(json.loads, outputs)),
        max_pending=max(run.start.device.max_pending or 0, 0) or None,
        names=(*names, ""),
        stride_s=run.start.scenario.stride_s,
        arrival_hz=run.start.scenario.arrival_hz or 0.0,
        max_batch=run.start.device.max_batch,
    )


def _executions(issue: Indices, each: Indices, phase: Indices) -> Indices:
    """Return how often each issue executed its sample: the sum over spans, in the phase with the largest sum.

    The arguments are of rows, shape (n,); the result is in the order of issues.
    """
    issues, of = np.unique(issue, return_inverse=True)
    sums = [np.bincount(of[phase == k], each[phase == k], len(issues)) for k in np.unique(phase)]
    return np.asarray(np.max([np.zeros(len(issues)), *sums], axis=0), np.int64)


def _coded(column: pa.ChunkedArray) -> tuple[Indices, list[str]]:
    """Return the index of each text, -1 for null, and the distinct texts."""
    texts = column.to_pylist()
    known = {text: k for k, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    return np.array([known.get(text, -1) for text in texts], np.int64), list(known)
