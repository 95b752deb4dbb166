"""Read a bench file: its devices and meters, and its problems with their lines.

Only the text is read; nothing is imported or opened. See docs/reference/bench-file.md for the format.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.bench import fields
from rig.bench.fields import Field, check_table
from rig.bench.lines import Where, line_of, lines_of
from rig.errors import DataError, closest, reason, refused
from rig.plugins import code_in, code_of_others, home_of
from rig.recording.bounded import read_bounded

FILE = "bench.toml"
PATIENCE_S = 20.0
ABSOLUTE_ZERO_C, HOTTEST_C = -273.15, 1000.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
Value = str | int | float | bool


@dataclass(frozen=True)
class DeviceEntry:
    """One system under test. ``rails`` are those in the file; ``patience_s`` is for ``rig doctor``."""

    name: str
    driver: str
    options: Mapping[str, Value]
    rails: tuple[str, ...] = ()
    patience_s: float = PATIENCE_S
    boot_s: float | None = None


@dataclass(frozen=True)
class MeterEntry:
    """One instrument: the device that it ``sees``, the measured ``rails``, their supply voltage, the calibration.

    ``feeds`` states whether the device gets its power through the instrument; None lets the driver decide.
    """

    name: str
    driver: str
    options: Mapping[str, Value]
    sees: str | None = None
    rails: tuple[str, ...] = ()
    supply_v: float | None = None
    calibration: Path | None = None
    patience_s: float = PATIENCE_S
    feeds: bool | None = None


@dataclass(frozen=True)
class BenchFile:
    """The content of one bench file. ``raw`` are its bytes, ``lines`` the line of each key."""

    path: Path
    raw: bytes
    lab: str
    operator: str
    devices: Mapping[str, DeviceEntry]
    meters: Mapping[str, MeterEntry]
    lines: Mapping[Where, int] = field(repr=False)

    def meters_of(self, device: str) -> tuple[MeterEntry, ...]:
        """Return the meters that see a device, in the order of the file."""
        return tuple(m for m in self.meters.values() if m.sees == device)


@dataclass(frozen=True)
class Problem:
    """One problem, its line, and its device or meter; ``entry`` is empty for the whole file."""

    entry: str
    line: int
    error: DataError


@dataclass
class Notes:
    """Collects the problems of a file while it is read."""

    path: Path
    lines: Mapping[Where, int]
    problems: list[Problem] = field(default_factory=list)

    def add(self, where: Where, what: str, value: object, remedy: str) -> None:
        """Add a problem of the key at the path ``where``; its first two parts name a device or meter."""
        line, dotted = line_of(self.lines, where), ".".join(where)
        error = DataError(f"{self.path}:{line}: {dotted} {what}", field=dotted, value=value, remedy=remedy)
        self.problems.append(Problem(where[1] if len(where) > 1 else "", line, error))


def read(path: Path, trust: bool = False) -> tuple[BenchFile, list[Problem]]:
    """Read a bench file and collect its problems. An entry that cannot be understood is left out.

    Code named by its path is a problem if others can write the code or the bench file, unless ``trust`` is set.

    Raises ``UsageError`` for a file that cannot be read, ``DataError`` with the line if the file is not TOML.
    """
    try:
        raw = read_bounded(path)
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        data = tomllib.loads(text)
    except OSError as error:
        remedy = "Name a bench file with --bench; docs/reference/bench-file.md describes the format"
        raise refused("bench", str(path), remedy, f"cannot read the bench file {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _no_toml(path, line, "is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        at = re.search(r"at line (\d+)", str(error))
        raise _no_toml(path, int(at[1]) if at else text.count("\n") + 1, f"is not TOML: {error}") from error
    notes = Notes(path, lines_of(text))
    table = _checked(notes, (), data, TOP)
    tables = _entries(notes, data, "devices")
    devices = {n: d for n, t in tables.items() if (d := _device(notes, n, t))}
    meters = {n: m for n, t in _entries(notes, data, "meters").items() if (m := _meter(notes, n, t))}
    for name in sorted(set(devices) & set(meters)):
        notes.add(("meters", name), f"has the name of a device ({_line(notes, 'devices', name)})", name, "Rename one")
    for m in meters.values():
        _check_sees(notes, m, tables, devices.get(m.sees or ""))
    if not trust:
        devices = {n: d for n, d in devices.items() if _own_code(notes, "devices", d)}
        meters = {n: m for n, m in meters.items() if _own_code(notes, "meters", m)}
    bench = BenchFile(path, raw, table.get("lab", ""), table.get("operator", ""), devices, meters, notes.lines)
    return bench, notes.problems


def _own_code(notes: Notes, kind: str, entry: DeviceEntry | MeterEntry) -> bool:
    """Note an entry with code or a program if others can write the code, the program or the bench file."""
    named = code_in((entry.driver,), (f"{key}={value}" for key, value in entry.options.items()))
    code = code_of_others(named, notes.path, home_of(notes.path))
    for name, why in list(code.items())[:1]:
        what, remedy = (
            f"names the code {name}, which others can write: {why}",
            "Read this code, and give --trust to run it",
        )
        notes.add((kind, entry.name, "driver"), what, name, f"{remedy}, or make it your own")
    return not code


def lab_of(raw: bytes) -> dict[str, Any]:
    """Return lab, operator and ambient temperature, as far as the bench file kept with a run states them."""
    try:
        data = tomllib.loads(raw.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}
    given = {name: field.coerce(data[name]) for name, field in LAB.items() if name in data}
    return {name: value for name, value in given.items() if value is not None}


def _no_toml(path: Path, line: int, what: str) -> DataError:
    return DataError(f"{path}:{line}: it {what}", field="bench", value=str(path), remedy="Correct its syntax")


def _line(notes: Notes, *where: str) -> str:
    return f"line {line_of(notes.lines, where)}"


def _names(x: Any) -> tuple[str, ...] | None:
    """Return one name or several, or None if a name is repeated."""
    found = [x] if isinstance(x, str) else x
    good = isinstance(found, list) and found and all(isinstance(n, str) and n for n in found)
    return tuple(found) if good and len(set(found)) == len(found) else None


Fields = dict[str, Field]
LAB: Fields = {
    "lab": Field(fields.text, "a text"),
    "operator": Field(fields.text, "a text"),
    "ambient_temperature_c": Field(fields.between(ABSOLUTE_ZERO_C, HOTTEST_C), "a number of degrees Celsius"),
}
TOP: Fields = LAB | {
    "devices": Field(fields.table, "a table for each device, as [devices.NAME]"),
    "meters": Field(fields.table, "a table for each meter, as [meters.NAME]"),
}
COMMON: Fields = {
    "driver": Field(fields.text, "the name of a driver (`rig list`), or path.py:function", needed=True),
    "options": Field(fields.table, "a table of the driver's options (`rig list DRIVER`)"),
    "patience_s": Field(fields.positive, "a number of seconds above zero"),
}
DEVICE: Fields = COMMON | {
    "rails": Field(_names, "the names of its rails, each once"),
    "boot_s": Field(fields.not_negative, "a number of seconds, zero or more"),
}
METER: Fields = COMMON | {
    "sees": Field(fields.text, "the name of a device of this file"),
    "rail": Field(_names, "the name of a rail, or several"),
    "supply_v": Field(fields.positive, "a number of volts above zero"),
    "calibration": Field(fields.text, "the name of a calibration file, relative to this one"),
    "feeds": Field(fields.of(bool), "true where the device has its power through this meter, else false"),
}


def _checked(notes: Notes, where: Where, table: Mapping[str, Any], known: Fields) -> dict[str, Any]:
    """Return the good values of one table; note the others."""
    found = check_table(table, known)
    for name, what, value, remedy in found.problems:
        notes.add((*where, name), what, value, remedy)
    return found.values


def _entries(notes: Notes, data: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the tables of all devices or meters with a valid name."""
    tables = data.get(kind, {})
    found: dict[str, Mapping[str, Any]] = {}
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if not isinstance(table, dict):
            notes.add((kind, name), f"is {table!r}", table, f"Give a table, as [{kind}.{name}]")
        elif not NAME.fullmatch(name) or name == "none":
            notes.add((kind, name), "is not a name", name, "Use letters, digits, - and _; `none` means no meter")
        else:
            found[name] = table
    return found


def _device(notes: Notes, name: str, table: Mapping[str, Any]) -> DeviceEntry | None:
    t = _checked(notes, ("devices", name), table, DEVICE)
    if "driver" not in t:
        return None
    return DeviceEntry(
        name, t["driver"], t.get("options", {}), t.get("rails", ()), t.get("patience_s", PATIENCE_S), t.get("boot_s"),
    )  # fmt: skip


def _meter(notes: Notes, name: str, table: Mapping[str, Any]) -> MeterEntry | None:
    t = _checked(notes, ("meters", name), table, METER)
    if "driver" not in t:
        return None
    calibration = home_of(notes.path) / t["calibration"] if "calibration" in t else None
    return MeterEntry(
        name, t["driver"], t.get("options", {}), t.get("sees"), t.get("rail", ()), t.get("supply_v"), calibration,
        t.get("patience_s", PATIENCE_S), t.get("feeds"),
    )  # fmt: skip


def _check_sees(notes: Notes, m: MeterEntry, named: Iterable[str], device: DeviceEntry | None) -> None:
    """Check what a meter sees. ``named`` are all devices of the file, including those with problems."""
    where = ("meters", m.name)
    if m.sees is not None and m.sees not in named:
        notes.add((*where, "sees"), f"is {m.sees!r}, and no device has this name", m.sees, closest(m.sees, named))
    for rail in m.rails if device is not None and device.rails else ():
        assert device is not None
        if rail not in device.rails:
            line = _line(notes, "devices", device.name, "rails")
            what = f"is {rail!r}, and {m.sees} has no such rail ({line})"
            notes.add((*where, "rail"), what, rail, closest(rail, device.rails))
