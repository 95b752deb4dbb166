"""Check that the runs of a session hold the same samples, and take the same time for each of them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.finding import Finding
from rig.analysis.result.order_statistics import independent
from rig.analysis.result.quantity import Component, FigureKey, Quantity
from rig.analysis.service.queries import queries_of
from rig.analysis.sessions.part import Part
from rig.recording.reader import Run
from rig.types import Floats, Indices, Rules

APART = 0.05
"""Times of other runs may differ from those of performance runs by this share, unless the rules state a tolerance."""
CERTAIN = 0.999
"""The confidence of the interval of scatter. It is high so that an honest session of two or three samples passes."""
MOST = 1 << 32
"""More executions of one sample than any run has."""
TIME = FigureKey("execution_time_s")
Executions = tuple[Indices, Floats]
"""Sorted numbers, one for each execution: its sample, its phase, and how often the sample ran before. And their rows,
shape (k, 3): seconds and joules per inference, and seconds from this issue to the next. All phases of an issue are
one."""


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
    """Check that power and accuracy runs are as quick as performance runs, so that all are at one operating point.

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


def paired(own: Executions, speed: Executions, growth: Sequence[float] = (1.0, 0.0, 0.0)) -> Quantity | None:
    """Return the ratio of the times of the executions that two runs share; None for fewer than two.

    It is the ratio of sums, with the standard error of the jackknife (Cochran, Sampling Techniques, 6.17): if all times
    are longer by the same factor, the standard error is 0, however much the samples differ. With ``growth``,
    the standard error is that of a sum: the ratios of all three columns, each times its growth. Long samples weigh
    more, so the degrees of freedom are those of Kish's effective number (``rig.analysis.result.proportion``).
    Successive executions that are longer or shorter together, as those of a chip that gets warm, count as fewer.
    """
    shared, mine, theirs = np.intersect1d(own[0], speed[0], assume_unique=True, return_indices=True)
    own_sum, speed_sum = (_in_turn((shared, rows)) for rows in (own[1][mine], speed[1][theirs]))
    total_s = speed_sum[:, 0].sum()
    if len(shared) < 2 or total_s == speed_sum[:, 0].max():
        return None
    use = [k for k, g in enumerate(growth) if g and speed_sum[:, k].any()]
    ratios = (own_sum.sum(axis=0) - own_sum)[:, use] / (speed_sum.sum(axis=0) - speed_sum)[:, use]
    without_one, n, seconds = ratios @ np.asarray(growth)[use], len(shared), speed_sum[:, 0]
    count, most = independent(without_one), total_s**2 / float(seconds @ seconds)
    u = float(np.std(without_one)) * math.sqrt((n - 1) * n / count)
    scatter = Component("scatter of executions", u, max(min(most, count) - 1.0, 1.0))
    return Quantity(float(own_sum[:, 0].sum() / total_s), "1", (scatter,), n=n)


def _in_turn(executions: Executions) -> Floats:
    """Return the rows sorted by how often the sample ran before, then by sample: nearly the order of time."""
    return executions[1][np.argsort(executions[0] % MOST, kind="stable")]


def executions_of(
    parts: Sequence[Part], codes: dict[tuple[str, str], int], phase: str = "", rail: str = ""
) -> Executions:
    """Return the executions of several runs, each with the mean of its values; for the rest, see ``_executions``."""
    return _mean([_executions(part, codes, phase, rail) for part in parts])


def _executions(part: Part, codes: dict[tuple[str, str], int], phase: str = "", rail: str = "") -> Executions:
    """Return the executions of a run, of one phase or with the sums over all phases of an issue.

    The joules are those of one rail or all. ``codes`` numbers pairs of a sample and the first phase of its
    issue; new pairs are added.
    """
    q, series, digest = queries_of(part.run), part.result.series, part.run.start.workload.digest_sha256
    begin_s = np.unique(q.issued_s[~q.dropped])
    end_s = np.append(begin_s[1:], np.nanmax(q.completed_s, initial=-np.inf))
    lasts_s = np.nan_to_num(end_s[np.minimum(np.searchsorted(begin_s, q.issued_s), len(end_s) - 1)] - q.issued_s)
    rails = [2 + k for k, r in enumerate(series.rails) if rail in ("", r.rail)]
    spans = {name: rows for name, rows in series.executions.items() if phase in ("", name)}
    if not spans:
        return _mean([])
    rows, name = np.concatenate(list(spans.values())), np.repeat(list(spans), [len(rows) for rows in spans.values()])
    issues, first, of = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    seconds, joules = (np.bincount(of, x) for x in (rows[:, 1], rows[:, 1] * rows[:, rails].sum(axis=1)))
    at = np.searchsorted(q.issue, issues)
    asked = zip(q.sample[at].tolist(), name[first].tolist(), strict=True)
    code = np.array([codes.setdefault((f"{digest} {q.names[k]}", which), len(codes)) for k, which in asked], np.int64)
    order = np.argsort(code, kind="stable")
    before = np.arange(len(code)) - np.searchsorted(code[order], code[order])
    return code[order] * MOST + before, np.column_stack([seconds, joules, lasts_s[at]])[order]


def by_sample(of: Executions) -> Executions:
    """Return the executions with one number for each sample and phase, and the mean of its values."""
    return _mean([(of[0] // MOST * MOST, of[1])])


def _mean(runs: Sequence[Executions]) -> Executions:
    """Return each execution that any of the runs holds, with the mean of its values."""
    empty: Executions = (np.zeros(0, np.int64), np.zeros((0, 3)))
    numbers, rows = (np.concatenate(both) for both in zip(empty, *runs, strict=True))
    known, at = np.unique(numbers, return_inverse=True)
    sums = np.column_stack([np.bincount(at, column, len(known)) for column in rows.T])
    return known, sums / np.bincount(at, minlength=len(known))[:, None]


def _of_clocks(part: Part) -> Iterator[Component]:
    """Yield the relative errors of a run's mean time from its clock, without jitter, which is in the scatter."""
    if (time := part.result.quantities.get(TIME)) is not None and time.value:
        for c in time.components:
            if c.source != "stamp jitter":
                yield replace(c, u=c.u / time.value, shared=None)


def _samples(run: Run) -> set[str]:
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
