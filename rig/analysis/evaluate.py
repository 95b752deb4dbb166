"""``evaluate(run) -> Result``: the one place that calls the estimators. Pure: recording in, figures out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from rig.analysis.memory import check_memory
from rig.analysis.power import figures as fig
from rig.analysis.power.average import average_figures
from rig.analysis.quantity import Quantity
from rig.analysis.reference_methods import peer_figures
from rig.analysis.result import ClockSummary, RailSeries, Refusal, Result, Series
from rig.analysis.service.change_detection import Stream, onset_figures, stream_of
from rig.analysis.service.queries import Queries, queries_of
from rig.analysis.service.serving import in_time_share, service_figures
from rig.analysis.solving.solves import Solve, solves_of, solving_checks, solving_figures, solving_notes
from rig.analysis.timing.execution_time import per_inference_s
from rig.analysis.timing.gpio_spans import pinned
from rig.analysis.timing.synchronise import Placed, place
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, activity_of, timebase_of
from rig.analysis.validity import Validity, judge
from rig.recording.lines import Note
from rig.recording.reader import Run


def evaluate(run: Run) -> Result:
    """All figures of a run. Raises ``DataError`` when the recording contradicts itself.

    ``MeasurementRefusedError`` where its traces are longer than memory holds.

    Example::

        import rig

        result = rig.evaluate(rig.open_run("runs/first"))
        for name, quantity in result.quantities.items():
            print(name, quantity.value, quantity.unit)
    """
    check_memory([len(t.value) for t in run.traces.values() if t.rail.kind != "edges"])
    pins = pinned(run)
    run = run if pins is None else pins.run
    device_clock = run.start.device.clock
    device = timebase_of(run, device_clock.name if device_clock else "host") if pins is None else pins.timebase
    activity = activity_of(run, device)
    placed = place(run, activity, device)
    figures, refusals, notes = _figures(run, activity, device, placed)
    queries = queries_of(run)
    stream = stream_of(run, queries)
    figures |= _served(run, queries, stream, activity, placed)
    solves = solves_of(run, device)
    figures |= _solved(run, solves, figures.get("average_power_w"))
    notes += solving_notes(solves, *_schedule(run), tuple(run.start.workload.notes))
    clocks = {device.clock.name: device} | {p.timebase.clock.name: p.timebase for p in placed}
    return Result(
        run_id=run.start.run_id,
        run_digest=run.digest,
        complete=run.stop is not None and run.error is None,
        simulated=run.start.simulated,
        start=run.start,
        quantities=figures,
        refusals=tuple(refusals),
        notes=tuple(dict.fromkeys([*notes, *_remarks(run)])),
        clocks={name: _summary(tb) for name, tb in clocks.items()},
        series=_series(activity, placed, queries, stream, solves),
        validity=_judged(run, queries, figures, solves),
    )


def _solved(run: Run, solves: list[Solve], power: Quantity | None) -> dict[str, Quantity]:
    timed, to_gap = _schedule(run)
    return solving_figures(solves, power, timed, to_gap)


def _schedule(run: Run) -> tuple[bool, float | None]:
    """Whether time to a gap can be read from the record of progress, and the gap that solves were told to stop at."""
    to_gap = run.start.scenario.to_gap
    return to_gap is not None or run.start.device.schedule_depends_on_budget is False, to_gap


def _judged(run: Run, q: Queries, figures: dict[str, Quantity], solves: list[Solve]) -> Validity | None:
    validity = judge(run, q, figures)
    if validity is None or not solves:
        return validity
    return replace(validity, checks=(*validity.checks, *solving_checks(solves)))


def _served(
    run: Run, q: Queries, stream: Stream | None, activity: Activity, placed: list[Placed]
) -> dict[str, Quantity]:
    """How the system served: on the host's clock, and the power that it took to do so."""
    if run.start.scenario.name == "import":
        return {}  # its windows hold many inferences, and no host asked for them one by one
    figures = service_figures(q, run.start.rules)
    answered = int(np.count_nonzero(q.answered))
    if answered and not activity.apart:
        figures |= average_figures(placed, activity, q.window_s(), answered)
    deadline_s = run.start.scenario.deadline_s
    if q.scheduled and deadline_s:
        figures["in_time_share"] = in_time_share(q, float(deadline_s))
    return figures | (onset_figures(stream) if stream is not None else {})


def _figures(
    run: Run, activity: Activity, device: Timebase, placed: list[Placed]
) -> tuple[fig.Figures, list[Refusal], list[str]]:
    figures = _scores(run)
    refusals: list[Refusal] = []
    notes: list[str] = []
    times, busy = fig.timing(activity, device, [p.view for p in placed if p.view is not None])
    figures |= times
    for p in placed:
        found = fig.rail_figures(p, activity, busy)
        figures |= found.figures
        refusals += found.refusals
        notes += found.notes
    notes += dict.fromkeys(note for p in placed for note in p.notes)
    rails, phases = [p.rail.name for p in placed], list(activity.phases)
    sums, missing = fig.totals(figures, rails, phases)
    figures |= sums
    figures |= fig.energies(figures, rails, phases)
    if activity.apart:
        figures |= fig.apart_totals(figures, phases)
    if not run.start.meters:
        notes.append("No meter watched: times and accuracy only")
    elif not placed:
        refusals.append(Refusal("power", "no trace was recorded", "Check the meter and measure again"))
    if not phases:
        ended = run.stop is None or run.error is not None
        remedy = "Measure again; the run ended too early" if ended else "Let the device return spans with its replies"
        if run.start.device.spans_on_pin:
            remedy = "Its spans are on a pin: wire that to a logic input of the meter, and say what it does (`pin`)"
        refusals.append(Refusal("time and power", "no span was recorded", remedy))
    figures |= peer_figures(run)
    return figures, refusals + missing, notes


def _remarks(run: Run) -> list[str]:
    out = [f"{name} ends in a torn batch, which was left out" for name in run.truncated]
    out += [note.text for note in run.of_type(Note) if note.about == "files"]
    if run.stop is None:
        out.append("The recording has no stop line: it ended in a crash and is read to its last whole batch")
    elif not run.sealed:
        out.append("The recording is not sealed: events.jsonl.sha256 is absent")
    declared = run.start.device.phases
    found = {p for p in run.replies["phase"].unique().to_pylist() if p is not None}
    if declared and (strange := sorted(found - set(declared))):
        out.append(f"The device declares the phases {', '.join(declared)} and ran also {', '.join(strange)}")
    labels = {label for label in run.samples["label"].to_pylist() if label is not None}
    said = [_said(output) for output in run.replies["output"].drop_null().to_pylist()]
    if labels and said and not any(isinstance(s, str) and s in labels for s in said):
        out.append(f"No output is a label of the workload, such as {min(labels)!r}; the first output was {said[0]!r}")
    for name, trace in run.traces.items():
        if trace.rail.kind == "edges" and not len(trace.value):
            out.append(f"Input {name}: no edge was seen; is the pin connected, and does the device use it?")
        elif trace.rail.kind != "edges" and len(trace.value) > 2 and np.ptp(trace.value) == 0.0:
            out.append(f"Rail {name}: every reading is the same; is the meter connected, and its resolution declared?")
    return out


def _said(output: str) -> object:
    """The label in a reply's output: the output itself, or what stands under ``label``."""
    said = json.loads(output)
    return said.get("label") if isinstance(said, dict) else said


def _scores(run: Run) -> fig.Figures:
    """Accuracy by counting outputs against labels. What ran only an earlier phase has not decided anything."""
    labels = dict(zip(run.samples["id"].to_pylist(), run.samples["label"].to_pylist(), strict=True))
    rows = run.replies.select(["issue", "sample_id", "phase", "output", "warmup"]).to_pylist()
    phases = run.start.device.phases
    decided = {row["issue"] for row in rows if not phases or row["phase"] in (phases[-1], None)}
    hits: dict[str, list[bool]] = {}
    for row in rows:
        label = labels.get(row["sample_id"])
        if label is None or row["output"] is None or row["warmup"] or row["issue"] not in decided:
            continue
        hits.setdefault(label, []).append(_said(row["output"]) == label)
    flat = [h for hs in hits.values() for h in hs]
    if not flat:
        return {}
    recall = [sum(h) / len(h) for h in hits.values()]
    method = "outputs equal to labels, counted"
    return {
        "accuracy": Quantity(sum(flat) / len(flat), "1", (), 0.0, len(flat), method),
        "balanced_accuracy": Quantity(sum(recall) / len(recall), "1", (), 0.0, len(flat), "mean recall by class"),
    }


def _summary(tb: Timebase) -> ClockSummary:
    return ClockSummary(
        tb.clock.name, tb.method, tb.sigma_s, tb.rate - 1.0, tb.rate_sigma, tb.brackets, dict(tb.considered)
    )


def _series(
    activity: Activity, placed: list[Placed], queries: Queries, stream: Stream | None, solves: list[Solve]
) -> Series:
    readings = [p.readings for p in placed]
    return Series(
        rails=tuple(RailSeries(r.rail, r.start_s, r.end_s, np.where(r.ok, r.watts, np.nan)) for r in readings),
        phase_windows_s={name: p.windows_s for name, p in activity.phases.items()},
        warmup_windows_s=activity.warmup_s,
        idle_windows_s=activity.idle_s,
        mark_windows_s=activity.marks_s,
        execution_times_s=per_inference_s(activity),
        asked_s=queries.asked_s[queries.answered],
        latency_s=queries.latency_s(),
        stream=stream,
        solves=tuple(solves),
    )
