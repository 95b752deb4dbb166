"""Check that the solves of a run are repetitions: new seeds for each problem, and one tuning for all problems."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rig.analysis.result.finding import Finding, at_most
from rig.analysis.scores.answers import Answer
from rig.recording.reader import Run


def repeat_checks(run: Run, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield the checks of seeds and tuning, as far as the answers of the solver state them and the rules ask."""
    rules = run.start.rules
    if rules is None or not (rules.fresh_seeds or rules.one_tuning):
        return
    said = [(answer.sample_id, answer.output) for answer in answers if isinstance(answer.output, dict)]
    if rules.fresh_seeds:
        seeds = [(sample_id, str(output["seed"])) for sample_id, output in said if "seed" in output]
        again = len(seeds) - len(set(seeds))
        yield Finding("solves with a seed that their problem had before", str(again), "0", not again, by="fresh_seeds")
    if rules.one_tuning:
        tunings = {json.dumps(output.get("tuning"), sort_keys=True) for _, output in said}
        yield at_most("tunings of the solver in a run", len(tunings), 1, "one_tuning")
