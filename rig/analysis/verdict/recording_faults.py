"""Find what is wrong with a recording as a whole: contradictions are failed checks, and what looks odd is a note.

A recording can contradict itself in host stamps, spans, counts of readings, and the host's own heartbeat. Notes say how
it ended, which traces look wrong, and what its figures leave out. Figures without a span or a finite number are
refused.
"""

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rig.analysis.result.finding import Finding, refusal
from rig.analysis.result.quantity import Figures
from rig.analysis.timing.clocks_and_tolerances import host_bend
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.timebase import Timebase
from rig.analysis.warmup import warmup_issues
from rig.recording.columns.buffers import array_of, kept, valid
from rig.recording.events import HostGap, Note
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats

FAR = 6.0
"""A span contradicts its host stamps if it is outside them by more than this many sigmas of the synchronisation."""
ROUNDING_S = 1e-6
ONE_TICK = 0.5
"""The clock does not resolve the spans if more than this share of them is one tick or less."""
BLOCK = 1 << 16
OFFERED = 0.05
"""A rate of arrivals that differs from the requested rate by more than this share gets a note."""


def contradictions_of(run: Run, device: Timebase) -> tuple[Finding, ...]:
    """Return a failed check for each contradiction; ``device`` is the clock of the spans."""
    return (*_lost(run), *_misplaced(run, device))


def _lost(run: Run) -> Iterator[Finding]:
    """Find unusable values, gaps in the host's time, incomplete files, and doubled or missing readings."""
    if run.left_out:
        more = f" and {len(run.left_out) - 1} more" if len(run.left_out) > 1 else ""
        yield Finding("values that cannot be used", f"{run.left_out[0]}{more}", "none", False)
    gaps_s = [(gap.off_ns - gap.on_ns) * 1e-9 for gap in run.of_type(HostGap)]
    if gaps_s:
        found = f"{len(gaps_s)}, the longest {max(gaps_s):.3g} s"
        yield Finding("gaps in the host's heartbeat", found, "none", False)
    # a run that ended as planned has written all files and chunks
    if run.complete and run.truncated:
        yield Finding("files that were written to their end", f"all but {', '.join(run.truncated)}", "all", False)
    for name, trace in run.traces.items() if run.complete and not (run.truncated or run.left_out) else ():
        table = run.arrivals(name)
        arrived = int(table[-1, 0]) if len(table) else len(trace.value)
        if arrived != len(trace.value):
            yield Finding(f"readings of rail {name} on disk", str(len(trace.value)), f"{arrived} that arrived", False)


def _misplaced(run: Run, device: Timebase) -> Iterator[Finding]:
    if run.start.imported is not None or run.start.device.spans_on_pin:
        return
    table = kept(run.replies, valid(run.replies["on_tick"]) & valid(run.replies["completed_ns"]))
    if not len(table):
        return
    ticks = np.column_stack([array_of(table[c]) for c in ("on_tick", "off_tick")])
    on_s, off_s = device.seconds(ticks[:, 0]), device.seconds(ticks[:, 1])
    issued_s, answered_s = ((array_of(table[c]) - run.start.t0_ns) * 1e-9 for c in ("issued_ns", "completed_ns"))
    sigma_s = np.hypot(device.sigma_s, device.rate_sigma * (on_s - device.ref_s))
    allowed_s = FAR * sigma_s + 2.0 * device.step_s + ROUNDING_S
    early = on_s < issued_s - allowed_s - _wander_s(run, device, on_s)
    late = off_s > answered_s + allowed_s + _wander_s(run, device, off_s)
    yield from _count("spans that begin before they were issued", early, issued_s - on_s)
    yield from _count("spans that end after their answer arrived", late, off_s - answered_s)
    short = ticks[:, 1] - ticks[:, 0] <= 1
    if np.mean(short) > ONE_TICK:
        yield Finding("spans of one tick or less", f"{short.sum()} of {len(short)}", "at most half of them", False)
    if run.start.device.holds_one:
        yield from _overlapping(array_of(table["issue"]), on_s, off_s, 2.0 * device.step_s)


def _wander_s(run: Run, device: Timebase, at_s: Floats) -> Floats:
    """Return how far the tolerance of a clock lets it wander between two readings of it, at these moments."""
    if not device.clock.tolerance:
        return np.zeros_like(at_s)
    read_s = np.sort(device.residuals(run.brackets(device.clock.name), run.start.t0_ns)[:, 0])
    after, last = np.searchsorted(read_s, at_s), len(read_s) - 1
    apart_s = [np.abs(at_s - read_s[np.clip(after - k, 0, last)]) for k in (0, 1)]
    return np.asarray(device.clock.tolerance * np.minimum(*apart_s))


def _overlapping(issue: NDArray[np.int64], on_s: Floats, off_s: Floats, step_s: float) -> Iterator[Finding]:
    """Find overlapping spans of different samples on a device that holds one sample at a time."""
    order = np.argsort(issue, kind="stable")
    first = np.flatnonzero(np.diff(issue[order], prepend=-1))
    begin_s = np.minimum.reduceat(on_s[order], first)
    end_s = np.maximum.reduceat(off_s[order], first)
    by_time = np.argsort(begin_s, kind="stable")
    into_s = np.maximum.accumulate(end_s[by_time])[:-1] - begin_s[by_time][1:]
    yield from _count("spans that overlap on a device that holds one sample", into_s > step_s + ROUNDING_S, into_s)


def _count(rule: str, bad: Bools, by_s: Floats) -> Iterator[Finding]:
    if bad.any():
        yield Finding(rule, f"{bad.sum()} of {len(bad)}, by up to {by_s[bad].max():.3g} s", "none", False)


def remarks_of(run: Run) -> Iterator[str]:
    """Yield every note on a recording."""
    for remarks in (_bench, _training, _files, _traces, _warmup, _offered, _loops):
        yield from remarks(run)


def _bench(run: Run) -> Iterator[str]:
    if not run.start.meters:
        yield "No meter recorded: power and energy are not stated"
    read = [
        (meter.name, rails)
        for meter in run.start.meters
        if (rails := [r.name for r in meter.rails if r.kind != "edges" and r.conversion.unit != "V"])
    ]
    if len(read) > 1 or (run.start.imported is not None and sum(len(rails) for _, rails in read) > 1):
        each = " and ".join(f"{', '.join(rails)} ({meter})" for meter, rails in read)
        yield (
            f"Totals add all rails: {each}. If two of them see the same power, as the supplies of a board and a chip "
            "on it do, it counts twice: read each rail by itself then, or leave one out"
        )
    bend_s, shown_by = host_bend(run)
    if shown_by:
        yield (
            f"The clocks {', '.join(shown_by)} deviate alike from a line, by {bend_s:.2g} s: the clock of the host "
            "was corrected during the run. Times are uncertain by their clock's tolerance, idle windows by this shift"
        )
    if isinstance(made := run.start.workload.details.get("synthetic"), str):
        yield f"The samples are synthetic, not recorded: {made}"
    if isinstance(of := (device := run.start.device).details.get("times_of"), str):
        yield f"Times and energies are those of {of}, and say nothing about {device.name}"


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
    issues = len(np.unique(array_of(run.replies["issue"])))
    if warm := len(warmup_issues(run)):
        yield f"Warm-up: {warm} of {issues} samples that were issued count in no figure"


def _offered(run: Run) -> Iterator[str]:
    asked_hz = run.start.scenario.arrival_hz
    due_s = 1e-9 * np.unique(array_of(due_ns := run.replies["due_ns"], 0)[valid(due_ns)])
    if asked_hz is None or len(due_s) < 2 or due_s[0] == due_s[-1]:
        return
    hz = (len(due_s) - 1) / float(due_s[-1] - due_s[0])
    if abs(hz - asked_hz) > OFFERED * asked_hz:
        yield (
            f"Samples were due at {hz:.3g} Hz, where arrival_hz asks for {asked_hz:g} Hz: this draw of {len(due_s)} "
            "arrivals is so by chance. A longer stream (duration_s) comes closer"
        )


def _loops(run: Run) -> Iterator[str]:
    if array_of(run.replies["executions"], 0).max(initial=0) > 1:
        yield (
            "A span that holds several executions shows their mean alone, so no percentile of execution time is "
            "stated, nor one of latency. For these, record single executions too"
        )


def other_counts(run: Run, activity: Activity) -> Iterator[str]:
    """Yield a note if the phases of an import differ in inferences."""
    counts = {name: phase.n for name, phase in activity.phases.items()}
    if run.start.imported is not None and len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield f"Phases differ in inferences ({shown}). A figure over all phases counts one inference of each phase"


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


def without_spans(run: Run) -> Finding:
    """Return the refusal of everything that needs a span."""
    remedy = "Let the device return spans with its replies"
    if run.start.device.spans_on_pin:
        remedy = "Wire the pin that marks the spans to a logic input of the meter, and declare it there (`pin`)"
    elif not run.complete:
        remedy = "Measure again; the run ended too early"
    return refusal("time and power", "no span was recorded", remedy)


def without_number(figures: Figures) -> Iterator[Finding]:
    """Yield a refusal for each figure whose value or interval is not a finite number."""
    remedy = "Look at the readings and the spans for what is too large, too short or missing, and measure again"
    for key, q in figures.items():
        if q.value == math.inf and key.quantity.startswith("latency_"):
            yield refusal(key, "a sample without an answer is never served", "Let the device answer each sample")
        elif not all(map(math.isfinite, (q.value, q.bias, *q.interval(), *(c.u for c in q.components)))):
            yield refusal(key, "the recording gives no finite number for it", remedy)


def as_imported(finding: Finding, run: Run) -> Finding:
    """Return a finding of an imported run, with a remedy for its importer in place of options of ``rig measure``."""
    if run.start.imported is None or "--" not in finding.remedy or finding.effect != "refusal":
        return finding
    options = run.start.imported.options
    if "idle_s" not in finding.remedy:
        remedy = "Record longer windows, or with a faster meter"
    elif "idle" in options:
        remedy = (
            "State when the device was idle, in seconds of the trace, and import again (--option idle=START:END,...)"
        )
        if options.get("sync_s"):
            remedy = "State longer idle windows, or a smaller sync_s, which is cut from both ends, and import again"
    elif "idle_guard_s" in options:
        remedy = "Count less time around the run as work, and import again (--option idle_guard_s=SECONDS)"
    else:
        remedy = "The trace must also hold readings while the device was idle"
    return replace(finding, remedy=remedy)
