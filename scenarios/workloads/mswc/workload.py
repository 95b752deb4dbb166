"""Keyword few-shot class-incremental learning (NeuroBench): words of new languages are learnt from a few samples.

First, the device is tested with samples of the base words. In each of the following sessions, it learns words of a new
language, and is then tested with all words learnt so far. A sample to learn from (``Sample.learn``) contains several
shots (sounds) of one word, which is its label.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.bench.settings import one_of, within
from rig.errors import DataError, refused
from rig.types import Sample, SampleSet
from scenarios.workloads.mswc import sounds
from scenarios.workloads.mswc.sounds import Clips, languages, read_split, sound_of

NAME, TASK = "mswc-fscil", "keyword few-shot class-incremental learning"
OLD, NEW = "old", "new"

Heard = NDArray[np.float32]
FRONT_ENDS: Mapping[str, Callable[[Any], Heard]]
FRONT_ENDS = {"mfcc": sounds.mfcc, "spikes": sounds.spikes, "audio": np.asarray}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sessions(SampleSet):
    """The workload; see ``rig.types.Workload``. ``base`` names the base words, in the order of their classes."""

    base: tuple[str, ...]
    training: Clips
    front_end: str

    def base_training(self) -> Iterator[tuple[str, Heard]]:
        """Yield each base word with all of its training samples after the front end."""
        for word in self.base:
            yield word, np.stack([FRONT_ENDS[self.front_end](sound_of(clip)) for clip in self.training[word]])


def open_workload(
    *,
    data: str = "",
    front_end: str = "mfcc",
    split: str = "test",
    draw: int = 0,
    sessions: int = 10,
    way: int = 10,
    shots: int = 5,
    pool: int = 100,
    queries: int = 100,
    base_shots: int = 500,
    base_tests: int = 100,
    learn: bool = True,
) -> Sessions:
    """Open a folder ``data`` of the MSWC in the layout of NeuroBench's subset.

    ``front_end`` is ``mfcc`` (20, 201), ``spikes`` (200, 40), or ``audio`` for a device that takes the sound itself.
    The ``split`` ``train`` holds only the base words for the training of a network, without sessions. ``draw`` seeds
    the order of the languages, the choice of ``way`` words in each of ``sessions`` languages, and of ``shots`` samples
    to learn from among a word's first ``pool``; the next ``queries`` samples of the word are for tests. A base word has
    at least ``base_shots`` samples for training, all of which are used, and ``base_tests`` for tests. Without
    ``learn``, new words are tested but never taught, for a frozen device.

    Raises ``UsageError`` for options out of range, ``DataError`` for split files that are missing, words with too few
    samples and sound that cannot be used, ``MissingExtraError`` without soundfile.
    """
    one_of(tuple(FRONT_ENDS), front_end=front_end)
    one_of(("test", "train"), split=split)
    within(0, 2**53, draw=draw)
    within(0, 1000, sessions=sessions)
    within(1, 10_000, way=way, shots=shots, pool=pool, queries=queries, base_shots=base_shots, base_tests=base_tests)
    if not data:
        raise refused("data", data, "Give the folder with base_train.csv (--data)", "no folder was given")
    if shots > pool:
        raise refused("shots", shots, f"Give at most the {pool} samples that they are drawn from (pool)")
    folder, rng = Path(data), np.random.default_rng([draw])
    training, tests = read_split(folder, "base_train.csv", base_shots), read_split(folder, "base_test.csv", base_tests)
    if lacking := sorted(set(training) ^ set(tests)):
        what = f"{folder}: {lacking[0]} is in only one of base_train.csv and base_test.csv"
        raise DataError(what, field="data", value=lacking[0], remedy="Give the split files of one subset")
    if split == "train":
        tests, base_tests, sessions = training, base_shots, 0
    known = languages(folder)
    if len(known) < sessions:
        what = f"{folder} has {len(known)} languages with an evaluation.csv, and {sessions} sessions need one each"
        raise DataError(what, field="sessions", value=len(known), remedy="Give the whole subset, or fewer sessions")

    @cache
    def hear(clip: Path) -> Heard:
        return FRONT_ENDS[front_end](sound_of(clip))

    asked = [(OLD, word, k, hear(clip)) for word, clips in tests.items() for k, clip in enumerate(clips[:base_tests])]
    rate_hz = sounds.RATE_HZ if front_end == "audio" else None
    samples = list(_asked(0, asked, rate_hz))
    order = [known[k] for k in rng.permutation(len(known))[:sessions]]
    for session, language in enumerate(order, 1):
        words = read_split(folder, f"{language}/evaluation.csv", pool + queries)
        if len(words) < way:
            what = f"{folder / language / 'evaluation.csv'} has {len(words)} words, and a session needs {way}"
            raise DataError(what, field="way", value=len(words), remedy="Give the whole subset, or ask for fewer (way)")
        for word in rng.choice(sorted(words), way, replace=False).tolist():
            clips = words[word]
            taught = np.stack([hear(clips[k]) for k in rng.choice(pool, shots, replace=False)])
            if learn:
                samples.append(Sample(f"{session:02d}/learn/{word}", taught, word, rate_hz=rate_hz, learn=True))
            asked += [(NEW, word, k, hear(clips[k])) for k in range(pool, pool + queries)]
        samples += _asked(session, asked, rate_hz)
    details = {
        "front_end": front_end, "front_end_hz": [sounds.LOW_HZ, sounds.HIGH_HZ], "incremental": sessions,
        "languages": order, "shots": shots, "way": way, "base_words": len(training), "source": "MSWC", "split": split,
        "classes": sorted({sample.label for sample in samples if sample.label is not None}),
    }  # fmt: skip
    return Sessions(
        NAME, TASK, "1", _digest(samples), tuple(samples), details,
        base=tuple(training), training=training, front_end=front_end,
    )  # fmt: skip


def _asked(session: int, asked: Sequence[tuple[str, str, int, Heard]], rate_hz: float | None) -> Iterator[Sample]:
    """Yield the test samples after a session; their ids name the session and whether the word is old or new."""
    for kind, word, k, heard in asked:
        yield Sample(f"{session:02d}/{kind}/{word}/{k}", heard, word, duration_s=1.0, rate_hz=rate_hz)


def _digest(samples: Sequence[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(f"{sample.id} {sample.label} {sample.payload.shape}".encode() + sample.payload.tobytes())
    return digest.hexdigest()
