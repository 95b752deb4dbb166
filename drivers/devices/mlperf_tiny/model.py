"""Input and output of a board's model: a sample as the bytes of its input, its scores as an answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rig.bench.option_checks import one_of
from rig.bench.settings import Positive
from rig.errors import DataError, DeviceError, refused
from rig.types import Sample

KINDS: dict[str, np.dtype[Any]] = {
    "int8": np.dtype("<i1"),
    "uint8": np.dtype("<u1"),
    "int16": np.dtype("<i2"),
    "float32": np.dtype("<f4"),
}


@dataclass(frozen=True)
class Model:
    """Converts a sample to the bytes of the model's input, and the model's scores to an answer. See ``open_device``."""

    input_type: Annotated[str, partial(one_of, KINDS)] = "int8"
    input_scale: Positive | None = None
    input_zero_point: int = 0
    labels: str = ""
    threshold: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that were given. Raises ``UsageError`` for labels that are equal, or do not fit the threshold."""
        names = tuple(part.strip() for part in self.labels.split(",")) if self.labels else ()
        if len(set(names)) != len(names) or (names and not all(names)):
            raise refused("labels", self.labels, "Name each once", "two labels are equal, or a label is empty")
        if self.threshold is not None and len(names) not in (0, 2):
            what = f"a threshold separates two labels, but {len(names)} labels are given"
            raise refused("labels", self.labels, "Give two labels, first the one for scores below the threshold", what)
        return names

    def encoded(self, sample: Sample) -> bytes:
        """Little-endian bytes. Raises ``DataError`` for values that the input cannot hold."""
        payload, dtype = np.asarray(sample.payload), KINDS[self.input_type]
        if payload.dtype.kind not in "biuf" or not payload.size or not np.all(np.isfinite(payload)):
            raise _unfit(sample, f"{payload.dtype} of shape {payload.shape}, or not finite", "Give finite numbers")
        if dtype.kind == "f":
            if float(np.max(np.abs(payload))) > float(np.finfo(np.float32).max):
                raise _unfit(sample, f"values up to {np.max(np.abs(payload))}", "Give numbers that float32 can hold")
            return payload.astype(dtype).tobytes()
        limits = np.iinfo(self.input_type)
        if self.input_scale is not None:
            steps = np.round(payload.astype(np.float64) / self.input_scale) + self.input_zero_point
            return np.clip(steps, limits.min, limits.max).astype(dtype).tobytes()
        whole: NDArray[Any] = np.round(payload)
        if np.any(whole != payload) or np.any((whole < limits.min) | (whole > limits.max)):
            remedy = "Give the model's input_scale and input_zero_point, or another input_type"
            raise _unfit(sample, f"values from {payload.min()} to {payload.max()}", remedy)
        return whole.astype(dtype).tobytes()

    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]:
        """Return the label (arg max; for one score, by threshold), the scores, and probabilities if scores sum to 1."""
        names = self.names or tuple(str(k) for k in range(max(len(scores), 2 if self.threshold is not None else 0)))
        answer: dict[str, Any] = {"scores": list(scores)}
        if len(scores) == 1:
            if self.threshold is not None:
                answer["label"] = names[int(scores[0] >= self.threshold)]
            return answer
        if len(names) != len(scores):
            what = f"the model gives {len(scores)} scores, but there are {len(names)} labels"
            remedy = "Give one label for each output of the model, in its order"
            raise DeviceError(what, field="labels", value=",".join(names)[:120], remedy=remedy)
        answer["label"] = names[int(np.argmax(scores))]
        total = sum(scores)
        if min(scores) >= 0.0 and abs(total - 1.0) <= max(0.01, 1e-3 * len(scores)):  # printed to three decimals
            answer["probability"] = {name: score / total for name, score in zip(names, scores, strict=True)}
        return answer


def _unfit(sample: Sample, found: str, remedy: str) -> DataError:
    return DataError(
        f"sample {sample.id} does not fit the board's input: {found}", field="payload", value=sample.id, remedy=remedy
    )
