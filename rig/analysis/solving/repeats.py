"""Check that the solves of a run are repetitions: new seeds for each problem, and one tuning for all problems."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rig.analysis.result.finding import Finding
from rig.analysis.scores.answers import Answer
from rig.recording.reader import Run


def repeat_checks(run: Run, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield the checks of seeds and tuning, as far as the answers of the solver state them and the rules ask."""
    rules = run.start.rules
    if rules is None or not (rules.fresh_seeds or rules.one_tuning):
        return
    seeds: dict[str, list[str]] = {}
    tunings = set()
    for answer in answers:
        if isinstance(said := answer.output, dict):
            if "seed" in said:
                seeds.setdefault(answer.sample_id, []).append(str(said["seed"]))
            tunings.add(json.dumps(said.get("tuning"), sort_keys=True))
    if rules.fresh_seeds:
        again = sum(len(found) - len(set(found)) for found in seeds.values())
        yield Finding("solves with a seed that their problem had before", str(again), "0", not again,
                    rules.source_of("fresh_seeds"))  # fmt: skip
    if rules.one_tuning:
        found, source = str(len(tunings)), rules.source_of("one_tuning")
        yield Finding("tunings of the solver in a run", found, "at most 1", len(tunings) <= 1, source)
