"""Find instruments connected to this computer, by their drivers.

The module of a driver may have ``connected(addresses) -> Iterable[Connected]``. It lists the instruments that the
driver could open, and changes none of their settings.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rig.errors import MissingExtraError, RigError
from rig.plugins import load, names

GROUPS = ("devices", "meters")


@dataclass(frozen=True)
class Connected:
    """One instrument or board: its description, and the options that open it.

    If ``sure`` is False, the instrument did not identify itself, so its entry is commented out.
    """

    what: str
    options: Mapping[str, str | int]
    sure: bool = True


@dataclass(frozen=True)
class Found:
    """What one driver found. ``problem`` names what it could not search; empty if it searched everything."""

    group: str
    driver: str
    items: tuple[Connected, ...] = ()
    problem: str = ""


def find(addresses: Sequence[str]) -> Iterator[Found]:
    """Ask the drivers of devices, then those of meters, what is connected; yield each that finds or reports anything.

    ``addresses`` name instruments that no search finds, such as those on the network.
    """
    for group in GROUPS:
        for driver in names(group):
            items: list[Connected] = []
            problem = ""
            try:
                module = sys.modules.get(getattr(load(group, driver), "__module__", ""))
                look = getattr(module, "connected", None)
                for item in look(addresses) if look is not None else ():
                    items.append(item)
            except MissingExtraError as error:
                problem = str(error)
            except RigError as error:
                problem = error.message
            if items or problem:
                yield Found(group, driver, tuple(items), problem)
