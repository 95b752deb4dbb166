"""The types of the fixtures that record steps by hand, and drivers that fail."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from rig.errors import Ended
from rig.recording.reader import Run

ByHand = Callable[..., Run]
"""Records steps on a device and meters, and returns the recording."""
Play = Callable[..., tuple[Ended, Run]]
"""The same for steps that end in an error, which is returned too."""

D = TypeVar("D")


def leaving(driver: D, method: str, error: BaseException, at: int = 1) -> D:
    """Let the call number ``at`` of a driver's method, and each later one, raise an error."""
    inner, calls = getattr(driver, method), count(1)

    def leave(*given: Any) -> Any:
        if next(calls) >= at:
            raise error
        return inner(*given)

    setattr(driver, method, leave)
    return driver
