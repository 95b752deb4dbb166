"""The pyramid of a trace agrees with the readings, in whatever blocks they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reports.viewing.pyramid import FACTOR, FINEST, Level, PyramidBuilder

LENGTHS = st.sampled_from([0, 1, FINEST - 1, FINEST, FINEST + 1, 3 * FINEST + 7, FACTOR * FINEST + 1])


def pyramid_of(blocks: Iterable[NDArray[Any]]) -> tuple[Level, ...]:
    builder = PyramidBuilder()
    for block in blocks:
        builder.add(block)
    return builder.levels()


def trace(length: int, seed: int, lost: float = 0.0, kind: str = "f4") -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.normal(1e-3, 1e-4, length).astype(kind)
    values[rng.random(length) < lost] = np.nan
    return values


def cut(values: NDArray[Any], sizes: list[int]) -> list[NDArray[Any]]:
    """Blocks of these lengths, repeatedly."""
    ends = np.cumsum(np.resize(sizes, len(values) + 1)) if sizes else np.array([len(values)])
    return np.split(values, ends[ends < len(values)])


def same(a: tuple[Level, ...], b: tuple[Level, ...]) -> bool:
    columns = ("least", "mean", "most", "count")
    return len(a) == len(b) and all(
        x.step == y.step and all(np.array_equal(getattr(x, c), getattr(y, c), equal_nan=True) for c in columns)
        for x, y in zip(a, b, strict=True)
    )


@given(LENGTHS, st.lists(st.sampled_from([1, 100, FINEST - 1, FINEST, FINEST + 1, 5 * FINEST]), max_size=3))
def test_any_blocks_give_the_same_bits(length: int, sizes: list[int]) -> None:
    values = trace(length, length, lost=1e-3)
    sizes = [s if s > 1 or length < 2 * FINEST else 100 for s in sizes]

    assert same(pyramid_of(cut(values, sizes)), pyramid_of([values]))


@pytest.mark.parametrize("kind", ["f4", "f8", "i2"])
def test_a_bucket_holds_least_mean_greatest_and_count(kind: str) -> None:
    values = (1e6 * trace(2 * FINEST + 5, 1)).astype(kind)

    level = pyramid_of([values])[0]

    for k, first in enumerate(range(0, len(values), FINEST)):
        part = values[first : first + FINEST].astype(np.float64)
        assert (level.least[k], level.most[k], level.count[k]) == (part.min(), part.max(), len(part))
        assert level.mean[k] == pytest.approx(part.mean(), rel=1e-12)


def test_what_is_no_number_counts_for_nothing() -> None:
    values = trace(3 * FINEST, 2, kind="f8")
    values[:FINEST] = np.nan
    values[FINEST], values[FINEST + 1] = np.inf, -np.inf
    good = values[FINEST + 2 : 2 * FINEST]

    levels = pyramid_of([values])

    assert levels[0].count.tolist() == [0, FINEST - 2, FINEST]
    assert np.isnan([levels[0].least[0], levels[0].mean[0], levels[0].most[0]]).all()
    assert (levels[0].least[1], levels[0].most[1]) == (good.min(), good.max())
    assert levels[1].mean[0] == pytest.approx(values[FINEST + 2 :].mean(), rel=1e-12)
