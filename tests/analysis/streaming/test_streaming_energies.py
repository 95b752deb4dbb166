"""Window energies streamed from a file: exact, in any format, refused where they cannot be."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.analysis.streaming import energies as reduce
from rig.analysis.streaming.energies import file_sums
from rig.analysis.streaming.sums import Sums
from rig.errors import DataError
from rig.types import Floats

N = 200_000  # three blocks and a part of one
VALUES = (1.0 + np.random.default_rng(0).normal(0.0, 0.3, N)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    VALUES.tofile(folder / "a.f32")
    np.save(folder / "a.npy", VALUES)
    np.save(folder / "b.npy", VALUES.astype(np.float64))
    return {p.name: p for p in folder.iterdir()}


def sums(path: Path, windows_s: Floats, rate_hz: float = 1.0, t0_s: float = 0.0) -> Sums:
    """The sums over a file whose name ends as its format asks."""
    kind = None if path.suffix == ".npy" else np.dtype("<f4")
    return file_sums(path, kind, windows_s, rate_hz, t0_s=t0_s)


def exact(low: float, high: float) -> float:
    """Sum of readings, the cut ones by the part inside, by ``math.fsum``."""
    k = np.arange(math.floor(low), min(math.ceil(high), N))
    inside = np.minimum(k + 1, high) - np.maximum(k, low)
    return math.fsum((VALUES[k].astype(np.float64) * inside).tolist())


@pytest.mark.parametrize("name", ["a.f32", "a.npy", "b.npy"])
def test_energies_are_those_of_exact_summation(name: str, files: dict[str, Path]) -> None:
    rng = np.random.default_rng(1)
    edges = np.sort(rng.uniform(0, N, (40, 2)), axis=1)
    edges = np.concatenate([edges, [[0, N], [5.25, 5.75], [7.0, 7.0], [65535.5, 65536.5], [N - 1, N]]])
    found = sums(files[name], 3.0 + edges / 1e4, 1e4, t0_s=3.0).energy_j
    for (low, high), energy in zip((edges / 1e4 * 1e4).tolist(), found, strict=True):
        assert energy == pytest.approx(exact(low, high) / 1e4, rel=1e-9, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, N), min_size=3, max_size=10))
def test_windows_side_by_side_add_up(files: dict[str, Path], at: list[float]) -> None:
    edges = np.array(sorted(at))
    parts = sums(files["a.f32"], np.column_stack([edges[:-1], edges[1:]])).energy_j
    whole = sums(files["a.f32"], np.array([[edges[0], edges[-1]]])).energy_j
    assert parts.sum() == pytest.approx(whole[0], rel=1e-9, abs=1e-6)


def test_only_what_windows_hold_is_read(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "BLOCK_BYTES", 4096)
    windows = np.array([[10.0, 20.0], [150_000.0, 150_010.0]])
    parts = reduce._parts(windows, 1.0, 0.0, N)
    assert reduce._stretches(parts, 1024) == [(10, 20), (150_000, 150_010)]
    assert sums(files["a.f32"], windows).energy_j.tolist() == pytest.approx([exact(*w) for w in windows])


@pytest.mark.parametrize("window", [[-1.0, 5.0], [5.0, 4.0], [0.0, N + 1.0], [math.nan, 1.0], [0.0, math.inf]])
def test_windows_outside_the_trace_are_refused(window: list[float], files: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="window 0"):
        sums(files["a.f32"], np.array([window]))


def test_readings_that_are_no_numbers_are_counted_and_left_out(tmp_path: Path) -> None:
    np.array([1.0, np.nan, 1.0], np.float32).tofile(tmp_path / "a.f32")
    found = sums(tmp_path / "a.f32", np.array([[0.0, 3.0], [0.0, 1.0]]))
    assert found.missing.tolist() == [1, 0]
    assert found.energy_j.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.f32", b"abc"), ("a.npy", b"no"), ("a.npy", b"\x93NUMPY\x01\x00")],
)
def test_files_that_are_no_trace_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError):
        sums(tmp_path / name, np.array([[0.0, 1.0]]))


def test_arrays_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    for k, array in enumerate((np.zeros((2, 2), np.float32), np.zeros(4, np.int32), np.zeros(4, ">f4"))):
        np.save(tmp_path / f"{k}.npy", array)
        with pytest.raises(DataError):
            sums(tmp_path / f"{k}.npy", np.array([[0.0, 1.0]]))
