"""The types of the fixtures that record steps by hand, and drivers that fail."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from rig.errors import Ended
from rig.recording.reader import Run
from tests.support.raised import raising

ByHand = Callable[..., Run]
"""Records steps on a device and meters, and returns the recording."""
Play = Callable[..., tuple[Ended, Run]]
"""Records steps that end in an error, and returns this error and the recording."""

D = TypeVar("D")


def before(driver: D, method: str, do: Callable[[], object], at: int = 1) -> D:
    """Let the call number ``at`` of a driver's method, and each later one, begin with ``do``."""
    inner, calls = getattr(driver, method), count(1)

    def called(*given: Any) -> Any:
        if next(calls) >= at:
            do()
        return inner(*given)

    setattr(driver, method, called)
    return driver


def leaving(driver: D, method: str, error: BaseException, at: int = 1) -> D:
    """Let the call number ``at`` of a driver's method, and each later one, raise an error."""
    return before(driver, method, raising(error), at)
