"""Losses that a PPK2's counter cannot show: nothing behind one is released, and a run in doubt ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ppk2_losses import MACHINES, arrivals, verdict
from drivers.meters.ppk2.loss_detection import UNSEEN, Proof
from drivers.meters.ppk2.words import RATE_HZ, PendingReadings
from rig.errors import MeterError

SECONDS = 12.0
machines = st.sampled_from(["calm", "busy"])
seeds = st.integers(0, 1 << 20)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_delays_alone_are_never_taken_for_a_loss(seed: int) -> None:
    assert verdict(arrivals(MACHINES["calm"], seed, seconds=SECONDS), 0)[0] == "whole"


@given(machines, seeds, st.integers(1, 40), st.floats(0.3, 3.0))
@settings(max_examples=25, deadline=None)
def test_no_reading_behind_a_loss_is_released_and_the_run_ends(
    machine: str, seed: int, times: int, lost_s: float
) -> None:
    log = arrivals(MACHINES[machine], seed, times * UNSEEN, lost_s, SECONDS)

    assert verdict(log, times * UNSEEN)[0] == "refused"


def test_nothing_is_proved_while_every_arrival_is_late() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    for k in range(1, 21):
        proof.add(1000 * k, 0.01 * k)
    for k in range(21, 60):
        proof.add(1000 * k, 0.01 * k + 5e-4)

    assert proof.proved == 20_000
    proof.add(60_000, 0.6)
    assert proof.proved == 60_000


def test_what_cannot_be_excluded_ends_the_run_and_says_how_much() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    proof.add(1000, 0.01)
    with pytest.raises(MeterError, match=r"About \d+ readings were lost, or this machine was too busy") as caught:
        for k in range(2, 1000):  # a third of the readings never comes
            proof.add(1000 + 667 * k, 0.01 * k)
    assert caught.value.remedy


def test_a_loss_after_a_long_run_ends_it_within_nine_seconds() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    for k in range(1, 601):
        proof.add(10_000 * k, 0.1 * k)
    with pytest.raises(MeterError):
        for k in range(601, 690):
            proof.add(10_000 * k - UNSEEN, 0.1 * k)
    assert proof.proved == 6_000_000


@given(st.lists(st.lists(st.booleans(), max_size=9), max_size=9), st.integers(0, 60))
def test_readings_wait_in_their_order_until_they_are_released(pieces: list[list[bool]], first: int) -> None:
    """The word of a reading is its number here."""
    pending = PendingReadings()
    for piece in pieces:
        pending.add((np.arange(pending.count, pending.count + len(piece), dtype=np.uint32), np.array(piece, bool)))
    early, late = pending.release(min(first, pending.count)), pending.release(pending.count)

    assert late.first == len(early.word)
    assert [*early.word, *late.word] == list(range(pending.count))
    assert [*early.known, *late.known] == [known for piece in pieces for known in piece]
