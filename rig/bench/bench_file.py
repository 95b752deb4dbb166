"""``bench.toml``: the devices and meters of a lab by name, and how they are wired. See docs/reference/bench-file.md.

    path = find_bench(None)
    chosen = request_of(path, "board1", (), ())

A run keeps the bench file that it used, in ``Request.artifacts``.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.bench.bench_file_checks import Entry, driver_name, factory_of, places_of, problems_of, texts_of
from rig.bench.bench_file_fields import FILE, BenchFile, MeterEntry, Notes, Problem, read
from rig.bench.request import Request
from rig.errors import MissingExtraError, UsageError, refused
from rig.factories import options_of
from rig.plugins import names, unknown
from rig.terminal import command

VARIABLE = "RIG_BENCH"


def find_bench(given: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the bench file named by argument or in ``RIG_BENCH``, else ./bench.toml if it exists.

    Raises ``UsageError`` for a named file that does not exist.
    """
    named = given or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if named is None:
        return Path(FILE) if Path(FILE).is_file() else None
    if not named.is_file():
        source = "--bench" if given else VARIABLE
        remedy = "Name a file" if named.exists() else f"`{command('init', '--out', named)}` writes what is connected"
        raise refused("bench", str(named), remedy, f"{source} names {named}, which is not a file")
    return named


def examine(path: Path, trust: bool = False) -> tuple[BenchFile, list[Problem]]:
    """Return a bench file and all its problems in the order of lines, including those of drivers and calibrations.

    Raises ``UsageError`` for a file that cannot be read, ``DataError`` with the line if the file is not TOML.
    """
    bench, problems = read(path, trust)
    problems += _shadows(bench) + problems_of(bench, {**bench.devices, **bench.meters})
    return bench, sorted(problems, key=lambda p: p.line)


def request_of(
    path: Path | None, device: str, meters: Sequence[str], options: Sequence[str], trust: bool = False
) -> Request:
    """Resolve ``--device``, ``--meter`` and ``--option`` by a bench file.

    A name that is not in the file is the name of a driver. Without ``meters``, a device of the file is measured by the
    meters that see it. ``options`` override those of the file; ``NAME.key=value`` is for the device or meter of that
    name. Of drivers and calibrations, only those in use are checked. Without ``trust``, the file may not name code by
    its path if others can write this code or the file.

    Raises ``DataError`` with file and line for a problem, ``UsageError`` for a meter that sees another device.
    """
    if path is None:
        for kind, name in (("device", device), *(("meter", meter) for meter in meters)):
            _check_known(None, kind, name)
        return Request(device, tuple(meters), options=tuple(options))
    bench, problems = read(path, trust)
    problems += _shadows(bench)
    named = {*bench.devices, *bench.meters, *(p.entry for p in problems)}
    if not {device, *meters} & named:
        _check_wiring(bench, device, meters)
        return Request(device, tuple(meters), options=tuple(options))
    _raise_first(problems)
    _check_wiring(bench, device, meters)
    chosen = tuple(meters) or tuple(m.name for m in bench.meters_of(device))
    entries: dict[str, Entry] = {device: bench.devices[device]} if device in bench.devices else {}
    entries |= {n: bench.meters[n] for n in chosen if n in bench.meters}
    _raise_first(problems_of(bench, entries))
    slots = {n: meter_slot(k) for k, n in enumerate(n for n in chosen if n != "none")} | {device: "device"}
    texts = [f"{slots[n]}.{key}={value}" for n in entries for key, value in _texts(bench, entries[n])]
    return Request(
        _driver(bench, entries, device),
        tuple(_driver(bench, entries, n) for n in chosen),
        options=(*texts, *(_addressed(text, slots, entries) for text in options)),
        artifacts={FILE: bench.raw},
        places={slots[n]: places_of(bench, entry) for n, entry in entries.items()},
        rails={slots[n]: entry.rails for n, entry in entries.items()},
        feeds={slots[n]: e.feeds for n, e in entries.items() if isinstance(e, MeterEntry) and e.feeds is not None},
        boot_s=bench.devices[device].boot_s if device in bench.devices else None,
    )


def meter_slot(number: int) -> str:
    """Return the name by which options address a meter: meter, meter1, meter2."""
    return f"meter{number}" if number else "meter"


def _driver(bench: BenchFile, entries: Mapping[str, Entry], name: str) -> str:
    return driver_name(bench, entries[name]) if name in entries else name


def _texts(bench: BenchFile, entry: Entry) -> list[tuple[str, str]]:
    try:
        declared = options_of(factory_of(bench, entry))
    except MissingExtraError:  # reported when the driver is opened
        return []
    return list(texts_of(entry, declared).items())


def _addressed(text: str, slots: Mapping[str, str], entries: Mapping[str, Entry]) -> str:
    """Rename the option of a device or meter named in the file, as in ``dmm.rate_hz=5``, to the name of its slot."""
    who, dot, rest = text.partition(".")
    return f"{slots[who]}.{rest}" if dot and who in slots and who in entries else text


def _check_known(bench: BenchFile | None, kind: str, name: str) -> None:
    """Check that a name is in the file, or names a driver. Raises ``UnknownNameError``, which lists names of both."""
    own = [] if bench is None else [*(bench.devices if kind == "device" else bench.meters)]
    drivers = names(f"{kind}s")
    if name not in (*own, "none") and name.partition(":")[0] not in drivers and ".py" not in name:
        error = unknown(kind, name, dict.fromkeys([*own, *drivers]))
        there = f"has {', '.join(own)}" if own else f"has no {kind} yet: complete a [{kind}s.NAME] in it"
        without = f"There is no bench file here; `rig init` writes {FILE}"
        error.remedy += f". {without if bench is None else f'{bench.path} {there}'}"
        raise error


def _check_wiring(bench: BenchFile, device: str, meters: Sequence[str]) -> None:
    _check_known(bench, "device", device)
    for name in meters:
        _check_known(bench, "meter", name)
        if meters.count(name) > 1 and name in bench.meters:
            raise UsageError(f"meter {name} is named twice", field="meter", value=name, remedy="Name it once")
        sees = bench.meters[name].sees if name in bench.meters else None
        if device in bench.devices and sees not in (None, device):
            remedy = f"Name a meter that sees {device}, or correct `sees` where the wiring has changed"
            raise refused("meter", name, remedy, f"meter {name} sees {sees} and not {device} in {bench.path}")


def _shadows(bench: BenchFile) -> list[Problem]:
    """Return problems of entries that have the name of a driver but use another driver."""
    notes = Notes(bench.path, bench.lines)
    for kind, entries in (("devices", bench.devices), ("meters", bench.meters)):
        for entry in entries.values():
            if entry.name in names(kind) and entry.driver != entry.name:
                what = f"has the name of a driver, but uses the driver {entry.driver}"
                notes.add((kind, entry.name), what, entry.name, "Choose another name")
    return notes.problems


def _raise_first(problems: Sequence[Problem]) -> None:
    if not problems:
        return
    error = problems[0].error
    if more := len(problems) - 1:
        error.remedy += f". And {more} more: `rig doctor` lists them"
    raise error
