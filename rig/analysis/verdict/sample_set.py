"""Check that the samples of a run are a whole set: all have a label, and no two have equal data."""

from __future__ import annotations

from collections.abc import Iterator

from rig.analysis.result.finding import Finding, note
from rig.recording.reader import Run


def sample_findings(run: Run) -> Iterator[Finding]:
    """Yield a failed check if only some samples of an accuracy run have a label, as accuracy then covers only these.

    Samples with equal data give a note, if the rules ask for the whole set, which counts such samples separately.
    """
    rules, purpose = run.start.rules, run.start.purpose
    if rules is None or not rules.submittable:
        return
    without = run.samples["label"].null_count
    if purpose == "accuracy" and 0 < without < len(run.samples):
        yield Finding("samples without a label", f"{without} of {len(run.samples)}", "none, or all", False)
    if not rules.whole_set or purpose == "compliance":
        return
    digests = run.by_sample("payload_sha256")
    count, distinct = len(digests), len(set(digests.values()))
    if distinct < count:
        yield note(f"samples with the data of another: {count - distinct} of {count}, so {distinct} are distinct")
