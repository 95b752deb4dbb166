"""Read a bench file: its devices and meters, and its problems with their lines.

Only the text is read; nothing is imported or opened. See docs/reference/bench-file.md for the format.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from rig.errors import DataError, closest, reason, refused
from rig.plugins import code_in, code_of_others, home_of
from rig.recording.disk.size_limits import read_bounded

FILE = "bench.toml"
DOCTOR_PATIENCE_S, LONGEST_S = 20.0, 3600.0
"""The default of ``patience_s``, and the largest value of ``patience_s`` and ``boot_s``."""
PLAUSIBLE_C = (-60.0, 150.0)
"""Plausible ambient temperatures in degrees Celsius; other values are a mistake, or kelvins."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
LAB = ("lab", "operator", "ambient_temperature_c")
Value = str | int | float | bool
Where = tuple[str, ...]
"""The path of a key in a TOML text, from the top."""
E = TypeVar("E", "DeviceEntry", "MeterEntry")
_Wrong = tuple[str, str, Any, str]


Positive = Annotated[float, Meta(gt=0, le=1e300)]
NotNegative = Annotated[float, Meta(ge=0, le=1e300)]
Celsius = Annotated[float, Meta(ge=PLAUSIBLE_C[0], le=PLAUSIBLE_C[1])]
Text = Annotated[str, Meta(min_length=1)]
Driver = Annotated[Text, Meta(description="the name of a driver (`rig list`), or path.py:function")]
Options = Annotated[dict[str, Any], Meta(description="a table of the driver's options (`rig list DRIVER`)")]
Patience = Annotated[float, Meta(gt=0, le=LONGEST_S, description=f"seconds above 0, {LONGEST_S:g} at most")]
Boot = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Names = Annotated[tuple[Text, ...], Meta(min_length=1)]


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One system under test. ``rails`` are those in the file; ``patience_s`` is for ``rig doctor``.

    Without ``boot_s``, a device that a meter feeds boots for ``rig.bench.power_up.BOOT_S``.
    """

    name: str
    driver: Driver
    options: Options = {}
    rails: Annotated[Names, Meta(description="the names of its rails, each once")] = ()
    patience_s: Patience = DOCTOR_PATIENCE_S
    boot_s: Annotated[Boot | None, Meta(description=f"seconds from 0 to {LONGEST_S:g}")] = None


class MeterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One instrument: the device that it measures (``sees``), the measured ``rails``, supply voltage and calibration.

    ``feeds`` states whether the device gets its power through the instrument; None lets the driver decide.
    """

    name: str
    driver: Driver
    options: Options = {}
    sees: Annotated[Text | None, Meta(description="the name of a device of this file")] = None
    rails: Annotated[Names, Meta(description="the name of a rail, or several")] = msgspec.field(default=(), name="rail")
    supply_v: Annotated[Positive | None, Meta(description="a number of volts above zero")] = None
    calibration: Annotated[Path | None, Meta(description="the name of a calibration file, relative to this one")] = None
    patience_s: Patience = DOCTOR_PATIENCE_S
    feeds: Annotated[bool | None, Meta(description="true if the device's power comes through it, else false")] = None


def where_of(entry: DeviceEntry | MeterEntry) -> Where:
    """Return the key path of an entry's table."""
    return ("meters" if isinstance(entry, MeterEntry) else "devices", entry.name)


class _Whole(msgspec.Struct):
    lab: Annotated[Text, Meta(description="a text")] = ""
    operator: Annotated[Text, Meta(description="a text")] = ""
    ambient_temperature_c: Annotated[Celsius | None, Meta(description="degrees Celsius, -60 to 150")] = None
    devices: Annotated[dict[str, Any], Meta(description="a table for each device, as [devices.NAME]")] = {}
    meters: Annotated[dict[str, Any], Meta(description="a table for each meter, as [meters.NAME]")] = {}


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
    whole = _noted(notes, data, _Whole)
    tables = _entries(notes, data, "devices")
    devices = {n: d for n, t in tables.items() if (d := _entry(notes, t, DeviceEntry, "devices", n))}
    found = _entries(notes, data, "meters")
    meters = {n: m for n, t in found.items() if (m := _entry(notes, t, MeterEntry, "meters", n))}
    for name in sorted(set(devices) & set(meters)):
        notes.add(("meters", name), f"has the name of a device ({_line(notes, 'devices', name)})", name, "Rename one")
    for m in meters.values():
        _check_sees(notes, m, tables, devices.get(m.sees or ""))
    if not trust:
        devices = {n: d for n, d in devices.items() if _own_code(notes, "devices", d)}
        meters = {n: m for n, m in meters.items() if _own_code(notes, "meters", m)}
    bench = BenchFile(path, raw, whole.get("lab", ""), whole.get("operator", ""), devices, meters, notes.lines)
    return bench, notes.problems


def _own_code(notes: Notes, kind: str, entry: DeviceEntry | MeterEntry) -> bool:
    """Return whether an entry may be used; note it if not.

    It may not be used if others can write its code, or if it names code or a program in a bench file that others can
    write.
    """
    named = code_in((entry.driver,), (f"{key}={value}" for key, value in entry.options.items()))
    code = code_of_others(named, notes.path, home_of(notes.path))
    for name, why in list(code.items())[:1]:
        what = f"names the code {name}, which others can write: {why}"
        remedy = "Read this code, and give --trust to run it, or make it your own"
        notes.add((kind, entry.name, "driver"), what, name, remedy)
    return not code


def lab_of(raw: bytes) -> dict[str, Any]:
    """Return lab, operator and ambient temperature, each only if the bench file kept with a run states it."""
    try:
        data = tomllib.loads(raw.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}
    return _checked({name: data[name] for name in LAB if name in data}, _Whole, Path())[0]


def _no_toml(path: Path, line: int, what: str) -> DataError:
    return DataError(f"{path}:{line}: it {what}", field="bench", value=str(path), remedy="Correct its syntax")


def _line(notes: Notes, *where: str) -> str:
    return f"line {line_of(notes.lines, where)}"


def _checked(table: Mapping[str, Any], kind: type[msgspec.Struct], home: Path) -> tuple[dict[str, Any], list[_Wrong]]:
    """Return the good values of a table by field of ``kind``; and name, problem, value and remedy of each bad one."""
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind) if f.name != "name"}
    wanted = {name: f"Give {f.type.__metadata__[-1].description}" for name, f in fields.items()}
    lacking = [name for name, f in fields.items() if f.required and name not in table]
    good, wrong = {}, [(name, "is missing", None, wanted[name]) for name in lacking]
    for name, value in table.items():
        if name not in fields:
            wrong.append((name, "is unknown here", value, closest(name, fields)))
            continue
        field = fields[name]
        given = _several(value) if field.name == "rails" else value
        try:
            good[field.name] = msgspec.convert(
                given, field.type, dec_hook=lambda _, path: home / path if path else None
            )
        except msgspec.ValidationError:
            wrong.append((name, f"is {value!r}", value, wanted[name]))
    return good, wrong


def _noted(notes: Notes, table: Mapping[str, Any], kind: type[msgspec.Struct], *where: str) -> dict[str, Any]:
    """Return the good values of the table at the path ``where``; note the bad ones."""
    good, wrong = _checked(table, kind, home_of(notes.path))
    for name, what, value, remedy in wrong:
        notes.add((*where, name), what, value, remedy)
    return good


def _several(names: Any) -> Any:
    """Return one name or a list of names as a list, which is empty if a name is repeated; other values unchanged."""
    found = [names] if isinstance(names, str) else names
    return [] if isinstance(found, list) and any(found.count(name) > 1 for name in found) else found


def _entries(notes: Notes, data: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the tables of all devices or meters with a valid name; note the others."""
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


def _entry(notes: Notes, table: Mapping[str, Any], kind: type[E], *where: str) -> E | None:
    """Return the entry of one table, and note its problems; None without a valid driver."""
    good = _noted(notes, table, kind, *where)
    return kind(name=where[-1], **good) if "driver" in good else None


def _check_sees(notes: Notes, m: MeterEntry, named: Iterable[str], device: DeviceEntry | None) -> None:
    """Check that what a meter sees exists. ``named`` are all devices of the file, including those with problems."""
    where = ("meters", m.name)
    if m.sees is not None and m.sees not in named:
        notes.add((*where, "sees"), f"is {m.sees!r}, and no device has this name", m.sees, closest(m.sees, named))
    for rail in m.rails if device is not None and device.rails else ():
        assert device is not None
        if rail not in device.rails:
            line = _line(notes, "devices", device.name, "rails")
            what = f"is {rail!r}, and {m.sees} has no such rail ({line})"
            notes.add((*where, "rail"), what, rail, closest(rail, device.rails))


# ---- the lines of keys, which ``tomllib`` does not give ------------------------------------


def lines_of(text: str) -> dict[Where, int]:
    """Return the line (from 1) of every table and key of a valid TOML text, by its path from the top.

    Each statement is parsed alone, below the header of its table. A statement of several lines has the number of its
    first line. Tables of an array share the array's path, with the line of the first table.
    """
    found: dict[Where, int] = {}
    header, waiting, first = "", "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        first = first if waiting else number
        waiting += line + "\n"
        is_header = waiting.lstrip().startswith("[")
        try:
            data = tomllib.loads(waiting if is_header else header + waiting)
        except tomllib.TOMLDecodeError:  # the statement continues in the next line
            continue
        for where in _paths(data):
            found.setdefault(where, first)
        header = waiting if is_header else header
        waiting = ""
    return found


def _paths(data: Any, above: Where = ()) -> Iterator[Where]:
    if isinstance(data, list):
        for item in data:
            yield from _paths(item, above)
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield (*above, key)
            yield from _paths(value, (*above, key))


def line_of(lines: Mapping[Where, int], where: Where) -> int:
    """Return the line of a path, or of the nearest table around it; 1 for the whole file."""
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where, 1)
