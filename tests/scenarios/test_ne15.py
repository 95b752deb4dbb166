"""NE15-MNIST: files of digits, their spikes in three encodings, and recordings of a retina."""

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy import stats

from rig.errors import DataError, UsageError
from rig.types import Floats
from scenarios.workloads.ne15 import aer
from scenarios.workloads.ne15.aer import export
from scenarios.workloads.ne15.digit_stream import Events, poisson
from scenarios.workloads.ne15.drawn import RETINA_STEP, retina, write_folder
from scenarios.workloads.ne15.focal import cell_kernels, rank_order
from scenarios.workloads.ne15.mnist import PIXELS, idx_file, read_digits
from scenarios.workloads.ne15.workload import open_workload
from tests.support.paths import SHARED
from tests.support.raised import raised

MNIST = SHARED / "data" / "mnist"
published = pytest.mark.skipif(not MNIST.is_dir(), reason="needs the shared data")

RNG = np.random.default_rng(7)
DRAWN = np.where(np.hypot(*(np.indices((28, 28)) - 13.5)) < 8, 200, 0).astype(np.uint8).ravel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 20 drawn digits: plain images, gzipped labels."""
    images = np.stack([np.roll(DRAWN, 28 * (k % 5)) for k in range(20)]).reshape(20, 28, 28)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx_file(images))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_file(np.arange(20, dtype=np.uint8) % 10)))
    return tmp_path


# ---- files --------------------------------------------------------------------------------


def test_images_and_labels_are_read_plain_or_packed(folder: Path) -> None:
    images, labels = read_digits(folder, "test", verify=False)
    assert images.shape == (20, PIXELS)
    assert images[1].tolist() == np.roll(DRAWN, 28).tolist()
    assert labels.tolist() == [*range(10), *range(10)]


@published
def test_mnist_is_recognised_by_its_md5() -> None:
    images, labels = read_digits(MNIST, "test")
    assert len(images) == len(labels) == 10_000
    assert labels[:5].tolist() == [7, 2, 1, 0, 4]


@pytest.mark.parametrize(("field", "change"), [
    ("md5", lambda data: data), ("size", lambda data: data[:-1]),
    ("magic", lambda data: b"\0\0\x0d\x03" + data[4:]), ("magic", lambda data: data[:9]),
    ("shape", lambda data: data[:8] + np.array([14, 56], ">u4").tobytes() + data[16:]),
])  # fmt: skip
def test_a_file_that_is_not_mnist_is_refused(folder: Path, field: str, change: object) -> None:
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    assert raised(DataError, open_workload, data=str(folder)).field == field


def test_a_truncated_or_missing_file_is_refused(folder: Path) -> None:
    path = folder / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-6])
    raised(DataError, read_digits, folder, "test", says="cannot be read", verify=False)
    path.unlink()
    raised(DataError, read_digits, folder, "test", says="there is no t10k-labels", verify=False)


# ---- Poisson ------------------------------------------------------------------------------


def test_the_total_spike_rate_is_the_requested_one() -> None:
    dim = np.zeros(PIXELS, np.uint8)
    dim[[3, 700]] = 1
    for image in (DRAWN, dim):
        events = poisson(image, 5000.0, 100.0, np.random.default_rng(1))
        assert abs(len(events) - 500_000) < 4 * np.sqrt(500_000)
        assert image[events[:, 1]].all()
        assert 1 <= events[0, 0] <= events[-1, 0] <= 100_000_000
        assert (np.diff(events[:, 0]) >= 0).all()


def test_an_image_without_intensity_is_silent() -> None:
    assert poisson(np.zeros(PIXELS, np.uint8), 2000.0, 1.0, RNG).shape == (0, 2)


def unit_gaps(events: Events) -> np.ndarray:
    """Return the gaps between the spikes of each pixel, in units of their mean for this pixel."""
    trains = [events[events[:, 1] == pixel, 0] for pixel in np.unique(events[:, 1])]
    return np.concatenate([np.diff(train) / np.diff(train).mean() for train in trains if len(train) > 500])


@published
def test_our_poisson_digit_has_the_published_statistics() -> None:
    """Tested at the 1 % level: gaps are exponential, and counts in 0.1 s scatter like a Poisson process."""
    theirs = aer.read_aedat(MNIST / "ne15_poisson_digit0.aedat", "ne15")
    theirs = theirs[theirs[:, 1] < aer.PIXELS]
    image = np.bincount(theirs[:, 1], minlength=aer.PIXELS)
    assert theirs[:, 0].max() == 99_999_946
    assert len(theirs) == 200_335
    assert np.count_nonzero(image) == 198
    scaled = (image * (255 / image.max())).round().astype(np.uint8)
    ours = poisson(scaled, 2000.0, 100.0, np.random.default_rng(3))
    for events in (theirs, ours):
        assert abs(len(events) - 200_000) < 2.58 * np.sqrt(200_000)
        counts = np.bincount(events[:, 0] // 100_000, minlength=1000)[:1000]
        assert stats.chi2.cdf(counts.var() * 1000 / counts.mean(), 999) == pytest.approx(0.5, abs=0.495)
    assert stats.ks_2samp(unit_gaps(theirs), unit_gaps(ours)).pvalue > 0.01


# ---- rank order ---------------------------------------------------------------------------


def reconstructed(events: Events, values: Floats) -> Floats:
    """Return the image that the spikes encode, shape (784,): each spike adds its cell's kernel times its value."""
    cells, kernels, _ = cell_kernels()
    return np.asarray(values @ kernels[np.searchsorted(cells, events[:, 1])])


@published
def test_an_image_is_recovered_from_spike_order() -> None:
    images, _ = read_digits(MNIST, "test")
    for image in images[:10]:
        events, values = rank_order(image)
        assert np.corrcoef(reconstructed(events, values), image)[0, 1] > 0.97
        assert len(np.unique(events[:, 1])) == len(events) < 500
        assert events[:, 0].tolist() == list(range(1000, 1000 * len(events) + 1, 1000))


def test_overlap_correction_improves_the_recovered_image() -> None:
    events, values = rank_order(DRAWN, 0.3)
    few = rank_order(DRAWN, 0.02)
    closeness = [np.corrcoef(reconstructed(*found), DRAWN)[0, 1] for found in (few, (events, values))]
    assert closeness[0] < closeness[1]


# ---- AER ----------------------------------------------------------------------------------


def test_dialects_address_off_events_differently(tmp_path: Path) -> None:
    on, off = (5 << 8) + (9 << 1), 128 * 5 + 9 + 16384
    for dialect, other in (("jaer", on + 1), ("ne15", on - 1)):
        (tmp_path / dialect).write_bytes(b"#!AER-DAT2.0\r\n# any\r\n" + np.array([on, 7, other, 8], ">u4").tobytes())
        assert aer.read_aedat(tmp_path / dialect, dialect).tolist() == [[7, off - 16384], [8, off]]


@published
def test_the_published_digit_is_read_only_in_its_dialect() -> None:
    path = MNIST / "ne15_poisson_digit0.aedat"
    for dialect, same in (("ne15", True), ("jaer", False)):
        events = aer.read_aedat(path, dialect)
        on, off = events[events[:, 1] < 16384], events[events[:, 1] >= 16384] - [0, 16384]
        assert np.array_equal(on[np.lexsort(on.T)], off[np.lexsort(off.T)]) == same


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(
    dialect=st.sampled_from(aer.DIALECTS),
    events=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 2 * aer.PIXELS - 1)), max_size=20),
)
def test_writing_and_reading_agree(tmp_path_factory: pytest.TempPathFactory, dialect: str, events: object) -> None:
    path = tmp_path_factory.getbasetemp() / "again.aedat"
    sent = np.array(sorted(events), np.int64).reshape(-1, 2)  # type: ignore[call-overload]
    sent = sent[sent[:, 1] != aer.PIXELS]
    aer.write_aedat(path, sent, aer.SIDE, dialect)
    assert aer.read_aedat(path, dialect).tolist() == sent.tolist()


@pytest.mark.parametrize(("field", "content"), [
    ("size", b"#!AER-DAT2.0\r\n" + bytes(13)),
    ("data", b"#!AER-DAT3.1\r\n" + bytes(8)),
    ("address", b"#!AER-DAT2.0\r\n" + np.array([1 << 15, 1], ">u4").tobytes()),
    ("time", b"#!AER-DAT2.0\r\n" + np.array([2, 9, 2, 8], ">u4").tobytes()),
])  # fmt: skip
def test_a_truncated_or_foreign_recording_is_refused(tmp_path: Path, field: str, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert raised(DataError, aer.read_aedat, tmp_path / "x", "jaer").field == field


def test_an_exported_stream_is_read_unchanged(tmp_path: Path) -> None:
    events = poisson(DRAWN, 2000.0, 1.0, np.random.default_rng(0))
    export(events, PIXELS, tmp_path / "x.aedat")
    export(events, PIXELS, tmp_path / "x.npy")
    read = aer.read_aedat(tmp_path / "x.aedat", "jaer")
    assert (read[:, 1] // 128 * 28 + read[:, 1] % 128).tolist() == events[:, 1].tolist()
    assert read[:, 0].tolist() == events[:, 0].tolist()
    arrays = np.load(tmp_path / "x.npy", allow_pickle=True)
    assert len(arrays) == PIXELS
    for pixel, times in enumerate(arrays):
        assert times.tolist() == pytest.approx(events[events[:, 1] == pixel, 0] * 1e-3)


def test_a_stream_is_exported_only_to_suitable_formats(tmp_path: Path) -> None:
    raised(UsageError, export, np.array([[1, 1]]), PIXELS, tmp_path / "x.txt", says=r"\.aedat or \.npy")
    raised(DataError, export, np.array([[1, 2 * PIXELS]]), 4 * PIXELS, tmp_path / "x.aedat", says="each address")


# ---- the workload -------------------------------------------------------------------------


def test_a_stream_depends_only_on_seed_and_image(folder: Path) -> None:
    one, other, some = (
        open_workload(data=str(folder), md5=False, stream_seed=seed, samples=count)
        for seed, count in ((0, None), (1, None), (0, 3))
    )
    assert one.digest_sha256 != other.digest_sha256
    assert np.array_equal(one.samples[2].payload, some.samples[2].payload)
    assert not np.array_equal(one.samples[2].payload, other.samples[2].payload)
    assert one.samples[2].duration_s == pytest.approx(1.2)
    assert some.details["classes"] == [str(digit) for digit in range(10)]
    assert one.details["events"] == sum(len(sample.payload) for sample in one.samples)
    assert [sample.id for sample in one.samples[:2]] == ["test-00000", "test-00001"]


def test_the_folds_divide_the_images(folder: Path) -> None:
    given: dict[str, Any] = {"data": str(folder), "md5": False, "folds": 4, "encoding": "rank-order"}
    parts = [open_workload(fold=k, **given).samples for k in range(4)]
    assert sorted(sample.id for part in parts for sample in part) == [f"test-{k:05d}" for k in range(20)]


def test_recordings_of_a_retina_are_read(tmp_path: Path) -> None:
    events = np.array([[5, 300], [1_000_000, 300 + aer.PIXELS]])
    aer.write_aedat(tmp_path / "one.aedat", events, aer.SIDE)
    (tmp_path / "labels.csv").write_text("file,label\none.aedat,3\n", encoding="utf-8")
    (sample,) = open_workload(data=str(tmp_path), encoding="dvs").samples
    assert (sample.id, sample.label, sample.duration_s) == ("one.aedat", "3", pytest.approx(1.2))
    assert sample.payload.tolist() == events.tolist()


@pytest.mark.parametrize("began_us", [0, 900_000, 10_000_000, 500_000_000])
def test_a_recording_with_camera_time_is_refused(tmp_path: Path, began_us: int) -> None:
    events = np.array([[began_us + 5, 300], [began_us + 30_000, 301]])
    aer.write_aedat(tmp_path / "one.aedat", events, aer.SIDE)
    (tmp_path / "labels.csv").write_text("file,label\none.aedat,3\n", encoding="utf-8")
    if began_us < 1_000_000:
        assert len(open_workload(data=str(tmp_path), encoding="dvs").samples) == 1
    else:
        said = f"one.aedat begins {began_us // 1_000_000}"
        raised(DataError, open_workload, data=str(tmp_path), encoding="dvs", says=said)


def test_folds_divide_the_recordings_of_a_retina_too(drawn: Path) -> None:
    parts = [open_workload(data=str(drawn / "flashing"), encoding="dvs", fold=k, folds=2) for k in range(2)]
    assert [[sample.id for sample in part.samples] for part in parts] == [
        [f"{k:05d}.aedat" for k in range(first, 4, 2)] for first in range(2)
    ]
    assert parts[0].details["addresses"] == 2 * 128 * 128
    assert parts[0].details["classes"] == ["0", "1", "2", "3"], "answers of both folds are labels"


# ---- digits that the project draws ----------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    write_folder(folder, 40, 4, 0)
    return folder


def test_drawn_digits_have_the_layout_of_mnist(drawn: Path) -> None:
    images, labels = read_digits(drawn, "train", verify=False)
    others, _ = read_digits(drawn, "test", verify=False)
    assert all(sorted(labels[k : k + 10]) == list(range(10)) for k in range(0, 40, 10))
    assert all(len(set(labels[k::5])) == 8 for k in range(5)), "no fold of five leaves a digit out in the long run"
    assert len({image.tobytes() for image in (*images, *others)}) == 80
    means = np.stack([images[labels == k].mean(axis=0) for k in range(10)])
    nearest = np.linalg.norm(others[:, None] - means, axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.8


def test_an_unusable_output_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert raised(UsageError, write_folder, tmp_path / "file", 10, 0, 0).field == "out"


def test_a_pixel_sends_an_event_per_logarithmic_step() -> None:
    dark, bright = np.zeros((128, 128)), np.zeros((128, 128))
    bright[3, 5] = 20.0 * (np.exp(2.4 * RETINA_STEP) - 1.0)
    events = retina(iter([dark, bright, bright, dark]))
    place = 3 * 128 + 5
    assert events[:, 1].tolist() == [place, place, place + aer.PIXELS, place + aer.PIXELS]
    assert events[:, 0].tolist() == [1, 1001, 4001, 5001]


def test_a_flash_sends_about_as_many_events_as_those_of_ne15(drawn: Path) -> None:
    for kind, count, last_s in (("flashing", (3000, 12_000), 0.03), ("moving", (10_000, 80_000), 1.6)):
        for sample in open_workload(data=str(drawn / kind), encoding="dvs").samples:
            assert count[0] < len(sample.payload) < count[1]
            assert sample.payload[0, 0] >= 1 and (np.diff(sample.payload[:, 0]) >= 0).all()
            assert 0.8 * last_s < sample.payload[-1, 0] * 1e-6 <= last_s
            off = (sample.payload[:, 1] >= aer.PIXELS).mean()
            assert off == 0.0 if kind == "flashing" else 0.3 < off < 0.7


# ---- digits without a pause -----------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scene_s=st.sampled_from([0.1, 0.25, 0.3]), stride_s=st.sampled_from([0.05, 0.1, 0.4]), seed=st.integers(0, 99))
def test_frames_hold_spikes_and_the_last_label(folder: Path, scene_s: float, stride_s: float, seed: int) -> None:
    workload = open_workload(data=str(folder), md5=False, rate_hz=2000.0, samples=10)
    (whole,) = workload.stream(1.0, 1.0, scene_s, 1.0, seed)
    for k, frame in enumerate(workload.stream(0.2, stride_s, scene_s, 1.0, seed)):
        begin_us, end_us = (round(1e6 * (stride_s * k + after_s)) for after_s in (0.0, 0.2))
        seen = whole.payload[(whole.payload[:, 0] > begin_us) & (whole.payload[:, 0] <= end_us)]
        assert np.array_equal(frame.payload + np.array([begin_us, 0]), seen)
        assert frame.payload[0, 0] >= 1 and 190_000 < frame.payload[-1, 0] <= 200_000
        assert frame.duration_s == pytest.approx(0.4)
        assert frame.label_age_s is not None and 0 < frame.label_age_s <= scene_s + 1e-9
        assert frame.label == workload.samples[int(frame.id[5:10])].label


def test_each_digit_of_a_stream_differs_from_the_last(folder: Path) -> None:
    frames = open_workload(data=str(folder), md5=False).stream(0.5, 0.5, 0.5, 30.0, 3)
    labels = [frame.label for frame in frames]
    assert len(frames) == 60 and all(one != other for one, other in pairwise(labels))
    counts = np.array([len(frame.payload) for frame in frames])
    assert abs(counts.mean() - 2500.0) < 4 * 50.0 / np.sqrt(60)


def test_unsuitable_images_make_no_stream(folder: Path) -> None:
    for options, field in (({"encoding": "rank-order"}, "encoding"), ({"samples": 1}, "workload")):
        error = raised(UsageError, open_workload(data=str(folder), md5=False, **options).stream, 0.5, 0.5, 0.5, 3.0, 0)
        assert error.field == field


@pytest.mark.parametrize("options", [{"encoding": "phase"}, {"fold": 10}, {"rate_hz": 0.0}, {"samples": 21}])
def test_options_out_of_range_are_refused(folder: Path, options: dict[str, object]) -> None:
    raised(UsageError, open_workload, data=str(folder), md5=False, **options)
