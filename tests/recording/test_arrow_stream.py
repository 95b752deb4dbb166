"""Columns of any values are read by Arrow as they were written, and a recording does not need Arrow."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from rig.recording.columns.arrow_files import ArrowFiles
from rig.recording.columns.arrow_stream import Column
from rig.recording.columns.packing import Texts, booleans, numbers, of
from rig.recording.disk.files import Folder
from tests.support.processes import python
from tests.support.raised import raised

INT64 = st.integers(-(2**63), 2**63 - 1)
OF_TABLES = {
    "string": st.text(), "binary": st.binary(), "list": st.lists(INT64), "int64": INT64,
    "int32": st.integers(-(2**31), 2**31 - 1), "float64": st.floats(allow_nan=False),
}  # fmt: skip
OF_TRACES = {
    "int8": st.integers(-128, 127), "uint64": st.integers(0, 2**64 - 1), "float16": st.integers(-2048, 2048).map(float),
    "float32": st.integers(-2048, 2048).map(float),
}  # fmt: skip
VALUES = OF_TRACES | {"bool": st.booleans()} | {kind: values | st.none() for kind, values in OF_TABLES.items()}
VALUES["texts"] = st.sampled_from([None, "a", "b", "ß"])
ARROW = {"texts": pa.dictionary(pa.int32(), pa.string()), "list": pa.list_(pa.int64())}


def lists(rows: int) -> st.SearchStrategy[dict[str, list[Any]]]:
    return st.fixed_dictionaries({kind: st.lists(v, min_size=rows, max_size=rows) for kind, v in VALUES.items()})


def columns(held: dict[str, list[Any]]) -> dict[str, Column]:
    packed = {kind: numbers(np.array(held[kind], kind)) for kind in OF_TRACES}
    packed["bool"] = booleans(np.array(held["bool"], bool))
    packed |= {kind: of(held[kind], kind) for kind in OF_TABLES}
    return packed | {"texts": Texts(held["texts"]).column(np.arange(len(held["texts"]), dtype=np.int32))}


@given(
    st.lists(st.integers(0, 9).flatmap(lists), min_size=1, max_size=4),
    st.dictionaries(st.text(), st.text(), min_size=1, max_size=3),
    st.integers(0, 9999),
)
def test_arrow_reads_every_batch_before_a_cut(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str, list[Any]]], meta: dict[str, str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("stream")
    files, ends, read = ArrowFiles(Folder.at(path)), list[int](), list[dict[str, Any]]()
    files.meta["x"] = meta
    for held in batches:
        assert files.append("x", partial(columns, held)) is None
        ends.append((path / "x").stat().st_size)
    files.finished()
    written = (path / "x").read_bytes()[:cut]
    with suppress(pa.ArrowException, OSError, EOFError), pa.ipc.open_stream(written) as stream:
        wanted = pa.schema({kind: ARROW.get(kind, kind) for kind in VALUES}, metadata=meta)
        assert stream.schema.equals(wanted, check_metadata=True)
        for batch in stream:
            batch.validate(full=True)
            read.append(batch.to_pydict())
    assert read == batches[: sum(end <= cut for end in ends)]


def test_an_integer_outside_its_column_is_refused() -> None:
    raised(OverflowError, of, [2**31], "int32")


@pytest.mark.parametrize("kind", [">f4", "longdouble", "complex64", "bool"])
def test_an_array_that_is_no_column_of_numbers_is_refused(kind: str) -> None:
    raised(TypeError, numbers, np.zeros(2, kind), says="is not a column of numbers")


def test_a_measurement_is_recorded_without_arrow(tmp_path: Path) -> None:
    code = "import pathlib, rig, sys\nout = pathlib.Path(sys.argv[1])\n"
    code += "rig.measure(rig.Request(device='mock', meters=('mock',), options=('samples=8',), out=out))\n"
    code += "print([name for name in ('pandas', 'pyarrow') if name in sys.modules])"
    assert python(code, tmp_path / "out").stdout == "[]\n"
