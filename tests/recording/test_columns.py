"""Columns of Arrow as arrays: the same as from ``to_numpy``, without pandas."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.recording.columns.buffers import array_of, of
from tests.support.paths import ROOT
from tests.support.processes import python

NUMBERS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.uint8(): st.integers(0, 255),
    pa.float32(): st.floats(width=32, allow_nan=False), pa.float64(): st.floats(allow_nan=False),
}  # fmt: skip


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(NUMBERS)), st.integers(0, 9), st.booleans())
def test_numbers_are_what_arrow_says(data: st.DataObject, kind: pa.DataType, cut: int, chunked: bool) -> None:
    held = data.draw(st.lists(st.none() | NUMBERS[kind], max_size=20))
    column = pa.array(held, kind)[cut:]
    found = array_of(pa.chunked_array([column, column]) if chunked else column)
    said = column.to_numpy(zero_copy_only=False)
    assert np.array_equal(found, np.tile(said, 1 + chunked), equal_nan=found.dtype.kind == "f")
    assert found.dtype == said.dtype


@settings(deadline=None)
@given(st.lists(st.none() | st.booleans(), max_size=20), st.integers(0, 9))
def test_an_absent_truth_value_is_false(held: list[bool | None], cut: int) -> None:
    assert array_of(pa.array(held, pa.bool_())[cut:]).tolist() == [v is True for v in held[cut:]]


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.float64(), pa.string()])
def test_an_absent_value_is_null_and_no_other(kind: pa.DataType) -> None:
    held = {pa.bool_(): True, pa.int64(): 3, pa.float64(): 0.5, pa.string(): "a"}[kind]
    assert of([held, None, held], kind).to_pylist() == [held, None, held]


def test_parts_of_any_length_are_what_arrow_says() -> None:
    held, kind = [[1, 2], None, [], [2**62]], pa.list_(pa.int64())
    made = of(held, kind)
    made.validate(full=True)
    assert made.equals(pa.array(held, kind))


def test_no_column_of_a_recording_imports_pandas() -> None:
    code = "import sys; from rig.recording.columns.buffers import of; from rig.recording.columns.tables import TABLES\n"
    code += "for table in TABLES.values():\n"
    code += "    [of([False] if str(column.type) == 'bool' else [None], column.type) for column in table]\n"
    code += "print('pandas' in sys.modules)"
    assert python(code, cwd=ROOT).stdout == "False\n"


def test_an_absent_number_can_be_one_of_the_same_type() -> None:
    nanoseconds = 2**62 + 1
    assert array_of(pa.array([nanoseconds, None]), 0).tolist() == [nanoseconds, 0]
    assert math.isnan(array_of(pa.array([nanoseconds, None]))[1])


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.bool_(), pa.string()])
def test_a_column_without_rows_has_none(kind: pa.DataType) -> None:
    assert array_of(pa.chunked_array([], kind)).tolist() == []
    assert array_of(pa.array(["a", None])).tolist() == ["a", None]
