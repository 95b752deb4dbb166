"""Check the answers of a session, and the times of single samples, as LoadGen's TEST01 and TEST04 do."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rig.analysis.result.finding import Finding
from rig.analysis.result.order_statistics import binomial_quantile
from rig.analysis.result.quantity import FigureKey
from rig.analysis.scores.answers import answer_in, decided_issues
from rig.analysis.service.queries import queries_of
from rig.analysis.sessions.part import Part
from rig.recording.reader import Run

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
    """Return whether the accuracies of all runs agree within ``ALIKE`` or within chance.

    ``chance`` is three standard deviations of a run's accuracy if each changed answer may be right or wrong.
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
        # a run that streams has frames in place of samples of the set; then the time is from the accuracy run
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
