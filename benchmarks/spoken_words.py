"""Artificial spoken words in the layout of NeuroBench's subset of the MSWC, because the corpus itself is not available.

    python -m benchmarks.spoken_words --out words

A word is a few syllables of a pitched voice with two formants each. Its samples differ in pitch, speed, loudness,
position and noise. Accuracies on these words say nothing about speech.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

RATE_HZ = 48_000
BASE = ("ca", "de", "en", "fr", "rw")
OTHERS = ("cy", "eo", "es", "eu", "fa", "it", "nl", "pl", "pt", "ru")


def spoken(word: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return one sample of a word, shape (48000,)."""
    own = np.random.default_rng([7, word])
    formants = np.column_stack([own.uniform(250, 900, 4), own.uniform(900, 3200, 4)])
    lengths = own.uniform(0.07, 0.2, 4) * rng.uniform(0.85, 1.15)
    sound, pitch_hz = [], rng.uniform(90, 220)
    for (first, second), seconds in zip(formants * rng.uniform(0.95, 1.05), lengths, strict=True):
        n = round(seconds * RATE_HZ)
        pulses = np.diff(np.floor(np.arange(n + 1) * pitch_hz * rng.uniform(0.97, 1.03) / RATE_HZ))
        voice = pulses + 0.02 * rng.standard_normal(n)
        for hz in (first, second):
            radius = np.exp(-np.pi * 90 / RATE_HZ)
            voice = lfilter([1.0], [1.0, -2 * radius * np.cos(2 * np.pi * hz / RATE_HZ), radius**2], voice)
        sound.append(voice * np.hanning(n))
    whole = np.concatenate(sound)[:RATE_HZ]
    begin = rng.integers(0, RATE_HZ - len(whole) + 1)
    out = 1e-3 * rng.standard_normal(RATE_HZ)
    out[begin : begin + len(whole)] += rng.uniform(0.2, 0.6) * whole / np.abs(whole).max()
    return np.asarray(out, np.float32)


def write_folder(
    folder: Path, base_words: int = 20, base_shots: int = 20, base_tests: int = 5, languages: int = 10, way: int = 10,
    each: int = 10, seed: int = 0,
) -> None:  # fmt: skip
    """Write ``base_train.csv``, ``base_test.csv`` and ``LANGUAGE/evaluation.csv`` with their clips as wav."""
    rng = np.random.default_rng(seed)
    tables: dict[Path, list[tuple[str, str, str]]] = {}
    for k in range(base_words):
        for split, count in (("train", base_shots), ("test", base_tests)):
            tables.setdefault(folder / f"base_{split}.csv", []).extend(
                _clip(folder, BASE[k % len(BASE)], f"base{k:03d}", split, n, k, rng) for n in range(count)
            )
    for number, language in enumerate(OTHERS[:languages]):
        for k in range(way):
            word = base_words + number * way + k
            tables.setdefault(folder / language / "evaluation.csv", []).extend(
                _clip(folder, language, f"{language}{k:02d}", "all", n, word, rng) for n in range(each)
            )
    for path, rows in tables.items():
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("LINK", "WORD", "LANGUAGE"), *rows])


def _clip(
    folder: Path, language: str, name: str, split: str, n: int, word: int, rng: np.random.Generator
) -> tuple[str, str, str]:
    import soundfile

    link = f"{name}/{split}_{n:03d}.wav"
    path = folder / language / "clips" / link
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, spoken(word, rng), RATE_HZ, subtype="PCM_16")
    return link, name, language


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    sizes = {"base-words": 20, "base-shots": 20, "base-tests": 5, "languages": 10, "way": 10, "each": 10}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    given = vars(parser.parse_args())
    write_folder(**{"folder" if name == "out" else name: value for name, value in given.items()})
    print(given["out"])


if __name__ == "__main__":
    main()
