# mypy: allow-untyped-defs, allow-untyped-calls
"""The moves of the local search, compiled: see ``search.py``.

``key[w]`` of a vertex outside holds the count of adjacent members, and the sum of their numbers: with one
member that sum is the member. ``lists[k]`` holds the vertices outside that are adjacent to k members, each at its
``positions``; a vertex stays out until the move ``until``. Imports numba: import this file when opening.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

# counters, one int64 each: the lengths of the three lists come first
FREE, ONE, TWO, MOVE, RANDOM, SIZE, BEST, CYCLE_START, CYCLE, COUNTERS = range(10)
STEP = 64
"""Moves between updates of the temperature; cycles are multiples of it, so slices do not change the walk."""
_SHIFT = 40
_TIGHT = 1 << _SHIFT
_IDS = _TIGHT - 1


def compiled(function: Callable[..., Any]) -> Any:
    """Return the function as machine code that does not hold the interpreter's lock, compiled at its first call.

    A later process loads it from the source's folder, or from the user's cache if that folder cannot be written.
    """
    try:
        return njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither place can be written: compile in each process
        return njit(function, nogil=True)


@compiled
def _below(counters, k):
    """A random whole number below k (Marsaglia's xorshift, the upper half)."""
    s = np.uint64(counters[RANDOM])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    counters[RANDOM] = np.int64(s)
    return np.int64(((s >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32))


@compiled
def _put(lists, which, positions, counters, v):
    k = counters[which]
    positions[v] = k
    lists[which, k] = v
    counters[which] = k + 1


@compiled
def _take(lists, which, positions, counters, v):
    k = counters[which] - 1
    counters[which] = k
    last, p = lists[which, k], positions[v]
    lists[which, p] = last
    positions[last] = p


@compiled
def _join(start, indices, member, key, lists, positions, counters, v):
    _take(lists, FREE, positions, counters, v)
    member[v] = 1
    counters[SIZE] += 1
    for j in range(start[v], start[v + 1]):
        w = indices[j]
        tight = key[w] >> _SHIFT
        key[w] += _TIGHT + v
        if tight <= TWO:
            _take(lists, tight, positions, counters, w)
            if tight < TWO:
                _put(lists, tight + 1, positions, counters, w)


@compiled
def _leave(start, indices, member, key, lists, positions, counters, v):
    member[v] = 0
    counters[SIZE] -= 1
    _put(lists, FREE, positions, counters, v)
    for j in range(start[v], start[v + 1]):
        w = indices[j]
        key[w] -= _TIGHT + v
        tight = key[w] >> _SHIFT
        if tight <= TWO:
            if tight < TWO:
                _take(lists, tight + 1, positions, counters, w)
            _put(lists, tight, positions, counters, w)


@compiled
def _weight(counters, cooling_first, cooling_last):
    """Return the weight of replacing two members, at the last multiple of the step."""
    now = counters[MOVE] // STEP * STEP
    share = (now - counters[CYCLE_START]) / counters[CYCLE]
    return math.exp(-(cooling_first + (cooling_last - cooling_first) * share))


@compiled
def _next_cycle(counters, growth):
    """Begin a longer cycle when this one is over."""
    if counters[MOVE] - counters[CYCLE_START] >= counters[CYCLE]:
        counters[CYCLE_START] = counters[MOVE]
        counters[CYCLE] = np.int64(counters[CYCLE] * growth) // STEP * STEP + STEP


@compiled
def _entrant(lists, member, counters, weight):
    """Choose a vertex to enter, and how many members leave for it: 1, 2, or as many as it needs; 0 means no vertex."""
    ones = counters[ONE]
    draw = _below(counters, 1 << 30) / (1 << 30) * (ones + weight * counters[TWO])
    if draw < ones:
        return lists[ONE, np.int64(draw)], 1
    if counters[TWO] > 0:
        return lists[TWO, _below(counters, counters[TWO])], 2
    v = np.int32(_below(counters, len(member)))
    return v, 0 if member[v] else len(member)


@compiled
def _make_room(start, indices, member, key, lists, positions, until, counters, tenure, v, leaving):
    """Remove the members adjacent to v, ``leaving`` of them."""
    now = counters[MOVE]
    if leaving == 1:
        u = key[v] & _IDS
        _leave(start, indices, member, key, lists, positions, counters, u)
        until[u] = now + tenure + _below(counters, tenure + 1)
        return
    for j in range(start[v], start[v + 1]):
        u = np.int64(indices[j])
        if member[u]:
            _leave(start, indices, member, key, lists, positions, counters, u)
            until[u] = now + tenure
            leaving -= 1
            if leaving == 0:
                return


@compiled
def walk(
    start, indices, member, key, lists, positions, until, best, counters,
    cooling_first, cooling_last, tenure, growth, moves,
):  # fmt: skip
    """Make at most ``moves`` moves; return True as soon as the set is the largest so far and nothing can be added."""
    weight = _weight(counters, cooling_first, cooling_last)
    for _ in range(moves):
        counters[MOVE] += 1
        now = counters[MOVE]
        if now % STEP == 0:
            _next_cycle(counters, growth)
            weight = _weight(counters, cooling_first, cooling_last)
        if counters[FREE] > 0:
            v = lists[FREE, _below(counters, counters[FREE])]
            record = counters[SIZE] + 1 > counters[BEST]
            if until[v] < now or record:
                _join(start, indices, member, key, lists, positions, counters, v)
                if record and counters[FREE] == 0:
                    counters[BEST] = counters[SIZE]
                    best[:] = member
                    return True
                continue
        v, leaving = _entrant(lists, member, counters, weight)
        if leaving == 0 or (leaving == 1 and until[v] >= now):
            continue
        _make_room(start, indices, member, key, lists, positions, until, counters, tenure, v, leaving)
        _join(start, indices, member, key, lists, positions, counters, v)
    return False
