"""``check_workload`` checks a workload and its samples; ``rig.conformance.device`` says how such checks report."""

import json
import math
import re
from collections.abc import Iterable

import numpy as np

from rig.conformance.rule_failures import Checks, members_of, raised
from rig.engine.clock import HostClock
from rig.engine.record import check_ids
from rig.errors import RigError
from rig.types import Sample, Workload

LOOKED_AT = 20


def check_workload(workload: Workload, *, answers: Iterable[str] = (), looked_at: int = LOOKED_AT) -> tuple[str, ...]:
    """Check what a workload declares, and its samples. Raises ``ConformanceError``.

    ``answers`` are the labels that the device gives, if they are known. Of samples that are not in memory, only the
    first ``looked_at`` are checked.

    Example, of the workload in ``examples/my_workload.py``::

        import rig
        from examples.my_workload import open_workload

        rig.check_workload(open_workload())
    """
    c = Checks(HostClock(), prompt_s=0.1)
    lacks = [name for name in members_of(Workload) if not hasattr(workload, name)]
    asked = f"an opened workload with {', '.join(members_of(Workload))}"
    if c.rule("attributes", not lacks, f"{type(workload).__name__} without {', '.join(lacks)}", asked):
        c.name = str(workload.name)
        with c.calling("name, details and samples"):
            _declared(c, workload)
            if _samples(c, workload, looked_at):
                _labels(c, workload, list(answers))
    return c.verdict()


def _declared(c: Checks, workload: Workload) -> None:
    texts = {name: getattr(workload, name) for name in ("name", "task", "version")}
    empty = [name for name, text in texts.items() if not (isinstance(text, str) and text)]
    c.rule("workload.texts", not empty, f"{empty}", "a name, a task and a version as texts")
    digest = workload.digest_sha256
    c.rule("workload.digest", bool(re.fullmatch("[0-9a-f]{64}", str(digest))), repr(digest), "64 hexadecimal digits")
    error = raised(lambda: json.dumps(dict(workload.details), allow_nan=False))
    c.rule("workload.details", error is None, f"{error}", "a mapping that JSON can hold, no NaN")


def labels_of(workload: Workload) -> list[str]:
    """Return the possible right answers: the declared classes, and the labels of samples in memory."""
    held = workload.samples if isinstance(workload.samples, list | tuple) else ()
    declared = workload.details.get("classes")
    found = {sample.label for sample in held} | set(declared if isinstance(declared, list | tuple) else ())
    return sorted(label for label in found if isinstance(label, str))


def _labels(c: Checks, workload: Workload, answers: list[str]) -> None:
    known = labels_of(workload)
    if answers and known:
        foreign = [label for label in known if label not in answers]
        asked = f"labels that the device can answer, of {', '.join(answers)}: rename those of the workload, or name "
        asked += "those of the device in their order by its option classes, if it has this option"
        c.rule("workload.labels", not foreign, ", ".join(foreign), asked)


def _samples(c: Checks, workload: Workload, looked_at: int) -> bool:
    """Check the samples; return whether each is a ``rig.Sample``."""
    samples = workload.samples
    if not c.rule("samples.count", len(samples) > 0, "none", "one sample or more"):
        return False
    first = samples[0]
    for k in range(len(samples) if isinstance(samples, list | tuple) else min(len(samples), looked_at)):
        sample = samples[k] if k else first
        if not c.rule("samples.type", isinstance(sample, Sample), f"a {type(sample).__name__}", "a rig.Sample"):
            return False
        _sample(c, sample)
    error = raised(lambda: check_ids(workload))
    c.rule("samples.ids", error is None, error.message if isinstance(error, RigError) else f"{error}", "unique ids")
    once, again = first, samples[0]
    payloads = (np.asarray(once.payload).tobytes(), np.asarray(again.payload).tobytes())
    same = once.id == again.id and once.label == again.label and payloads[0] == payloads[1]
    c.rule("samples.steady", same, "another first sample the second time", "the same each time")
    return True


def _sample(c: Checks, sample: Sample) -> None:
    payload, name = np.asarray(sample.payload), f"sample {sample.id}"
    c.rule("sample.id", isinstance(sample.id, str) and bool(sample.id), repr(sample.id), "a text")
    fields = [payload[field] for field in payload.dtype.names or ()] or [payload]
    numbers = all(field.dtype.kind in "biufc" for field in fields)
    numeric = isinstance(sample.payload, np.ndarray) and payload.size > 0 and numbers
    asked = "an array of numbers, or of fields of numbers"
    found = f"{name}: {type(sample.payload).__name__} of {payload.dtype} and shape {payload.shape}"
    c.rule("sample.payload", numeric, found, asked)
    finite = not numeric or all(bool(np.isfinite(field).all()) for field in fields)
    c.rule("sample.finite", finite, f"{name} holds NaN or infinity", "finite numbers")
    goal = sample.target_cost is None or math.isfinite(sample.target_cost)
    asked = "a finite number, or None where no best cost is known"
    c.rule("sample.target", goal, f"{name}: target_cost {sample.target_cost}", asked)
    text = isinstance(sample.label, str) and 0 < len(sample.label) == len(sample.label.strip())
    asked = "a text without blanks around it, or None if there is no right answer"
    c.rule("sample.label", sample.label is None or text, f"{name}: {sample.label!r}", asked)
    timed = sample.duration_s >= 0 and (sample.rate_hz is None or sample.rate_hz > 0)
    timed = timed and isinstance(sample.inferences, int) and sample.inferences >= 1
    found = f"{name}: duration_s {sample.duration_s}, rate_hz {sample.rate_hz}, inferences {sample.inferences}"
    c.rule("sample.numbers", timed, found, "0 s or longer, a rate above zero, 1 inference or more as a whole number")
