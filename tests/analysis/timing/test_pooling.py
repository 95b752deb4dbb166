"""A long trace is pooled into means: sums over pieces equal sums over readings, for any division. The trace gives the
same figures as its readings one by one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from fixtures.worlds.lab_recording import Lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.power.model import rail_model
from rig.analysis.result.result import Result
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.long_traces import cuts_of, moments_s, pooled, single, stretches
from rig.analysis.timing.readings import Readings, readings_of
from rig.analysis.timing.timebase import host_timebase
from rig.errors import DataError
from rig.recording.columns.stored import GridTicks
from rig.recording.reader import Run, open_run
from rig.recording.traces.traces import Trace
from rig.types import Conversion, Floats, Rail
from tests.support.figures import held, u_of
from tests.support.labs import lab_of, off

N, HZ = 3000, 1000.0
CLOCK = host_timebase(0)


def trace_of(value: Floats, rail: Rail | None = None, overload: np.ndarray | None = None) -> Trace:
    start: Any = GridTicks(0, 1_000_000, len(value))
    end: Any = GridTicks(0, 1_000_000, len(value), 1_000_000)
    over = np.zeros(len(value), bool) if overload is None else overload
    return Trace(rail or Rail("core", rate_hz=HZ), "meter", "host", start, end, value, over, True)


def single_of(trace: Trace) -> Readings:
    return readings_of(trace.part(0, len(trace.value)), CLOCK)


def means_of(trace: Trace, like: Readings, cuts: np.ndarray, block: int = 700) -> Readings:
    return pooled(trace, like, CLOCK.seconds, cuts, block=block)


def lost(value: Floats, seed: int, share: float) -> Floats:
    gone = np.random.default_rng(seed).random(len(value)) < share
    return np.where(gone, np.nan, value)


values = st.integers(0, 2**32 - 1).map(lambda seed: lost(np.random.default_rng(seed).normal(1.0, 0.3, N), seed, 0.02))
places = st.lists(st.integers(0, N), max_size=12).map(lambda found: np.unique([0, N, *found]))


@given(value=values, cuts=places, blocks=st.tuples(st.integers(1, N), st.integers(50, 2 * N)))
def test_blocks_of_any_size_give_the_same_sums(value: Floats, cuts: np.ndarray, blocks: tuple[int, int]) -> None:
    trace = trace_of(value)
    like = single_of(trace)
    small, large = (means_of(trace, like, cuts, max(block, 40)) for block in blocks)
    for name in ("start_s", "end_s", "ok", "overload"):
        np.testing.assert_array_equal(getattr(small, name), getattr(large, name))
    np.testing.assert_array_equal(small.many, large.many)
    np.testing.assert_allclose(small.watts, large.watts, rtol=1e-12)


@given(value=values, cuts=places, fewer=places)
def test_energy_adds_up_over_adjacent_windows(value: Floats, cuts: np.ndarray, fewer: np.ndarray) -> None:
    trace = trace_of(value)
    like = single_of(trace)
    fine, coarse = means_of(trace, like, np.union1d(cuts, fewer)), means_of(trace, like, fewer)
    at = np.searchsorted(fine.start_s, coarse.start_s)
    np.testing.assert_allclose(np.add.reduceat(fine.many * fine.watts, at), coarse.many * coarse.watts, rtol=1e-11)
    assert np.isclose(float(fine.many @ fine.watts), float(np.nansum(value)), rtol=1e-12)
    assert fine.many.sum() == np.count_nonzero(like.ok)


def test_a_piece_of_one_reading_is_that_reading() -> None:
    value = lost(np.random.default_rng(3).normal(1.0, 0.3, N), 3, 0.01)
    rail = Rail("core", rate_hz=HZ, range_max=1.8, conversion=Conversion("A", supply_v=1.2, burden_ohm=0.05))
    trace = trace_of(value, rail)
    like = single_of(trace)
    found = means_of(trace, like, np.arange(N + 1))
    for name in ("start_s", "end_s", "ok", "overload", "watts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(like, name))


def test_a_piece_with_a_full_scale_reading_is_an_overload() -> None:
    value = np.random.default_rng(1).normal(1.0, 0.01, N)
    value[[100, 101, 2000]] = 3.0
    trace = trace_of(value, Rail("core", rate_hz=HZ, range_max=3.0))
    found = means_of(trace, single_of(trace), np.array([0, 50, 150, 1000, N]))
    assert found.overload.tolist() == [False, True, False, True]


def test_readings_of_unequal_length_are_weighted_by_their_stamps() -> None:
    rng = np.random.default_rng(5)
    edges = np.cumsum(rng.integers(500_000, 1_500_000, N + 1))
    value = rng.normal(1.0, 0.2, N)
    trace = Trace(Rail("core"), "meter", "host", edges[:-1], edges[1:], value, np.zeros(N, bool), False)
    found = means_of(trace, single_of(trace), np.array([0, 10, 1234, N]))
    np.testing.assert_allclose(found.watts[1], np.average(value[10:1234], weights=np.diff(edges)[10:1234]))


@given(seed=st.integers(0, 1000), sigma_s=st.floats(1e-5, 0.02), tau_s=st.sampled_from([0.0, 0.003]))
def test_pieces_are_cut_at_every_requested_moment(seed: int, sigma_s: float, tau_s: float) -> None:
    rng = np.random.default_rng(seed)
    trace, busy = trace_of(rng.normal(size=N)), activity(rng)
    moments = moments_s(replace(single_of(trace), tau_s=tau_s), busy, sigma_s, 0.001)
    cuts = cuts_of(trace, CLOCK.seconds, moments, 10)
    assert cuts[0] == 0
    assert cuts[-1] == N
    begin, end = CLOCK.seconds(trace.start_tick[cuts[:-1]]), CLOCK.seconds(trace.end_tick[cuts[1:] - 1])
    within = (moments[:, None] > begin) & (moments[:, None] < end)
    assert not np.any(within[:, np.diff(cuts) > 1])


def test_readings_next_to_a_span_are_separate_pieces() -> None:
    rng = np.random.default_rng(3)
    trace, busy = trace_of(rng.normal(size=N)), activity(rng)
    cuts = cuts_of(trace, CLOCK.seconds, moments_s(single_of(trace), busy, 0.0, 0.001), 10)
    on, off = (busy.phases["inference"].windows_s * HZ).T
    beside = np.concatenate([np.floor(on) - 1, np.floor(off) + 1]).astype(int)
    assert set(beside.tolist()) | set((beside + 1).tolist()) <= set(cuts.tolist())


def activity(rng: np.random.Generator, spans: int = 20) -> Activity:
    on = 0.5 + np.cumsum(rng.uniform(0.06, 0.1, spans))
    windows = np.column_stack([on, on + rng.uniform(0.01, 0.05, spans)])
    ones = np.ones(spans, dtype=np.int64)
    none = np.zeros((0, 2))
    phases = {"inference": Phase(windows, ones, ones, np.arange(spans))}
    return Activity(phases, phases, none, none, np.array([[0.05, 0.4], [2.6, 2.95]]), False)


def test_stretches_hold_idle_windows_and_the_outer_spans() -> None:
    rng = np.random.default_rng(2)
    trace, busy = trace_of(rng.normal(size=N)), activity(rng)
    windows_s, part = stretches(trace, CLOCK, busy, 1500)
    shown = single(trace, CLOCK, windows_s)
    spans = busy.phases["inference"].windows_s
    kept = part.phases["inference"].windows_s
    assert len(shown.value) < N
    assert kept[0].tolist() == spans[0].tolist()
    assert kept[-1].tolist() == spans[-1].tolist()
    for moment in (0.001, 0.225, 2.775, N / HZ - 0.002, *kept.ravel()):
        assert np.any((windows_s[:, 0] <= moment) & (windows_s[:, 1] >= moment)), moment


def test_a_long_trace_is_examined_up_to_a_limit() -> None:
    start: Any = GridTicks(0, 1000, 10**9)
    end: Any = GridTicks(0, 1000, 10**9, 1000)
    trace = Trace(Rail("core", rate_hz=1e6), "meter", "host", start, end, start, np.zeros(0, bool), True)
    on = 50.0 + 0.05 * np.arange(18_000)
    ones = np.ones(len(on), dtype=np.int64)
    phases = {"inference": Phase(np.column_stack([on, on + 0.03]), ones, ones, ones)}
    none = np.zeros((0, 2))
    busy = Activity(phases, phases, none, none, np.array([[1.0, 49.0], [951.0, 999.0]]), False)
    windows_s, part = stretches(trace, CLOCK, busy, 1 << 20)
    assert np.sum(windows_s[:, 1] - windows_s[:, 0]) * 1e6 < 1 << 20
    assert len(part.phases["inference"].windows_s) >= 8


def test_a_long_backward_trace_is_refused() -> None:
    rng = np.random.default_rng(4)
    backward: Any = GridTicks(0, -1_000_000, N)
    trace = replace(trace_of(rng.normal(size=N)), start_tick=backward)
    with pytest.raises(DataError, match="do not move forward in time"):
        stretches(trace, CLOCK, activity(rng), 1500)


# ---- whole evaluations -------------------------------------------------------------------------

POWERS = ("dynamic_power_w", "active_power_w", "energy_per_inference_j")
ALIKE = 0.3
"""Figures from stretches and sums may differ from those of single readings by this many half-widths."""


def recorded(seed: int, kind: str, folder: Path, block: int | None = None) -> tuple[Lab, Run]:
    lab = lab_of(kind, seed)
    write(lab, folder / "run", block)
    return lab, open_run(folder / "run")


def count_of(run: Run) -> int:
    return len(run.traces["core"].value)


def agree(whole: Result, looked_into: Result, alike: float = ALIKE) -> None:
    assert whole.quantities["idle_power_w"].n == looked_into.quantities["idle_power_w"].n
    for name in POWERS:
        first, second = whole.quantities[name], looked_into.quantities[name]
        assert abs(second.value - first.value) <= alike * first.half_width(), name
        assert 0.8 < second.half_width() / first.half_width() < 1.3, name


@pytest.mark.parametrize(("kind", "seed"), [
    ("plain", 2), ("gated_inrush", 2), ("clips_at_zero", 0), ("volts_read_slowly", 1),
    ("synchronous_part_aperture", 0), ("declared_pole_under_bursts_and_awake_gaps", 5),
])  # fmt: skip
def test_stretches_and_pieces_agree(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, run = recorded(seed, kind, tmp_path)
    whole, looked_into = evaluate(run), evaluate(run, at_once=count_of(run) // 4)
    agree(whole, looked_into)
    monkeypatch.setattr(rail_model, "MANY", count_of(run) // 4)
    agree(whole, evaluate(run), 0.04)
    assert all(held(looked_into.quantities[name], true) for name, true in lab.truth().items())


def test_a_shunt_in_a_long_trace_has_its_calibration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = recorded(73, "leads_resist", tmp_path)
    whole, looked_into = (evaluate(run, count_of(run) // part).quantities["active_power_w"] for part in (1, 4))
    monkeypatch.setattr(rail_model, "MANY", count_of(run) // 4)
    for found in (looked_into, evaluate(run).quantities["active_power_w"]):
        assert u_of(found, "busy level calibration") == pytest.approx(u_of(whole, "busy level calibration"), rel=0.01)


def test_readings_below_zero_at_work_stay_single(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = recorded(73, "shunt_leads_swapped", tmp_path)
    bias = evaluate(run).quantities["active_power_w"].bias
    monkeypatch.setattr(rail_model, "MANY", count_of(run) // 4)
    assert evaluate(run).quantities["active_power_w"].bias == pytest.approx(bias, rel=1e-6)


@pytest.mark.parametrize(("kind", "seed"), [("wrong_rate", 2), ("every_reading_twice", 1)])
def test_contradictions_of_the_grid_refuse_a_long_trace(kind: str, seed: int, tmp_path: Path) -> None:
    _, run = recorded(seed, kind, tmp_path)
    assert not any(name in evaluate(run, count_of(run) // part).quantities for part in (1, 4) for name in POWERS[:2])


@pytest.mark.parametrize("kind", ["plain", "bits_flip_on_the_wire"])
def test_a_trace_read_from_its_file_gives_the_same_figures(kind: str, tmp_path: Path) -> None:
    _, run = recorded(3, kind, tmp_path)
    at_once = count_of(run) // 3
    stored = open_run(tmp_path / "run", at_once=at_once)
    assert not isinstance(stored.traces["core"].value, np.ndarray)
    assert evaluate(stored, at_once).to_json() == evaluate(run, at_once).to_json()


def test_intervals_of_a_recording_in_blocks_hold_the_truth(tmp_path: Path) -> None:
    lab, run = recorded(4, "plain", tmp_path, 1 << 12)
    found = evaluate(run, at_once=count_of(run) // 4).quantities
    assert all(held(found[name], true) for name, true in lab.truth().items())


def test_pooled_and_single_readings_hold_behind_a_filter(tmp_path: Path) -> None:
    """Means over the margins of spans show less about the ends of spans, so the two may differ by more."""
    lab, run = recorded(1, "filter_declared", tmp_path)
    assert all(off(lab, evaluate(run, at_once)) <= 1.5 for at_once in (10**6, count_of(run) // 4))
