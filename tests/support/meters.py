"""What the tests of meters do with one: record for a while, wait for its error, open it in vain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rig.errors import MeterError, RigError
from rig.types import Chunk, Floats, Meter

IDLE_W, RUN_W, SUPPLY_V = 0.0018, 0.09, 1.8
"""The rail that the instruments see, and its supply."""


def values(chunks: Sequence[Chunk]) -> Floats:
    """The values of all chunks, in one array."""
    return np.concatenate([chunk.value for chunk in chunks])


def recorded(meter: Meter, seconds: float) -> Floats:
    """What a meter reads in ``seconds``; it is closed afterwards."""
    meter.start()
    time.sleep(seconds)
    got = [*meter.read(), *meter.stop()]
    meter.close()
    return values(got)


def error_of(meter: Meter, limit_s: float = 4.0) -> MeterError:
    """The error that reading a meter raises within ``limit_s``."""
    until_s = time.monotonic() + limit_s
    with pytest.raises(MeterError) as caught:
        while time.monotonic() < until_s:
            meter.read()
            time.sleep(0.005)
    return caught.value


def refusal(open_meter: Callable[..., Meter], **options: Any) -> RigError:
    """The error that opening a meter with these options raises."""
    with pytest.raises(RigError) as caught:
        open_meter(**options)
    return caught.value
