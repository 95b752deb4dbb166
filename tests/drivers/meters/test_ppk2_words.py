"""The words of a PPK2: cut out of bytes of any length, and the losses when some are damaged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.meters.ppk2.words import HELD, Aligner
from rig.errors import MeterError


def words(first: int, n: int) -> bytes:
    k = np.arange(first, first + n, dtype=np.uint32)
    return bytes(((k * 7 % 16384) | (k % 5) << 14 | (k % 64) << 18 | (k % 2) << 24).astype("<u4").tobytes())


def taken(aligner: Aligner, pieces: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """ADC values, and the place of each."""
    word, known = (np.concatenate(each) for each in zip(*(aligner.feed(piece) for piece in pieces), strict=True))
    return (word[known] & 0x3FFF).tolist(), np.flatnonzero(known).tolist()


@given(st.lists(st.integers(1, 37), min_size=1, max_size=60))
@settings(deadline=None)
def test_fragments_of_any_length_are_the_same_words(cuts: list[int]) -> None:
    stream = words(0, 300)
    at = np.minimum(np.cumsum([0, *cuts]), len(stream))
    pieces = [stream[a:b] for a, b in zip(at, [*at[1:], len(stream)], strict=True)]
    values, place = taken(Aligner(), pieces)
    assert values == [k * 7 % 16384 for k in range(300 - HELD)]
    assert place == list(range(300 - HELD))


@given(st.integers(9, 150), st.integers(1, 55 * 4), st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_bytes_lost_anywhere_cost_the_words_they_were_in_and_put_no_other_in_its_place(
    byte: int, count: int, piece: int
) -> None:
    stream = words(0, 300)
    torn = stream[: byte * 4 + count % 4] + stream[byte * 4 + count % 4 + count :]
    values, place = taken(Aligner(), [torn[k : k + piece] for k in range(0, len(torn), piece)])
    assert values == [k * 7 % 16384 for k in place]
    assert place[-1] == 299 - HELD
    assert len(place) >= 300 - HELD - (-(-count // 4) + 2 + HELD)


def test_a_damaged_word_costs_itself_and_its_neighbours() -> None:
    stream = bytearray(words(0, 100))
    stream[50 * 4 + 2] ^= 0x80
    _, place = taken(Aligner(), [bytes(stream)])
    assert len(place) == 100 - HELD - (2 + HELD) and place[-1] == 99 - HELD


def test_what_is_no_ppk2_stream_is_refused() -> None:
    with pytest.raises(MeterError, match="not readings of a PPK2"):
        Aligner().feed(b"\x55" * 40_000)
