"""A grid of cells, spelled out: what was asked, the grid that it comes to, and each cell with a key of its own.

The same cell has the same digest in whatever grid it stands, so that a grid can grow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from rig.errors import UsageError
from rig.session.setup import Request, workload_for

Value = str | int | float | bool
MOST_CELLS = 1_000_000
AUTO = "auto"
"""Repetitions draw from every seed that device, plant and meters declare."""
NONE = "none"
_KEY_LENGTH = 96
_IDENTITY = ("device", "scenario", "workload", "rules", "mode", "simulate", "meters", "options", "repetition")
"""What a cell's digest is of. Never to be changed: sweeps that are there are found by it."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked for, as it was written on the command line or in a file."""

    devices: tuple[str, ...]
    scenario: str = "single-stream"
    workload: str = "asc"
    rules: str = "quick"
    mode: str = "together"
    simulate: bool = False
    meters: tuple[str, ...] = ()
    options: dict[str, str] = {}
    vary: dict[str, tuple[str, ...]] = {}
    repetitions: int = 1
    repetition_seeds: tuple[str, ...] = (AUTO,)


class Facts(msgspec.Struct, frozen=True):
    """What is known of a device before the sweep: whether it can be measured once at a time only, and its meters."""

    exclusive: bool
    meters: tuple[str, ...]


class Grid(msgspec.Struct, frozen=True):
    """What was asked, checked: every value as the option's type writes it.

    ``seeds`` holds, by device, the options that repetition k sets to their value plus k, and that value.
    """

    asked: Asked
    options: dict[str, str]
    vary: dict[str, tuple[str, ...]]
    seeds: dict[str, dict[str, int]]
    devices: dict[str, Facts]


class Cell(msgspec.Struct, frozen=True):
    """One measurement: everything that `rig measure` needs, and a readable key that ends in its digest."""

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
        """The command that measures this cell alone; what its recording has as ``argv``."""
        words = ["rig", "measure", "--device", self.device, "--scenario", self.scenario, "--workload", self.workload]
        words += ["--rules", self.rules, "--mode", self.mode, *(["--simulate"] if self.simulate else [])]
        words += [word for name in self.meters for word in ("--meter", name)]
        words += [word for text in texts(self.options) for word in ("--option", text)]
        return [*words, "--out", f"cells/{self.key}"]

    def request(self, out: Path) -> Request:
        """What ``rig.session.measure.measure`` is asked for."""
        return Request(
            device=self.device,
            meters=self.meters,
            scenario=self.scenario,
            workload=self.workload,
            simulate=self.simulate,
            data=None,
            amortise_s=None,
            options=tuple(texts(self.options)),
            out=out,
            argv=tuple(self.command()),
            rules=self.rules,
            mode=self.mode,
        )


def texts(options: Mapping[str, str]) -> list[str]:
    """Options as ``key=value``."""
    return [f"{key}={value}" for key, value in options.items()]


def digest(content: Any) -> str:
    """SHA-256 of a structure's canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


# ---- reading --------------------------------------------------------------------------------


def from_file(path: Path) -> Asked:
    """A grid in TOML, fields as in ``Asked``. Raises ``UsageError`` that names the line, or the key."""
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not TOML: {error}", field="file", value=str(path), remedy="Mend that line"
        ) from error
    for table in ("options", "vary"):
        if isinstance(content.get(table), dict):
            content[table] = {key: _as_texts(f"{table}.{key}", value) for key, value in _flat(content[table])}
    try:
        return msgspec.convert(with_workload(content), Asked)
    except msgspec.ValidationError as error:
        known = ", ".join(Asked.__struct_fields__)
        raise UsageError(
            f"{path}: {str(error).replace('$.', '')}", field="file", value=str(path), remedy=f"Keys are {known}"
        ) from error


def with_workload(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for ``Asked``, with the workload that goes with its scenario where none was named."""
    scenario = given.get("scenario")
    return {"workload": workload_for(scenario if isinstance(scenario, str) else "")} | dict(given)


def from_texts(texts: Iterable[str], what: str) -> dict[str, str]:
    """``key=value`` texts by key. Raises ``UsageError`` for one that is not, or that stands twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--{what} {text!r} is not key=value", field=what, value=text, remedy="Write key=value")
        if key in found:
            raise UsageError(f"--{what} {key} stands twice", field=what, value=key, remedy="Give it once")
        found[key] = value
    return found


def values_in(key: str, text: str) -> tuple[str, ...]:
    """The values of ``--vary key=v1,v2``. Raises ``UsageError`` for an empty one."""
    values = tuple(value.strip() for value in text.split(","))
    if values != ("",) and "" in values:
        raise UsageError(f"--vary {key}={text} has an empty value", field=key, value=text, remedy="Write v1,v2,v3")
    return () if values == ("",) else values


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``device.seed = 1`` is a table inside a table to TOML, and a key with a dot to us."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _as_texts(key: str, value: Any) -> str | list[str]:
    several = key.startswith("vary.")
    items = value if several else [value]
    if not isinstance(items, list) or not all(isinstance(item, (str, int, float)) for item in items):
        wanted = "a list of numbers, texts, true or false" if several else "a number, a text, true or false"
        raise UsageError(f"{key} is {value!r}", field=key, value=str(value), remedy=f"Give {wanted}")
    found = [plain(item) for item in items]
    return found if several else found[0]


def plain(value: Value | None) -> str:
    """A value as an option is written."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


# ---- counting -------------------------------------------------------------------------------


def check_size(asked: Asked) -> None:
    """Raises ``UsageError`` for a grid without cells, and for one past ``MOST_CELLS``."""
    if asked.repetitions < 1:
        raise _empty("repetitions", asked.repetitions, "1 or more")
    if not asked.devices:
        raise _empty("devices", "", "one device or more")
    if double := {name for name in asked.devices if asked.devices.count(name) > 1}:
        raise UsageError(
            f"device {min(double)} stands twice", field="devices", value=min(double), remedy="Once will do"
        )
    for key, values in asked.vary.items():
        if not values:
            raise _empty(f"vary.{key}", "", "one value or more")
        if key in asked.options:
            raise UsageError(
                f"{key} is both varied and fixed", field=key, value=asked.options[key], remedy="Choose one"
            )
    count = len(asked.devices) * prod(map(len, asked.vary.values())) * asked.repetitions
    if count > MOST_CELLS:
        raise UsageError(f"a grid of {count} cells", field="vary", value=count, remedy=f"At most {MOST_CELLS} at once")


def _empty(field: str, value: Value, wanted: str) -> UsageError:
    shown = f" {value}" if value != "" else ""
    return UsageError(
        f"a grid of zero cells: {field} is{shown or ' empty'}", field=field, value=value, remedy=f"Give {wanted}"
    )


def cells_of(grids: Iterable[Grid]) -> list[Cell]:
    """Every cell of the grids once, in the order in which they are written: devices, values, repetitions."""
    found: dict[str, Cell] = {}
    for grid in grids:
        for cell in _cells(grid):
            found.setdefault(cell.key[-12:], cell)
    return list(found.values())


def _cells(grid: Grid) -> Iterator[Cell]:
    asked = grid.asked
    for device in asked.devices:
        for values in product(*grid.vary.values()):
            varied = dict(zip(grid.vary, values, strict=True))
            for k in range(asked.repetitions):
                options = grid.options | varied
                options |= {key: str(int(options.get(key, base)) + k) for key, base in grid.seeds[device].items()}
                cell = Cell(
                    key="",
                    device=device,
                    scenario=asked.scenario,
                    workload=asked.workload,
                    rules=asked.rules,
                    mode=asked.mode,
                    simulate=asked.simulate,
                    meters=asked.meters,
                    options=dict(sorted(options.items())),
                    repetition=k,
                    exclusive=grid.devices[device].exclusive,
                )
                yield msgspec.structs.replace(cell, key=_key(cell, varied))


def _key(cell: Cell, varied: Mapping[str, str]) -> str:
    identity = {name: getattr(cell, name) for name in _IDENTITY}
    words = [
        cell.device.rpartition("/")[2],
        *(f"{key}={value}" for key, value in varied.items()),
        f"r{cell.repetition}",
    ]
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._=+-" else "_" for c in "-".join(words))
    return f"{safe.lstrip('.-')[:_KEY_LENGTH]}-{digest(identity)[:12]}"


def difference(was: Asked, now: Asked) -> list[str]:
    """What differs between two grids, a phrase for each key."""
    a, b = dict(_shown(was)), dict(_shown(now))
    none = "not given"
    return [f"{key} was {a.get(key, none)}, is {b.get(key, none)}" for key in {**a, **b} if a.get(key) != b.get(key)]


def _shown(asked: Asked) -> Iterator[tuple[str, str]]:
    for name in asked.__struct_fields__:
        value = getattr(asked, name)
        if isinstance(value, dict):
            yield from ((f"{name}.{k}", v if isinstance(v, str) else ",".join(v)) for k, v in value.items())
        elif isinstance(value, tuple):
            yield name, " ".join(value)
        else:
            yield name, plain(value)
