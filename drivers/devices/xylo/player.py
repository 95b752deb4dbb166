"""Plays samples to the microphone of a board, by a command of the lab such as ``aplay -q``."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import threading
import wave
from collections.abc import Callable

import numpy as np

from rig.errors import DeviceError, refused
from rig.types import Sample

Play = Callable[[Sample, int], None]
"""Begins to play a sample so many times, and returns at once."""
PATIENCE_S = 5.0


def player_of(command: str) -> Play:
    """Return what plays by a command that reads a WAV file from its standard input. Raises ``UsageError``.

    A command that failed on one sample raises ``DeviceError`` at the next, because a sample that was not played was
    not heard.
    """
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        remedy = "Give a command of this computer that plays a WAV file from its standard input, such as 'aplay -q'"
        raise refused("play", command, remedy)
    before: list[tuple[str, subprocess.Popen[bytes]]] = []

    def play(sample: Sample, times: int) -> None:
        while before:
            _check_played(*before.pop())
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        threading.Thread(target=process.communicate, args=(wav_of(sample, times),), daemon=True).start()
        before.append((sample.id, process))

    return play


def wav_of(sample: Sample, times: int) -> bytes:
    """Return audio of -1 to 1 as a WAV file of 16 bits, so many times over."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(round(sample.rate_hz or 0.0))
        scaled = np.clip(np.asarray(sample.payload, dtype=np.float64).ravel(), -1.0, 1.0) * 32767.0
        wav.writeframes(np.tile(scaled.astype("<i2"), times).tobytes())
    return file.getvalue()


def _check_played(sample_id: str, process: subprocess.Popen[bytes]) -> None:
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = None
    if code != 0:
        what = f"sample {sample_id} was not played: the command {'ended with ' + str(code) if code else 'did not end'}"
        raise DeviceError(what, field="play", value=code, remedy="Try the command by hand")
