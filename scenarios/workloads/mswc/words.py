"""The words of the Multilingual Spoken Words Corpus in the layout of NeuroBench's subset: split files, and clips.

The split files are ``base_train.csv`` and ``base_test.csv`` at the root, and ``LANGUAGE/evaluation.csv``. Their lines
are ``path,word,language``; the sound of a line is ``LANGUAGE/clips/path``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, reason
from scenarios.workloads.asc.audio import probe, read_native
from scenarios.workloads.mswc.front_ends import RATE_HZ

Clips = Mapping[str, list[Path]]
"""The clips of each word, in the order of the split file."""
_HEADER = ("LINK", "WORD", "LANGUAGE")


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
