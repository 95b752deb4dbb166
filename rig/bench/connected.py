"""Find instruments connected to this computer, by their drivers, and make a bench file for them.

The module of a driver may have ``connected(addresses) -> Iterable[Connected]``. It lists the instruments that the
driver could open, and changes none of their settings.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rig.errors import MissingExtraError, RigError
from rig.plugins import load, names

GROUPS = ("devices", "meters")
HEAD = """\
# The devices and meters of this bench. Lines that begin with # do nothing: complete those that apply, and remove the #.
#
#     rig doctor                       opens everything and reports what is wrong
#     rig measure --device board       measures it with the meters that see it
#
# lab = "Room 12"
# operator = "A. Person"

# [devices.board]                      # the system under test
# driver = "my_device.py:open_device"  # a name from `rig list`, or path.py:function
# rails = ["core"]
"""
WIRING = """\
# sees = "board"     # the device whose supply it measures
# rail = "core"
# supply_v = 3.3     # the voltage before the meter
"""


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


def bench_text(found: Sequence[Found]) -> str:
    """Return a bench file with an entry for each instrument found; an entry that is not sure is commented out."""
    entries = []
    for each in found:
        for k, item in enumerate(each.items):
            name = each.driver if k == 0 else f"{each.driver}-{k + 1}"
            options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in item.options.items())
            lines = [f"[{each.group}.{name}]  # {' '.join(item.what.split())}", f"driver = {json.dumps(each.driver)}"]
            lines.append(f"options = {{ {options} }}")
            text = "".join(f"{line}\n" if item.sure else f"# {line}\n" for line in lines)
            entries.append(text + (WIRING if each.group == "meters" else ""))
    return "\n".join([HEAD, *entries])
