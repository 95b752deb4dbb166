"""A device that a meter feeds: how long it boots when its power comes on, before anything is measured."""

import sys

from rig.factories import Factory
from rig.types import Clock

BOOT_S = 1.0
"""The default of ``boot_s`` (s), during which the inrush current passes too."""


def feeds(factory: Factory, said: bool | None) -> bool:
    """Return whether a device gets its power through a meter: ``said``, else ``FEEDS`` in the meter's module."""
    own = getattr(sys.modules.get(getattr(factory, "__module__", "")), "FEEDS", False)
    return bool(own) if said is None else said


def boot(clock: Clock, boot_s: float | None) -> None:
    """Wait until a device with new power has booted; None means ``BOOT_S``."""
    clock.sleep_until(clock.now_ns() + round(1e9 * (BOOT_S if boot_s is None else boot_s)))
