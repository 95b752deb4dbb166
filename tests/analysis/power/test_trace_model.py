"""Idle power under the spans is predicted from all blocks of a trace, with a stated error."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.signal import lfilter

from rig.analysis.power.model import trace_model
from rig.analysis.power.model.blocks import GAP, IDLE, SPAN, Blocks, blocks_of, look_errors
from rig.analysis.power.model.trace_model import fit
from rig.types import Floats

STATES = np.array([IDLE] * 8 + [SPAN, GAP] * 9 + [SPAN] + [IDLE] * 8)
K = np.arange(len(STATES))
LATER = K >= 17
NOISE_W = 1e-3
UNLIKE = 2.0 * ((STATES == SPAN) & (K < 13))
"""Additional power of the first spans, and leakage that follows the heat of all, with a time constant of two blocks."""
HEAT = 0.3 * lfilter([0.005], [1.0, -0.995], np.repeat((STATES == SPAN) + UNLIKE, 100)).reshape(-1, 100).mean(axis=1)


def idle_of(seed: int, gap_w: float, slow: Floats) -> tuple[float, float]:
    """Return the predicted idle (true: 1 W) and its standard uncertainty; ``slow`` is added to the power of blocks."""
    start, n = K.astype(float), len(STATES)
    watts = 1.0 + gap_w * (STATES == GAP) + (STATES == SPAN) + slow
    watts = watts + np.random.default_rng(seed).normal(0.0, NOISE_W / np.sqrt(20.0), n)
    blocks = Blocks(STATES, start, start + 1.0, watts, np.full(n, 20.0), np.arange(n), np.ones(n))
    at = start[STATES == SPAN]
    weight, rest_w = fit(blocks, np.diag(NOISE_W**2 / blocks.many)).idle_under(np.column_stack([at, at + 1.0]))
    return float(weight @ watts), float(np.hypot(rest_w, np.sqrt(np.sum(weight**2 * NOISE_W**2 / 20.0))))


@pytest.mark.parametrize("follow", [0.0, 1.0])
def test_predicted_idle_stays_near_two_agreeing_windows(follow: float) -> None:
    """Clocks stay on between spans, and spans change with the gaps: predicted idle was once 47 % off."""
    wander = np.cumsum(np.random.default_rng(1).normal(0.0, 0.05, len(STATES)))
    value_w, u_w = idle_of(1, 0.6, (wander - wander[8]) * ((STATES == GAP) + (STATES == SPAN) * follow))
    assert abs(value_w - 1.0) <= 2.0 * u_w < 0.06


@pytest.mark.parametrize(
    ("slow", "gap_w", "idle_w"),
    [
        (0.2 * (K < 8), 0.0, 1.0),
        (0.3 * (LATER & (STATES != SPAN)), 0.0, 1.0),
        (0.3 * LATER, 0.0, 1.0 + 0.3 * float(np.mean(LATER[STATES == SPAN]))),
        (0.3 * ((STATES == IDLE) & (K > 20) & (K < 31)), 0.3, 1.0),
        (0.3 * K, 0.0, 1.0 + 0.3 * float(np.mean(K[STATES == SPAN]))),
        (HEAT + UNLIKE, 0.0, 1.0 + float(np.mean(HEAT[STATES == SPAN]))),
    ],
    ids=["before spans", "while work yields", "that spans share", "into a window", "as a line", "by heat of power"],
)
def test_idle_follows_a_change_only_if_spans_show_it(slow: Floats, gap_w: float, idle_w: float) -> None:
    value_w, u_w = idle_of(4, gap_w, slow)
    assert value_w == pytest.approx(idle_w, abs=5e-3)
    assert u_w < 1e-2


def test_a_rare_change_counts_in_the_uncertainty_of_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    step = 0.2 * (K < 8)
    few = [idle_of(seed, 0.0, step)[1] for seed in range(3)]
    monkeypatch.setattr(trace_model, "KEPT", 1500)
    assert few == pytest.approx([idle_of(seed, 0.0, step)[1] for seed in range(3)], rel=0.3)


def test_work_in_one_gap_does_not_raise_predicted_idle() -> None:
    """A board works on for 2 ms after one of its answers. Blocks of several spans and gaps overlap in time."""
    rows = [(IDLE, 0.11 + 0.222 * k, 0.332 + 0.222 * k, 20.0, 222) for k in range(9)]
    rows += [(IDLE, 3.435 + 0.222 * k, 3.657 + 0.222 * k, 20.0, 222) for k in range(9)]
    rows += [(SPAN, 2.229, 2.323, 35.0, 92), (SPAN, 2.326, 2.509, 34.55, 168), (SPAN, 2.512, 2.621, 35.0, 107)]
    rows += [(SPAN, 2.623, 2.780, 35.0, 149), (SPAN, 2.783, 2.883, 34.85, 98), (SPAN, 2.887, 3.066, 34.15, 159)]
    rows += [(SPAN, 3.071, 3.163, 35.0, 88), (SPAN, 3.168, 3.339, 34.27, 164), (SPAN, 3.342, 3.433, 34.83, 88)]
    rows += [(GAP, 2.324, 2.325, 20.03, 1), (GAP, 2.435, 2.445, 20.01, 10), (GAP, 2.734, 2.736, 35.0, 2)]
    rows += [(GAP, at, at + 0.002, 20.0, 2) for at in (2.884, 2.93, 3.068, 3.118, 3.164, 3.289)]
    state, start, end, watts, many = map(np.array, zip(*rows, strict=True))
    blocks = Blocks(state, start, end, watts, many.astype(float), np.arange(len(rows)), np.ones(len(rows)))
    on = np.array([2.229, 2.28, 2.45, 2.57, 2.625, 2.737, 2.785, 2.835, 3.08, 3.29, 3.345])
    weight, u_w = fit(blocks, np.diag(0.02**2 / blocks.many)).idle_under(np.column_stack([on, on + 0.043]))
    assert float(weight @ watts) == pytest.approx(20.0, abs=0.02)
    assert u_w < 0.02


@pytest.mark.parametrize("states", [
    [IDLE], [IDLE, IDLE], [IDLE, SPAN], [IDLE, GAP, GAP, GAP], [IDLE, *[SPAN] * 10], [IDLE, IDLE, SPAN, IDLE],
    [*[IDLE] * 9, *[SPAN] * 3, *[GAP] * 2],
])  # fmt: skip
@pytest.mark.parametrize("watts", [0.0, 1.0, 1e-9])
def test_few_noiseless_blocks_give_a_level(states: list[int], watts: float) -> None:
    n, start = len(states), np.arange(float(len(states)))
    blocks = Blocks(np.array(states), start, start + 1.0, np.full(n, watts), np.ones(n), np.arange(n), np.ones(n))
    model = fit(blocks, np.zeros((n, n)))
    weight, rest_w = model.idle_under(np.array([[0.3, 0.6]]))
    assert float(weight @ blocks.watts) == pytest.approx(watts, rel=1e-6, abs=1e-20)
    assert np.isfinite(rest_w)
    assert np.all(np.isfinite(model.idle_at(start)))


@pytest.mark.parametrize("many", [[1] * 128 + [32] * 27 + [1] * 8, [100, 1, 1, 1]])
def test_blocks_of_means_hold_about_as_many_readings_each(many: list[int]) -> None:
    held, window = np.array(many, float), np.zeros(len(many), int)
    ends, none = np.cumsum(held), window - 1
    blocks = blocks_of((ends - held, ends), ends, held, held, (window, none, none))
    assert np.isfinite(blocks.start_s).all() and blocks.many.sum() == held.sum()
    assert blocks.many.max() <= max(3.0 * blocks.many.min(), held.max())


def test_stretches_are_split_or_merged_into_few_blocks() -> None:
    n, start = 6000, np.arange(6000.0)
    where, gap, held = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    where[:1000], where[-1000:] = 0, 1
    held[1000:5000:2], gap[1001:5000:2] = np.arange(2000), np.arange(2000)
    blocks = blocks_of((start, start + 1.0), start, np.ones(n), np.ones(n), (where, gap, held))
    assert np.bincount(blocks.state).tolist() == [18, 10, 10]
    assert blocks.many.sum() == n
    for k in range(len(blocks.state)):
        assert blocks.weights(np.eye(len(blocks.state))[k]) @ start == pytest.approx(blocks.watts[k])


@given(st.integers(2, 30), st.integers(0, 99))
def test_errors_between_adjacent_blocks_cancel_in_their_sum(n: int, seed: int) -> None:
    """Energy adds up over adjacent windows: only the errors at both ends remain."""
    rng = np.random.default_rng(seed)
    length_s, looks = rng.uniform(0.5, 2.0, n), rng.uniform(0.1, 1.0, n + 1)
    end = np.cumsum(length_s)
    blocks = Blocks(np.zeros(n, int), end - length_s, end, np.zeros(n), np.ones(n), np.arange(n), np.ones(n))
    energy = look_errors(blocks, length_s, looks, np.ones(n - 1, bool)) * np.outer(length_s, length_s)
    assert energy.sum() == pytest.approx(looks[0] + looks[-1])


@pytest.mark.parametrize("each", [1.0, 1e3])
def test_a_million_spans_are_fitted_in_little_memory(each: float) -> None:
    """A reading may represent a mean of many; the memory of the trace itself is not counted."""
    n, start = 1_000_000, np.arange(2e6)
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
    assert peak < 60 * 2**20 + 4 * watts.nbytes
