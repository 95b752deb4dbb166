"""Play samples to the microphone of a board, by a command of this computer such as ``aplay -q``."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import threading
import time
import wave
from collections.abc import Callable
from typing import Protocol

import numpy as np

from rig.errors import DeviceError, refused
from rig.types import Sample

SLACK_S = 0.15
"""A command may take this much longer than its sound. Its start-up time is lost at the end of a sample."""


class Playing(Protocol):
    """A sample that is being played."""

    def ended(self, timeout_s: float) -> bool:
        """Wait for the end, for ``timeout_s`` at most; return whether the sample ended. Raises ``DeviceError``."""
        ...

    def stop(self) -> None:
        """Stop playing. May be called twice, and after the end."""
        ...


Play = Callable[[Sample, int], Playing]
"""Begin to play a sample a number of times, and return at once."""


def player_of(command: str) -> Play:
    """Return a player that runs ``command``, which reads a WAV file from standard input. Raises ``UsageError``."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark without its partner
        words = []
    if not words or shutil.which(words[0]) is None:
        remedy = "Give a command of this computer that plays a WAV file from its standard input, such as 'aplay -q'"
        raise refused("play", command, remedy)
    return lambda sample, times: Command(words, sample, times)


class Command:
    """A process that plays one sample. It is an error if it fails, or takes much longer than its sound."""

    def __init__(self, words: list[str], sample: Sample, times: int) -> None:
        self._sample_id, self._ended_s = sample.id, 0.0
        self._due_s = time.monotonic() + sample.payload.size * times / float(sample.rate_hz or 1.0)
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        self._thread = threading.Thread(target=self._feed, args=(wav_of(sample, times),), daemon=True)
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        """Wait for the end, for ``timeout_s`` at most. Raises ``DeviceError`` for a sample that was not heard whole."""
        left_s = self._due_s + SLACK_S - time.monotonic()
        self._thread.join(max(0.0, min(timeout_s, left_s)))
        playing, code = self._thread.is_alive(), self._process.returncode
        over_s = (time.monotonic() if playing else self._ended_s) - self._due_s
        if not playing and code != 0:
            what = f"sample {self._sample_id} was not played: the command ended with {code}"
            raise DeviceError(what, field="play", value=code, remedy="Try the command by hand")
        if over_s > SLACK_S:
            what = (
                f"sample {self._sample_id} was not heard whole: its command took {over_s:.2f} s longer than its sound"
            )
            remedy = "Give a command that starts at once and ends with its sound, such as 'aplay -q'"
            raise DeviceError(what, field="play", value=round(over_s, 3), remedy=remedy)
        return not playing

    def stop(self) -> None:
        """Kill the command."""
        self._process.kill()

    def _feed(self, wav: bytes) -> None:
        self._process.communicate(wav)
        self._ended_s = time.monotonic()


def wav_of(sample: Sample, times: int) -> bytes:
    """Return audio of -1 to 1, repeated ``times`` times, as a WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(round(sample.rate_hz or 0.0))
        scaled = np.clip(np.asarray(sample.payload, dtype=np.float64).ravel(), -1.0, 1.0) * 32767.0
        wav.writeframes(np.tile(scaled.astype("<i2"), times).tobytes())
    return file.getvalue()
