"""The evaluation takes a recording and returns all figures; each of its stages is a function of earlier stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rig.analysis.accuracy import accuracy_figures, answer_checks, seen_checks, span_checks
from rig.analysis.complexity.workload import complexity_of, energies_of
from rig.analysis.contradictions import contradictions_of
from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.memory_check import check_limit
from rig.analysis.power.average import average_figures
from rig.analysis.power.energy import energy_figures
from rig.analysis.power.estimators import alignment_baseline
from rig.analysis.power.figures import power_figures
from rig.analysis.power.front_end import front_end_figures, preprocessing_checks
from rig.analysis.power.rail_model import rail_model
from rig.analysis.power.span_mean import difference_notes
from rig.analysis.power.stamp_uncertainty import stamps_u_s
from rig.analysis.predictions import predictions_of
from rig.analysis.recording_notes import BELOW_IDLE, remarks_of
from rig.analysis.reference_methods import recorder_figures
from rig.analysis.refusal import Refusal, for_import, without_number
from rig.analysis.result import ClockSummary, RailSeries, Result, Series
from rig.analysis.service.change_detection import Stream, change_figures, stream_of
from rig.analysis.service.queries import Queries, queries_of
from rig.analysis.service.serving import deadline_figures, service_figures
from rig.analysis.solving.repeats import repeat_checks
from rig.analysis.solving.solves import (
    RUNTIME,
    Solve,
    answer_count,
    runtime_power,
    solves_of,
    solving_checks,
    solving_figures,
    solving_notes,
)  # fmt: skip
from rig.analysis.spiking import spiking_figures
from rig.analysis.terms import Terms, terms_of
from rig.analysis.timing.arrival_times import arrival_checks
from rig.analysis.timing.execution_time import busy_times, per_inference_s, time_figures
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.host_corrections import steady_host
from rig.analysis.timing.placed_rails import AlignedRail
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.synchronise import aligned_rails
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, activity_of
from rig.analysis.validity import judge
from rig.analysis.verdict import Check
from rig.recording.reader import AT_ONCE, Run


def evaluate(run: Run, at_once: int = AT_ONCE) -> Result:
    """Compute all figures of a run.

    Of a trace with more than ``at_once`` readings, so many are looked at one by one; all enter the sums.
    Raises ``DataError`` if the recording contradicts itself, and ``MeasurementRefusedError`` if the process gets no
    memory for its libraries.

    Example::

        import rig

        result = rig.evaluate(rig.open_run("runs/first"))
        for key, quantity in result.quantities.items():
            print(key, quantity.value, quantity.unit)
    """
    check_limit()
    # the recording, in seconds of the run
    steady = steady_host(run)
    run, device = on_device_clock(steady.run)
    terms, activity, queries = terms_of(run), activity_of(run, device), queries_of(run)
    stream, solves = stream_of(run, queries), solves_of(run, device)
    # readings on the device's time, then the model of each rail
    rails = aligned_rails(run, activity, device, alignment_baseline, terms.end_s, at_once)
    readings = [r.readings for r in rails]
    against, mended = _contradictions(rails, arrival_checks(run))
    sound = [r for r in rails if not against[r.readings.rail.name]]
    models = {r.readings.rail.name: m for r in sound if (m := rail_model(r, activity)) is not None}
    # figures, concern by concern
    busy = busy_times(activity, stamps_u_s(activity, device, list(models.values())))
    times = time_figures(activity, steady.with_rate(device), busy)
    power = power_figures(readings, models, activity, busy, against)
    figures = accuracy_figures(run) | times | power.figures
    rails_named = [r.rail.name for r in readings]
    figures |= energy_figures(times, power.figures, rails_named, list(activity.phases), activity.per_phase)
    heard, unheard = front_end_figures(run, power.figures)
    figures |= heard | recorder_figures(run)
    if terms.scenario.name != "import":  # an imported window holds many inferences that no host requested one by one
        service = service_figures(queries, terms.percentile)
        if len(models) == len(rails) and not activity.per_phase:
            service |= average_figures(list(models.values()), activity, queries.window_s(), queries.completed_count)
        figures |= service | deadline_figures(queries, terms.deadline_s) | change_figures(stream)
    if solves:
        figures |= runtime_power(power.figures)
        runtime_w = figures.get(RUNTIME)
        figures |= solving_figures(solves, runtime_w, terms.gap_times_known, terms.solves_to_gap)
    complexity = complexity_of(run)
    predictions = predictions_of(run)
    figures |= complexity.figures | energies_of(run, complexity, figures) | predictions.figures
    figures |= spiking_figures(run, figures)
    unknown = without_number(figures)
    refusals = [*power.refusals, *unheard, *_missing(run, terms, rails, activity), *unknown]
    if run.start.imported is not None:
        refusals = for_import(refusals, run.start.imported.options)
    figures = Figures({key: q for key, q in figures.items() if key not in {r.scope for r in unknown}})
    contradictions = contradictions_of(run, device)
    notes = [
        *(f"{c.rule}: {c.found}" for c in (*contradictions, *complexity.checks, *predictions.checks)),
        *(f"{c.rule}: {c.found}" for c in seen_checks(run) if not c.ok),
        *(f"{c.rule}: {c.found}, allowed: {c.allowed}" for c in span_checks(run)),
        *steady.notes,
        *power.notes,
        *_below_idle(figures),
        *difference_notes(figures),
        *_alignment_notes(rails, terms),
        *_solving_notes(solves, terms),
        *remarks_of(run),
    ]
    timebases = {device.clock.name: device} | {r.timebase.clock.name: r.timebase for r in rails}
    return Result(
        run_id=run.start.run_id,
        run_digest=run.digest,
        complete=terms.complete,
        simulated=terms.simulated,
        start=run.start,
        quantities=figures,
        refusals=tuple(refusals),
        notes=tuple(dict.fromkeys(notes)),
        clocks=_clocks(timebases),
        series=_series(run, timebases, activity, readings, queries, stream, solves),
        validity=judge(
            terms,
            queries,
            figures,
            (
                *contradictions,
                *power.checks,
                *mended,
                *answer_checks(run),
                *span_checks(run),
                *seen_checks(run),
                *complexity.checks,
                *predictions.checks,
                *solving_checks(solves, answer_count(run)),
                *repeat_checks(run),
                *preprocessing_checks(run, list(activity.phases), figures),
            ),
        ),
    )


def _contradictions(
    rails: list[AlignedRail], late: Mapping[str, tuple[Check, ...]]
) -> tuple[dict[str, tuple[Check, ...]], tuple[Check, ...]]:
    """Failed checks that refuse the power of each rail, and those that the recording itself resolves."""
    against = {r.readings.rail.name: r.contradictions for r in rails}
    mended = tuple(check for r in rails for check in r.bridged)
    for r in rails:
        checks = late.get(r.readings.rail.name, ())
        if r.bridged:
            mended += checks
        else:
            against[r.readings.rail.name] += checks
    return against, mended


def _missing(run: Run, terms: Terms, rails: list[AlignedRail], activity: Activity) -> list[Refusal]:
    """Refusals of everything that needs a trace or a span, if the recording holds none."""
    refusals = []
    if terms.metered and not rails:
        refusals.append(_no_power(run))
    if not activity.phases:
        remedy = "Let the device return spans with its replies"
        if terms.spans_on_pin:
            remedy = "Wire the pin that marks the spans to a logic input of the meter, and declare it there (`pin`)"
        elif not terms.complete:
            remedy = "Measure again; the run ended too early"
        refusals.append(Refusal("time and power", "no span was recorded", remedy))
    return refusals


def _no_power(run: Run) -> Refusal:
    """Return why a run with a meter has no rail of power."""
    volts = [name for name, trace in run.traces.items() if trace.rail.conversion.unit == "V"]
    if not volts:
        return Refusal("power", "no trace was recorded", "Check the meter and measure again")
    reason = f"only volts were recorded ({', '.join(volts)}), and volts alone are no power"
    remedy = "Measure the current of this supply too, and declare the volts as its voltage, or measure watts"
    return Refusal("power", reason, remedy)


def _alignment_notes(rails: list[AlignedRail], terms: Terms) -> list[str]:
    notes = list(dict.fromkeys(note for r in rails for note in r.notes))
    return notes if terms.metered else [*notes, "No meter recorded: times and accuracy only"]


def _below_idle(figures: Figures) -> Iterator[str]:
    """A sentence on dynamic power below zero."""
    dynamic = figures.get(FigureKey("dynamic_power_w"))
    if dynamic is not None and dynamic.interval()[1] < 0.0:
        yield BELOW_IDLE


def _solving_notes(solves: list[Solve], terms: Terms) -> Iterator[str]:
    return solving_notes(solves, terms.gap_times_known, terms.solves_to_gap, terms.workload_notes)


def _clocks(timebases: Mapping[str, Timebase]) -> dict[str, ClockSummary]:
    return {
        name: ClockSummary(name, t.method, t.sigma_s, t.rate - 1.0, t.rate_sigma, t.brackets, dict(t.considered))
        for name, t in timebases.items()
    }


def _series(
    run: Run,
    timebases: Mapping[str, Timebase],
    activity: Activity,
    readings: list[Readings],
    queries: Queries,
    stream: Stream | None,
    solves: list[Solve],
) -> Series:
    reads = {name: t.residuals(run.brackets(name), run.start.t0_ns) for name, t in timebases.items()}
    return Series(
        rails=tuple(RailSeries(r.rail.name, r.start_s, r.end_s, np.where(r.ok, r.watts, np.nan)) for r in readings),
        phase_windows_s={name: p.windows_s for name, p in activity.phases.items()},
        warmup_windows_s=activity.warmup_s,
        idle_windows_s=activity.idle_s,
        mark_windows_s=activity.marks_s,
        execution_times_s=per_inference_s(activity),
        requested_s=queries.requested_s[queries.completed],
        latency_s=queries.latency_s(),
        stream=stream,
        solves=tuple(solves),
        clock_reads={name: rows for name, rows in reads.items() if len(rows)},
    )
