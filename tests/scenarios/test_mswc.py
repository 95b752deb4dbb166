"""Keyword FSCIL: sessions drawn from split files, two front ends, and refusals before anything is recorded."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.spoken_words import RATE_HZ, spoken, write_folder
from rig.conformance.workload import check_workload
from rig.errors import DataError, UsageError
from scenarios.workloads.mswc.sounds import mel_powers, mfcc, spikes
from scenarios.workloads.mswc.workload import Sessions, open_workload
from tests.support.raised import raised

pytest.importorskip("soundfile", reason="extra audio is not installed")

SMALL = {"sessions": 3, "way": 2, "shots": 2, "pool": 4, "queries": 2, "base_shots": 4, "base_tests": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("words")
    write_folder(made, base_words=5, base_shots=4, base_tests=2, languages=3, way=3, each=6)
    return made


def opened(folder: Path, **options: object) -> Sessions:
    return open_workload(data=str(folder), **{**SMALL, **options})  # type: ignore[arg-type]


def test_each_session_teaches_one_language_and_asks_all_words(folder: Path) -> None:
    workload = opened(folder)
    assert check_workload(workload)
    of = [sample.id.split("/") for sample in workload.samples]
    assert Counter(parts[0] for parts in of if parts[1] != "learn") == {"00": 10, "01": 14, "02": 18, "03": 22}
    assert Counter(parts[0] for parts in of if parts[1] == "learn") == {"01": 2, "02": 2, "03": 2}
    learnt = {parts[2][:2]: parts[0] for parts in of if parts[1] == "learn"}
    assert sorted(learnt.values()) == ["01", "02", "03"] and list(learnt) == workload.details["languages"]
    for sample in workload.samples:
        session, kind, word, *_ = sample.id.split("/")
        assert sample.label == word and sample.learn == (kind == "learn")
        assert kind != "new" or learnt[word[:2]] <= session
        assert sample.payload.shape == ((2, 20, 201) if sample.learn else (20, 201))


def test_shots_and_queries_are_disjoint_samples(folder: Path) -> None:
    one, again, other = opened(folder), opened(folder), opened(folder, draw=5)
    assert one.digest_sha256 == again.digest_sha256 != other.digest_sha256
    shots = {shot.tobytes() for sample in one.samples if sample.learn for shot in sample.payload}
    assert not shots & {sample.payload.tobytes() for sample in one.samples if not sample.learn}
    assert {tuple(opened(folder, draw=k).details["languages"]) for k in range(3)} > {tuple(one.details["languages"])}


def test_base_words_train_with_every_sample(folder: Path) -> None:
    trained = dict(opened(folder, front_end="spikes").base_training())
    assert {word: heard.shape for word, heard in trained.items()} == {f"base{k:03d}": (4, 200, 40) for k in range(5)}


def test_the_train_split_is_the_base_words(folder: Path) -> None:
    workload = opened(folder, split="train", front_end="audio")
    assert Counter(sample.label for sample in workload.samples) == {f"base{k:03d}": 4 for k in range(5)}
    assert {(s.payload.shape, s.rate_hz, s.learn) for s in workload.samples} == {((RATE_HZ,), RATE_HZ, False)}


@pytest.mark.parametrize(("change", "field", "why"), [
    ({"base_shots": 5}, "samples", r"base_train\.csv has 4 samples of base000, and 5 are needed"),
    ({"queries": 3}, "samples", r"evaluation\.csv has 6 samples of .*, and 7 are needed"),
    ({"way": 4}, "way", "has 3 words, and a session needs 4"),
    ({"sessions": 4}, "sessions", "has 3 languages"),
])  # fmt: skip
def test_words_with_too_few_samples_are_refused(folder: Path, change: dict[str, int], field: str, why: str) -> None:
    assert raised(DataError, opened, folder, **change, says=why).field == field


def test_a_missing_split_or_wrong_sample_rate_is_refused(tmp_path: Path) -> None:
    import soundfile

    raised(DataError, opened, tmp_path, says=r"base_train\.csv cannot be read")
    write_folder(tmp_path, base_words=1, base_shots=4, base_tests=2, languages=0)
    clip = next((tmp_path / "ca" / "clips").rglob("test_000.wav"))
    soundfile.write(clip, np.zeros(16_000), 16_000)
    assert str(clip) in str(raised(DataError, opened, tmp_path, sessions=0, says="16000 samples a second"))
    (tmp_path / "base_test.csv").write_text("only,two\n", encoding="utf-8")
    raised(DataError, opened, tmp_path, says="only,two", sessions=0)
    raised(UsageError, opened, tmp_path, says="pool", shots=5)


# ---- the front ends -------------------------------------------------------------------------


def test_a_tone_is_strongest_in_its_band() -> None:
    powers = mel_powers(np.sin(2 * np.pi * 1000.0 * np.arange(RATE_HZ) / RATE_HZ))
    assert powers.shape == (20, 201)
    low, high = (float(2595 * np.log10(1 + hz / 700)) for hz in (20.0, 4000.0))
    corners = 700 * (10 ** (np.linspace(low, high, 22) / 2595) - 1)
    band = int(powers[:, 100].argmax())
    assert corners[band] < 1000.0 < corners[band + 2]


def test_coefficients_match_librosa() -> None:
    librosa = pytest.importorskip("librosa", reason="needs librosa")
    sound = spoken(3, np.random.default_rng(0))
    mel = {"n_fft": 512, "hop_length": 240, "n_mels": 20, "fmin": 20.0, "fmax": 4000.0, "htk": True, "norm": None}
    powers = librosa.feature.melspectrogram(y=sound, sr=RATE_HZ, pad_mode="reflect", **mel)
    assert mel_powers(sound) == pytest.approx(powers, rel=1e-3, abs=1e-9)
    wanted = librosa.feature.mfcc(S=librosa.power_to_db(powers, amin=1e-10, top_db=80.0), n_mfcc=20)
    assert np.abs(mfcc(sound) - wanted).max() < 0.01


def test_integrated_spikes_follow_the_logarithmic_power() -> None:
    sound = spoken(3, np.random.default_rng(0))
    seen, logs = spikes(sound), np.log(mel_powers(sound) + 1e-6)
    assert seen.shape == (200, 40) and set(np.unique(seen)) == {0.0, 1.0}
    assert not (seen[:, :20] * seen[:, 20:]).any()
    level = np.round(logs[:, :1]) + np.cumsum(seen[:, :20] - seen[:, 20:], axis=0).T
    still = np.abs(np.diff(logs, axis=1)).max(axis=0) < 1.0
    apart = np.abs(level - logs[:, 1:])[:, still]
    assert np.median(apart) <= 1.0
