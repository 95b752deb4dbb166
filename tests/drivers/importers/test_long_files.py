"""A file of any length is imported in bounded memory, with the same readings and times as a short one."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.importers import csv_table, plain_csv, ppk2, raw_numbers
from rig.errors import RigError
from rig.importing.imported import ImportedRun
from tests.support.import_traces import BUSY, RATE_HZ, T_S, WATTS, check, plain, table, trace, windows
from tests.support.raised import raised


def columns(run: ImportedRun) -> list[np.ndarray]:
    """Return begin, end and value of all readings of the first rail; for a grid, only the values."""
    chunks = list(run.traces[0].chunks)
    names = ["value"] if chunks[0].start_tick is None else ["start_tick", "end_tick", "value"]
    return [np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in blocks of 701 rows."""
    monkeypatch.setattr(csv_table, "ROWS", 701)


@pytest.mark.parametrize("stamp", ["start", "middle", "end", None])
@pytest.mark.parametrize("jitter", [0.0, 0.3], ids=["grid", "stamped"])
def test_readings_and_times_do_not_depend_on_where_blocks_end(
    stamp: str | None, jitter: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t, watts, _ = trace()
    t = np.round(t + jitter / RATE_HZ * (np.arange(len(t)) % 5 == 4), 7)
    whole = plain(tmp_path, t, watts, stamp=stamp)
    wanted = columns(whole)
    monkeypatch.setattr(csv_table, "ROWS", 701)
    parts = plain(tmp_path, t, watts, stamp=stamp)

    assert len(wanted) == (3 if jitter else 1)
    assert (parts.t0_ns, parts.meters) == (whole.t0_ns, whole.meters)
    for one, other in zip(columns(parts), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_grid_that_bends_only_after_the_first_block_is_no_grid(tmp_path: Path, blocks: None) -> None:
    t, watts, _ = trace()
    t = np.where(t > 1.0, 1.0 + (t - 1.0) * 1.02, t)
    assert len(columns(plain(tmp_path, t, watts))) == 3


def test_a_reading_that_is_none_is_named_by_its_row_and_nothing_is_written(tmp_path: Path, blocks: None) -> None:
    lines = table(tmp_path / "a.csv", "t,p", T_S, WATTS).read_text().split("\n")
    lines[1503] = "0.751,broken"
    raised(RigError, plain, tmp_path, says="p is 'broken' in data row 1503", text="\n".join(lines))


def test_stamps_that_go_back_between_two_blocks_are_refused(tmp_path: Path, blocks: None) -> None:
    with pytest.raises(RigError, match=r"reading 702 is 0\.35 s before the one before it"):
        plain(tmp_path, np.concatenate([T_S[:701], T_S[:701]]), WATTS[:1402])


def test_windows_of_a_channel_go_on_from_block_to_block(tmp_path: Path, blocks: None) -> None:
    source = table(tmp_path / "a.csv", "Timestamp(ms),Current(uA),D0", T_S * 1e3, WATTS / 3.0 * 1e6, BUSY)
    run = ppk2.open_import(source, supply_v=3.0, window_channel="D0", inferences=5, idle="0:0.55,1.75:2.35")
    assert len(run.spans) == 4
    check(run, tmp_path / "run")


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "ROWS", 1 << 12)

    def peak_mb(rows: int) -> float:
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("t,p\n")
            file.writelines(f"{k},0.001\n" for k in range(rows))
        run = plain_csv.open_import(path, time="t:ms", power="p:W", windows=windows(tmp_path))
        assert sum(len(chunk.value) for chunk in run.traces[0].chunks) == rows
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    assert peak_mb(1_500_000) < peak_mb(50_000) + 12.0  # one column of it is 12 MB


# ---- raw numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".f32", ".f64", ".i16", ".npy"])
def test_raw_numbers_give_the_power_that_they_hold(suffix: str, tmp_path: Path) -> None:
    source, options = tmp_path / f"a{suffix}", dict[str, Any](unit="mW", scale=1e3)
    match suffix:
        case ".i16":
            np.round(WATTS / 2e-7).astype("<i2").tofile(source)
            options = {"unit": "uW", "scale": 0.2}
        case ".npy":
            np.save(source, WATTS)
        case _:
            WATTS.astype({".f32": "<f4", ".f64": "<f8"}[suffix]).tofile(source)
    check(raw_numbers.open_import(source, rate_hz=RATE_HZ, windows=windows(tmp_path), **options), tmp_path / "run")


@pytest.mark.parametrize(("name", "content", "options", "field"), [
    ("a.f32", b"\0" * 8, {}, "rate_hz"), ("a.f32", b"\0" * 9, {"rate_hz": 1e3}, "source"),
    ("a.bin", b"\0" * 8, {"rate_hz": 1e3}, "source"), ("a.npy", b"\0" * 8, {"rate_hz": 1e3}, "source"),
    ("a.f32", b"\0" * 8, {"rate_hz": 1e3, "unit": "mA"}, "supply_v"),
    ("a.f32", b"\0" * 8, {"rate_hz": 1e3, "unit": "mV"}, "unit"),
])  # fmt: skip
def test_raw_numbers_that_leave_something_open_are_refused(
    name: str, content: bytes, options: dict[str, Any], field: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    error = raised(RigError, raw_numbers.open_import, tmp_path / name, windows=windows(tmp_path), **options)
    assert error.field == field
