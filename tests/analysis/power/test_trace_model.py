"""Idle under the spans is predicted from all blocks of a trace: what changes it, what must not, and its error."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.analysis.power.model.blocks import GAP, IDLE, SPAN, Blocks, blocks_of, look_errors
from rig.analysis.power.model.trace_model import TraceModel, fit
from rig.types import Floats

CALM = settings(deadline=None, derandomize=True, database=None, max_examples=15)
STATES = np.array([IDLE] * 8 + [SPAN, GAP] * 9 + [SPAN] + [IDLE] * 8)
NOISE_W = 1e-3


def trace(
    seed: int, idle_w: float = 1.0, gap_w: float = 0.0, span_w: float = 1.0, many: int = 20, slow: Floats | None = None
) -> tuple[Blocks, Floats]:
    """Blocks of 20 readings, and the windows of the spans; ``slow`` is added to all."""
    start = np.arange(len(STATES), dtype=float)
    watts = idle_w + np.where(STATES == GAP, gap_w, 0.0) + np.where(STATES == SPAN, span_w, 0.0)
    watts = watts + (0.0 if slow is None else slow)
    watts = watts + np.random.default_rng(seed).normal(0.0, NOISE_W / np.sqrt(many), len(STATES))
    n = len(STATES)
    blocks = Blocks(STATES, start, start + 1.0, watts, np.full(n, float(many)), np.arange(n), np.ones(n))
    at = start[STATES == SPAN]
    return blocks, np.column_stack([at, at + 1.0])


def fitted(blocks: Blocks) -> TraceModel:
    return fit(blocks, np.diag(NOISE_W**2 / blocks.many))


def idle_of(blocks: Blocks, windows_s: Floats) -> tuple[float, float]:
    """Return idle under the windows and its standard uncertainty, including white noise."""
    weight, rest_w = fitted(blocks).idle_under(windows_s)
    return float(weight @ blocks.watts), float(np.hypot(rest_w, np.sqrt(np.sum(weight**2 * NOISE_W**2 / 20.0))))


@CALM
@given(st.integers(0, 999), st.floats(-5.0, 5.0), st.floats(0.1, 10.0))
def test_weights_of_idle_add_up_to_one_and_those_of_spans_to_nothing(seed: int, gap_w: float, span_w: float) -> None:
    blocks, windows_s = trace(seed, gap_w=gap_w, span_w=span_w)
    weight, _ = fitted(blocks).idle_under(windows_s)
    assert weight.sum() == pytest.approx(1.0, abs=1e-6)
    assert weight[STATES == SPAN].sum() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("gap_w", [1.0, 3.0])
def test_gaps_a_few_standard_errors_above_idle_are_no_trap(gap_w: float) -> None:
    """If the prior put gaps at idle or far from it, only 14 to 51 % of these were within the interval."""
    step_w = gap_w * NOISE_W / np.sqrt(20.0) * np.sqrt(1.0 / 9.0 + 1.0 / 16.0)
    held = 0
    for seed in range(12):
        value_w, u_w = idle_of(*trace(seed, gap_w=step_w))
        held += abs(value_w - 1.0) <= 2.0 * u_w
    assert held >= 10


@pytest.mark.parametrize("follow", [0.0, 1.0])
def test_idle_stays_in_the_range_of_two_windows_that_agree(follow: float) -> None:
    """Clocks stay on between spans, and spans change with the gaps: idle was 47 % off."""
    wander = np.cumsum(np.random.default_rng(1).normal(0.0, 0.05, len(STATES)))
    at_work = (STATES == GAP) * 1.0 + (STATES == SPAN) * follow
    value_w, u_w = idle_of(*trace(1, gap_w=0.6, slow=(wander - wander[8]) * at_work))
    assert abs(value_w - 1.0) <= 2.0 * u_w < 0.06


K = np.arange(len(STATES))
LATER = K >= 17


@pytest.mark.parametrize(
    ("slow", "gap_w", "idle_w"),
    [
        (0.2 * (K < 8), 0.0, 1.0), (0.3 * (LATER & (STATES != SPAN)), 0.0, 1.0),
        (0.3 * LATER, 0.0, 1.0 + 0.3 * float(np.mean(LATER[STATES == SPAN]))),
        (0.3 * ((STATES == IDLE) & (K > 20) & (K < 31)), 0.3, 1.0),
    ],
    ids=["before the first span", "of what yields to the work", "that spans share", "awake into an idle window"],
)  # fmt: skip
def test_a_step_is_of_idle_only_where_spans_share_it(slow: Floats, gap_w: float, idle_w: float) -> None:
    value_w, u_w = idle_of(*trace(4, gap_w=gap_w, slow=slow))
    assert value_w == pytest.approx(idle_w, abs=5e-3)
    assert u_w < 1e-2


def test_slow_noise_of_readings_within_a_range_does_not_leave_it_by_far() -> None:
    """Idle readings of a graphics card within 50 W of each other gave an interval of 400 W."""
    slow = 50.0 * np.random.default_rng(7).uniform(-0.5, 0.5, len(STATES))
    blocks, windows_s = trace(7, idle_w=60.0, span_w=200.0, slow=slow)
    _, rest_w = fitted(blocks).idle_under(windows_s)
    assert rest_w < 25.0


@pytest.mark.parametrize(
    "states",
    [
        [IDLE], [IDLE, IDLE], [IDLE, SPAN], [IDLE, GAP, GAP, GAP], [IDLE, *[SPAN] * 10], [IDLE, IDLE, SPAN, IDLE],
        [*[IDLE] * 9, *[SPAN] * 3, *[GAP] * 2],
    ],
)  # fmt: skip
@pytest.mark.parametrize("watts", [0.0, 1.0, 1e-9])
def test_few_blocks_and_constant_readings_without_noise_give_a_level(states: list[int], watts: float) -> None:
    n = len(states)
    start = np.arange(n, dtype=float)
    blocks = Blocks(np.array(states), start, start + 1.0, np.full(n, watts), np.ones(n), np.arange(n), np.ones(n))
    model = fit(blocks, np.zeros((n, n)))
    weight, rest_w = model.idle_under(np.array([[0.3, 0.6]]))
    assert float(weight @ blocks.watts) == pytest.approx(watts, rel=1e-6, abs=1e-20)
    assert np.isfinite(rest_w)
    assert np.all(np.isfinite(model.idle_at(start)))


def test_long_stretches_make_several_blocks_and_many_share_some() -> None:
    n = 6000
    start = np.arange(n, dtype=float)
    where, gap, held = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    where[:1000], where[-1000:] = 0, 1
    held[1000:5000:2], gap[1001:5000:2] = np.arange(2000), np.arange(2000)
    blocks = blocks_of((start, start + 1.0), start, np.ones(n), np.ones(n), (where, gap, held))
    assert np.bincount(blocks.state).tolist() == [18, 10, 10]
    assert blocks.many.sum() == n
    for k in range(len(blocks.state)):
        assert blocks.weights(np.eye(len(blocks.state))[k]) @ start == pytest.approx(blocks.watts[k])


@CALM
@given(st.integers(2, 30), st.integers(0, 99))
def test_errors_of_looks_between_adjacent_blocks_cancel_in_their_sum(n: int, seed: int) -> None:
    """Energy adds up over adjacent windows: only the errors at both ends remain."""
    rng = np.random.default_rng(seed)
    length_s, looks = rng.uniform(0.5, 2.0, n), rng.uniform(0.1, 1.0, n + 1)
    end = np.cumsum(length_s)
    blocks = Blocks(np.zeros(n, int), end - length_s, end, np.zeros(n), np.ones(n), np.arange(n), np.ones(n))
    energy = look_errors(blocks, length_s, looks, np.ones(n - 1, bool)) * np.outer(length_s, length_s)
    assert energy.sum() == pytest.approx(looks[0] + looks[-1])


MEBIBYTE = 1 << 20


@pytest.mark.parametrize("each", [1.0, 1e3])
def test_a_million_spans_and_a_billion_readings_are_fitted_in_little_memory(each: float) -> None:
    """A reading may represent a mean of many; the memory of the trace itself is not counted."""
    n = 1_000_000
    start = np.arange(2.0 * n)
    span, idle = np.arange(2 * n) % 2 == 1, np.arange(2 * n) < 1000
    watts = np.where(span & ~idle, 2.0, 1.0) + np.random.default_rng(1).normal(0.0, 1e-3, 2 * n)
    number = np.arange(2 * n) // 2
    stretches = [np.where(use, number, -1) for use in (idle, ~span & ~idle, span & ~idle)]
    many = np.full(2 * n, each)
    blocks = blocks_of((start, start + 1.0), watts, many, many, (np.where(idle, 0, -1), stretches[1], stretches[2]))
    tracemalloc.start()
    model = fit(blocks, np.diag(1e-6 / blocks.many))
    weight, _ = model.idle_under(np.column_stack([start[span & ~idle], start[span & ~idle] + 1.0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert float(weight @ watts) == pytest.approx(1.0, abs=1e-3)
    assert peak < 60 * MEBIBYTE + 4 * watts.nbytes
