"""Losses that a PPK2's counter cannot show: arrivals of other readings show them, and put readings in place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ppk2_losses import MACHINES, arrivals, followed, slots, verdict
from drivers.meters.ppk2.loss_detection import UNSEEN, Loss, LossDetector, PendingReadings
from drivers.meters.ppk2.words import RATE_HZ, Words
from rig.errors import MeterError

SECONDS = 6.0
machines = st.sampled_from(["calm", "busy"])
seeds = st.integers(0, 1 << 20)


def follower(tolerance: float = 1e-4) -> LossDetector:
    return LossDetector("ppk2", RATE_HZ, tolerance)


@given(machines, seeds)
@settings(max_examples=25, deadline=None)
def test_delays_alone_are_never_taken_for_a_loss(machine: str, seed: int) -> None:
    told, _ = followed(arrivals(MACHINES[machine], seed, seconds=SECONDS))

    assert told == []


@given(machines, seeds, st.integers(1, 40), st.floats(0.3, 0.6 * SECONDS))
@settings(max_examples=25, deadline=None)
def test_a_loss_is_told_in_full_and_lies_in_the_stretch_that_is_told_or_the_run_is_refused(
    machine: str, seed: int, times: int, lost_s: float
) -> None:
    log = arrivals(MACHINES[machine], seed, times * UNSEEN, lost_s, SECONDS)

    assert verdict(log, times * UNSEEN, *followed(log)) in ("right", "refused")


@given(seeds, st.floats(0.5, 2.0), st.floats(0.1, 2.0))
@settings(max_examples=25, deadline=None)
def test_of_two_losses_none_is_left_in_between(seed: int, first_s: float, apart_s: float) -> None:
    log = arrivals(MACHINES["calm"], seed, UNSEEN, first_s, SECONDS)
    second_s = first_s + apart_s
    gone = np.clip((log.at_s - second_s) * RATE_HZ, 0, 2 * UNSEEN).astype(np.int64)
    f, told = follower(), []
    for count, at_s in slots(type(log)(np.maximum.accumulate(log.count - gone), log.at_s, log.lost_at)):
        if (loss := f.add(count, at_s)) is not None:
            told.append(loss)

    assert sum(loss.missing for loss in told) == 3 * UNSEEN
    places = (log.lost_at, int(log.count[np.searchsorted(log.at_s, second_s)]))
    assert all(any(loss.first - 130 <= at <= loss.end + 130 for loss in told) for at in places)


def test_nothing_is_proved_while_every_arrival_is_late() -> None:
    f = follower()
    for k in range(1, 21):
        f.add(1000 * k, 0.01 * k)
    for k in range(21, 60):
        assert f.add(1000 * k, 0.01 * k + 5e-4) is None

    assert f.proved == 20_000
    f.add(60_000, 0.6)
    assert f.proved == 60_000


def test_what_can_be_neither_told_nor_excluded_ends_the_run_and_says_how_much() -> None:
    f = follower()
    f.add(1000, 0.01)
    with pytest.raises(MeterError, match=r"About \d+ readings were lost, or this machine was too busy") as caught:
        for k in range(2, 1000):  # a third of the readings never comes
            f.add(1000 + 667 * k, 0.01 * k)
    assert caught.value.remedy


def test_readings_that_were_taken_for_lost_and_come_after_all_are_an_error() -> None:
    f = follower()
    for k in range(1, 11):
        f.add(1000 * k, 0.01 * k)
    told = [f.add(1000 * k, 0.01 * k + 6.4e-4) for k in range(11, 130)]
    assert [loss.missing for loss in told if loss is not None] == [UNSEEN]
    with pytest.raises(MeterError, match="came after all"):
        for k in range(130, 140):
            f.add(1000 * k, 0.01 * k)


@given(st.floats(-9e-5, 9e-5))
@settings(max_examples=10, deadline=None)
def test_its_tick_flies_over_a_stall(drift: float) -> None:
    f = follower()
    for k in range(1, 2001):
        f.add(round(1000 * k * (1.0 - drift)), 0.01 * k)

    assert f.tick_at(21.0) == pytest.approx(RATE_HZ * 21.0 * (1.0 - drift), abs=10.0)


# ---- the grid ---------------------------------------------------------------------------------


def words(first: int, n: int) -> Words:
    return Words(np.arange(first, first + n, dtype=np.uint32), np.zeros(n, np.int64))


@given(st.integers(0, 100), st.integers(0, 50), st.integers(1, 5))
def test_a_loss_leaves_what_is_before_and_after_it_in_place(before: int, unsure: int, times: int) -> None:
    grid, missing = PendingReadings(), times * UNSEEN
    grid.add(words(0, before + unsure))
    early = grid.release(before // 2)
    grid.add(words(before + unsure + missing, 40))
    grid.lose(Loss(before, before + unsure, missing))
    late = grid.release(grid.count)

    word, known = np.concatenate([early.word, late.word]), np.concatenate([early.known, late.known])
    assert late.first == before // 2
    assert len(word) == before + unsure + missing + 40
    assert np.array_equal(word[known], np.flatnonzero(known))
    assert np.count_nonzero(~known) == unsure + missing
