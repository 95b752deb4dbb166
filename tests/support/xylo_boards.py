"""Helpers for tests of a Xylo device on a simulated board."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from drivers.devices.xylo.device import XyloDevice
from fixtures.instruments.xylo.board import SimBoard


def hardware(device: XyloDevice) -> SimBoard:
    """Return the simulated board of a device."""
    assert device.board is not None
    found: SimBoard = device.board.kit.hdk
    return found


def opener(make: Callable[..., XyloDevice]) -> Iterator[Callable[..., XyloDevice]]:
    """Yield ``make``, and close what it has made."""
    with ExitStack() as made:
        yield lambda *given, **traits: made.enter_context(closing(make(*given, **traits)))
