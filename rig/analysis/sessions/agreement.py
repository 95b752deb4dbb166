"""Check that the runs of a session agree: each has a recording of its own, and all have one data set and one bench, the
same samples, the same time for each of them, and the same answers.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rig.analysis.result.finding import Finding, note
from rig.analysis.result.order_statistics import binomial_quantile, independent
from rig.analysis.result.quantity import Component, FigureKey, Quantity
from rig.analysis.scores.answers import answer_in, decided_issues
from rig.analysis.service.queries import queries_of
from rig.analysis.sessions.part import Part
from rig.recording.layout import EVENTS
from rig.recording.reader import Run
from rig.types import Floats, Indices, Rules

# ---- recordings ------------------------------------------------------------------------------------

READINGS = 1 << 18
"""At most this many readings of a trace are compared with other traces."""
OF_THE_SET = ("performance", "accuracy", "power")
"""The purposes of runs that play the samples of the session's data set."""
DECLARED = ("name", "description", "versions", "artifacts", "network", "algorithm", "options")
"""What a device declares that stays the same as long as the system does; ``details`` may change at each opening."""
STAMPS_LEAST, VALUES_LEAST = 8, 64
"""With fewer distinct times or readings, a coarse clock or meter may repeat them by chance."""


def recording_checks(parts: Sequence[Part]) -> Iterator[Finding]:
    """Yield failed checks: two runs with one recording, runs of several data sets, power runs of several meters.

    Yield a note if the device of a run is declared otherwise than that of the first.
    """
    if shared := shared_recording((part.name, part.run) for part in parts):
        one, other, file = shared
        allowed = "none; every trial is a measurement of its own: measure again"
        yield Finding("runs that share a recording", f"{one} and {other} hold the same {file}", allowed, False)

    sets: dict[str, str] = {}
    for part in parts:
        if part.purpose in OF_THE_SET and not part.run.start.scenario.amortise_s:
            sets.setdefault(part.run.start.workload.digest_sha256, part.name)
    if len(sets) > 1:
        found = "; ".join(f"{digest[:12]} in {run}" for digest, run in sets.items())
        yield Finding("data sets of the runs", found, "the same in each; measure again with one data set", False)

    first, *others = ((part.name, part.run.start.as_recorded.get("device") or {}) for part in parts)
    for name, device in others:
        if changed := [field for field in DECLARED if device.get(field) != first[1].get(field)]:
            yield note(
                f"The device is declared otherwise in {name} than in {first[0]} ({', '.join(changed)}): their figures "
                "are of two systems. Measure anew if the change concerns the measured work"
            )
            break

    meters: dict[str, str] = {}
    for part in parts:
        if part.purpose == "power":
            named = (f"{m.name} {m.serial_number or ''}".strip() for m in part.run.start.meters)
            meters.setdefault(", ".join(sorted(named)), part.name)
    if len(meters) > 1:
        found = "; ".join(f"{names or 'none'} in {run}" for names, run in meters.items())
        yield Finding("meters of the power runs", found, "the same in each; measure again with one bench", False)


def shared_recording(runs: Iterable[tuple[str, Run]]) -> tuple[str, str, str] | None:
    """Return the first two runs with the same recording, and what they share; None if each has its own."""
    seen: dict[str | bytes, str] = {}
    for name, run in runs:
        for what, own in _own(run):
            if seen.setdefault(own, name) != name:
                return seen[own], name, what
    return None


def _own(run: Run) -> Iterator[tuple[str, str | bytes]]:
    """Yield data that two measurements never share: the log of events, stamps of the host, and noise of readings.

    A simulation repeats its answers and readings exactly, so only its log, which has a date, is compared. Host stamps
    of an import are not compared, because imports may share one plan of windows.
    """
    yield EVENTS, run.digest
    if run.start.simulated:
        return
    stamps = np.concatenate([run.replies[name].drop_null().to_numpy() for name in ("issued_ns", "completed_ns")])
    if run.start.imported is None and stamps.size:
        between = np.diff(stamps := np.sort(stamps))
        yield "stamps", _digest(between if len(np.unique(between)) >= STAMPS_LEAST else stamps)
    for rail, trace in run.traces.items():
        value = np.asarray(trace.value[:READINGS], dtype=np.float64)
        if trace.rail.kind != "edges" and len(np.unique(value)) >= VALUES_LEAST:
            yield f"readings of {rail}", _digest(value)


def _digest(numbers: Floats | Indices) -> bytes:
    return hashlib.sha256(numbers.tobytes()).digest()


# ---- samples, and the time for each ----------------------------------------------------------------

APART = 0.05
"""Times of other runs may differ from those of performance runs by this share, unless the rules state a tolerance."""
CERTAIN = 0.999
"""The confidence of the interval of scatter. It is high so that an honest session of two or three samples passes."""
MOST = 1 << 32
"""More executions of one sample than any run has."""
TIME = FigureKey("execution_time_s")
Executions = tuple[Indices, Floats]
"""The executions of a run: sorted numbers, each for a sample, a phase, and how often it ran before; and their seconds
per inference."""


def same_samples(by: Mapping[str, list[Part]]) -> Iterator[Finding]:
    """Check that runs whose figures are combined hold the same samples, because a run could leave slow samples out."""
    for longer in (False, True):
        alike = [part for part in (*by["performance"], *by["power"]) if _amortised(part.run) is longer]
        held = [(part.name, _samples(part.run)) for part in alike]
        every = set[str]().union(*(own for _, own in held))
        lost = [f"{len(every - own)} of {len(every)} not in {name}" for name, own in held if own != every]
        if len(held) > 1:
            yield Finding("samples that not every run holds", ", ".join(lost) or "none", "none", not lost)


def one_speed(by: Mapping[str, list[Part]], rules: Rules) -> Iterator[Finding]:
    """Check that power and accuracy runs are as quick as performance runs, so that all are of one operating point.

    Each execution of a sample is compared with the same execution in the performance runs, so differences between
    samples cancel. Only the part of a difference beyond clock errors and the scatter of executions counts.
    """
    limit = APART if rules.trial_tolerance is None else rules.trial_tolerance
    codes: dict[tuple[str, str], int] = {}
    mean = executions_of(by["performance"], codes)
    for purpose in ("power", "accuracy"):
        beyond: dict[str, tuple[float, float]] = {}
        for part in by[purpose]:
            ratio = None if _own_time(part.run) else paired(_executions(part, codes), mean)
            if ratio is not None:
                clocks = [c for one in (part, by["performance"][0]) for c in _of_clocks(one)]
                apart = replace(ratio, components=(*ratio.components, *clocks))
                share = max(0.0, abs(ratio.value - 1.0) - apart.half_width(CERTAIN))
                beyond[part.name] = share, ratio.value - 1.0
        if beyond:
            worst = max(beyond, key=beyond.__getitem__)
            share, off = beyond[worst]
            found = f"{off:+z.3%} in {worst}, sample by sample: {share:.3%} beyond chance and clocks"
            rule = f"execution time of the {purpose} runs, against the performance runs"
            yield Finding(rule, found, f"at most {limit:.0%}", share <= limit, by="session")


def other_speed(by: Mapping[str, list[Part]]) -> float:
    """Return by how much the power runs' own times differ from the reported ones, as a relative standard uncertainty.

    A slower run was at another operating point, such as a lower clock rate or a busier host, and drew other watts. The
    part of the difference that the scatter of executions explains does not count. The rest is a limit (GUM 4.3.7).
    """
    codes: dict[tuple[str, str], int] = {}
    power = [part for part in by["power"] if not _own_time(part.run)]
    ratio = paired(executions_of(power, codes), executions_of(by["performance"], codes)) if power else None
    return 0.0 if ratio is None else math.sqrt(max((ratio.value - 1.0) ** 2 - ratio.u**2, 0.0) / 3.0)


def paired(own: Executions, speed: Executions) -> Quantity | None:
    """Return the ratio of the times of the executions that two runs share; None for fewer than two.

    It is the ratio of sums, with the standard error of the jackknife (Cochran, Sampling Techniques, 6.17): if all times
    are longer by one factor, the standard error is 0, however much the samples differ. Long samples weigh more, so the
    degrees of freedom are those of Kish's effective number (``rig.analysis.result.proportion``). Successive executions
    that are longer or shorter together, as those of a chip that gets warm, count as fewer.
    """
    shared, mine, theirs = np.intersect1d(own[0], speed[0], assume_unique=True, return_indices=True)
    own_s, speed_s = (_in_turn((shared, seconds)) for seconds in (own[1][mine], speed[1][theirs]))
    total_s, n = float(speed_s.sum()), len(speed_s)
    if n < 2 or total_s == speed_s.max():
        return None
    without_one = (own_s.sum() - own_s) / (total_s - speed_s)
    count, most = independent(without_one), total_s**2 / float(speed_s @ speed_s)
    u = float(np.std(without_one)) * math.sqrt((n - 1) * n / count)
    scatter = Component("scatter of executions", u, max(min(most, count) - 1.0, 1.0))
    return Quantity(float(own_s.sum()) / total_s, "1", (scatter,), n=n)


def worth(executions: Executions) -> float:
    """Return how many independent executions these count for."""
    return independent(_in_turn(executions))


def _in_turn(executions: Executions) -> Floats:
    """Return the times by how often each sample ran before, and then by sample, which is about their order of time."""
    return executions[1][np.argsort(executions[0] % MOST, kind="stable")]


def executions_of(parts: Sequence[Part], codes: dict[tuple[str, str], int]) -> Executions:
    """Return the executions of several runs, each with the mean of its times; ``codes`` is as in ``_executions``."""
    return _mean([_executions(part, codes) for part in parts])


def _executions(part: Part, codes: dict[tuple[str, str], int]) -> Executions:
    """Return the executions of a run; ``codes`` numbers each phase of each sample, and grows."""
    q = queries_of(part.run)
    found: list[Executions] = []
    for phase, rows in part.result.series.executions.items():
        known = np.array([codes.setdefault((name, phase), len(codes)) for name in q.names])
        code = known[q.sample[np.searchsorted(q.issue, rows[:, 0])]]
        order = np.argsort(code, kind="stable")
        before = np.arange(len(code)) - np.searchsorted(code[order], code[order])
        found.append((code[order] * MOST + before, rows[order, 1]))
    return _mean(found)


def _mean(runs: Sequence[Executions]) -> Executions:
    """Return each execution that any of the runs holds, with the mean of its times."""
    empty: Executions = (np.zeros(0, np.int64), np.zeros(0))
    numbers, seconds = (np.concatenate(both) for both in zip(empty, *runs, strict=True))
    known, at = np.unique(numbers, return_inverse=True)
    return known, np.bincount(at, seconds, len(known)) / np.bincount(at, minlength=len(known))


def _of_clocks(part: Part) -> Iterator[Component]:
    """Yield the relative errors of a run's mean time from its clock, without the jitter of stamps, which scatters."""
    if (time := part.result.quantities.get(TIME)) is not None and time.value:
        for c in time.components:
            if c.source != "stamp jitter":
                yield replace(c, u=c.u / time.value, shared=None)


def _samples(run: Run) -> set[str]:
    """Return the samples that a run asked for."""
    q = queries_of(run)
    return {q.names[k] for k in set(q.sample.tolist())}


def _amortised(run: Run) -> bool:
    """Return whether the run plays longer sequences than performance runs, so that its own time is reported."""
    return bool(run.start.scenario.amortise_s)


def _own_time(run: Run) -> bool:
    """Return whether a run's time per sample may differ from that of performance runs on purpose.

    A run may play sequences. If the device takes batches, arrivals decide how many samples it takes together. An
    accuracy run plays each sample once with all phases, even if other runs time single phases or repeat samples.
    """
    scenario, many = run.start.scenario, run.start.device.max_batch > 1
    if run.start.purpose == "accuracy":
        return many or scenario.per_phase or (scenario.repeat or 1) > 1
    return _amortised(run) or (many and queries_of(run).scheduled)


# ---- answers, as LoadGen's TEST01 and TEST04 check them --------------------------------------------

NOISY = 0.1
"""Noise of a chip may change the answers of at most this share of the samples, plus what chance adds."""
CHANCE = 0.99
"""A device whose answers truly differ for the share ``NOISY`` of samples passes the check with this probability."""
ALIKE = 0.01
"""Relative difference of accuracies that is allowed where answers differ (TEST01's second criterion)."""
CACHED = 0.9
"""A device has a cache if a repeated sample takes less than this share of its time among others (TEST04: 10 %)."""


def same_answers(by: Mapping[str, list[Part]]) -> Iterator[Finding]:
    """Yield checks that performance and power runs have the answers of the accuracy run (as LoadGen's TEST01).

    A device that skips work while its time or power is measured would give other answers.
    """
    expected = _answers(by["accuracy"][0].run) if by["accuracy"] else {}
    for purpose, what in (("performance", "speed"), ("power", "power")):
        each = [_answers(part.run).items() for part in by[purpose]]
        runs = [[answers <= expected[sample] for sample, answers in said if sample in expected] for said in each]
        same = [one for run in runs for one in run]
        if same:
            differ = same.count(False)
            chance = 3.0 * math.sqrt(differ * len(by[purpose])) / len(same)
            few = all(run.count(False) <= binomial_quantile(CHANCE, len(run), NOISY) for run in runs)
            few = few and _as_accurate([by["accuracy"][0], *by[purpose]], chance)
            rule = f"samples answered otherwise for {what} than for accuracy"
            limit = f"0, or {NOISY:.0%} plus chance, if accuracies agree within {ALIKE:.0%} or within chance"
            yield Finding(rule, f"{differ} of {len(same)}", limit, differ == 0 or few)


def _as_accurate(parts: Sequence[Part], chance: float) -> bool:
    """Return whether the accuracies of all runs agree within ``ALIKE`` or chance, although chip noise changes answers.

    ``chance`` is three standard deviations of the accuracy of a run in which each changed answer may be right or wrong.
    """
    found = [part.result.quantities.get(FigureKey("accuracy")) for part in parts]
    values = [q.value for q in found if q is not None]
    return len(values) == len(parts) and max(values) - min(values) <= max(ALIKE * max(values), chance)


def _answers(run: Run) -> dict[str, set[str]]:
    q = queries_of(run)
    labels = [*(json.dumps(answer_in(output)) for output in q.outputs), "no answer"]
    out = defaultdict[str, set[str]](set)
    use = np.isin(q.issue, list(decided_issues(run))) & q.completed & (q.sample >= 0)
    pairs = np.unique(np.column_stack([q.sample, q.output])[use], axis=0)
    for sample, output in pairs.tolist():
        out[q.names[sample]].add(labels[output])
    return out


def no_cache(by: Mapping[str, list[Part]]) -> Iterator[Finding]:
    """Yield checks that a sample repeated alone is answered no sooner than among other samples (LoadGen's TEST04)."""
    repeated = by["compliance"]
    if not repeated or repeated[0].run.start.scenario.per_phase:  # one phase alone is quicker than all phases
        return
    first, among, again = (_median_times(by[name]) for name in ("accuracy", "performance", "compliance"))
    for sample, seconds in again.items():
        # a run that streams has frames in place of samples of the set; then the accuracy run has the time
        if before := (among or first).get(sample, first.get(sample)):
            rule = f"time of sample {sample} repeated, against its time among others"
            ratio = seconds / before
            yield Finding(rule, f"{ratio:.3f}", f"at least {CACHED:g}", ratio >= CACHED)


def _median_times(parts: Sequence[Part]) -> dict[str, float]:
    """Return median seconds from issue to completion by sample id; time in the host's queue is not included."""
    by_sample = defaultdict[str, list[float]](list)
    for q in (queries_of(part.run) for part in parts):
        for sample, seconds in zip(q.sample.tolist(), (q.completed_s - q.issued_s).tolist(), strict=True):
            if math.isfinite(seconds) and sample >= 0:
                by_sample[q.names[sample]].append(seconds)
    return {name: float(np.median(times)) for name, times in by_sample.items()}
