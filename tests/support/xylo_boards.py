"""Helpers for tests of a Xylo device on a simulated board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from drivers.devices.xylo.device import XyloDevice
from fixtures.instruments.xylo.board import SimBoard
from rig.types import Reply
from tests.support.remote_workers import answers


def hardware(device: XyloDevice) -> SimBoard:
    """Return the simulated board of a device."""
    assert device.board is not None
    found: SimBoard = device.board.kit.hdk
    return found


def opener(make: Callable[..., XyloDevice]) -> Iterator[Callable[..., XyloDevice]]:
    """Yield ``make``, and close what it has made."""
    with ExitStack() as made:
        yield lambda *given, **traits: made.enter_context(closing(make(*given, **traits)))


def awaited(device: XyloDevice) -> Reply:
    """Return the next reply, within 50 s."""
    return answers(device, 1, 50.0)[0]
