"""Slices of audio as the board holds them: 16-bit samples in memory for one slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.devices.arduino.about import About
from drivers.devices.arduino.mfe import pcm16
from rig.errors import DataError
from rig.types import Sample


@dataclass(frozen=True)
class SliceCoding:
    """How audio becomes the bytes of the sample in memory, and how scores of ``labels`` become an answer."""

    about: About
    labels: tuple[str, ...]

    def encoded(self, sample: Sample) -> bytes:
        """Return little-endian bytes. Raises ``DataError`` unless the sample is one slice at the board's rate."""
        audio, about = np.asarray(sample.payload), self.about
        if 2 * audio.size > about.memory:
            what = f"has {2 * audio.size} bytes of 16-bit audio, and the board's memory holds {about.memory}"
            raise _unfit(sample, what, f"Give slices of {about.slice} samples, and leave --amortise out")
        if audio.shape != (about.slice,) or sample.rate_hz != about.rate:
            what = f"has the shape {audio.shape} at {sample.rate_hz} Hz"
            remedy = f"Give {about.slice} samples at {about.rate} Hz (--option audio_hz={about.rate})"
            raise _unfit(sample, what, remedy)
        if audio.dtype.kind != "f" or not np.all(np.abs(audio) <= 1.0):
            raise _unfit(sample, f"is {audio.dtype} beyond -1 to 1 or not finite", "Give audio as floats from -1 to 1")
        return pcm16(audio).astype("<i2").tobytes()

    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]:
        """Return the label of the first of the highest scores, and all scores."""
        return {"label": self.labels[int(np.argmax(scores))], "scores": list(scores)}


def _unfit(sample: Sample, what: str, remedy: str) -> DataError:
    return DataError(f"sample {sample.id} {what}", field="payload", value=sample.id, remedy=remedy)
