"""The acoustic scene workload on recordings: the TAU layout, and folders with a ``labels.csv``."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rig.errors import DataError, UsageError
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.asc.scenes import CLASSES
from tests.support.paths import SHARED
from tests.support.raised import raised

sf = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

REAL = SHARED / "data" / "audio" / "esc10_textures"
RATE_HZ = 8000


# ---- the TAU layout -----------------------------------------------------------------------


def write_audio(path: Path, seconds: float = 3.0, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).uniform(-0.3, 0.3, round(seconds * RATE_HZ))
    sf.write(path, noise.astype(np.float32), RATE_HZ, subtype="PCM_16")


def write_tau(root: Path, *, train: int = 3, test: int = 2, absent: int = 1) -> Path:
    """Write ``train`` and ``test`` clips of 3 s for each scene; the last ``absent`` test clips are in
    no fold. Some clips do not belong (another device, another scene)."""
    names: list[tuple[str, str, str]] = []
    folds: dict[str, list[tuple[str, str]]] = {"train": [], "evaluate": []}
    for scene in (*CLASSES, "tram"):
        for part in range(train + test):
            for device in ("a", "s1"):
                name = f"audio/{scene}-lisbon-{part}-{part}-{device}.wav"
                names.append((name, scene, device))
                if part < train:
                    folds["train"].append((name, scene))
                elif part < train + test - absent:
                    folds["evaluate"].append((name, scene))
                if device == "a" and scene != "tram":
                    write_audio(root / name, seed=part)
    meta = ["filename\tscene_label\tidentifier\tsource_label"]
    meta += [f"{name}\t{scene}\tlisbon-1\t{device}" for name, scene, device in names]
    (root / "meta.csv").write_text("\n".join(meta) + "\n")
    (root / "evaluation_setup").mkdir()
    for fold, rows in folds.items():
        lines = ["filename\tscene_label", *(f"{name}\t{scene}" for name, scene in rows)]
        (root / "evaluation_setup" / f"fold1_{fold}.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def tau(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(asc, "WHOLE_SLICES", {"train": 36, "test": 24})
    return write_tau(tmp_path)


def opened(root: Path, **options: object) -> asc.AscWorkload:
    return asc.open_workload(data=str(root), audio_hz=RATE_HZ, **options)  # type: ignore[arg-type]


def refused(root: Path, **options: object) -> DataError:
    error = raised(DataError, opened, root, **options)
    assert error.remedy
    return error


def edited(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def test_the_test_split_is_all_clips_of_device_a_that_are_not_in_train(tau: Path) -> None:
    workload = opened(tau)
    assert len(workload.samples) == 24
    assert Counter(s.label for s in workload.samples) == dict.fromkeys(CLASSES, 6)
    assert workload.details["partial"] is False
    assert {s.id.split("-")[3] for s in workload.samples} == {"3", "4"}
    training = opened(tau, split="train")
    assert len(training.samples) == 36 and {s.id.split("-")[3] for s in training.samples} == {"0", "1", "2"}


def test_a_slice_is_one_second_of_its_clip(tau: Path) -> None:
    sample = next(s for s in opened(tau).samples if s.id.endswith("park-lisbon-3-3-a.wav:1"))
    whole, _ = sf.read(tau / "audio" / "park-lisbon-3-3-a.wav", dtype="float32")
    assert sample.payload.dtype == np.float32
    assert np.array_equal(sample.payload, whole[RATE_HZ : 2 * RATE_HZ])
    assert str(sample.cut_from).endswith("park-lisbon-3-3-a.wav")


def test_changing_a_payload_leaves_the_next_load_intact(tau: Path) -> None:
    samples = opened(tau).samples
    samples[0].payload[:] = 0
    assert np.any(samples[0].payload)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_whole_set_with_the_wrong_count_is_refused(tau: Path, monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    monkeypatch.setattr(asc, "WHOLE_SLICES", {"train": 36, "test": 24} | {split: 99})
    error = refused(tau)
    assert split in error.message
    assert "99" in error.message


def test_a_partial_set_is_recorded_as_partial(tau: Path) -> None:
    (tau / "audio" / "bus-lisbon-0-0-a.wav").unlink()  # of the other split
    assert (opened(tau).details["partial"], len(opened(tau).samples)) == (True, 24)
    (tau / "audio" / "bus-lisbon-4-4-a.wav").unlink()
    details = opened(tau).details
    assert (details["listed_clips"], details["found_clips"]) == (8, 7)
    assert (details["found_slices"], details["whole_slices"]) == (21, 24)


def test_a_split_without_audio_names_the_first_missing_clip(tau: Path) -> None:
    for clip in (tau / "audio").glob("*-lisbon-[34]-*"):
        clip.unlink()
    error = refused(tau)
    assert "8 of 8" in error.message
    assert error.value == "airport-lisbon-3-3-a.wav"


def test_names_without_the_audio_folder_are_accepted(tau: Path) -> None:
    reference = opened(tau).digest_sha256
    for path in (tau / "meta.csv", *(tau / "evaluation_setup").iterdir()):
        edited(path, "audio/", "")
    assert opened(tau).digest_sha256 == reference


PARK = "park-lisbon-3-3-a.wav"
FOLD = "evaluation_setup/fold1_"


@pytest.mark.parametrize(("file", "old", "new", "field", "value", "said"), [
    ("meta.csv", "filename", "other", "meta.csv", None, "filename"),
    ("meta.csv", "scene_label", "other", "meta.csv", None, "scene_label"),
    ("meta.csv", f"{PARK}\tpark", f"{PARK}\tbus", "meta.csv", None, "contradicts"),
    (f"{FOLD}evaluate.csv", "", "audio/park-lisbon-0-0-a.wav\tpark\n", "", "park-lisbon-0-0-a.wav", ""),
    (f"{FOLD}train.csv", "", "audio/park-paris-9-9-a.wav\tpark\n", "", "park-paris-9-9-a.wav", ""),
    (f"{FOLD}train.csv", "", None, "fold1_train.csv", None, ""),
    ("meta.csv", "", "\udcff\udcfe\0", "meta.csv", None, "Save it as UTF-8"),
])  # fmt: skip
def test_unusable_lists_are_refused(
    tau: Path, file: str, old: str, new: str | None, field: str, value: str | None, said: str
) -> None:
    """Missing columns, a label unlike the name, a clip in both folds or not in meta.csv, a missing file, no UTF-8."""
    text = (tau / file).read_text()
    if new is None:
        (tau / file).unlink()
    else:
        changed = text.replace(old, new) if old else text + new
        (tau / file).write_text(changed, errors="surrogateescape")
    error = refused(tau)
    assert error.field.endswith(field) and said in str(error) and (value is None or error.value == value)


def test_opening_refuses_a_clip_that_is_cut_or_clipped(tau: Path) -> None:
    clip = tau / "audio" / PARK
    clip.write_bytes(clip.read_bytes()[:-100])
    assert refused(tau).field == str(clip)
    sf.write(clip, np.ones(3 * RATE_HZ, np.float32), RATE_HZ, subtype="PCM_16")
    assert refused(tau).field == str(clip)
    assert len(opened(tau, clipped_limit=1.0).samples) == 24


def test_changed_audio_changes_digest(tau: Path) -> None:
    before = opened(tau).digest_sha256
    write_audio(tau / "audio" / "park-lisbon-3-3-a.wav", seed=99)
    assert opened(tau).digest_sha256 != before


def test_a_subset_is_balanced_seeded_and_recorded(tau: Path) -> None:
    first, again, other = opened(tau, samples=8), opened(tau, samples=8), opened(tau, samples=8, sample_seed=1)
    assert Counter(s.label for s in first.samples) == dict.fromkeys(CLASSES, 2)
    assert [s.id for s in first.samples] == [s.id for s in again.samples]
    assert {s.id for s in first.samples} != {s.id for s in other.samples}
    assert first.details["selection"] == {"drawn": 8, "of": 24, "seed": 2000}
    assert first.digest_sha256 != other.digest_sha256


def test_a_subset_fills_a_small_class_with_others(tau: Path) -> None:
    for clip in (tau / "audio").glob("bus-lisbon-3-*"):
        clip.unlink()
    assert Counter(s.label for s in opened(tau, samples=19).samples)["bus"] == 3


def test_a_subset_needs_only_its_own_clips_and_has_no_more_than_there_are(tau: Path) -> None:
    assert "24" in raised(UsageError, opened, tau, samples=25).remedy
    used = {s.id.split(":")[0] for s in opened(tau, samples=1).samples}
    assert opened(tau, samples=1).details["clips"] == len(used) == 1


# ---- a folder with labels.csv -------------------------------------------------------------


def write_folder(root: Path, column: str = "filename") -> Path:
    for index, name in enumerate(("rain-1.wav", "rain-2.wav", "sea-1.wav")):
        write_audio(root / name, 2.5, index)
    rows = [f"{column},label,source", "rain-1.wav,rain,x", "rain-2.wav,rain,y", "sea-1.wav,sea,z"]
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.mark.parametrize("column", ["filename", "file", "clip"])
def test_a_folder_has_the_classes_of_its_list(tmp_path: Path, column: str) -> None:
    workload = opened(write_folder(tmp_path, column))
    assert workload.details["classes"] == ["rain", "sea"]
    assert workload.details["counts"] == {"rain": 4, "sea": 2}
    assert all(s.payload.shape == (RATE_HZ,) for s in workload.samples)


def test_an_unlisted_clip_is_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path)
    write_audio(root / "wind-1.wav", 1.0)

    assert opened(root).details["unlisted_clips"] == 1
    assert "1 clip is not in labels.csv and is not used, such as wind-1.wav" in capsys.readouterr().err


def test_missing_listed_files_are_counted(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    (root / "rain-2.wav").unlink()
    (root / "sea-1.wav").unlink()
    error = refused(root)
    assert "2 of 3" in error.message
    assert error.value == "rain-2.wav"


@pytest.mark.parametrize(("old", "new", "word"), [
    ("filename", "name", "column filename"),
    ("\nrain-1.wav,rain,x\nrain-2.wav,rain,y\nsea-1.wav,sea,z", "", "lists nothing"), ("label", "class", "label"),
    ("sea-1.wav,sea", "sea-1.wav,", "no label"), ("rain-2.wav", "rain-1.wav", "twice"),
    ("rain-2.wav", "../rain-2.wav", "outside"), ("sea-1.wav", "short.wav", "too short"),
])  # fmt: skip
def test_an_unusable_list_is_refused(tmp_path: Path, old: str, new: str, word: str) -> None:
    root = write_folder(tmp_path)
    write_audio(root / "short.wav", 0.9)
    edited(root / "labels.csv", old, new)
    assert word in refused(root).message


# ---- folds ------------------------------------------------------------------------------------


def write_takes(root: Path) -> Path:
    """Write clips of two labels, with four origins for each. One origin has two clips, far apart in the list."""
    rows = ["filename,label,source"]
    for label in ("rain", "sea"):
        for origin in range(4):
            for take in ("a", "z") if (label, origin) == ("rain", 1) else ("a",):
                name = f"{take}-{label}-{origin}.wav"
                write_audio(root / name, 1.0, origin)
                rows.append(f"{name},{label},{label}-{origin}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    return root


def clips_of(workload: asc.AscWorkload) -> set[str]:
    return {part.clip for unit in workload.samples.items for part in unit.slices}


@pytest.mark.parametrize("folds", [2, 3, 4])
def test_each_clip_is_tested_in_exactly_one_fold(tmp_path: Path, folds: int) -> None:
    root, tested = write_takes(tmp_path), Counter[str]()
    for k in range(1, folds + 1):
        own, rest = (clips_of(opened(root, split=split, fold=f"{k}/{folds}")) for split in ("test", "train"))
        assert not own & rest
        assert own | rest == clips_of(opened(root))
        assert ("a-rain-1.wav" in own) == ("z-rain-1.wav" in own), "clips of one origin stay together"
        tested.update(own)
    assert set(tested.values()) == {1}


def test_a_fold_holds_clips_of_every_label(tmp_path: Path) -> None:
    workload = opened(write_takes(tmp_path), fold="2/4")
    assert workload.details["counts"] == {"rain": 2, "sea": 1}
    assert (workload.details["fold"], workload.details["split"]) == ("2/4", "test")
    assert workload.digest_sha256 != opened(tmp_path, fold="1/4").digest_sha256


@pytest.mark.parametrize("fold", ["0/4", "5/4", "1/1", "1", "a/b", "1/5", "1/4/2"])
def test_an_impossible_fold_is_refused(tmp_path: Path, fold: str) -> None:
    assert raised(UsageError, opened, write_takes(tmp_path), fold=fold).field == "fold"


def test_data_with_fixed_splits_have_no_folds(tau: Path) -> None:
    for data in (str(tau), None):
        raised(UsageError, asc.open_workload, says="fold", data=data, fold="1/4")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not here")
def test_real_recordings_are_decoded_resampled_and_sliced() -> None:
    workload = asc.open_workload(data=str(REAL))
    assert workload.details["clips"] == 32
    assert set(workload.details["counts"]) == {"rain", "sea_waves", "helicopter", "fire_crackling"}
    assert min(workload.details["counts"].values()) >= 36
    for sample in workload.samples[::10]:
        assert sample.payload.shape == (16000,)
        assert np.all(np.isfinite(sample.payload))
