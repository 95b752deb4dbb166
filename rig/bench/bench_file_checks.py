"""Checks of a bench file against the drivers, their options, the calibration files and the wiring of rails.

Drivers are imported for their options. Nothing is opened.
"""

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rig.bench.bench_file_fields import BenchFile, DeviceEntry, MeterEntry, Notes, Problem, Value, line_of, where_of
from rig.bench.value_checks import clashes, wrong_value
from rig.errors import MissingExtraError, RigError, UnknownNameError, closest
from rig.factories import Factory, Option, located, options_of
from rig.plugins import home_of, load

Entry = DeviceEntry | MeterEntry
OWN_KEYS = ("rail", "supply_v", "calibration")
"""Options of meters that a bench file states beside the driver, outside the table of options."""
MOST_V = 400.0
"""A supply above this many volts is refused, because it is probably in millivolts."""


def factory_of(bench: BenchFile, entry: Entry) -> Factory:
    """Return the factory of an entry's driver. If the factory is no class, errors about its options name file and line.

    Raises a ``RigError`` for a driver that does not exist or cannot be imported.
    """
    factory = _loaded(bench, entry)
    if isinstance(factory, type):  # a wrapper would hide the options of its __init__
        return factory

    @functools.wraps(factory)
    def opening(*given: Any, **options: Any) -> Any:
        with located(places_of(bench, entry)):
            return factory(*given, **options)

    return opening


def places_of(bench: BenchFile, entry: Entry) -> dict[str, str]:
    """Return FILE:LINE and key of each option; "" and an option that the file lacks have those of the table."""
    where = where_of(entry)
    table = f"{bench.path}:{line_of(bench.lines, where)}: {'.'.join(where)}"
    try:
        known = [*options_of(_loaded(bench, entry))]
    except RigError:
        known = []
    found = {"": table}
    for key in known:
        path = (*where, key) if (*where, key) in bench.lines else (*where, "options", key)
        line = line_of(bench.lines, path)
        found[key] = f"{bench.path}:{line}: {'.'.join(path)}" if path in bench.lines else table
    return found


def _loaded(bench: BenchFile, entry: Entry) -> Factory:
    return load(where_of(entry)[0], driver_name(bench, entry))


def driver_name(bench: BenchFile, entry: Entry) -> str:
    """Return the driver's name for ``rig.plugins.load``; a path is relative to the bench file."""
    return str(home_of(bench.path) / entry.driver) if ".py:" in entry.driver else entry.driver


def texts_of(entry: Entry, declared: Mapping[str, Option]) -> dict[str, str]:
    """Return an entry's options and wiring as texts, as on a command line.

    A meter with an option ``name`` gets its name in the file, so that a recording distinguishes two of one kind.
    """
    given: dict[str, Value] = dict(entry.options)
    if isinstance(entry, MeterEntry):
        given |= {key: value for key, value in _own(entry).items() if key in declared}
        if "name" in declared and declared["name"].kind is str:
            given.setdefault("name", entry.name)
    return {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in given.items()}


def problems_of(bench: BenchFile, entries: Mapping[str, Entry]) -> list[Problem]:
    """Return the problems that only drivers, calibrations or the wiring reveal; ``entries`` are by name."""
    notes = Notes(bench.path, bench.lines)
    declared = {name: _declared(notes, bench, entry) for name, entry in entries.items()}
    for name, entry in entries.items():
        options = declared[name]
        if options is not None:
            _check_options(notes, entry, options, driver_name(bench, entry))
        if isinstance(entry, MeterEntry):
            _check_calibration(notes, entry)
    for first, second, option, place in clashes(entries, {n: d or {} for n, d in declared.items()}):
        key = (*where_of(entries[second]), "options", option)
        what = f"is {place}, which {first} uses too (line {line_of(bench.lines, where_of(entries[first]))})"
        notes.add(key, what, place, "Give each instrument its own address, port or channel")
    meters = {n: e for n, e in entries.items() if isinstance(e, MeterEntry)}
    _check_rails(notes, {n: _rails(m, declared[n] or {}) for n, m in meters.items()}, meters)
    return notes.problems


def _own(m: MeterEntry) -> dict[str, Value]:
    calibration = None if m.calibration is None else str(m.calibration)
    own = {"rail": m.rails[0] if len(m.rails) == 1 else None, "supply_v": m.supply_v, "calibration": calibration}
    return {key: value for key, value in own.items() if value is not None}


def _declared(notes: Notes, bench: BenchFile, entry: Entry) -> dict[str, Option] | None:
    """Return the driver's options; None if they cannot be known. A missing package is reported at the opening."""
    try:
        return options_of(factory_of(bench, entry))
    except MissingExtraError:
        return None
    except UnknownNameError as error:
        what = f"is {entry.driver!r}, which is not a driver"
        notes.add((*where_of(entry), "driver"), what, entry.driver, error.remedy)
    except RigError as error:
        notes.add((*where_of(entry), "driver"), f"cannot be used: {error.message}", entry.driver, error.remedy)
    return None


def _check_options(notes: Notes, entry: Entry, declared: Mapping[str, Option], driver: str) -> None:
    above = (*where_of(entry), "options")
    own = OWN_KEYS if isinstance(entry, MeterEntry) else ()
    for key, value in entry.options.items():
        if key in own and key in declared:
            remedy = f"Write it as {key} = ... in [{'.'.join(above[:2])}]"
            notes.add((*above, key), "does not belong in the table of options", value, remedy)
        elif key not in declared:
            remedy = closest(key, {*declared} - {*own}, f"`rig list {driver}` shows them")
            notes.add((*above, key), f"is not an option of {driver}", value, remedy)
        elif wrong := wrong_value(declared[key], value):
            notes.add((*above, key), f"is {value!r}", value, f"Give {wrong}")
    if isinstance(entry, MeterEntry):
        if entry.supply_v is not None and entry.supply_v > MOST_V:
            notes.add((*above[:2], "supply_v"), f"is {entry.supply_v:g}", entry.supply_v, "Give volts, not millivolts")
        for key in _own(entry):
            if key not in declared and key != "rail":  # a rail is wiring, even if the driver has no option for it
                notes.add((*above[:2], key), f"is not an option of {driver}", key, "Leave it out")
        if len(entry.rails) > 1 and "rail" in declared:
            what = f"names {len(entry.rails)} rails, but {driver} sees one"
            notes.add((*above[:2], "rail"), what, entry.rails, "Name one rail")


def _check_calibration(notes: Notes, m: MeterEntry) -> None:
    if m.calibration is None:
        return
    from rig.bench.calibration import load as load_calibration

    where = (*where_of(m), "calibration")
    try:
        found = load_calibration(m.calibration)
    except RigError as error:
        notes.add(where, f"cannot be used: {error.message}", str(m.calibration), error.remedy)
        return
    today = datetime.now(UTC).date()
    span = f"{found.path} is valid from {found.valid_from} to {found.valid_until}, and in UTC today is {today}"
    if today > found.valid_until:
        what = f"has expired: {span}"
        notes.add(where, what, str(found.valid_until), "Have the instrument calibrated, and name its new file")
    elif today < found.valid_from:
        what = f"is not valid yet: {span}"
        notes.add(where, what, str(found.valid_from), "Name the earlier calibration file")


def _rails(m: MeterEntry, declared: Mapping[str, Option]) -> tuple[str, ...]:
    """Return the rails that a meter will report; none if only the opened instrument knows them."""
    if m.rails:
        return m.rails
    default = declared["rail"].default if "rail" in declared else None
    return (default,) if isinstance(default, str) else ()


def _check_rails(notes: Notes, rails: Mapping[str, tuple[str, ...]], meters: Mapping[str, MeterEntry]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for name, own in rails.items():
        device = meters[name].sees or ""
        for rail in own if device else ():
            if (first := seen.setdefault((device, rail), name)) != name:
                what = f"is {rail!r} of {device}, which {first} sees too"
                notes.add((*where_of(meters[name]), "rail"), what, rail, "Give each meter a different rail")
