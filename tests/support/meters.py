"""Helpers for tests of meters: record for a while, wait for an error, fail to open."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rig.errors import MeterError, RigError
from rig.types import Chunk, Floats, Meter

IDLE_W, RUN_W, SUPPLY_V = 0.0018, 0.09, 1.8
"""The instruments' rail and its supply."""


def values(chunks: Sequence[Chunk]) -> Floats:
    """Return the values of all chunks, in one array."""
    return np.concatenate([chunk.value for chunk in chunks])


def recorded(meter: Meter, seconds: float) -> Floats:
    """Return a meter's readings in ``seconds``, and close it."""
    meter.start()
    time.sleep(seconds)
    got = [*meter.read(), *meter.stop()]
    meter.close()
    return values(got)


def taken(meter: Meter, seconds: float, then: Callable[[], object] = lambda: None) -> list[Chunk]:
    """Return all readings from a start to a stop; ``then`` runs after a fifth of the time."""
    meter.start()
    chunks: list[Chunk] = []
    began_s, done = time.monotonic(), False
    while (now_s := time.monotonic()) < began_s + seconds:
        if not done and now_s > began_s + 0.2 * seconds:
            then()
            done = True
        chunks += meter.read()
        time.sleep(0.005)
    return chunks + list(meter.stop())


def ended(meter: Meter, limit_s: float = 4.0) -> tuple[int, MeterError]:
    """Read a meter until it raises, within ``limit_s``; return how many values came before, and the error."""
    until_s, count = time.monotonic() + limit_s, 0
    with pytest.raises(MeterError) as caught:
        while time.monotonic() < until_s:
            count += sum(len(chunk.value) for chunk in meter.read())
            time.sleep(0.005)
    return count, caught.value


def error_of(meter: Meter, limit_s: float = 4.0) -> MeterError:
    """Return the error that reading a meter raises within ``limit_s``."""
    return ended(meter, limit_s)[1]


def refusal(open_meter: Callable[..., Meter], **options: Any) -> RigError:
    """Return the error that opening a meter with these options raises."""
    with pytest.raises(RigError) as caught:
        open_meter(**options)
    return caught.value
