"""The words of a PPK2, cut out of bytes of any length; a loss that the counter cannot show ends the run."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.ppk2_losses import MACHINES, arrivals, verdict
from drivers.meters.ppk2.losses_by_arrival_time import UNSEEN, Proof
from drivers.meters.ppk2.words import HELD, RATE_HZ, Aligner, PendingReadings
from rig.errors import MeterError


def words(first: int, n: int) -> bytes:
    k = np.arange(first, first + n, dtype=np.uint32)
    return bytes(((k * 7 % 16384) | (k % 5) << 14 | (k % 64) << 18 | (k % 2) << 24).astype("<u4").tobytes())


def taken(aligner: Aligner, pieces: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Return the ADC values that the pieces hold, and the place of each among the words."""
    word, known = (np.concatenate(each) for each in zip(*(aligner.feed(piece) for piece in pieces), strict=True))
    return (word[known] & 0x3FFF).tolist(), np.flatnonzero(known).tolist()


@given(st.integers(9, 150), st.integers(1, 55 * 4), st.integers(1, 50))
def test_lost_bytes_cost_only_their_words(byte: int, count: int, piece: int) -> None:
    stream = words(0, 300)
    torn = stream[: byte * 4 + count % 4] + stream[byte * 4 + count % 4 + count :]
    values, place = taken(Aligner(), [torn[k : k + piece] for k in range(0, len(torn), piece)])
    assert values == [k * 7 % 16384 for k in place]
    assert place[-1] == 299 - HELD
    assert len(place) >= 300 - HELD - (-(-count // 4) + 2 + HELD)


def test_a_damaged_word_costs_only_its_neighbours() -> None:
    stream = bytearray(words(0, 100))
    stream[50 * 4 + 2] ^= 0x80
    _, place = taken(Aligner(), [bytes(stream)])
    assert len(place) == 100 - HELD - (2 + HELD) and place[-1] == 99 - HELD


def test_a_foreign_stream_is_refused() -> None:
    with pytest.raises(MeterError, match="not readings of a PPK2"):
        Aligner().feed(b"\x55" * 40_000)


# ---- losses that the counter cannot show ------------------------------------------------------

SECONDS = 12.0
machines = st.sampled_from(["calm", "busy"])
seeds = st.integers(0, 1 << 20)


@given(seeds)
def test_delays_are_not_taken_for_losses(seed: int) -> None:
    assert verdict(arrivals(MACHINES["calm"], seed, seconds=SECONDS), 0)[0] == "whole"


@given(machines, seeds, st.integers(1, 40), st.floats(0.3, 3.0))
def test_readings_after_a_loss_are_never_released(machine: str, seed: int, times: int, lost_s: float) -> None:
    log = arrivals(MACHINES[machine], seed, times * UNSEEN, lost_s, SECONDS)

    assert verdict(log, times * UNSEEN)[0] == "refused"


def test_late_arrivals_prove_nothing() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    for k in range(1, 21):
        proof.add(1000 * k, 0.01 * k)
    for k in range(21, 60):
        proof.add(1000 * k, 0.01 * k + 5e-4)

    assert proof.proved == 20_000
    proof.add(60_000, 0.6)
    assert proof.proved == 60_000


def test_a_possible_loss_ends_the_run_with_its_size() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    proof.add(1000, 0.01)
    with pytest.raises(MeterError, match=r"About \d+ readings were lost, or this machine was too busy") as caught:
        for k in range(2, 1000):  # a third of the readings never comes
            proof.add(1000 + 667 * k, 0.01 * k)
    assert caught.value.remedy


def test_a_late_loss_ends_the_run_within_nine_seconds() -> None:
    proof = Proof("ppk2", RATE_HZ, 1e-4)
    for k in range(1, 601):
        proof.add(10_000 * k, 0.1 * k)
    with pytest.raises(MeterError):
        for k in range(601, 690):
            proof.add(10_000 * k - UNSEEN, 0.1 * k)
    assert proof.proved == 6_000_000


@given(st.lists(st.lists(st.booleans(), max_size=9), max_size=9), st.integers(0, 60))
def test_readings_are_released_in_order(pieces: list[list[bool]], first: int) -> None:
    """The word of a reading is its number here."""
    pending = PendingReadings()
    for piece in pieces:
        pending.add((np.arange(pending.count, pending.count + len(piece), dtype=np.uint32), np.array(piece, bool)))
    early, late = pending.release(min(first, pending.count)), pending.release(pending.count)

    assert late.first == len(early.word)
    assert [*early.word, *late.word] == list(range(pending.count))
    assert [*early.known, *late.known] == [known for piece in pieces for known in piece]
