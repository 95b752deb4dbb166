"""Helpers of tests of Xylo boards, for a device on a simulated board."""

from __future__ import annotations

from drivers.devices.xylo.device import XyloDevice
from fixtures.instruments.xylo.board import SimBoard
from rig.types import Reply
from tests.support.remote_workers import answers


def hardware(device: XyloDevice) -> SimBoard:
    """Return the simulated board of a device."""
    assert device.board is not None
    found: SimBoard = device.board.kit.hdk
    return found


def awaited(device: XyloDevice) -> Reply:
    """Return the next reply, within 50 s."""
    return answers(device, 1, 50.0)[0]
