"""Compute all figures of a recording in stages; each stage uses only the results of earlier stages."""

import math
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.complexity.cost_and_activity import complexity_of, energies_of
from rig.analysis.power.energy import average_figures, energy_figures, with_learning
from rig.analysis.power.figures import power_figures
from rig.analysis.power.front_end_power import front_end_figures, preprocessing_checks
from rig.analysis.power.model.rail_model import RailModel, rail_model, sum_of
from rig.analysis.power.notes_and_refusals import no_power, sign_checks
from rig.analysis.power.stamp_uncertainty import stamps_u_s
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.quantity import LITERAL, FigureKey, Figures, Quantity
from rig.analysis.result.result import ClockSummary, Result
from rig.analysis.result.series import RailSeries, Series, Solve, Stream
from rig.analysis.scores.accuracy import accuracy_figures, answer_checks, seen_checks, session_figures, span_checks
from rig.analysis.scores.answers import Answer, answers_of
from rig.analysis.scores.predictions import predictions_of
from rig.analysis.scores.reference_methods import recorder_figures
from rig.analysis.scores.spiking import spiking_checks, spiking_figures
from rig.analysis.service.change_detection import change_figures, stream_of
from rig.analysis.service.queries import Queries, in_turn, queries_of
from rig.analysis.service.serving import deadline_figures, service_figures
from rig.analysis.solving import solves
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.clocks_and_tolerances import off_line_checks, rate_checks
from rig.analysis.timing.counted_spans import LEARNING, Activity, Phase, activity_of
from rig.analysis.timing.execution_time import StampsU, busy_times, per_inference_s, time_figures
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.outside_spans import restless, with_work_outside
from rig.analysis.timing.timebase import Timebase
from rig.analysis.verdict import recording_faults as faults
from rig.analysis.verdict.benchmark import sample_findings, set_findings
from rig.analysis.verdict.rule_checks import checks_of, named, ruling_of
from rig.errors import MeasurementRefusedError
from rig.recording.columns.buffers import array_of, valid
from rig.recording.events import Brackets, ChunkArrived, IdleWindow
from rig.recording.reader import Run
from rig.recording.traces.traces import AT_ONCE
from rig.types import Floats

LIBRARY_BYTES = 128 << 20
"""Memory that OpenBLAS maps, in numpy and again in scipy. If the system refuses it, OpenBLAS retries forever."""


def evaluate(run: Run, at_once: int = AT_ONCE) -> Result:
    """Compute all figures of a run.

    If a trace has more than ``at_once`` readings, only about ``at_once`` of them are examined singly. Sums are over all
    readings. Raises ``DataError`` if the recording contradicts itself, and ``MeasurementRefusedError`` if the process
    gets no memory for its libraries.

    Example::

        import rig

        result = rig.evaluate(rig.open_run("runs/first"))
        for key, quantity in result.quantities.items():
            print(key, quantity.value, quantity.unit)
    """
    check_memory()
    told = _recorded(run, at_once)
    run = told.run
    computed, found = _figures(told)
    unknown = list(faults.without_number(computed))
    figures = Figures({key: q for key, q in computed.items() if key not in {r.scope for r in unknown}})
    findings = (faults.as_imported(f, run) for f in (*_findings(told, figures, found), *unknown))
    timebases = {told.device.clock.name: told.device} | {r.timebase.clock.name: r.timebase for r in told.rails}
    return Result(
        run_id=run.start.run_id,
        run_digest=run.digest,
        complete=run.complete,
        simulated=run.start.simulated,
        start=run.start,
        quantities=figures,
        findings=named(findings, run.start.rules),
        clocks=_clocks(timebases, told.device),
        series=_series(told, timebases, figures),
        ruling=ruling_of(run.start.rules),
    )


class _Recorded(Struct, frozen=True):
    """A recording whose spans and readings are all in run seconds by the device's clock.

    A span is the time from begin to end of what the device ran for a sample. ``models`` holds the power model of each
    rail whose readings allow one, and ``together`` is the model of the sum of all rails. ``against`` holds, by rail,
    the failed checks that refuse its power.
    """

    run: Run
    device: Timebase
    clock_checks: tuple[Finding, ...]
    activity: Activity
    queries: Queries
    answers: list[Answer]
    stream: Stream | None
    solves: list[Solve]
    rails: list[AlignedRail]
    models: dict[str, RailModel]
    together: RailModel | None
    against: dict[str, tuple[Finding, ...]]


def _recorded(run: Run, at_once: int) -> _Recorded:
    """Convert all times to the device's clock, find work that traces show outside spans, and model each rail."""
    run, clock = on_device_clock(in_turn(run))
    clock, clock_checks = off_line_checks(run, clock)
    queries, answers, spans = queries_of(run), answers_of(run), activity_of(run, clock)
    activity, rails = with_work_outside(spans, aligned_rails(run, spans, clock, _end_s(run), at_once))
    turn = max((r.turn for r in rails), default=0.0)  # the device's or the meter's clock may be wrong
    against = {r.readings.rail.name: (*r.contradictions, *restless(r, activity)) for r in rails}
    sound = [r for r in rails if not against[r.readings.rail.name]]
    whole = sum_of(rails) if len(sound) == len(rails) else None
    return _Recorded(
        run=run,
        device=replace(clock, rate_sigma=math.hypot(clock.rate_sigma, turn / math.sqrt(3.0))),
        clock_checks=clock_checks,
        activity=activity,
        queries=queries,
        answers=answers,
        stream=stream_of(run, queries),
        solves=solves.solves_of(run, answers, clock),
        rails=rails,
        models={r.readings.rail.name: m for r in sound if (m := rail_model(r, activity)) is not None},
        together=None if whole is None else rail_model(whole, activity),
        against=against,
    )


def _figures(told: _Recorded) -> tuple[Figures, list[Finding]]:
    """Compute all figures, topic by topic, and the findings of these computations."""
    run, activity, readings = told.run, told.activity, [r.readings for r in told.rails]
    stamps = own = stamps_u_s(run, activity, told.device, list(told.models.values()))
    if activity.overlaps:  # a trace shows where joined windows end, but not where each span ends
        own = stamps_u_s(run, replace(activity, phases=activity.spans), told.device)
    busy = busy_times(activity, stamps)
    times = time_figures(activity, told.device, busy, own)
    powers, noted = power_figures(readings, told.models, activity, busy, told.against, told.together)
    figures = accuracy_figures(run, told.answers) | times | powers
    rails = [r.rail.name for r in readings]
    figures |= energy_figures(times, powers, rails, list(activity.phases), activity.per_phase)
    heard, unheard = front_end_figures(run, powers)
    figures |= heard | recorder_figures(run) | session_figures(run, told.answers)
    if run.start.scenario.name != "import":  # an imported window holds many inferences that no host requested singly
        figures |= _service_figures(told)
    if told.solves:
        figures |= solves.runtime_power(powers)
        solved = solves.solving_figures(told.solves, solves.gap_times_known(run), run.start.scenario.to_gap)
        figures |= solved
        if (power := figures.get(solves.RUNTIME)) is not None:
            figures |= solves.gap_energies(told.solves, solved, power, partial(_power_in, told, stamps))
    complexity, (predicted, odd) = complexity_of(run), predictions_of(run, told.answers)
    figures |= complexity.figures | energies_of(run, complexity, figures) | predicted
    found = [*noted, *unheard, *_told((*complexity.findings, *odd))]
    return with_learning(figures | spiking_figures(run, told.answers, figures)), found


def _power_in(told: _Recorded, stamps: Mapping[str, StampsU], windows_s: Floats) -> Quantity | None:
    """Return the active power in windows, shape (k, 2), each from the begin of a span to a moment in the span.

    Return None if this power is refused, if every window is empty, or if any window is not finite.
    """
    windows_s = windows_s[np.diff(windows_s)[:, 0] != 0.0]  # empty: the solve began at its gap
    if not len(windows_s) or not np.all(np.isfinite(windows_s)):
        return None
    spans = merged(told.activity.busy_windows_s())
    rest = spans.copy()
    rest[np.searchsorted(spans[:, 0], windows_s[:, 0], "right") - 1, 0] = windows_s[:, 1]
    once = np.ones(len(windows_s), np.int64)
    phases = {next(iter(stamps)): Phase(windows_s, once, once, np.arange(len(once)))}
    outside_s = np.concatenate([told.activity.outside_s, rest[rest[:, 1] > rest[:, 0]]])
    until = replace(told.activity, phases=phases, outside_s=outside_s, inferences=len(once))
    readings, busy = [r.readings for r in told.rails], busy_times(until, stamps)
    powers, _ = power_figures(readings, told.models, until, busy, told.against, told.together)
    return powers.get(FigureKey("active_power_w", method=LITERAL)) or powers.get(FigureKey("active_power_w"))


def _service_figures(told: _Recorded) -> Figures:
    """Return throughput, latency and deadline figures, and the average power if every rail has a model."""
    start, activity, queries, models = told.run.start, told.activity, told.queries, list(told.models.values())
    answering = [phase.issue for name, phase in activity.phases.items() if name != LEARNING]
    one_at_a_time = activity.per_phase and len(answering) > 1
    apart = answering if one_at_a_time and not reduce(np.intersect1d, answering).size else []
    # an issue in which the device learns has no answer to time
    if LEARNING in activity.phases and answering and not apart:
        apart = [np.concatenate(answering)]
    service = service_figures(queries, None if start.rules is None else start.rules.percentile, apart)
    if len(models) == len(told.rails) and not activity.per_phase:
        service |= average_figures(models, told.together, activity, queries.window_s(), queries.answered_count)
    return service | deadline_figures(queries, start.scenario.deadline_s) | change_figures(told.stream)


def _findings(told: _Recorded, figures: Figures, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield all findings of a run; ``found`` are the findings from computing its figures."""
    run, start = told.run, told.run.start
    if start.rules is not None:
        yield from checks_of(start.rules, run, told.queries, figures)
    yield from _told(faults.contradictions_of(run, told.device))
    yield from found
    yield from sign_checks(figures)
    yield from _told(told.clock_checks)
    for rail in told.rails:
        yield from rail.findings
    yield from _told(rate_checks(run))
    if start.meters and not told.rails:
        yield no_power(run)
    if not told.activity.phases:
        yield faults.without_spans(run)
    yield from set_findings(run)
    yield from sample_findings(run)
    yield from answer_checks(run, told.answers)
    yield from _told((*span_checks(run), *seen_checks(run), *spiking_checks(run, told.answers)))
    gap = solves.gap_times_known(run), start.scenario.to_gap, start.workload.notes, solves.asks_solutions(run)
    yield from solves.solving_findings(told.solves, len(told.answers), *gap)
    yield from solves.repeat_checks(run, told.answers)
    yield from preprocessing_checks(run, list(told.activity.phases), figures)
    yield from map(note, (*faults.remarks_of(run), *faults.other_counts(run, told.activity)))


def _told(checks: Iterable[Finding]) -> Iterator[Finding]:
    """Mark checks so that a failed one is also a note, because it casts doubt on figures under any rules."""
    return (replace(check, told=True) for check in checks)


def _clocks(timebases: Mapping[str, Timebase], device: Timebase) -> dict[str, ClockSummary]:
    found = {}
    for name, t in timebases.items():
        # a rate from a trace or a pin is relative to the device's clock, whose own rate is uncertain too
        beside = 0.0 if t.method == "brackets" else device.rate_sigma
        rate_sigma = device.rate_sigma if name == device.clock.name else math.hypot(t.rate_sigma, beside)
        found[name] = ClockSummary(name, t.method, t.sigma_s, t.rate - 1.0, rate_sigma, t.brackets, dict(t.considered))
    return found


def _series(told: _Recorded, timebases: Mapping[str, Timebase], figures: Figures) -> Series:
    run, activity, queries = told.run, told.activity, told.queries
    reads = {name: t.residuals(run.brackets(name), run.start.t0_ns) for name, t in timebases.items()}
    readings = [r.readings for r in told.rails]
    return Series(
        rails=tuple(RailSeries(r.rail.name, r.start_s, r.end_s, np.where(r.ok, r.watts, np.nan)) for r in readings),
        phase_windows_s={name: p.windows_s for name, p in activity.phases.items()},
        warmup_windows_s=activity.warmup_s,
        idle_windows_s=activity.idle_s,
        mark_windows_s=activity.marks_s,
        execution_times_s=per_inference_s(activity),
        requested_s=queries.requested_s[queries.completed],
        latency_s=queries.latency_s(),
        stream=told.stream,
        solves=tuple(told.solves),
        clock_reads={name: rows for name, rows in reads.items() if len(rows)},
        executions={
            name: np.column_stack([p.issue, p.each_s, *(_each_w(told, figures, name, r.rail.name) for r in readings)])
            for name, p in activity.spans.items()
        },
    )


def _each_w(told: _Recorded, figures: Figures, phase: str, rail: str) -> Floats:
    """Return the mean power of a rail in each span of a phase, shape (k,); where it was not seen, that of all spans."""
    windows_s, model = told.activity.spans[phase].windows_s, told.models.get(rail)
    power = figures.get(FigureKey("active_power_w", phase, rail)) or figures.get(FigureKey("active_power_w", "", rail))
    if model is None or power is None:
        return np.ones(len(windows_s))
    return model.each_w(windows_s, power.value)


def _end_s(run: Run) -> float:
    """Return the last stamp of clock readings, idle windows, arrivals and answers, in run seconds; inf without any."""
    stamps = [row[2] for e in run.of_type(Brackets) for row in e.rows]
    stamps += [e.off_ns for e in run.of_type(IdleWindow)] + [e.arrived_ns for e in run.of_type(ChunkArrived)]
    stamps += array_of(answered := run.replies["completed_ns"], 0)[valid(answered)].tolist()
    return (max(stamps) - run.start.t0_ns) * 1e-9 if stamps else math.inf


def check_memory() -> None:
    """Raise ``MeasurementRefusedError`` if a limit of the process leaves no memory for the libraries."""
    try:
        mmap.mmap(-1, LIBRARY_BYTES).close()
    except OSError as error:
        what = f"evaluating takes another {LIBRARY_BYTES >> 20} MiB, which is refused: {error}"
        remedy = "Raise its limit (`ulimit -v`) or free memory, and report the recording again"
        raise MeasurementRefusedError(what, field="memory", value=LIBRARY_BYTES, remedy=remedy) from error
