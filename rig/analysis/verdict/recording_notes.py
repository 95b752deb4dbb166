"""Notes on a recording as a whole: how it ended, and traces or outputs that look wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from rig.analysis.timing.recorded_clocks import host_bend
from rig.recording.columns.buffers import array_of
from rig.recording.events import Note
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace
from rig.types import MARK_PHASE

BLOCK = 1 << 16
OFFERED = 0.05
"""A rate of arrivals that differs from the requested rate by more than this share gets a note."""


def remarks_of(run: Run) -> Iterator[str]:
    """Yield every note on a recording."""
    for remarks in (_bench, _training, _files, _phases, _traces, _warmup, _offered, _loops):
        yield from remarks(run)


def _bench(run: Run) -> Iterator[str]:
    if not run.start.meters:
        yield "No meter recorded: times and accuracy only"
    bend_s, shown_by = host_bend(run)
    if shown_by:
        yield (
            f"The clocks {', '.join(shown_by)} deviate alike from a line, by {bend_s:.2g} s: the clock of the host "
            "was corrected during the run. Times are uncertain by their clock's tolerance, idle windows by this shift"
        )
    if isinstance(made := run.start.workload.details.get("synthetic"), str):
        yield f"The samples are synthetic, not recorded: {made}"
    if isinstance(of := (device := run.start.device).details.get("times_of"), str):
        yield f"Times and energies are those of {of}, and say nothing of those of {device.name}"


def _training(run: Run) -> Iterator[str]:
    device, labels = run.start.device, run.samples["label"]
    told = device.algorithm.training
    told = told.get("data") if isinstance(told, dict) else told
    if device.network is not None and labels.null_count < len(labels) and told in (None, "not stated"):
        yield (
            "Nothing says on which data the network was trained, so no rule finds a test on the same data. A driver "
            'declares it by algorithm={"training": {"data": ...}}'
        )


def _files(run: Run) -> Iterator[str]:
    for name in run.truncated:
        yield f"{name} ends in an incomplete batch, which was left out"
    yield from (note.text for note in run.of_type(Note) if note.about == "files")
    if run.stop is None:
        yield "The recording has no stop line: it ended in a crash. It is read up to its last whole batch"
    elif not run.sealed:
        yield "The recording is not sealed: events.jsonl.sha256 is absent"


def _warmup(run: Run) -> Iterator[str]:
    issues, warm = (len(table["issue"].unique()) for table in (run.replies, run.replies.filter(run.replies["warmup"])))
    if warm:
        yield f"Warm-up: {warm} of {issues} samples that were issued count in no figure"


def _offered(run: Run) -> Iterator[str]:
    asked_hz = run.start.scenario.arrival_hz
    due_s = 1e-9 * np.unique(array_of(run.replies.filter(pc.is_valid(run.replies["due_ns"]))["due_ns"]))
    if asked_hz is None or len(due_s) < 2 or due_s[0] == due_s[-1]:
        return
    hz = (len(due_s) - 1) / float(due_s[-1] - due_s[0])
    if abs(hz - asked_hz) > OFFERED * asked_hz:
        yield (
            f"Samples were due at {hz:.3g} Hz, where arrival_hz asks for {asked_hz:g} Hz: this draw of {len(due_s)} "
            "arrivals is so by chance. A longer stream (duration_s) comes closer"
        )


def _loops(run: Run) -> Iterator[str]:
    if (pc.max(run.replies["executions"]).as_py() or 1) > 1:
        yield (
            "A span that holds several executions shows their mean alone, so no percentile of execution time is "
            "stated, nor one of latency. For these, record single executions too"
        )


def _phases(run: Run) -> Iterator[str]:
    counts = _inferences(run) if run.start.imported is not None else {}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{phase} {count}" for phase, count in counts.items())
        yield f"Phases differ in inferences ({shown}); figures of all phases are of one inference of each"


def _inferences(run: Run) -> dict[str, int]:
    """Return the inferences in the windows of each phase, without warm-up."""
    size = run.by_sample("inferences")
    counts: dict[str, int] = {}
    columns = (run.replies[c].to_pylist() for c in ("phase", "sample_id", "executions", "warmup"))
    for phase, sample, executions, warmup in zip(*columns, strict=True):
        if phase is not None and phase != MARK_PHASE and not warmup:
            counts[phase] = counts.get(phase, 0) + (size.get(sample) or 1) * (executions or 1)
    return counts


def _constant(trace: Trace) -> bool:
    """Return whether all readings are the same; a long trace is read until one differs."""
    n, first = len(trace.value), trace.value[0]
    return not any(np.any(trace.value[a : a + BLOCK] != first) for a in range(0, n, BLOCK))


def _traces(run: Run) -> Iterator[str]:
    for name, trace in run.traces.items():
        if trace.rail.kind == "edges" and not len(trace.value):
            yield f"Input {name}: no edge was seen; check that the pin is connected and that the device uses it"
        elif trace.rail.kind != "edges" and len(trace.value) > 2 and _constant(trace):
            yield f"Rail {name}: every reading is the same; check the wires of the meter and its declared resolution"
