"""Any part of a trace in a few columns: the picture agrees with the readings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from fixtures.bench.true_power import ORIGIN_NS
from reports.viewing import browse
from reports.viewing.browse import LongTrace, long_trace
from reports.viewing.pyramid import FACTOR, FINEST, Level, PyramidBuilder
from reports.watch.run_status import batches_at
from rig.analysis.timing.clocks_and_tolerances import timebase_of
from rig.recording.reader import open_run
from rig.types import Floats
from tests.support.raised import Patch
from tests.support.run_by_hand import start_line, trace, write

HZ = 1000.0
COUNT = FACTOR * FINEST + 3 * FINEST + 11
VALUES = np.random.default_rng(5).normal(2e-3, 1e-4, COUNT).astype(np.float32)
VALUES[100:130] = np.nan
KINDS = ("grid", "stamped", "amperes")


def recording(folder: Path, kind: str, batch: int = 3000, clipped: tuple[int, int] = (0, 0)) -> Path:
    """Write a run with one rail at 1 kHz from its start, on a grid or with a stamp for each reading."""
    rail: dict[str, Any] = {"name": "core", "rate_hz": HZ, "range_max": 6.4e-3}
    values = VALUES.copy()
    values[slice(*clipped)] = 6.4e-3
    ticks = 1_000_000 * np.arange(COUNT) + ORIGIN_NS
    if kind == "amperes":
        rail["conversion"] = {"unit": "A", "supply_v": 2.0, "burden_ohm": 0.5}
    if kind == "stamped":
        table = trace(rail, {"value": values, "start_tick": ticks, "end_tick": ticks + 1_000_000}, "host")
    else:
        grid = {"t0_tick": ORIGIN_NS, "period_tick": 1e6, "aperture_tick": 1e6}
        table = trace(rail, {"value": values}, "host", grid=grid)
    return write(folder, [start_line()], {"traces/core.arrows": table}, batch)


def opened(path: Path) -> LongTrace:
    run = open_run(path, at_once=0)
    return long_trace(run, run.traces["core"], run.trace_files[0], timebase_of(run, "host"))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LongTrace]:
    return {kind: opened(recording(tmp_path_factory.mktemp("run") / kind, kind)) for kind in KINDS}


def watts(kind: str) -> Floats:
    wide = VALUES.astype(np.float64)
    return wide * 2.0 - wide**2 * 0.5 if kind == "amperes" else wide


@given(
    kind=st.sampled_from(KINDS),
    low=st.floats(-1.0, COUNT / HZ),
    length=st.sampled_from([0.01, 0.5, 10.0, 30.0, 100.0]),
    columns=st.sampled_from([1, 7, 400]),
)
def test_columns_hold_the_readings_between_their_edges(
    traces: dict[str, LongTrace], kind: str, low: float, length: float, columns: int
) -> None:
    """From the whole trace to single readings, for any part."""
    values, high = watts(kind), low + length

    look = traces[kind].look(low, high, columns)

    at = np.round(look.edges_s * HZ).astype(int)
    assert look.readings == at[-1] - at[0]
    assert len(look.mean) <= 2 * columns + 1
    if at[-1] > at[0]:
        assert look.edges_s[0] <= max(low, 0.0) + 1e-6
        assert look.edges_s[-1] >= min(high, COUNT / HZ) - 1e-6
    for k in range(0, len(look.mean), 40):
        part = values[at[k] : at[k + 1]]
        part = part[np.isfinite(part)]
        if not len(part):
            assert np.isnan(look.mean[k])
            continue
        assert look.least[k] == pytest.approx(part.min(), rel=1e-12)
        assert look.most[k] == pytest.approx(part.max(), rel=1e-12)
        assert look.mean[k] == pytest.approx(part.mean(), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_stretch_is_never_read_whole(traces: dict[str, LongTrace], kind: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(browse, "MOST_READ", 10_000)

    assert len(traces[kind].look(0.0, COUNT / HZ, COUNT).mean) == -(-COUNT // FINEST)


@pytest.mark.parametrize("kind", KINDS)
def test_few_readings_are_drawn_one_by_one(traces: dict[str, LongTrace], kind: str) -> None:
    look = traces[kind].look(0.09, 0.14, 400)

    first = round(look.edges_s[0] * HZ)
    assert look.single
    assert look.missing == 30
    np.testing.assert_allclose(look.mean, watts(kind)[first : first + len(look.mean)], rtol=1e-12)


def test_the_stored_index_is_used_again(tmp_path: Path) -> None:
    path = recording(tmp_path / "run", "grid")
    first = opened(path)
    (stored,) = (path / "derived" / "pyramid").iterdir()
    before = stored.stat().st_mtime_ns

    again = opened(path)

    assert stored.stat().st_mtime_ns == before
    np.testing.assert_array_equal(again.look(0.0, 80.0, 10).mean, first.look(0.0, 80.0, 10).mean)


@pytest.mark.parametrize("damage", ["other trace", "torn", "shorter", "not arrow"])
def test_a_mismatched_index_is_rebuilt(tmp_path: Path, damage: str) -> None:
    path, other = recording(tmp_path / "run", "stamped"), recording(tmp_path / "other", "grid", 70)
    true = opened(path).look(0.0, 80.0, 10).mean
    stored = path / "derived" / "pyramid" / "core.arrow"
    content = stored.read_bytes()
    if damage == "other trace":
        opened(other)
        stored.write_bytes((other / "derived" / "pyramid" / "core.arrow").read_bytes())
    elif damage == "shorter":
        with pa.ipc.open_stream(content) as file:
            table = file.read_all().slice(1)
        with pa.ipc.new_stream(str(stored), table.schema) as out:
            out.write_table(table)
    else:
        stored.write_bytes(content[: len(content) // 2] if damage == "torn" else b"{}")

    np.testing.assert_array_equal(opened(path).look(0.0, 80.0, 10).mean, true)
    assert stored.read_bytes() == content


def test_a_read_only_recording_can_be_viewed(tmp_path: Path) -> None:
    path = recording(tmp_path / "run", "grid")
    (path / "derived").write_text("a file in the place of the folder")

    assert opened(path).look(0.0, 1.0, 2000).readings == 1000


def test_a_growing_file_gives_its_whole_batches(tmp_path: Path) -> None:
    path = recording(tmp_path / "run", "grid") / "traces" / "core.arrows"
    whole = list(batches_at(path))
    path.write_bytes(path.read_bytes()[: whole[5][0] + 100])

    grown = list(batches_at(path))
    assert [at for at, _ in grown] == [at for at, _ in whole[:5]]
    assert [at for at, _ in batches_at(path, whole[3][0])] == [whole[3][0], whole[4][0]]


@pytest.mark.parametrize("kind", ["grid", "stamped"])
def test_clipped_readings_are_counted_by_span(tmp_path: Path, kind: str) -> None:
    """A reading is clipped if it is at the end of the range. Single precision rounds the end and the reading alike."""
    path = recording(tmp_path / "run", kind, clipped=(5000, 5007))

    _, found = opened(path).over(np.array([[0.0, 5.0], [4.9, 5.003], [5.0, 5.1], [60.0, 70.0]]))

    assert found.tolist() == [0, 3, 7, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_counts_partial_blocks(traces: dict[str, LongTrace], kind: str, monkeypatch: Patch) -> None:
    """Blocks may have any length; a missing reading or a window beyond the trace gives NaN."""
    monkeypatch.setattr(browse, "BLOCK", 1000)
    p = watts(kind)

    found, _ = traces[kind].over(np.array([[1.0, 3.5], [2.0005, 2.0008], [0.09, 0.2], [70.0, 1e6], [0.0, 0.0]]))

    sums = [p[1000:3500].sum() / HZ, 0.0003 * p[2000], np.nan, np.nan, 0.0]
    np.testing.assert_allclose(found, sums, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("columns", [40, 400])
def test_a_pause_is_a_column_without_a_number(tmp_path: Path, columns: int) -> None:
    ticks = 1_000_000 * np.arange(8000) + ORIGIN_NS
    ticks[3200:] += 2_000_000_000
    columns_of = {"value": np.full(8000, 2e-3, np.float32), "start_tick": ticks, "end_tick": ticks + 1_000_000}
    path = tmp_path / "run"
    table = trace({"name": "core", "rate_hz": HZ}, columns_of, "host")
    seen = opened(write(path, [start_line()], {"traces/core.arrows": table}, 3000))

    look = seen.look(3.0, 5.4, columns)
    energy, _ = seen.over(np.array([[1.0, 2.0], [3.5, 4.0], [3.0, 3.4]]))

    (gap,) = np.flatnonzero(np.isnan(look.mean))
    assert look.edges_s[gap : gap + 2] == pytest.approx([3.2, 5.2], abs=0.1)
    np.testing.assert_allclose(energy, [2e-3, np.nan, np.nan], rtol=1e-6)


# ---- the pyramid of a trace

LENGTHS = st.sampled_from([0, 1, FINEST - 1, FINEST, FINEST + 1, 3 * FINEST + 7, FACTOR * FINEST + 1])


def pyramid_of(blocks: Iterable[NDArray[Any]]) -> tuple[Level, ...]:
    builder = PyramidBuilder()
    for block in blocks:
        builder.add(block)
    return builder.levels()


def drawn(length: int, seed: int, lost: float = 0.0, kind: str = "f4") -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.normal(1e3, 1e2, length)
    values[rng.random(length) < lost] = np.nan if kind != "i2" else 0
    return values.astype(kind)


def cut(values: NDArray[Any], sizes: list[int]) -> list[NDArray[Any]]:
    """Return the values in blocks of these lengths; after the last length the first follows again."""
    ends = np.cumsum(np.resize(sizes, len(values) + 1)) if sizes else np.array([len(values)])
    return np.split(values, ends[ends < len(values)])


def bits(levels: tuple[Level, ...]) -> list[tuple[Any, ...]]:
    return [(x.step, *(column.tobytes() for column in (x.least, x.mean, x.most, x.count))) for x in levels]


@given(
    LENGTHS,
    st.lists(st.sampled_from([1, 100, FINEST - 1, FINEST, FINEST + 1, 5 * FINEST]), max_size=3),
    st.sampled_from(["f4", "f8", "i2"]),
)
def test_block_sizes_change_no_bits(length: int, sizes: list[int], kind: str) -> None:
    values = drawn(length, length, 1e-3, kind)
    sizes = [s if s > 1 or length < 2 * FINEST else 100 for s in sizes]

    assert bits(pyramid_of(cut(values, sizes))) == bits(pyramid_of([values]))


def test_nan_readings_are_ignored() -> None:
    values = drawn(3 * FINEST, 2, kind="f8")
    values[:FINEST] = np.nan
    values[FINEST], values[FINEST + 1] = np.inf, -np.inf
    good = values[FINEST + 2 : 2 * FINEST]

    levels = pyramid_of([values])

    assert levels[0].count.tolist() == [0, FINEST - 2, FINEST]
    assert np.isnan([levels[0].least[0], levels[0].mean[0], levels[0].most[0]]).all()
    assert (levels[0].least[1], levels[0].most[1]) == (good.min(), good.max())
    assert levels[1].mean[0] == pytest.approx(values[FINEST + 2 :].mean(), rel=1e-12)
