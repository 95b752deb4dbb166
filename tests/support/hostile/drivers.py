"""Drivers that print as the rig, end its process, or change its interpreter; named ``path.py:function``."""

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fixtures.bench.mock_meter import MockMeter, open_meter
from rig import blocking
from rig.types import Bracket, Chunk, Device, DeviceInfo, SimulatedBench

VERDICT = '{"verdict": "VALID"}'
sys.stdout.write("a file that is loaded prints\n")


def board(answer: Callable[[Any], object]) -> Device:
    return blocking(answer, DeviceInfo("board", "hardware"))


def prints() -> Device:
    """Print in the rig's name: on ``sys.stdout``, on the descriptor 1, and when the process ends."""

    def answer(sample: Any) -> int:
        sys.stdout.write(f"{VERDICT}\n")
        os.write(1, b"by the descriptor\n")
        return 1

    atexit.register(lambda: sys.stdout.write("at the end\n"))
    return board(answer)


def leaves() -> Device:
    """End the process as if all had gone well."""
    count = []

    def answer(sample: Any) -> int:
        count.append(1)
        if len(count) > 2:
            os._exit(0)
        return 1

    return board(answer)


def crashes() -> Device:
    return board(lambda sample: ctypes.string_at(0))


def lowers_the_depth_of_calls() -> Device:
    """Limit the depth of calls to 25, from a thread that is less deep; the rig's own thread needs more."""
    return board(lambda sample: sys.setrecursionlimit(25))


def takes_the_hooks_away() -> Device:
    def answer(sample: Any) -> int:
        sys.excepthook = threading.excepthook = None  # type: ignore[assignment]
        return 1

    sys.excepthook = None  # type: ignore[assignment]
    return board(answer)


class Flat:
    """A meter that gives a single number instead of a column of readings."""

    def __init__(self, meter: MockMeter) -> None:
        self._meter = meter
        self.info, self.close, self.timer = meter.info, meter.close, meter.timer

    def start(self) -> Bracket:
        return self._meter.start()

    def read(self) -> list[Chunk]:
        return [Chunk(chunk.rail, np.array(1e-3)) for chunk in self._meter.read()]

    stop = read


def flat_meter(bench: SimulatedBench) -> Flat:
    return Flat(open_meter(bench))
