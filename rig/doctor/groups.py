"""Group the devices and meters that the doctor examines together: entries of a bench file, or drivers by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rig.bench.bench_file_checks import Entry, driver_name, factory_of, texts_of
from rig.bench.bench_file_fields import DOCTOR_PATIENCE_S, BenchFile, MeterEntry, Problem
from rig.bench.power_up import feeds
from rig.doctor.items import Item
from rig.errors import MissingExtraError, RigError, UnknownNameError, refused
from rig.factories import Factory, needs, options_of, split_options
from rig.plugins import load, names


@dataclass(frozen=True)
class BenchGroup:
    """A device, or none, and the meters that measure it; they are opened together."""

    device: Item | None
    meters: tuple[Item, ...]


def groups_of(
    wanted: Sequence[str], bench: BenchFile | None, problems: Sequence[Problem], options: Iterable[str]
) -> list[BenchGroup]:
    """Return the groups of the wanted names; without names, those of the whole bench file.

    Entries with a problem are left out, because the problem is already a finding. ``options`` are for names of drivers,
    not of entries. Raises ``UnknownNameError``, and ``UsageError`` for options without such a name.
    """
    known = {p.entry for p in problems} | (set() if bench is None else {*bench.devices, *bench.meters})
    entries = [name for name in wanted if name in known]
    found = _of_bench(bench, entries, problems) if bench is not None and (entries or not wanted) else []
    foreign, options = [name for name in wanted if name not in known], list(options)
    if options and not foreign:
        what, remedy = f"--option {options[0]} goes to no driver", "Write it into the bench file, or name a driver"
        raise refused("option", options[0], remedy, what)
    return found + [_of_driver(name, options, bench, sorted(known - {""})) for name in foreign]


def _of_bench(bench: BenchFile, entries: Sequence[str], problems: Sequence[Problem]) -> list[BenchGroup]:
    """Return the groups of ``entries``, or of all: each device with the meters that see it, then the other meters."""
    faulty = {p.entry for p in problems}
    usable = [n for n in (entries or [*bench.devices, *bench.meters]) if n not in faulty]
    seen = {n: m.sees if m.sees in bench.devices else None for n, m in bench.meters.items()}
    found = []
    for name in [*bench.devices, None]:
        meters = tuple(_item(bench, m) for n, m in bench.meters.items() if seen[n] == name and n in usable)
        needed = name in usable or any(needs(meter.factory, "device") for meter in meters)
        device = _item(bench, bench.devices[name]) if name is not None and needed and name not in faulty else None
        if device is not None or meters:
            found.append(BenchGroup(device, meters))
    return found


def _item(bench: BenchFile, entry: Entry) -> Item:
    try:
        factory = factory_of(bench, entry)
        texts = texts_of(entry, options_of(factory))
    except RigError as error:  # a missing package becomes a finding when the item is examined
        factory, texts = _raising(error), {}
    return Item(
        entry.name, factory, texts, entry.rails, driver_name(bench, entry), entry.patience_s,
        tuple(entry.options.values()),
        feeds=isinstance(entry, MeterEntry) and feeds(factory, entry.feeds),
        boot_s=None if isinstance(entry, MeterEntry) else entry.boot_s,
    )  # fmt: skip


def _raising(error: RigError) -> Factory:
    def open_it() -> Any:
        raise error

    return open_it


def _of_driver(name: str, options: list[str], bench: BenchFile | None, known: Sequence[str]) -> BenchGroup:
    """Return the group of a driver, which is the device of this name, the meter, or both, with its options."""
    kinds = [g for g in ("devices", "meters") if name in names(g)] or (["devices"] if ".py:" in name else [])
    if not kinds:
        error = UnknownNameError("name", name, [*known, *names("devices"), *names("meters"), "./file.py:function"])
        error.message += f": no driver, and no {f'entry of {bench.path}' if bench else 'bench.toml here'}"
        raise error
    try:
        factories = {kind: load(kind, name) for kind in kinds}
    except MissingExtraError as error:
        factories = dict.fromkeys(kinds, _raising(error))
    texts = split_options(options, factories)
    items = {
        kind: Item(name, factory, texts[kind], (), name, DOCTOR_PATIENCE_S, tuple(texts[kind].values()))
        for kind, factory in factories.items()
    }
    return BenchGroup(items.get("devices"), tuple(items[kind] for kind in items if kind == "meters"))
