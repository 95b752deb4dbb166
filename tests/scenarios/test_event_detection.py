"""Event-camera detection: files in the layout of Prophesee's set, and refusals before anything is recorded."""

from pathlib import Path

import numpy as np
import pytest

from rig.conformance.workload import check_workload
from rig.errors import DataError, UsageError
from scenarios.workloads.event_detection.files import surface
from scenarios.workloads.event_detection.words import DAT, decoded
from scenarios.workloads.event_detection.workload import Drive, open_workload
from tests.support import drive
from tests.support.raised import raised

pytest.importorskip("h5py", reason="extra detection is not installed")


def opened(folder: Path, **options: object) -> Drive:
    return open_workload(data=str(folder), **options)  # type: ignore[arg-type]


KINDS = ("h5", "evt2", "evt3", "dat")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_a_time_surface_of_50_ms(tmp_path: Path, kind: str) -> None:
    drive.write(tmp_path, 12, kind)
    workload = opened(tmp_path)
    assert check_workload(workload)
    assert len(workload.samples) == 12
    seen = workload.samples[11]
    assert (seen.id, seen.payload.shape, seen.duration_s) == ("car_td@00011", (6, 360, 640), 0.05)
    _, rows, columns = np.nonzero(seen.payload)
    x, y = (v // 2 for v in drive.place(575_000))
    assert x - 3 <= columns.min() and columns.max() <= x + 120 + 3
    assert y <= rows.min() and rows.max() < y + 80


def test_a_pixel_holds_the_time_of_its_last_event() -> None:
    events = np.array([(100_000, 2, 4, 0), (100_000 + 8333, 3, 5, 0), (149_999, 1279, 719, 1)], drive.EVENT)
    made = surface(events, 100_000)
    assert made[0, 2, 1] == 128
    assert made[5, 359, 639] == 255
    assert np.count_nonzero(made) == 2


def test_truth_is_the_last_box_of_a_track_in_a_frame_except_early_and_small_ones_and_other_classes(
    tmp_path: Path,
) -> None:
    drive.write(tmp_path, 12)
    truth = opened(tmp_path).details["detect"]["boxes"]
    assert truth == {"car_td@00010": [[2, 46.0, 140.0, 120.0, 80.0]], "car_td@00011": [[2, 48.5, 140.0, 120.0, 80.0]]}
    table = drive.boxes(12)
    table["w"], table["h"] = 80, 88  # a diagonal of 59.5 pixels in a surface
    np.save(tmp_path / "test" / "car_bbox.npy", table)
    assert set(map(str, opened(tmp_path).details["detect"]["boxes"].values())) == {"[]"}
    np.save(tmp_path / "test" / "car_bbox.npy", drive.boxes(12, class_id=3))
    assert set(map(str, opened(tmp_path).details["detect"]["boxes"].values())) == {"[]"}
    table = np.concatenate([drive.boxes(12)] * 2)
    table["t"][12:] += 10_000
    table["x"][12:] += 20
    np.save(tmp_path / "test" / "car_bbox.npy", table)
    assert opened(tmp_path).details["detect"]["boxes"]["car_td@00011"] == [[2, 58.5, 140.0, 120.0, 80.0]]


def test_a_stream_has_a_surface_every_50_ms_and_its_digest_changes_with_frames_and_boxes(tmp_path: Path) -> None:
    drive.write(tmp_path, 12)
    frames = opened(tmp_path, samples=3).stream(0.05, 0.05, 1.0, 0.4, 0)
    assert [frame.id[-5:] for frame in frames] == ["00000", "00001", "00002"] * 2 + ["00000", "00001"]
    raised(UsageError, opened(tmp_path).stream, 1.0, 0.05, 1.0, 0.4, 0, says=r"window_s=0\.05")
    first = opened(tmp_path).digest_sha256
    assert first == opened(tmp_path).digest_sha256 != opened(tmp_path, samples=3).digest_sha256
    np.save(tmp_path / "test" / "car_bbox.npy", drive.boxes(12, class_id=1))
    assert opened(tmp_path).digest_sha256 != first


def test_only_a_box_wholly_outside_of_the_picture_is_refused(tmp_path: Path) -> None:
    drive.write(tmp_path, 12)
    table = drive.boxes(12)
    table["x"] = 1200
    np.save(tmp_path / "test" / "car_bbox.npy", table)
    assert opened(tmp_path).details["detect"]["boxes"]["car_td@00011"] == [[2, 600.0, 140.0, 40.0, 80.0]]
    for name, value in (("x", 1280), ("y", -200), ("w", 0), ("h", np.nan)):
        bad = table.copy()
        bad[name][5] = value
        np.save(tmp_path / "test" / "car_bbox.npy", bad)
        assert raised(DataError, opened, tmp_path, says=r"car_bbox\.npy.* box 5 lies outside").field == "box"


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = drive.write(tmp_path, 12)
    path.write_bytes(path.read_bytes()[:4000])
    raised(DataError, opened, tmp_path, says=r"car_td\.h5 cannot be used")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_events_file_cut_in_the_middle_is_refused(tmp_path: Path, kind: str) -> None:
    path = drive.write(tmp_path, 60, kind)
    whole = path.read_bytes()
    for lost, why in ((1, "inside an event"), (len(whole) // 16 * 8, "its boxes at 2.9")):
        path.write_bytes(whole[:-lost])
        assert str(path) in str(raised(DataError, opened, tmp_path, says=why))


def test_a_missing_split_or_box_file_is_refused(tmp_path: Path) -> None:
    raised(DataError, opened, tmp_path, says=r"holds no \.h5")
    drive.write(tmp_path, 12)
    raised(DataError, opened, tmp_path, says="holds no other", files="other")
    (tmp_path / "test" / "car_bbox.npy").unlink()
    raised(DataError, opened, tmp_path, says=r"no car_bbox\.npy")


@pytest.mark.parametrize("kind", ["evt2", "evt3"])
def test_raw_times_continue_across_counter_loops(kind: str) -> None:
    sent = drive.events(60)
    sent["t"] = 20 * (sent["t"] - sent["t"][0])  # 60 s, where the counter of EVT3 loops every 16.8 s
    for begin_us in (0, 12 << 20, 1 << 24):  # the first time word is at the first event
        words = np.frombuffer(drive.raw(kind, sent, begin_us, "%"), "<u4" if kind == "evt2" else "<u2", offset=1)
        assert decoded(words, int(kind[-1])).tolist() == sent.tolist()


def test_times_of_a_dat_go_on_beyond_32_bits() -> None:
    sent = drive.events(3)
    sent["t"] += 2**32 - 70_000
    sent["t"][20] -= 30
    words = np.frombuffer(drive.dat(sent).split(b"\x0c\x08", 1)[1], "<u4")
    assert decoded(words, DAT).tolist() == sent.tolist()


def test_unusual_words_of_evt3_are_read() -> None:
    words = [
        0x2001, 0x6003, 0x8001, 0x0005, 0x2002, 0x8001, 0x6007, 0xA001, 0xE005, 0x7001, 0x2803, 0x3864, 0x4805, 0x5F81,
        0x8003, 0x8001, 0x2004,
    ]  # fmt: skip
    seen = decoded(np.array(words[:-2], "<u2"), 3).tolist()
    vectors = [(7, x, 5, 1) for x in (100, 102, 111, 112, 119)]
    assert seen == [(0, 2, 5, 0), (7, 3, 5, 1), *vectors]
    assert decoded(np.array([*words[:-2], 0x2004], "<u2"), 3).tolist()[-1] == (8192, 4, 5, 0)
    assert not len(decoded(np.array([0x2001, 0x0005], "<u2"), 3)) and not len(decoded(np.array([1], "<u4"), 2))
    raised(ValueError, decoded, np.array([0x1001], "<u2"), 3, says="type 1")


@pytest.mark.parametrize(("header", "why"), [
    ("% evt 2.1\n% format EVT21;height=720;width=1280\n", "does not name EVT2 or EVT3"),
    ("% evt 3.0\n% format EVT2;height=720;width=1280\n", "does not name EVT2 or EVT3"),
    ("% evt 3.0\n% endianness big\n", "little-endian"),
    ("% evt 3.0\n% geometry 640x480\n", "its sensor has 640 columns"),
    ("% date 2023-03-29\n", "does not name EVT2 or EVT3"),
])  # fmt: skip
def test_an_unsupported_raw_file_is_refused(tmp_path: Path, header: str, why: str) -> None:
    path = drive.write(tmp_path, 12, "evt3")
    path.write_bytes(drive.raw("evt3", drive.events(12), header=header))
    raised(DataError, opened, tmp_path, says=why)


def test_a_dat_of_another_type_is_refused(tmp_path: Path) -> None:
    path = drive.write(tmp_path, 12, "dat")
    path.write_bytes(path.read_bytes().replace(b"\x0c\x08", b"\x0e\x08", 1))
    raised(DataError, opened, tmp_path, says=r"type and size \(14, 8\)")
