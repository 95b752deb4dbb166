"""A grid of cells: its specification, the checked grid, and the cells, each with its own key.

A cell has the same digest in every grid, so a grid can grow.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from rig.bench.request import SCENARIO, WORKLOAD, Request, scenario_for, workload_for
from rig.errors import UsageError, refused
from rig.plugins import code_in

Value = str | int | float | bool
MOST_CELLS = 1_000_000
AUTO = "auto"
"""With this value, every seed that the device, simulated bench and meters declare differs between repetitions."""
NONE = "none"
_KEY_LENGTH = 96
_PASSED_ON = ("scenario", "workload", "rules", "mode", "simulate", "meters")
"""The fields that a cell gets from its grid, and a request from its cell."""
_IDENTITY = ("device", "scenario", "workload", "rules", "mode", "simulate", "meters", "options", "repetition")
"""The fields that a cell's digest covers. The list must never change, because digests identify existing cells."""


class GridSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A grid as written on the command line."""

    devices: tuple[str, ...]
    scenario: str = SCENARIO
    workload: str = WORKLOAD
    rules: str = "quick"
    mode: str = "together"
    simulate: bool = False
    meters: tuple[str, ...] = ()
    options: dict[str, str] = {}
    vary: dict[str, tuple[str, ...]] = {}
    repetitions: int = 1
    repetition_seeds: tuple[str, ...] = (AUTO,)

    def code(self) -> list[str]:
        """Return the code and programs that the grid names; see ``rig.plugins.code_in``."""
        varied = [f"{key}={value}" for key, values in self.vary.items() for value in values]
        named = (*self.devices, *self.meters, self.scenario, self.workload, self.rules)
        return code_in(named, [*texts(self.options), *varied])


class Facts(msgspec.Struct, frozen=True):
    """The properties of a device's bench: its meters, and whether cells must use it one at a time."""

    exclusive: bool
    meters: tuple[str, ...]


class Grid(msgspec.Struct, frozen=True):
    """A checked grid; every value is written in the form of the option's type.

    ``seeds`` has, for each device, options with a base value; repetition k sets such an option to the base plus k.
    """

    asked: GridSpec
    options: dict[str, str]
    vary: dict[str, tuple[str, ...]]
    seeds: dict[str, dict[str, int]]
    devices: dict[str, Facts]

    def code(self) -> list[str]:
        """Return what ``GridSpec.code`` returns, but with the values that cells use."""
        return msgspec.structs.replace(self.asked, options=self.options, vary=self.vary).code()


class Cell(msgspec.Struct, frozen=True):
    """One measurement: the input of `rig measure`, and a readable key that ends in its digest."""

    key: str
    device: str
    scenario: str
    workload: str
    rules: str
    mode: str
    simulate: bool
    meters: tuple[str, ...]
    options: dict[str, str]
    repetition: int
    exclusive: bool

    def command(self) -> list[str]:
        """Return the command that measures this cell alone; it is recorded as ``argv``."""
        words = ["rig", "measure", "--device", self.device, "--scenario", self.scenario, "--workload", self.workload]
        words += ["--rules", self.rules, "--mode", self.mode, *(["--simulate"] if self.simulate else [])]
        words += [word for name in self.meters for word in ("--meter", name)]
        words += [word for text in texts(self.options) for word in ("--option", text)]
        return [*words, "--out", f"cells/{self.key}"]

    def request(self, out: Path) -> Request:
        given = {name: getattr(self, name) for name in ("device", *_PASSED_ON)}
        return Request(**given, options=tuple(texts(self.options)), out=out, argv=tuple(self.command()))


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the default scenario of the workload, or the default workload of the scenario, to fields of ``GridSpec``."""
    scenario = scenario_for(given.get("workload"), given.get("scenario"))
    return {"scenario": scenario, "workload": workload_for(scenario)} | dict(given)


def from_texts(texts: Iterable[str], what: str) -> dict[str, str]:
    """Return the value by key of ``key=value`` texts. Raises ``UsageError`` for another form or a repeated key."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise refused(what, text, f"Write --{what} KEY=VALUE", f"--{what} {text!r} is not key=value")
        if key in found:
            raise UsageError(f"--{what} {key} is given twice", field=what, value=key, remedy="Give it once")
        found[key] = value
    return found


def values_in(key: str, text: str) -> tuple[str, ...]:
    """Return the values of ``--vary key=v1,v2``; none for no text. Raises ``UsageError`` if one of several is empty."""
    values = tuple(value.strip() for value in text.split(","))
    if values != ("",) and "" in values:
        raise UsageError(f"--vary {key}={text} has an empty value", field=key, value=text, remedy="Write v1,v2,v3")
    return () if values == ("",) else values


def texts(options: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in options.items()]


def digest(content: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``content``."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def plain(value: Value | None) -> str:
    """Return a value as the text of an option."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def check_size(spec: GridSpec) -> None:
    """Raise ``UsageError`` for no cells, for more than ``MOST_CELLS``, or for a device or key that is given twice."""
    if spec.repetitions < 1:
        raise _empty("repetitions", spec.repetitions, "1 or more")
    if not spec.devices:
        raise _empty("devices", "", "one device or more")
    if double := {name for name in spec.devices if spec.devices.count(name) > 1}:
        raise refused("devices", min(double), "Give it once", f"device {min(double)} is given twice")
    for key, values in spec.vary.items():
        if not values:
            raise _empty(f"vary.{key}", "", "one value or more")
        if key in spec.options:
            raise UsageError(f"{key} is both varied and fixed", field=key, value=spec.options[key], remedy="Choose one")
    count = len(spec.devices) * prod(map(len, spec.vary.values())) * spec.repetitions
    if count > MOST_CELLS:
        raise refused("vary", count, f"Give at most {MOST_CELLS} cells", f"the grid has {count} cells")


def check_whole_grid(grid: Grid, grid_sha256: str) -> None:
    """Check the digest of a grid, and that all its cells can be listed.

    Raises ``UsageError`` as ``check_size`` does, ``KeyError`` for a device without facts, ``ValueError`` for another
    digest and for a seed that is no number, or too large.
    """
    if digest(grid) != grid_sha256:
        raise ValueError("its digest")
    check_size(msgspec.structs.replace(grid.asked, options={}, vary=grid.vary))
    for device in grid.asked.devices:
        _ = grid.devices[device]
        for key in grid.seeds[device]:
            for value in grid.vary.get(key, (grid.options.get(key, "0"),)):
                str(int(value) + grid.asked.repetitions)  # ValueError also for a sum of too many digits


def _empty(field: str, value: Value, wanted: str) -> UsageError:
    shown = f" {value}" if value != "" else ""
    return refused(field, value, f"Give {wanted}", f"the grid has no cells, because {field} is{shown or ' empty'}")


def cells_of(grids: Iterable[Grid]) -> list[Cell]:
    """Return every cell of the grids once, ordered by device, values and repetition."""
    found: dict[str, Cell] = {}
    for grid in grids:
        for cell in _cells(grid):
            found.setdefault(cell.key[-12:], cell)
    return list(found.values())


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells in the order in which a sweep records them: by repetition, and within each by digest.

    No varied key is thus confounded with a slow drift.
    """
    return sorted(cells, key=lambda cell: (cell.repetition, cell.key[-12:]))


def _cells(grid: Grid) -> Iterator[Cell]:
    spec = grid.asked
    for device in spec.devices:
        for values in product(*grid.vary.values()):
            varied = dict(zip(grid.vary, values, strict=True))
            for k in range(spec.repetitions):
                options = grid.options | varied
                options |= {key: str(int(options.get(key, base)) + k) for key, base in grid.seeds[device].items()}
                cell = Cell(
                    **{name: getattr(spec, name) for name in _PASSED_ON}, key="", device=device, repetition=k,
                    options=dict(sorted(options.items())), exclusive=grid.devices[device].exclusive,
                )  # fmt: skip
                yield msgspec.structs.replace(cell, key=_key(cell, varied))


def _key(cell: Cell, varied: Mapping[str, str]) -> str:
    identity = {name: getattr(cell, name) for name in _IDENTITY}
    words = [cell.device.rpartition("/")[2], *(f"{k}={v}" for k, v in varied.items()), f"r{cell.repetition}"]
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._=+-" else "_" for c in "-".join(words))
    return f"{safe.lstrip('.-')[:_KEY_LENGTH]}-{digest(identity)[:12]}"


def difference(was: GridSpec, now: GridSpec) -> list[str]:
    """Return the differences between two grids, one phrase for each key."""
    a, b = dict(_shown(was)), dict(_shown(now))
    none = "not given"
    return [f"{key} was {a.get(key, none)}, is {b.get(key, none)}" for key in {**a, **b} if a.get(key) != b.get(key)]


def _shown(spec: GridSpec) -> Iterator[tuple[str, str]]:
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if isinstance(value, dict):
            yield from ((f"{name}.{k}", v if isinstance(v, str) else ",".join(v)) for k, v in value.items())
        elif isinstance(value, tuple):
            yield name, " ".join(value)
        else:
            yield name, plain(value)
