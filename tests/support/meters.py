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


def error_of(meter: Meter, limit_s: float = 4.0) -> MeterError:
    """Return the error that reading a meter raises within ``limit_s``."""
    until_s = time.monotonic() + limit_s
    with pytest.raises(MeterError) as caught:
        while time.monotonic() < until_s:
            meter.read()
            time.sleep(0.005)
    return caught.value


def refusal(open_meter: Callable[..., Meter], **options: Any) -> RigError:
    """Return the error that opening a meter with these options raises."""
    with pytest.raises(RigError) as caught:
        open_meter(**options)
    return caught.value
