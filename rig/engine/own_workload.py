"""Make a workload from your own samples: see ``workload``."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rig.errors import unfit
from rig.types import Sample, SampleSet


def workload(
    samples: Iterable[Sample],
    *,
    name: str,
    task: str = "classification",
    version: str = "1",
    classes: Iterable[str] = (),
    details: Mapping[str, Any] | None = None,
) -> SampleSet:
    """Return a workload of these samples, with a digest of what is streamed and scored.

    The digest covers ``name``, ``task`` and ``version``, the order of the samples, and of each sample the payload
    (dtype, shape and bytes), id, label, target cost, duration, rate, number of inferences and age of the label. Change
    ``version`` when the meaning of the samples changes. The workload declares as classes the given ``classes`` and all
    labels of the samples; an answer outside them makes a run INVALID. Raises ``UsageError`` for an object that is not
    a ``Sample``, and for a label that is not a text.

    Example::

        import numpy as np
        import rig

        heard = [rig.Sample(f"tone-{k}", np.ones(16, np.float32), label="high") for k in range(4)]
        tones = rig.workload(heard, name="tones")
        print(tones.digest_sha256)
    """
    held = tuple(samples)
    digest = hashlib.sha256(json.dumps([name, task, version]).encode())
    for sample in held:
        if not isinstance(sample, Sample):
            raise unfit("samples", type(sample).__name__, "is not a rig.Sample", "Make one: rig.Sample(id, payload)")
        if not isinstance(sample.label, str | None):
            remedy = f"Give a text, such as label={str(sample.label)!r}, or None where there is no right answer"
            raise unfit("label", sample.label, f"of sample {sample.id} is not a text", remedy)
        payload = np.ascontiguousarray(sample.payload)
        head = [
            sample.id, sample.label, sample.target_cost, sample.duration_s, sample.rate_hz, sample.inferences,
            sample.label_age_s, payload.dtype.str, payload.shape,
        ]  # fmt: skip
        digest.update(json.dumps(head).encode() + payload.tobytes())
    labels = sorted({sample.label for sample in held if sample.label is not None} | set(classes))
    declared = {"classes": labels} if labels else {}
    return SampleSet(name, task, version, digest.hexdigest(), held, {**declared, **(details or {})})
