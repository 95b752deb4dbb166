"""Decode the words of files of Prophesee, little-endian: EVT2 (32 bits) and EVT3 (16 bits) in .raw, and .dat (32 bits).

Times of a .raw count from the first time word of the file, as in the vendor's tools: the camera's own clock began when
the camera was switched on, before the recording. Events before this word have no time and are left out.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
EVENT = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "u1")])
DAT = 0
_KNOWN = {2: (0, 1, 8, 10, 14, 15), 3: (0, 2, 3, 4, 5, 6, 7, 8, 10, 14, 15)}
_VECTORS = {4: 12, 5: 8}
"""In EVT3: how many adjacent pixels a word of events covers, by the word's type."""


def decoded(words: Ints, version: int) -> Ints:
    """Return the events of words of EVT2, EVT3 or ``DAT``, in the file's order.

    Raises ``ValueError`` for an unknown type.
    """
    if version == DAT:
        return _dat(words.reshape(-1, 2))
    kind = (words >> (28 if version == 2 else 12)).astype(np.uint8)
    if not (known := np.isin(kind, _KNOWN[version])).all():
        raise ValueError(f"a word has the type {kind[~known][0]}")
    return _evt2(words, kind) if version == 2 else _evt3(words, kind)


def _dat(words: Ints) -> Ints:
    time, place = words[:, 0].astype(np.int64), words[:, 1]
    # the counter wraps after 2 ** 32 microseconds; an event that is a little out of order is not a wrap
    turns = np.cumsum(np.rint(np.diff(time, prepend=time[:1]) / -(2.0**32)).astype(np.int64))
    return _events(time + (turns << 32), place & 0x3FFF, place >> 14 & 0x3FFF, place >> 28 & 1)


def _evt2(words: Ints, kind: Ints) -> Ints:
    times, at = np.flatnonzero(kind == 8), np.flatnonzero(kind <= 1)
    high = words[times].astype(np.int64) & 0xFFFFFFF
    at, high = _known(at, _latest(times, high - high[:1], at))
    word = words[at]
    return _events((high << 6) + (word >> 22 & 63), word >> 11 & 0x7FF, word & 0x7FF, kind[at])


def _evt3(words: Ints, kind: Ints) -> Ints:
    at = np.flatnonzero(np.isin(kind, (2, *_VECTORS)))
    at, time = _known(at, _latest(*_times(words, kind), at))
    # a word of several pixels begins where the last one ended
    bases, width = np.flatnonzero(kind == 3), np.select([kind == k for k in _VECTORS], list(_VECTORS.values()), 0)
    passed, single = np.cumsum(width) - width, kind[at] == 2
    base = np.where(single, words[at], _latest(bases, words[bases], at))
    first = (base & 0x7FF) + np.where(single, 0, passed[at] - _latest(bases, passed[bases], at))
    lines = np.flatnonzero(kind == 0)
    y = _latest(lines, words[lines] & 0x7FF, at)
    pixels = np.where(single, 1, words[at] & np.where(kind[at] == 4, 0xFFF, 0xFF))
    pixels = np.where((y >= 0) & (base >= 0), pixels, 0).astype(np.uint16)
    row, column = np.nonzero(pixels[:, None] >> np.arange(12, dtype=np.uint16) & 1)
    return _events(time[row], first[row] + column, y[row], base[row] >> 11 & 1)


def _times(words: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Return the places of the time words of EVT3 and the time after each, in microseconds since the first one."""
    at = np.flatnonzero((kind == 6) | (kind == 8))
    value, is_high = words[at].astype(np.int64) & 0xFFF, kind[at] == 8
    at, value, is_high = (
        part[int(np.argmax(is_high)) if is_high.any() else len(at) :] for part in (at, value, is_high)
    )
    highs = value[is_high]
    # the upper half has 12 bits, and wraps after 2 ** 24 microseconds
    highs += np.cumsum(np.diff(highs, prepend=highs[:1]) < -2048) << 12
    high = (highs - highs[:1])[np.cumsum(is_high) - 1]
    # a new upper half begins with a lower half of 0; a repeated one changes nothing
    begins = np.flatnonzero(~is_high | (np.diff(high, prepend=-1) != 0))
    low = _latest(begins, np.where(is_high, 0, value)[begins], np.arange(len(at)))
    return at, (high << 12) + low


def _latest(marks: Ints, values: Ints, at: Ints) -> Ints:
    """Return, for each place ``at``, the value of the last mark there or before, -1 before the first mark."""
    last = np.searchsorted(marks, at, side="right") - 1
    return np.where(last < 0, -1, values.astype(np.int64)[last]) if len(marks) else np.full(len(at), -1)


def _known(at: Ints, values: Ints) -> tuple[Ints, Ints]:
    return at[values >= 0], values[values >= 0]


def _events(t: Ints, x: Ints, y: Ints, p: Ints) -> Ints:
    events = np.empty(len(t), EVENT)
    events["t"], events["x"], events["y"], events["p"] = t, x, y, p
    return events
