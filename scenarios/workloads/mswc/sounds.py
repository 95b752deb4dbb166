"""The words of the Multilingual Spoken Words Corpus as sounds, and as inputs of the baselines.

The files have the layout of NeuroBench's subset. The split files are ``base_train.csv`` and ``base_test.csv`` at the
root, and ``LANGUAGE/evaluation.csv``. Their lines are ``path,word,language``; the sound of a line is
``LANGUAGE/clips/path``.

Inputs are MFCC for the M5, and spikes for the recurrent network. Both begin with powers in 20 mel bands from 20 Hz to 4
kHz, over windows of 512 samples, one every 5 ms. NeuroBench's text says 20 Hz to 40 kHz, but 40 kHz is above the
Nyquist frequency of 24 kHz. Its harness uses 4 kHz, and so does this module.
"""

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.signal import get_window

from rig.errors import DataError, reason
from rig.types import Floats
from scenarios.workloads.asc.audio import probe, read_native

RATE_HZ = 48_000
BANDS, WINDOW, HOP = 20, 512, 240
LOW_HZ, HIGH_HZ = 20.0, 4000.0
LEAST_POWER, RANGE_DB = 1e-10, 80.0
"""Lower limits of a power: ``LEAST_POWER``, and ``RANGE_DB`` below the largest power of the sample."""
LOG_OFFSET, THRESHOLD = 1e-6, 1.0
"""Offset added to powers before the logarithm, and the change of the logarithm that causes a spike (Speech2Spikes, doi
10.1145/3584954.3584995)."""
Clips = Mapping[str, list[Path]]
"""The clips of each word, in the order of the split file."""
_HEADER = ("LINK", "WORD", "LANGUAGE")


def mfcc(sound: Floats) -> NDArray[np.float32]:
    """Return 20 mel-frequency cepstral coefficients of a second, shape (20, 201)."""
    decibels = 10.0 * np.log10(np.maximum(mel_powers(sound), LEAST_POWER))
    decibels = np.maximum(decibels, decibels.max() - RANGE_DB)
    return np.asarray(dct(decibels, type=2, norm="ortho", axis=0), np.float32)


def spikes(sound: Floats) -> NDArray[np.float32]:
    """Return the spikes of a second, shape (200, 40): 20 columns for rises of the bands' logarithms, 20 for falls.

    Each band has a level; a spike moves the level by the threshold towards the signal (delta encoding). The first of
    the 201 powers only sets the initial levels.
    """
    logs = np.log(mel_powers(sound) + LOG_OFFSET)
    level, out = np.round(logs[:, 0]), np.zeros((logs.shape[1], 2, BANDS), np.float32)
    for step, found in zip(out, logs.T, strict=True):
        step[0], step[1] = found - level > THRESHOLD, found - level < -THRESHOLD
        level = level + THRESHOLD * (step[0] - step[1])
    return out[1:].reshape(-1, 2 * BANDS)


def mel_powers(sound: Floats) -> Floats:
    """Return the power in each mel band, shape (20, 201), from Hann windows every 5 ms."""
    held = np.pad(np.asarray(sound, float), WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(held, WINDOW)[::HOP]
    powers = np.abs(np.fft.rfft(frames * get_window("hann", WINDOW), axis=1)) ** 2
    return np.asarray(_filters() @ powers.T)


@lru_cache(maxsize=1)
def _filters() -> Floats:
    """Return triangular filters over frequency bins, shape (20, 257), with corners evenly spaced on HTK's mel scale."""
    low, high = (2595.0 * np.log10(1.0 + hz / 700.0) for hz in (LOW_HZ, HIGH_HZ))
    corners = 700.0 * (10.0 ** (np.linspace(low, high, BANDS + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, RATE_HZ / 2, WINDOW // 2 + 1)
    up = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    down = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    return np.asarray(np.maximum(np.minimum(up, down), 0.0))


def read_split(folder: Path, name: str, least: int) -> Clips:
    """Return the clips of the words of a split file ``name`` in a folder of the subset.

    Raises ``DataError`` for a missing or malformed file, and for a word with fewer than ``least`` clips.
    """
    path = folder / name
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row and tuple(row) != _HEADER]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "Give the folder of the subset: base_train.csv, base_test.csv, and LANGUAGE/evaluation.csv"
        what = f"{path} cannot be read: {reason(error)}"
        raise DataError(what, field="data", value=str(path), remedy=remedy) from error
    words: dict[str, list[Path]] = {}
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or not all(row):
            what = f"{path} has {','.join(row)!r} in entry {number}"
            raise DataError(what, field="data", value=str(path), remedy="Each line is path,word,language")
        words.setdefault(row[1], []).append(folder / row[2] / "clips" / row[0])
    few = {word: len(clips) for word, clips in words.items() if len(clips) < least}
    if few or not words:
        word, count = min(few.items(), default=("any word", 0))
        what = f"{path} has {count} samples of {word}, and {least} are needed"
        raise DataError(what, field="samples", value=count, remedy="Give the whole subset, or ask for fewer samples")
    return words


def languages(folder: Path) -> list[str]:
    """Return the languages of new words, sorted by name: the folders with an ``evaluation.csv``."""
    return sorted(path.parent.name for path in folder.glob("*/evaluation.csv"))


def sound_of(clip: Path) -> NDArray[np.float32]:
    """Return a second of sound, shape (48000,); a shorter clip is filled up with zeros.

    Raises ``DataError`` for a file that is missing, cannot be decoded or has another rate, ``MissingExtraError``
    without soundfile.
    """
    if (rate_hz := probe(clip).rate_hz) != RATE_HZ:
        what = f"{clip} has {rate_hz} samples a second, and {RATE_HZ} are expected"
        raise DataError(what, field="rate_hz", value=rate_hz, remedy="Give opus files of 48 kHz, or wav of this rate")
    sound = read_native(clip, clipped_limit=1.0)[:RATE_HZ]
    return np.pad(sound, (0, RATE_HZ - len(sound)))
