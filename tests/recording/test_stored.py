"""Columns that stay in their file agree with it, however it is divided, stored and read.

As arrays, columns of Arrow are the same as from ``to_numpy``, without pandas.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from rig.recording.columns.buffers import array_of
from rig.recording.columns.stored import Batches, Changed, GridTicks, Stored, batches_of
from rig.recording.disk.files import Folder, Opened

N = 500


def falls(value: np.ndarray) -> np.ndarray:
    return np.concatenate([[False], value[1:] < value[:-1]])


def stored(path: Path, torn: list[str]) -> Batches | None:
    return batches_of(Opened(Folder.at(path.parent), path.name, 0), torn)


def written(path: Path, cuts: list[int], absent: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(cuts))
    value, flags = rng.normal(size=N).astype(np.float32), (rng.random(N) < 0.1).astype(np.uint8)
    missing = rng.random(N) < 0.05 if absent else np.zeros(N, bool)
    schema = pa.schema([("value", pa.float32()), ("flags", pa.uint8())])
    with pa.ipc.new_stream(str(path), schema) as stream:
        edges = [0, *sorted(cuts), N]
        for a, b in itertools.pairwise(edges):
            columns = [pa.array(value[a:b], mask=missing[a:b]), pa.array(flags[a:b])]
            stream.write_batch(pa.record_batch(columns, schema=schema))
    return np.where(missing, np.nan, value), flags != 0


def test_a_column_without_values_is_ignored(tmp_path: Path) -> None:
    table = pa.table({"note": pa.nulls(3, pa.null()), "value": [1.0, 2.0, 3.0]})
    with pa.ipc.new_stream(str(tmp_path / "a.arrows"), table.schema) as stream:
        stream.write_table(table)
    batches = stored(tmp_path / "a.arrows", [])
    assert batches is not None and Stored(batches, "value")[:].tolist() == [1.0, 2.0, 3.0]


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(0, N), max_size=6),
    absent=st.booleans(),
    ends=st.tuples(st.integers(-N, N), st.integers(-N, N)),
    places=st.lists(st.integers(-N, N - 1), min_size=1, max_size=20),
)
def test_slices_and_indices_match_the_array(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], absent: bool, ends: tuple[int, int], places: list[int]
) -> None:
    path = tmp_path_factory.mktemp("stored") / "core.arrows"
    value, flagged = written(path, cuts, absent)
    batches = stored(path, [])
    assert batches is not None
    for column, array in ((Stored(batches, "value"), value), (Stored(batches, "flags", marks=True), flagged)):
        assert len(column) == N
        np.testing.assert_array_equal(column[slice(*ends)], array[slice(*ends)])
        np.testing.assert_array_equal(column[np.array(places)], array[np.array(places)])
        np.testing.assert_array_equal(np.asarray(column), array)
        assert np.array_equal(column[places[0]], array[places[0]], equal_nan=not column.marks)
    sifted = Changed(Stored(batches, "value"), lambda v: np.where(falls(v), np.nan, v))
    left = np.where(falls(value), np.nan, value)
    np.testing.assert_array_equal(sifted[slice(*ends)], left[slice(*ends)])
    np.testing.assert_array_equal(sifted[np.array(places)], left[np.array(places)])
    np.testing.assert_array_equal(np.asarray(sifted), left)


def test_a_torn_batch_is_left_out_and_named(tmp_path: Path) -> None:
    value, _ = written(path := tmp_path / "core.arrows", [200])
    path.write_bytes(path.read_bytes()[:-200])
    torn: list[str] = []
    batches = stored(path, torn)
    assert batches is not None
    np.testing.assert_array_equal(Stored(batches, "value")[:], value[:200])
    assert torn == ["core.arrows"]


@pytest.mark.parametrize(("first", "period", "within"), [(7, 3, None), (7.25, 1.5, 0.5), (2**60, 1000, 999)])
def test_ticks_of_a_grid_match_the_array(first: float, period: float, within: float | None) -> None:
    ticks = GridTicks(first, period, N, within)
    array = first + period * np.arange(N) + (0 if within is None else within)
    np.testing.assert_array_equal(ticks[10:300], array[10:300])
    np.testing.assert_array_equal(ticks[np.array([3, -1])], array[[3, -1]])
    assert ticks[-1] == array[-1]
    assert np.asarray(ticks).dtype == array.dtype


# ---- columns as arrays -------------------------------------------------------------------------

NUMBERS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.uint8(): st.integers(0, 255),
    pa.float32(): st.floats(width=32, allow_nan=False), pa.float64(): st.floats(allow_nan=False),
}  # fmt: skip


@given(st.data(), st.sampled_from(list(NUMBERS)), st.integers(0, 9), st.booleans())
def test_arrays_match_arrow_numbers(data: st.DataObject, kind: pa.DataType, cut: int, chunked: bool) -> None:
    held = data.draw(st.lists(st.none() | NUMBERS[kind], max_size=20))
    column = pa.array(held, kind)[cut:]
    found = array_of(pa.chunked_array([column, column]) if chunked else column)
    said = column.to_numpy(zero_copy_only=False)
    assert np.array_equal(found, np.tile(said, 1 + chunked), equal_nan=found.dtype.kind == "f")
    assert found.dtype == said.dtype


@given(st.lists(st.none() | st.booleans(), max_size=20), st.integers(0, 9))
def test_an_absent_truth_value_is_false(held: list[bool | None], cut: int) -> None:
    assert array_of(pa.array(held, pa.bool_())[cut:]).tolist() == [v is True for v in held[cut:]]


def test_a_missing_number_may_have_a_default() -> None:
    nanoseconds = 2**62 + 1
    assert array_of(pa.array([nanoseconds, None]), 0).tolist() == [nanoseconds, 0]
    assert math.isnan(array_of(pa.array([nanoseconds, None]))[1])


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.bool_(), pa.string()])
def test_a_column_without_rows_is_empty(kind: pa.DataType) -> None:
    assert array_of(pa.chunked_array([], kind)).tolist() == []
    assert array_of(pa.array(["a", None])).tolist() == ["a", None]
