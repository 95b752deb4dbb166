"""Acoustic scene classification: one-second slices of audio, one label each, batch size one.

Three sources: the TAU Urban Acoustic Scenes 2020 Mobile set, any folder with a ``labels.csv``,
and, without data, synthetic scenes. Decoding and resampling happen when a sample is
accessed, which is outside every measured span.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.analysis.verdict.benchmark_limits import ASC
from rig.bench.settings import one_of, within
from rig.errors import DataError, unfit
from rig.recording.layout import sha256_of
from rig.types import Benchmark, Parameter, SampleSet
from scenarios.lazy_samples import Lazy
from scenarios.workloads.asc import audio
from scenarios.workloads.asc.catalogue import TAU, Catalogue, part_of, read_folder, read_tau
from scenarios.workloads.asc.scenes import CLASSES, RECIPE, synthesize
from scenarios.workloads.asc.slices import SLICE_S, Loader, Slice, Unit, draw, frames_of, interleave, join, sample_of

NAME = "asc"
TASK = "acoustic scene classification"
VERSION = "1"
TUNING_SEEDS = range(1000, 2000)
"""Seeds of synthetic scenes for the tuning of settings; a test set never uses them."""
TRAINING_SEEDS = range(0, 1000)
"""Seeds of synthetic scenes for the training of models; a test set never uses them."""
SPLITS = ("train", "test")

_SYNTHETIC_DEFAULT = 120
_SYNTHETIC_MOST = 1_000_000
_RATES_HZ = (1000, 384_000)
_CLIPS_KEPT = 32
_SLICES_KEPT = 16

WHOLE_SLICES = {"train": 41360, "test": 16240}
"""Seconds in each split of the TAU set, with all of its clips of device a in the four scenes."""
_DATA = "N, ASC, Benchmark dataset: "


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AscWorkload(SampleSet):
    """The workload; see ``rig.types.Workload``. ``details`` includes the source of the audio."""

    samples: Lazy[Unit]
    benchmark: Benchmark
    rate_hz: float
    load: Loader
    """Decodes a slice."""

    def sequences(self, seconds: float) -> AscWorkload:
        """Return the same slices joined to sequences of ``seconds``, for a device that is configured once per sequence.

        The slices of each label are cut into whole sequences first. The slices that are left over from all labels are
        joined to sequences, which have no label (None) if labels differ, and a last incomplete sequence is dropped.
        Raises UsageError when ``seconds`` is not a positive whole number of slices or more than the workload has.
        """
        parts = [part for unit in self.samples.items for part in unit.slices]
        if not (math.isfinite(seconds) and seconds > 0 and (seconds / SLICE_S).is_integer()):
            what = "is not a positive whole number of slices"
            raise unfit("seconds", seconds, what, f"Use a multiple of {SLICE_S} s")
        size = round(seconds / SLICE_S)
        if size > len(parts):
            raise unfit("seconds", seconds, "is more than the data set has", f"Use at most {len(parts) * SLICE_S} s")
        units = join(parts, size)
        order = [[part.id for part in unit.slices] for unit in units]
        details = {
            **self.details, "sequence_s": float(seconds), "sequences": len(units),
            "mixed_sequences": sum(unit.label is None for unit in units),
            "dropped_slices": len(parts) - size * len(units),
        }  # fmt: skip
        digest = _digest({"base": self.digest_sha256, "sequences": order})
        return replace(self, samples=replace(self.samples, items=units), details=details, digest_sha256=digest)

    def stream(self, window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int) -> Lazy[int]:
        """Return the slices as one stream with changing scenes, cut into frames; see ``rig.types.Streams``."""
        parts = [part for unit in self.samples.items for part in unit.slices]
        lengths = {"window_s": window_s, "stride_s": stride_s, "scene_s": scene_s, "duration_s": duration_s}
        return frames_of(parts, lru_cache(_SLICES_KEPT)(self.load), self.rate_hz, **lengths, seed=seed)


def open_workload(
    *,
    data: str | None = None,
    samples: int | None = None,
    sample_seed: int = 2000,
    audio_hz: float = 16000.0,
    split: str = "test",
    fold: str | None = None,
    clipped_limit: float = audio.CLIPPED_LIMIT,
) -> AscWorkload:
    """Open acoustic scenes in samples of one second: clips of a folder, or synthetic scenes.

    ``data`` is a folder in the TAU layout (``meta.csv``) or with a ``labels.csv``; without it, scenes are synthetic.
    ``samples`` is how many are used: by default all of a folder, or 120 synthetic ones. With a folder, ``sample_seed``
    draws them. In the test split of synthetic scenes it is the seed of the first scene, 2000 or more. ``audio_hz`` is
    the rate to resample to, in whole hertz.

    ``split`` is "test" or "train". The whole of a folder with a ``labels.csv`` is one split, unless ``fold`` "K/N" is
    given for cross-validation: then part K of N is the test split, and the rest the train split. The train split of
    synthetic scenes has each class for each seed from 0 on.

    A clip is refused if more than ``clipped_limit`` of its samples (0 to 1) are clipped. Every clip that is used is
    decoded and hashed here, so that no run fails because of it later.
    Raises UsageError for options that are not valid, DataError for data that cannot be used, and
    MissingExtraError when a folder is given and ``neurorig[audio]`` is not installed.
    """
    one_of(SPLITS, split=split)
    within(1, math.inf, samples=1 if samples is None else samples)
    within(0, math.inf, sample_seed=sample_seed)
    within(0.0, 1.0, clipped_limit=clipped_limit)
    low_hz, high_hz = _RATES_HZ
    if not (low_hz <= audio_hz <= high_hz and float(audio_hz).is_integer()):
        raise unfit("audio_hz", audio_hz, "is not a usable rate", f"Use whole hertz from {low_hz} to {high_hz}")
    rate_hz = float(audio_hz)
    if data is None and fold is not None:
        raise unfit("fold", fold, "needs a folder of clips", "Give data too, or leave it out")
    if data is None:
        return _synthetic(_SYNTHETIC_DEFAULT if samples is None else samples, sample_seed, rate_hz, split)
    return _from_files(_catalogue(Path(data), split, fold), samples, sample_seed, rate_hz, split, clipped_limit)


def _synthetic(count: int, seed: int, rate_hz: float, split: str) -> AscWorkload:
    first, of_seed = (TRAINING_SEEDS.start, len(CLASSES)) if split == "train" else (seed, 1)
    if split == "train" and count > of_seed * len(TRAINING_SEEDS):
        raise unfit("samples", count, "is more than there are", f"Use at most {of_seed * len(TRAINING_SEEDS)}")
    if split == "test" and first < TUNING_SEEDS.stop:
        remedy = f"Use {TUNING_SEEDS.stop} or more: smaller ones are for training and tuning"
        raise unfit("sample_seed", seed, "is a training or tuning seed", remedy)
    if count > _SYNTHETIC_MOST:
        raise unfit("samples", count, "is too many", f"Use at most {_SYNTHETIC_MOST}")
    slices = []
    for index in range(count):
        label = CLASSES[index % len(CLASSES)]
        own = first + index // of_seed
        key = f"{label}-{own:05d}"
        slices.append(Slice(key, label, key, 0, own))
    basis = {"recipe": RECIPE, "seeds": [first, first + -(-count // of_seed)]}
    details = {"source": "synthetic", **basis, "unseen": split == "test"}

    def load(part: Slice) -> NDArray[np.float32]:
        return synthesize(part.label, part.seed or 0, SLICE_S, rate_hz)

    return _workload(slices, load, rate_hz, split, CLASSES, basis, details)


def _from_files(
    found: Catalogue, samples: int | None, seed: int, rate_hz: float, split: str, clipped_limit: float
) -> AscWorkload:
    everything = [
        Slice(f"{clip.name}:{second}", clip.label, clip.name, second)
        for clip in found.clips
        for second in range(clip.seconds)
    ]
    if samples is not None and samples > len(everything):
        raise unfit("samples", samples, "is more than there are", f"Use at most {len(everything)}")
    slices = interleave(everything if samples is None else draw(everything, samples, seed))
    clips = {clip.name: clip for clip in found.clips}
    files = []
    for name in sorted({part.clip for part in slices}):
        audio.read_native(clips[name].path, clipped_limit=clipped_limit)
        files.append((name, sha256_of(clips[name].path)))
    drawn = None if samples is None else {"drawn": len(slices), "of": len(everything), "seed": seed}
    details = {
        **found.details, "source": found.source, "clips": len(files), "selection": drawn or "all",
        "clipped_limit": clipped_limit, "decoder": audio.versions(), "front_end": audio.FRONT_END,
    }  # fmt: skip

    # Classes alternate, so at least one clip of each class stays decoded, up to a limit.
    @lru_cache(maxsize=min(2 * len(found.classes), _CLIPS_KEPT))
    def decode(name: str) -> NDArray[np.float32]:
        return audio.read_audio(clips[name].path, rate_hz, clipped_limit=clipped_limit)

    def load(part: Slice) -> NDArray[np.float32]:
        size = round(SLICE_S * rate_hz)
        return decode(part.clip)[part.start_s * size : (part.start_s + 1) * size]

    return _workload(slices, load, rate_hz, split, found.classes, {"files": files}, details)


def _workload(
    slices: Sequence[Slice], load: Loader, rate_hz: float, split: str, classes: Sequence[str], basis: Mapping[str, Any],
    details: Mapping[str, Any],
) -> AscWorkload:  # fmt: skip
    asked = {"rate_hz": rate_hz, "split": split, "classes": list(classes)}
    counts = Counter(part.label for part in slices)
    about = {**details, **asked, "counts": {label: counts[label] for label in classes}, "slices": len(slices)}
    digest = _digest({"version": VERSION, "slice_s": SLICE_S, **asked, "order": [part.id for part in slices], **basis})
    units = tuple(Unit(part.id, part.label, (part,)) for part in slices)
    samples = Lazy(units, partial(sample_of, load=load, rate_hz=rate_hz))
    return AscWorkload(
        NAME, TASK, VERSION, digest, details=about,
        samples=samples, benchmark=benchmark_of(about), rate_hz=rate_hz, load=load,
    )  # fmt: skip


def _catalogue(root: Path, split: str, fold: str | None) -> Catalogue:
    if (root / "meta.csv").is_file():
        if fold is not None:
            raise unfit("fold", fold, "is not for this data set, which has splits of its own", "Leave it out")
        return read_tau(root, split, WHOLE_SLICES)
    if (root / "labels.csv").is_file():
        found = read_folder(root)
        return found if fold is None else part_of(found, fold, split)
    what = "holds neither meta.csv nor labels.csv" if root.is_dir() else "is not a folder"
    remedy = "Give a folder in the TAU layout, or one with a labels.csv. To solve a problem, add --workload qubo"
    what = f"data {str(root)!r} is for the workload {NAME}, and {what}"
    raise DataError(what, field="data", value=str(root), remedy=remedy)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def benchmark_of(details: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark, from the details of an opened workload."""
    scenarios = "P, ASC: 'presented under the Real-time or Single-stream task scenarios'; N, ASC, Task: 'batch-size 1'"
    second = "N, ASC, Task: 'One inference is defined as the processing of one second of audio data'"
    return Benchmark(
        ASC,
        Parameter((), ("single-stream", "real-time"), scenarios),
        {
            "data set": Parameter((details["source"],), (TAU,), f"{_DATA}'using the TAU Urban Acoustic Scenes 2020'"),
            "split": Parameter((details["split"],), ("test",), "N, ASC, Task: 'will report test set accuracy'"),
            "samples": Parameter(
                (details["slices"],), (WHOLE_SLICES["test"],), f"{_DATA}'as well as 16240 test samples'"
            ),
            "classes": Parameter(tuple(details["classes"]), CLASSES, f"{_DATA}'Of the 10 available scene classes'"),
        },
        {"window_s": Parameter((), (SLICE_S,), second)},
    )
