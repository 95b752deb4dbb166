"""``check_workload``: see ``rig.conformance.device``."""

from __future__ import annotations

import json
import re

import numpy as np

from rig.conformance.rule_failures import Checks, raised
from rig.engine.clock import HostClock
from rig.engine.record import check_ids
from rig.errors import RigError
from rig.session.setup import ATTRIBUTES
from rig.types import Sample, Workload

LOOKED_AT = 20


def check_workload(workload: Workload) -> tuple[str, ...]:
    """Check what a workload declares, and its first samples. Raises ``ConformanceError``.

    Example, of the workload in ``examples/my_workload.py``::

        import rig
        from examples.my_workload import open_workload

        rig.check_workload(open_workload())
    """
    c = Checks(HostClock(), prompt_s=0.1)
    lacks = [name for name in ATTRIBUTES if not hasattr(workload, name)]
    asked = f"an opened workload with {', '.join(ATTRIBUTES)}"
    if c.rule("attributes", not lacks, f"{type(workload).__name__} without {', '.join(lacks)}", asked):
        c.name = str(workload.name)
        with c.calling("name, details and samples"):
            _declared(c, workload)
            _samples(c, workload)
    return c.verdict()


def _declared(c: Checks, workload: Workload) -> None:
    texts = {name: getattr(workload, name) for name in ("name", "task", "version")}
    empty = [name for name, text in texts.items() if not (isinstance(text, str) and text)]
    c.rule("workload.texts", not empty, f"{empty}", "a name, a task and a version as texts")
    digest = workload.digest_sha256
    c.rule("workload.digest", bool(re.fullmatch("[0-9a-f]{64}", str(digest))), repr(digest), "64 hexadecimal digits")
    error = raised(lambda: json.dumps(dict(workload.details), allow_nan=False))
    c.rule("workload.details", error is None, f"{error}", "a mapping that JSON can hold, no NaN")


def _samples(c: Checks, workload: Workload) -> None:
    samples = workload.samples
    if not c.rule("samples.count", len(samples) > 0, "none", "one sample or more"):
        return
    for k in range(min(len(samples), LOOKED_AT)):
        sample = samples[k]
        if not c.rule("samples.type", isinstance(sample, Sample), f"a {type(sample).__name__}", "a rig.Sample"):
            return
        _sample(c, sample)
    error = raised(lambda: check_ids(workload))
    c.rule("samples.ids", error is None, error.message if isinstance(error, RigError) else f"{error}", "unique ids")
    once, again = samples[0], samples[0]
    payloads = (np.asarray(once.payload).tobytes(), np.asarray(again.payload).tobytes())
    same = once.id == again.id and once.label == again.label and payloads[0] == payloads[1]
    c.rule("samples.steady", same, "another first sample the second time", "the same each time")


def _sample(c: Checks, sample: Sample) -> None:
    payload, name = np.asarray(sample.payload), f"sample {sample.id}"
    c.rule("sample.id", isinstance(sample.id, str) and bool(sample.id), repr(sample.id), "a text")
    fields = [payload[field] for field in payload.dtype.names or ()] or [payload]
    numeric = payload.size > 0 and all(field.dtype.kind in "biufc" for field in fields)
    asked = "an array of numbers, or of fields of numbers"
    c.rule("sample.payload", numeric, f"{name}: {payload.dtype} of shape {payload.shape}", asked)
    finite = not numeric or all(bool(np.isfinite(field).all()) for field in fields)
    c.rule("sample.finite", finite, f"{name} holds NaN or infinity", "finite numbers")
    label = sample.label is None or isinstance(sample.label, str)
    c.rule("sample.label", label, f"{name}: {sample.label!r}", "a text, or None if there is no right answer")
    timed = sample.duration_s >= 0 and (sample.rate_hz is None or sample.rate_hz > 0) and sample.inferences >= 1
    found = f"{name}: duration_s {sample.duration_s}, rate_hz {sample.rate_hz}, inferences {sample.inferences}"
    c.rule("sample.numbers", timed, found, "0 s or longer, a rate above zero, 1 inference or more")
