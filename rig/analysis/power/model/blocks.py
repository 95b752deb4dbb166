"""Reduce a trace to a few blocks: each is the mean of readings in idle windows, in gaps between spans, or in spans.

A span is a time in which the device works, by its stamps.
"""

import numpy as np
from msgspec import Struct

from rig.types import Bools, Floats, Indices

IDLE, GAP, SPAN = range(3)
MOST = (18, 10, 10)
"""Largest numbers of blocks of idle windows, of gaps and of spans.

If there are more windows, gaps or spans, neighbours share a block.
"""
LEAST = 4
"""An idle window, gap or span is divided only into parts of at least this many readings."""


class Blocks(Struct, frozen=True):
    """Means of readings: state, begin, end, mean power and number of single readings of each block, shapes (b,).

    ``of`` is the number of each reading's block, or -1, and ``share`` is the weight of the reading in the mean of its
    block, shapes (n,).
    """

    state: Indices
    start_s: Floats
    end_s: Floats
    watts: Floats
    many: Floats
    of: Indices
    share: Floats

    def weights(self, each: Floats) -> Floats:
        """Return weights of readings, shape (n,), from weights of blocks, shape (b,), for the same weighted sum."""
        return np.where(self.of >= 0, each[self.of] * self.share, 0.0)


def blocks_of(
    t_s: tuple[Floats, Floats], watts: Floats, weight: Floats, many: Floats, stretches: tuple[Indices, Indices, Indices]
) -> Blocks:
    """Return the blocks of readings that begin and end at ``t_s`` and have ``weight`` in a mean, shapes (n,).

    ``stretches`` has three arrays: for each reading, the number of its idle window, of its gap, and of its span, or -1.
    If there are many of these, neighbours share a block; if there are few, long ones are divided.
    """
    of, states = np.full(len(watts), -1), list[int]()
    for state, number in enumerate(stretches):
        at = np.flatnonzero((number >= 0) & (of < 0))
        if not len(at):
            continue
        each = np.bincount(number[at], many[at]).astype(np.int64)
        rank, count = (np.cumsum(each > 0) - 1)[number[at]], each[each > 0]
        parts = np.clip(np.minimum(MOST[state] // len(count), count // LEAST), 1, None)
        if state == SPAN and len(count) > 2:  # spans differ from each other, but the parts of one span do not
            parts = np.ones_like(parts)
        place = (np.cumsum(many[at]) - many[at]).astype(np.int64) - (np.cumsum(count) - count)[rank]
        block = (np.cumsum(parts) - parts)[rank] + place * parts[rank] // count[rank]
        block = np.cumsum(np.diff(block, prepend=-1) > 0) - 1  # a mean of many readings may fill several blocks
        total = int(block[-1]) + 1
        of[at] = len(states) + block * min(total, MOST[state]) // total
        states += [state] * min(total, MOST[state])
    used, n = np.flatnonzero(of >= 0), len(states)
    b = of[used]
    share = np.zeros(len(watts))
    share[used] = weight[used] / np.bincount(b, weight[used], n)[b]
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, b, t_s[0][used])
    np.maximum.at(last, b, t_s[1][used])
    level, held = (np.bincount(b, x[used], n).astype(np.float64) for x in (share * watts, many))
    return Blocks(np.array(states), first, last, level, held, of, share)


def look_errors(blocks: Blocks, length_s: Floats, look_w2s2: Floats, beside: Bools) -> Floats:
    """Return the covariance of blocks of an energy counter, shape (b, b), from the errors of the counter's values.

    ``look_w2s2`` is the variance of each value in J**2, shape (n + 1,). ``beside`` is true if a reading begins with the
    counter value at which the previous one ends, shape (n - 1,). If two blocks share a value, its error has opposite
    signs in them.
    """
    n = len(blocks.state)
    total = np.bincount(blocks.of[blocks.of >= 0], length_s[blocks.of >= 0], n)
    each = np.append(1.0 / np.maximum(total, 1e-300), 0.0)  # the last entry is for readings without a block
    found = np.zeros((n + 1, n + 1))
    before, after = np.append(-1, blocks.of), np.append(blocks.of, -1)
    joined = np.concatenate([[True], beside, [True]])
    border = np.flatnonzero((before != after) | ~joined)
    a, b, v, cross = before[border], after[border], look_w2s2[border], -1.0 * joined[border]
    for p, q, sign in ((a, a, 1.0), (b, b, 1.0), (a, b, cross), (b, a, cross)):
        np.add.at(found, (p, q), sign * v * each[p] * each[q])
    return found[:n, :n]
