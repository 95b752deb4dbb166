# mypy: allow-untyped-defs, allow-untyped-calls
"""The search tree of the branch and bound, compiled: see ``exact.py``.

A set of vertices is a row of 64-bit words. ``compatible[v]`` are the vertices that are not adjacent to v. At most one
vertex of a class can be chosen.
"""

import numpy as np

from drivers.devices.cpu.mis.search import compiled

DEPTH, BEST, STATE = range(3)
"""Places in ``state``: the number of chosen vertices, the size of the largest set, and whether the tree found it."""
_SLICE = 500


@compiled
def _lowest(word):
    """Return the place of the lowest set bit, which equals the count of zeros below it."""
    x = (word & (~word + np.uint64(1))) - np.uint64(1)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _only(a, b):
    """Return the only place in both sets; -1 if there is none, -2 if there are several."""
    found = np.int64(-1)
    for i in range(len(a)):
        both = a[i] & b[i]
        if both:
            if found >= 0 or both & (both - np.uint64(1)):
                return np.int64(-2)
            found = 64 * i + _lowest(both)
    return found


@compiled
def _flip(bits, v):
    bits[v >> 6] ^= np.uint64(1) << np.uint64(v & 63)


@compiled
def _absorbed(compatible, classes, locked, enough, v):
    """Return whether the bound of the first ``enough`` classes also holds with v.

    If so, v is put into one of them, or two of them are locked.
    """
    mine = compatible[v]
    for k in range(1, enough + 1):
        if locked[k]:
            continue
        w = _only(classes[k], mine)
        if w == -2:
            continue
        if w == -1:
            _flip(classes[k], v)
            return True
        theirs = compatible[w]
        for j in range(1, enough + 1):
            if j == k or locked[j]:
                continue
            apart, incomplete = True, True
            for i in range(len(mine)):
                near = classes[j, i] & theirs[i]
                if near:
                    apart = False
                    if near & mine[i]:
                        incomplete = False
                        break
            if apart:
                _flip(classes[k], w)
                _flip(classes[k], v)
                _flip(classes[j], w)
                return True
            if incomplete:  # v, a vertex of class k and one of class j never fit together: they add at most 2
                locked[k] = locked[j] = 1
                return True
    return False


@compiled
def _bound(compatible, candidates, branches, bounds, classes, locked, enough):
    """Put candidates that ``enough`` classes cannot hold into ``branches``, with their bounds; return how many."""
    words = len(candidates)
    uncoloured = candidates.copy()
    rest = np.empty(words, np.uint64)
    locked[:] = 0
    k, count, first_word = 0, 0, 0
    while True:
        while first_word < words and uncoloured[first_word] == 0:
            first_word += 1
        if first_word == words:
            return count
        k += 1
        locked[k] = 0
        classes[k] = 0
        rest[:] = uncoloured
        before = count
        for i in range(first_word, words):
            while rest[i]:
                v = 64 * i + _lowest(rest[i])
                for j in range(i, words):
                    rest[j] &= ~compatible[v, j]
                _flip(rest, v)
                _flip(uncoloured, v)
                if k > enough and enough > 1 and _absorbed(compatible, classes, locked, enough, v):
                    continue
                _flip(classes[k], v)
                if k > enough:
                    branches[count] = v
                    bounds[count] = k
                    count += 1
        if k > enough and count == before:
            k -= 1


@compiled
def branch(compatible, candidates, branches, bounds, left, path, best, classes, locked, state):
    """Visit some hundred nodes of the tree; return whether it is finished.

    ``left[depth]`` is the number of branches left at a depth, or -1 if they are not computed yet.
    """
    words = compatible.shape[1]
    for _ in range(_SLICE):
        depth = state[DEPTH]
        if left[depth] < 0:
            enough = max(state[BEST] - depth, 0)
            left[depth] = _bound(compatible, candidates[depth], branches[depth], bounds[depth], classes, locked, enough)
        if left[depth] == 0 or depth + bounds[depth, left[depth] - 1] <= state[BEST]:
            if depth == 0:
                return True
            left[depth] = -1
            state[DEPTH] = depth - 1
            continue
        left[depth] -= 1
        v = branches[depth, left[depth]]
        path[depth] = v
        empty = True
        for i in range(words):
            candidates[depth + 1, i] = candidates[depth, i] & compatible[v, i]
            if candidates[depth + 1, i]:
                empty = False
        _flip(candidates[depth], v)
        if not empty:
            state[DEPTH] = depth + 1
            left[depth + 1] = -1
        elif depth + 1 > state[BEST]:
            state[BEST] = depth + 1
            state[STATE] = 1
            best[: depth + 1] = path[: depth + 1]
    return False
