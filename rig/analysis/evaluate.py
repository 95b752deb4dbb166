"""The evaluation takes a recording and returns all figures; each of its stages is a function of earlier stages."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.complexity.workload import Complexity, complexity_of, energies_of
from rig.analysis.power.energy import average_figures, energy_figures
from rig.analysis.power.figures import PowerFigures, power_figures
from rig.analysis.power.findings import no_power, no_step_notes, sign_checks
from rig.analysis.power.preprocessing import front_end_figures, preprocessing_checks
from rig.analysis.power.rail_model import RailModel, rail_model
from rig.analysis.power.stamp_uncertainty import stamps_u_s
from rig.analysis.result.check import Check
from rig.analysis.result.figure_key import Figures
from rig.analysis.result.refusal import Refusal, for_import, without_number
from rig.analysis.result.result import ClockSummary, Result
from rig.analysis.result.series import (
    RailSeries,
    Series,
    Solve,  # fmt: skip
    Stream,
)
from rig.analysis.result.terms import Terms, terms_of
from rig.analysis.scores.accuracy import accuracy_figures, answer_checks, seen_checks, span_checks
from rig.analysis.scores.predictions import Predictions, predictions_of
from rig.analysis.scores.reference_methods import recorder_figures
from rig.analysis.scores.spiking import spiking_figures
from rig.analysis.service.change_detection import change_figures, stream_of
from rig.analysis.service.queries import Queries, queries_of
from rig.analysis.service.serving import deadline_figures, service_figures
from rig.analysis.solving.repeats import repeat_checks
from rig.analysis.solving.solves import (
    RUNTIME,
    answer_count,
    runtime_power,
    solves_of,
    solving_checks,
    solving_figures,
    solving_notes,
)
from rig.analysis.timing.execution_time import busy_times, per_inference_s, time_figures
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.placement import AlignedRail
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.synchronise import aligned_rails
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, activity_of, host_bend, off_line_checks, rate_checks
from rig.analysis.timing.unspanned import with_unspanned
from rig.analysis.verdict.benchmark import set_checks, unknown_benchmark_notes
from rig.analysis.verdict.contradictions import contradictions_of
from rig.analysis.verdict.recording_notes import remarks_of
from rig.analysis.verdict.sample_set import label_checks, repeated_sample_notes
from rig.analysis.verdict.validity import judge
from rig.errors import MeasurementRefusedError
from rig.recording.reader import Run
from rig.recording.traces import AT_ONCE

LIBRARY_BYTES = 128 << 20
"""What OpenBLAS maps for its work, in numpy and in scipy each. If it gets none, it asks again without end."""


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
    check_memory()
    told = _recorded(run)
    run = told.run
    told, rails = _rails(told, at_once)
    found = _figures(told, rails)
    unknown = without_number(found.figures)
    refusals = [*found.power.refusals, *found.unheard, *_missing(told, rails.rails), *unknown]
    if run.start.imported is not None:
        refusals = for_import(refusals, run.start.imported.options)
    figures = Figures({key: q for key, q in found.figures.items() if key not in {r.scope for r in unknown}})
    contradictions = contradictions_of(run, told.device)
    timebases = {told.device.clock.name: told.device} | {r.timebase.clock.name: r.timebase for r in rails.rails}
    return Result(
        run_id=run.start.run_id,
        run_digest=run.digest,
        complete=told.terms.complete,
        simulated=told.terms.simulated,
        start=run.start,
        quantities=figures,
        refusals=tuple(refusals),
        notes=tuple(dict.fromkeys(_notes(told, rails, found, figures, contradictions))),
        clocks=_clocks(timebases),
        series=_series(told, rails, timebases),
        validity=judge(told.terms, told.queries, figures, _checks(told, rails, found, figures, contradictions)),
    )


@dataclass(frozen=True)
class _Recorded:
    """The recording, in seconds of the run, on the device's clock."""

    run: Run
    device: Timebase
    clock_checks: tuple[Check, ...]
    terms: Terms
    activity: Activity
    queries: Queries
    stream: Stream | None
    solves: list[Solve]


@dataclass(frozen=True)
class _Rails:
    """Readings on the device's time, the model of each rail that has one, and what contradicts its readings.

    ``against`` are failed checks that refuse the power of a rail, ``mended`` those that the recording itself resolves.
    """

    rails: list[AlignedRail]
    models: dict[str, RailModel]
    against: dict[str, tuple[Check, ...]]
    mended: tuple[Check, ...]

    @property
    def readings(self) -> list[Readings]:
        """Return the readings of each rail."""
        return [r.readings for r in self.rails]


@dataclass(frozen=True)
class _Found:
    """All figures, and what is said beside them."""

    figures: Figures
    power: PowerFigures
    unheard: tuple[Refusal, ...]
    complexity: Complexity
    predictions: Predictions


def _recorded(run: Run) -> _Recorded:
    run, device = on_device_clock(run)
    device, clock_checks = off_line_checks(run, device)
    queries = queries_of(run)
    return _Recorded(
        run=run,
        device=device,
        clock_checks=clock_checks,
        terms=terms_of(run),
        activity=activity_of(run, device),
        queries=queries,
        stream=stream_of(run, queries),
        solves=solves_of(run, device),
    )


def _rails(told: _Recorded, at_once: int) -> tuple[_Recorded, _Rails]:
    """Readings on the device's time, then the model of each rail; the activity holds what work they show beside it."""
    run = told.run
    rails = aligned_rails(run, told.activity, told.device, told.terms.end_s, at_once)
    activity, rails = with_unspanned(told.activity, rails)
    turn = max((r.turn for r in rails), default=0.0)  # which of the clocks is off by as much is not known
    device = replace(told.device, rate_sigma=math.hypot(told.device.rate_sigma, turn / math.sqrt(3.0)))
    against = {r.readings.rail.name: r.contradictions for r in rails}
    mended = tuple(check for r in rails for check in r.bridged)
    sound = [r for r in rails if not against[r.readings.rail.name]]
    models = {r.readings.rail.name: m for r in sound if (m := rail_model(r, activity)) is not None}
    return replace(told, activity=activity, device=device), _Rails(rails, models, against, mended)


def _figures(told: _Recorded, rails: _Rails) -> _Found:
    """All figures, concern by concern."""
    run, activity = told.run, told.activity
    busy = busy_times(activity, stamps_u_s(activity, told.device, list(rails.models.values())))
    times = time_figures(activity, told.device, busy)
    power = power_figures(rails.readings, rails.models, activity, busy, rails.against)
    figures = accuracy_figures(run) | times | power.figures
    rails_named = [r.rail.name for r in rails.readings]
    figures |= energy_figures(times, power.figures, rails_named, list(activity.phases), activity.per_phase)
    heard, unheard = front_end_figures(run, power.figures)
    figures |= heard | recorder_figures(run)
    if told.terms.scenario.name != "import":  # an imported window holds many inferences that no host requested singly
        figures |= _service_figures(told, rails)
    if told.solves:
        figures |= runtime_power(power.figures)
        runtime_w = figures.get(RUNTIME)
        figures |= solving_figures(told.solves, runtime_w, told.terms.gap_times_known, told.terms.solves_to_gap)
    complexity, predictions = complexity_of(run), predictions_of(run)
    figures |= complexity.figures | energies_of(run, complexity, figures) | predictions.figures
    return _Found(figures | spiking_figures(run, figures), power, tuple(unheard), complexity, predictions)


def _service_figures(told: _Recorded, rails: _Rails) -> Figures:
    """Figures of the service, with the average power of all rails if each has a model."""
    activity, queries, models = told.activity, told.queries, list(rails.models.values())
    service = service_figures(queries, told.terms.percentile)
    if len(models) == len(rails.rails) and not activity.per_phase:
        service |= average_figures(models, activity, queries.window_s(), queries.completed_count)
    return service | deadline_figures(queries, told.terms.deadline_s) | change_figures(told.stream)


def _notes(
    told: _Recorded, rails: _Rails, found: _Found, figures: Figures, contradictions: Sequence[Check]
) -> Iterator[str]:
    run, terms = told.run, told.terms
    for c in (*contradictions, *found.complexity.checks, *found.predictions.checks):
        yield f"{c.rule}: {c.found}"
    yield from (f"{c.rule}: {c.found}" for c in seen_checks(run) if not c.ok)
    told_checks = (*told.clock_checks, *span_checks(run), *rate_checks(run))
    yield from (f"{c.rule}: {c.found}, allowed: {c.allowed}" for c in told_checks)
    bend_s, shown_by = host_bend(run)
    if shown_by:
        yield (
            f"The clocks {', '.join(shown_by)} leave a straight line alike, by {bend_s:.2g} s: the clock of the host "
            "was corrected during the run. Times are uncertain by the tolerance of their clock, idle windows by this"
        )
    yield from found.power.notes
    yield from (f"{c.rule}: {c.found}" for c in sign_checks(figures))
    yield from no_step_notes(figures)
    yield from (note for r in rails.rails for note in r.notes)
    if not terms.metered:
        yield "No meter recorded: times and accuracy only"
    yield from solving_notes(told.solves, terms.gap_times_known, terms.solves_to_gap, terms.workload_notes)
    yield from unknown_benchmark_notes(run)
    yield from repeated_sample_notes(run)
    yield from remarks_of(run)


def _checks(
    told: _Recorded, rails: _Rails, found: _Found, figures: Figures, contradictions: Sequence[Check]
) -> tuple[Check, ...]:
    run = told.run
    return (
        *contradictions,
        *found.power.checks,
        *sign_checks(figures),
        *told.clock_checks,
        *rails.mended,
        *rate_checks(run),
        *set_checks(run),
        *label_checks(run),
        *answer_checks(run),
        *span_checks(run),
        *seen_checks(run),
        *found.complexity.checks,
        *found.predictions.checks,
        *solving_checks(told.solves, answer_count(run)),
        *repeat_checks(run),
        *preprocessing_checks(run, list(told.activity.phases), figures),
    )


def _missing(told: _Recorded, rails: list[AlignedRail]) -> list[Refusal]:
    """Refusals of everything that needs a trace or a span, if the recording holds none."""
    refusals, terms = [], told.terms
    if terms.metered and not rails:
        refusals.append(no_power(told.run))
    if not told.activity.phases:
        remedy = "Let the device return spans with its replies"
        if terms.spans_on_pin:
            remedy = "Wire the pin that marks the spans to a logic input of the meter, and declare it there (`pin`)"
        elif not terms.complete:
            remedy = "Measure again; the run ended too early"
        refusals.append(Refusal("time and power", "no span was recorded", remedy))
    return refusals


def _clocks(timebases: Mapping[str, Timebase]) -> dict[str, ClockSummary]:
    return {
        name: ClockSummary(name, t.method, t.sigma_s, t.rate - 1.0, t.rate_sigma, t.brackets, dict(t.considered))
        for name, t in timebases.items()
    }


def _series(told: _Recorded, rails: _Rails, timebases: Mapping[str, Timebase]) -> Series:
    run, activity, queries = told.run, told.activity, told.queries
    reads = {name: t.residuals(run.brackets(name), run.start.t0_ns) for name, t in timebases.items()}
    return Series(
        rails=tuple(
            RailSeries(r.rail.name, r.start_s, r.end_s, np.where(r.ok, r.watts, np.nan)) for r in rails.readings
        ),
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
    )


def check_memory() -> None:
    """Raise ``MeasurementRefusedError`` if a limit of the process leaves no memory for the libraries."""
    try:
        mmap.mmap(-1, LIBRARY_BYTES).close()
    except OSError as error:
        raise MeasurementRefusedError(
            f"evaluating takes {LIBRARY_BYTES >> 20} MiB more than this process gets: {error}",
            field="memory",
            value=LIBRARY_BYTES,
            remedy="Raise its limit (`ulimit -v`) or free memory, and report the recording again",
        ) from error
