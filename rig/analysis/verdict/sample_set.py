"""Whether the samples of a run are the set that they are counted as: all with a label, and each by itself."""

from __future__ import annotations

from collections.abc import Iterator

from rig.analysis.result.check import Check
from rig.recording.reader import Run


def label_checks(run: Run) -> Iterator[Check]:
    """Yield a failed check if only some samples of an accuracy run have a label, so that accuracy is of these alone."""
    without = run.samples["label"].null_count
    scored = run.start.purpose == "accuracy" and run.start.rules is not None and run.start.rules.submittable
    if scored and 0 < without < len(run.samples):
        yield Check("samples without a label", f"{without} of {len(run.samples)}", "none, or all", False)


def repeated_sample_notes(run: Run) -> Iterator[str]:
    """Yield a sentence on samples with equal data, where the rules ask for the whole set and so count them apart."""
    rules = run.start.rules
    if rules is None or not (rules.submittable and rules.whole_set) or run.start.purpose == "compliance":
        return
    digests = run.samples.select(["id", "payload_sha256"]).group_by("id").aggregate([("payload_sha256", "min")])
    count = digests.num_rows
    distinct = len(digests["payload_sha256_min"].unique())
    if distinct < count:
        yield f"samples with the data of another: {count - distinct} of {count}, so {distinct} are distinct"
