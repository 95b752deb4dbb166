"""Edges of a pin are matched with the stamped spans of a device within the stated sigma, or are not matched."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rig.analysis.timing.alignment.gpio_edges import expected, match, observed, quiet_s
from rig.analysis.timing.alignment.lag_path import Line
from rig.types import Floats, Pin

TICK_S = 1e-9


@dataclass(frozen=True)
class Scene:
    """Spans, a pin that marks them, and a meter whose clock is off by ``shift_s`` in the middle, and by ``rate``.

    ``wobble`` is the irregularity of the spans, relative to ``gap_s``. Of the edges, the share ``missed`` never comes
    and the share ``bounce`` bounces; ``extra`` edges are added. Of the spans, the first ``first`` and the last ``last``
    are not seen.
    """

    pin: Pin = "level"
    n: int = 60
    span_s: float = 10e-3
    gap_s: float = 5e-3
    wobble: float = 0.1
    marks: bool = False
    shift_s: float = 3e-3
    rate: float = 1e-5
    reach_s: float = 0.02
    step_s: float = 1e-6
    jitter_s: float = 3e-7
    missed: float = 0.0
    extra: int = 0
    bounce: float = 0.0
    first: int = 0
    last: int = 0
    delay_s: float = 0.0
    lag_s: float = 0.0
    seed: int = 0

    def spans(self) -> Floats:
        rng = np.random.default_rng([self.seed, 1])
        on = 1.0 + np.cumsum(self.span_s + self.gap_s * (1.0 + self.wobble * rng.uniform(-1.0, 1.0, self.n)))
        spans = np.column_stack([on, on + self.span_s])
        if self.marks:
            chips = 2e-3 * rng.integers(1, 4, (12, 2)) + 0.3e-3
            end = 0.2 + np.cumsum(chips.sum(axis=1))
            train = np.column_stack([end - chips.sum(axis=1), end - chips[:, 1]])
            spans = np.concatenate([train, spans, train + float(spans[-1, 1])])
        return spans

    def found(self) -> Line | str:
        rng = np.random.default_rng([self.seed, 2])
        spans = self.spans()
        edges = []
        for on, off in spans[self.first : len(spans) - self.last]:
            after = (1, 0) if self.pin == "level" else (0, 0)
            for at, level in zip((on, off), after, strict=True):
                if rng.random() >= self.missed:
                    edges.append((at + self.delay_s + rng.normal(0.0, self.jitter_s), level))
                    if self.pin == "stamp":
                        edges.append((edges[-1][0] + 2e-4, 1))
                    if rng.random() < self.bounce:
                        t = edges[-1][0] + 3e-6 if self.pin != "stamp" else edges[-2][0] + 3e-6
                        edges += [(t, 1 - level), (t + 5e-6, level)]
        edges += [(rng.uniform(spans[0, 0], spans[-1, 1]), int(rng.integers(2))) for _ in range(self.extra)]
        edges.sort()
        if self.pin == "toggle":
            edges = [(at, k % 2) for k, (at, _) in enumerate(edges)]
        times, levels = (np.array(part) for part in zip(*edges, strict=True))
        look, which = np.unique(np.ceil(self.stamped_s(times) / self.step_s) * self.step_s, return_index=True)
        wanted = expected(np.floor(spans / TICK_S) * TICK_S, self.pin)
        seen = observed(look, levels[which].astype(float), self.pin, self.step_s, quiet_s(wanted))
        shared_s = np.hypot(self.lag_s / np.sqrt(3.0), TICK_S / np.sqrt(12.0))
        return match(wanted, seen, self.reach_s, 2.5e-5, self.step_s, shared_s)

    @property
    def middle_s(self) -> float:
        return float(np.median(self.spans()))

    def stamped_s(self, times: Floats) -> Floats:
        """Return moments on the meter's clock."""
        return self.middle_s + (times - self.middle_s - self.shift_s) / (1.0 + self.rate)

    def error_s(self, found: Line) -> float:
        at = found
        return self.shift_s + self.rate * (at.ref_s - self.middle_s) + at.late_s


PINS = pytest.mark.parametrize("pin", ["level", "stamp", "toggle"])
SCENES = st.builds(
    Scene, pin=st.sampled_from(["level", "stamp", "toggle"]), n=st.integers(10, 120), wobble=st.floats(0.0, 0.5),
    marks=st.booleans(), shift_s=st.floats(-0.03, 0.03), reach_s=st.floats(0.03, 0.1),
    missed=st.sampled_from([0.0, 0.05, 0.2]), extra=st.integers(0, 10), bounce=st.sampled_from([0.0, 0.3]),
    first=st.integers(0, 3), last=st.integers(0, 3), seed=st.integers(0, 10**6),
)  # fmt: skip


def matched(scene: Scene) -> tuple[Line, float]:
    """Return the match, and its error in its sigmas."""
    found = scene.found()
    assert isinstance(found, Line)
    return found, abs(scene.error_s(found)) / found.sigma_s


@given(SCENES)
def test_matches_of_faulty_edges_stay_within_their_sigma(scene: Scene) -> None:
    """A shift by a period or by one edge would be thousands of sigmas off."""
    found = scene.found()
    if isinstance(found, Line):
        assert abs(scene.error_s(found)) <= 5.0 * found.sigma_s + 2e-7


@PINS
def test_a_periodic_train_with_wide_brackets_is_undecided(pin: Pin) -> None:
    periodic = Scene(pin, wobble=0.0, reach_s=0.05)
    assert isinstance(periodic.found(), str)
    assert isinstance(replace(periodic, reach_s=4e-3).found(), Line)


@pytest.mark.parametrize(("pin", "shift_s"), [("level", -0.045), ("stamp", 0.003), ("toggle", 0.06)])
def test_marks_place_a_periodic_train(pin: Pin, shift_s: float) -> None:
    _, z = matched(Scene(pin, wobble=0.0, marks=True, shift_s=shift_s, reach_s=0.08))
    assert z <= 4.0


def test_a_periodic_train_with_missing_ends_is_undecided() -> None:
    for first, last in ((5, 0), (0, 5), (5, 5)):
        assert isinstance(Scene(wobble=0.0, first=first, last=last, reach_s=0.1).found(), str)


def test_synchronous_sampling_leaves_half_an_interval_in_doubt() -> None:
    """Every edge is at the same place between two samples: repetition does not reveal it."""
    still = Scene(wobble=0.0, jitter_s=0.0, rate=0.0, step_s=1e-5, reach_s=4e-3)
    for shift_s in np.linspace(1e-6, 9e-6, 5):
        found, z = matched(replace(still, shift_s=float(shift_s)))
        assert found.sigma_s == pytest.approx(1e-5 / np.sqrt(12.0), rel=0.05)
        assert z <= np.sqrt(3.0) + 1e-2
    assert matched(replace(still, wobble=0.3, seed=3))[0].sigma_s < 1.2e-6


def test_the_declared_pin_lag_enters_the_sigma() -> None:
    for k in range(20):
        delay_s = float(np.random.default_rng(k).uniform(-5e-6, 5e-6))
        found, z = matched(Scene(delay_s=delay_s, lag_s=5e-6, seed=k))
        assert found.sigma_s == pytest.approx(5e-6 / np.sqrt(3.0), rel=0.1)
        assert z <= 1.96


@PINS
def test_brackets_wrong_by_two_periods_are_rejected(pin: Pin) -> None:
    assert isinstance(Scene(pin, n=12, wobble=0.0, shift_s=0.03, reach_s=8e-3).found(), str)


def test_too_few_edges_are_reported() -> None:
    wanted = expected(Scene(n=2).spans(), "level")
    assert "too few" in str(match(wanted, wanted, 0.01, 1e-5, 1e-6))


def test_adjacent_spans_are_one_span_for_a_level_pin() -> None:
    spans = np.array([[1.0, 2.0], [2.0, 3.0], [4.0, 5.0]])
    assert expected(spans, "level").at_s.tolist() == [1.0, 3.0, 4.0, 5.0]
    assert len(expected(spans, "stamp")) == 6


def test_a_bounce_is_one_edge_and_a_glitch_is_none() -> None:
    at = np.array([1.0, 1.0001, 1.0002, 2.0, 3.0, 3.0001])
    seen = observed(at, np.array([1, 0, 1, 0, 1, 0]), "level", 0.0, 0.01)
    assert (seen.at_s.tolist(), seen.level.tolist()) == ([1.0, 2.0], [1, 0])
