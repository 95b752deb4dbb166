"""Readings on their grid, held until it is proved how many are missing among them. No port, no clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers.meters.ppk2.follow import Loss
from drivers.meters.ppk2.stream import Words
from rig.types import Bools


@dataclass(frozen=True)
class Stretch:
    """Consecutive places on the grid from ``first`` on: a word (uint32) each, and whether it is one; shapes (n,)."""

    first: int
    word: NDArray[np.uint32]
    known: Bools


class Grid:
    """What has come and is not proved. Places are counted twice: as they came (``count``), and with what was found

    lost (``Stretch.first``).
    """

    def __init__(self) -> None:
        self._word: list[NDArray[np.uint32]] = []
        self._known: list[Bools] = []
        self._begin = self._released = 0
        self.count = 0

    def add(self, words: Words) -> None:
        """Words, with a place that is none for each that the counter tells as lost."""
        at = np.arange(len(words.word)) + np.cumsum(words.lost)
        n = int(at[-1]) + 1 if len(at) else 0
        word, known = np.zeros(n, np.uint32), np.zeros(n, np.bool_)
        word[at], known[at] = words.word, True
        self._word.append(word)
        self._known.append(known)
        self.count += n

    def lose(self, loss: Loss) -> None:
        """Nobody knows where in a stretch the missing ones belong: all of it is no reading, and longer by them."""
        word, known = self._joined()
        first, end = loss.first - self._begin, loss.end - self._begin
        known[first:end] = False
        self._word = [word[:end], np.zeros(loss.missing, np.uint32), word[end:]]
        self._known = [known[:end], np.zeros(loss.missing, np.bool_), known[end:]]
        self._begin -= loss.missing

    def release(self, until: int) -> Stretch:
        """What is held up to a count."""
        word, known = self._joined()
        n = max(0, until - self._begin)
        self._word, self._known = [word[n:]], [known[n:]]
        stretch = Stretch(self._released, word[:n], known[:n])
        self._begin += n
        self._released += n
        return stretch

    def _joined(self) -> tuple[NDArray[np.uint32], Bools]:
        return (
            np.concatenate([np.zeros(0, np.uint32), *self._word]),
            np.concatenate([np.zeros(0, np.bool_), *self._known]),
        )
