"""``rig doctor``: open what the bench file names, one after the other, and say what is wrong and how to mend it.

    rig doctor [NAME...] [--bench FILE] [--seconds S] [--build]

The exit code is 0, or the largest of those of the errors found; what is doubtful is no error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.bench.check import driver_name, factory_of, texts_of
from rig.bench.read import PATIENCE_S
from rig.bench.station import BenchFile, Entry, MeterEntry, Problem, examine, find_bench
from rig.doctor.findings import Finding, broken, doubtful, exit_code, of_error, ok, summary
from rig.doctor.host import extra_findings, host_findings, permission_findings
from rig.doctor.items import Patient, Steps, doctor_of, examine_device, examine_meter, own_doctor
from rig.doctor.watch import watched
from rig.engine.clock import HostClock
from rig.errors import MissingExtraError, RigError, UnknownNameError, UsageError
from rig.plugins import Factory, build, load, names, needs, options_of, split_options, takes
from rig.session.setup import PLANT

Tell = Callable[[str, str], None]
BUILD_S, OWN_S = 3900.0, 60.0
"""Patience with a driver's own doctor: when it builds, and when it only looks."""


@dataclass(frozen=True)
class Settings:
    """How an examination goes. ``timeout_s`` overrules the patience of every entry.

    ``tell`` hears item and step, ``say`` what a driver's doctor prints while it builds.
    """

    seconds: float = 1.0
    timeout_s: float | None = None
    build: bool = False
    simulate: bool = False
    options: tuple[str, ...] = ()
    tell: Tell = field(default=lambda item, step: None)
    say: Callable[[str], None] = field(default=lambda text: None)

    def patience_s(self, own_s: float) -> float:
        """For one item, with the time that its measurements take by themselves."""
        return (own_s if self.timeout_s is None else self.timeout_s) + 4.0 * self.seconds


@dataclass(frozen=True)
class Case:
    """One entry of a bench file, or one driver by its name."""

    patient: Patient
    group: str
    driver: str
    patience_s: float
    paths: tuple[object, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Ward:
    """A device, or none, and the meters that see it, opened together."""

    device: Case | None
    meters: tuple[Case, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``rig doctor``."""
    parser.add_argument("name", nargs="*", help="a device or meter of the bench file, or a driver; default: all")
    parser.add_argument("--bench", type=Path, metavar="FILE", help="default: $RIG_BENCH, or ./bench.toml")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of each measurement; default: 1")
    parser.add_argument(
        "--timeout", type=float, metavar="S", help=f"for each item; default: {PATIENCE_S:g}, or its own"
    )
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of a driver named here")
    parser.add_argument("--simulate", action="store_true", help="open the simulators of devices that have one")
    parser.add_argument("--build", action="store_true", help="let drivers build or download what they need")


def run(args: argparse.Namespace) -> int:
    """Print findings as they come, then a summary; with ``--json`` one document at the end."""
    for name, value in (("seconds", args.seconds), ("timeout", args.timeout)):
        if value is not None and not 0.0 < value < 3600.0:
            raise UsageError(f"--{name} is {value}", field=name, value=value, remedy="Give seconds, above zero")
    show = Screen(quiet=args.json)
    settings = Settings(args.seconds, args.timeout, args.build, args.simulate, tuple(args.option), show.tell, show.say)
    found: list[Finding] = []
    try:
        with closing(diagnose(args.name, find_bench(args.bench), settings)) as findings:
            for finding in findings:
                found.append(finding)
                show.line(finding.line())
    finally:
        if found:
            show.line(summary(found))
    code = exit_code(found)
    if args.json:
        document = {"findings": [f.to_json() for f in found], "summary": summary(found), "exit_code": code}
        sys.stdout.write(json.dumps(document) + "\n")
    return code


def diagnose(wanted: Sequence[str], path: Path | None, settings: Settings) -> Generator[Finding, None, None]:
    """Every finding: of the host, of the bench file, then of each device with its meters.

    ``wanted`` are names of the bench file, or of drivers; none means all of the bench file. Raises
    ``UnknownNameError`` for another name.
    """
    bench, problems, failure = _examined(path)
    if failure is not None and wanted:
        raise failure
    wards = _wards(wanted, bench, problems, settings)
    yield from watched("host", host_findings(settings.seconds), settings.patience_s(PATIENCE_S), settings.tell)
    yield from _of_file(path, bench, problems, failure, bool(wanted))
    for ward in wards:
        yield from _visit(ward, settings)


# ---- who is examined -----------------------------------------------------------------------------------------------


def _examined(path: Path | None) -> tuple[BenchFile | None, list[Problem], RigError | None]:
    if path is None:
        return None, [], None
    try:
        return (*examine(path), None)
    except RigError as error:
        return None, [], error


def _of_file(
    path: Path | None, bench: BenchFile | None, problems: Sequence[Problem], failure: RigError | None, named: bool
) -> Iterator[Finding]:
    if failure is not None:
        yield of_error("bench", "file", failure)
    elif bench is not None:
        for p in problems:
            yield of_error(p.entry or "bench", "file", p.error)
        if not problems:
            text = f"{path}: devices {', '.join(bench.devices) or 'none'}; meters {', '.join(bench.meters) or 'none'}"
            yield ok("bench", "file", text + (f"; {bench.lab}" if bench.lab else ""))
    elif not named:
        remedy = "Write one (docs/reference/bench-file.md), name one with --bench, or name a driver: rig doctor NAME"
        yield doubtful("bench", "file", "there is no bench.toml here", remedy)


def _wards(wanted: Sequence[str], bench: BenchFile | None, problems: Sequence[Problem], s: Settings) -> list[Ward]:
    """Entries with a problem are left out: their findings say it already."""
    known = {p.entry for p in problems} | (set() if bench is None else {*bench.devices, *bench.meters})
    asked = [name for name in wanted if name in known]
    found = _of_bench(bench, asked, problems) if bench is not None and (asked or not wanted) else []
    return found + [_alone(name, s, sorted(known - {""})) for name in wanted if name not in known]


def _of_bench(bench: BenchFile, asked: Sequence[str], problems: Sequence[Problem]) -> list[Ward]:
    """Every device with the meters that see it, then meters that see none; of those asked for, or of all."""
    ill = {p.entry for p in problems}
    well = [n for n in (asked or [*bench.devices, *bench.meters]) if n not in ill]
    seen = {n: m.sees if m.sees in bench.devices else None for n, m in bench.meters.items()}
    found = []
    for name in [*bench.devices, None]:
        meters = tuple(_case(bench, m) for n, m in bench.meters.items() if seen[n] == name and n in well)
        needed = name in well or any(needs(case.patient.factory, "device") for case in meters)
        device = _case(bench, bench.devices[name]) if name is not None and needed and name not in ill else None
        if device is not None or meters:
            found.append(Ward(device, meters))
    return found


def _case(bench: BenchFile, entry: Entry) -> Case:
    group = "meters" if isinstance(entry, MeterEntry) else "devices"
    try:
        factory = factory_of(bench, entry)
        texts = texts_of(entry, options_of(factory))
    except RigError as error:  # a package that is missing: it is said when it is its turn
        factory, texts = _refusing(error), {}
    patient = Patient(entry.name, factory, texts, entry.rails)
    return Case(patient, group, driver_name(bench, entry), entry.patience_s, tuple(entry.options.values()))


def _refusing(error: RigError) -> Factory:
    def open_it() -> Any:
        raise error

    return open_it


def _alone(name: str, s: Settings, known: Sequence[str]) -> Ward:
    """A driver by its name, with the options of the command line; a meter of the same name goes with a device."""
    groups = [g for g in ("devices", "meters") if name in names(g)] or (["devices"] if ".py:" in name else [])
    if not groups:
        raise UnknownNameError("name", name, [*known, *names("devices"), *names("meters"), "./file.py:function"])
    try:
        factories = {g: load(g, name) for g in groups}
    except MissingExtraError as error:
        factories = {g: _refusing(error) for g in groups}
    texts = split_options(list(s.options), factories)
    cases = {
        g: Case(Patient(name, f, texts[g]), g, name, PATIENCE_S, tuple(texts[g].values()), alone=True)
        for g, f in factories.items()
    }
    return Ward(cases.get("devices"), tuple(cases[g] for g in cases if g == "meters"))


# ---- the visit -----------------------------------------------------------------------------------------------------


def _visit(ward: Ward, s: Settings) -> Iterator[Finding]:
    """Device first, then its meters while it is open, then let go of it."""
    held: list[Any] = []
    given: dict[str, Any] = {"plant": None, "clock": HostClock(), "simulate": s.simulate, "workload": None}
    device = ward.device
    try:
        if device is not None and (yield from _fit(device, s)):
            given |= _surroundings(device.patient, s)
            steps = examine_device(device.patient, given, given["clock"], s.seconds, held)
            yield from watched(device.patient.item, steps, s.patience_s(device.patience_s), s.tell)
        for case in ward.meters:
            p = case.patient
            if not held and needs(p.factory, "device"):
                text = f"it is opened with its device, and {device.patient.item if device else 'none'} is not open"
                yield broken(p.item, "open", text, "Say which device it `sees`, and mend that one")
            elif (yield from _fit(case, s)):
                steps = examine_meter(p, given | {"device": held[0] if held else None}, given["clock"], s.seconds)
                yield from watched(p.item, steps, s.patience_s(case.patience_s), s.tell)
    finally:
        if held:
            list(watched("bench", _let_go(held), s.patience_s(PATIENCE_S), s.tell))


def _fit(case: Case, s: Settings) -> Generator[Finding, None, bool]:
    """What a driver needs, and what it says of itself; whether it is to be opened.

    One that was named by itself and has a doctor of its own is not: that doctor knows how to open it.
    """
    p = case.patient
    needed = [
        *extra_findings(p.item, case.group, case.driver),
        *permission_findings(p.item, case.driver, case.paths),
    ]
    yield from needed
    if any(finding.level == "broken" for finding in needed):
        return False
    own = doctor_of(p.factory)
    if own is None:
        return True
    steps = own_doctor(p.item, own, p.options, s.build, s.say)
    patience_s = BUILD_S if s.build else max(case.patience_s, OWN_S)
    yield from watched(p.item, steps, s.patience_s(patience_s), s.tell)
    return not case.alone


def _surroundings(patient: Patient, s: Settings) -> dict[str, Any]:
    """A plant and its clock for a device that lives in one."""
    if not (needs(patient.factory, "plant") or (s.simulate and takes(patient.factory, "plant"))):
        return {}
    plant = build(load("plants", PLANT), {}, {})
    return {"plant": plant, "clock": plant.clock}


def _let_go(held: Sequence[Any]) -> Steps:
    yield "closing it"
    for handle in held:
        handle.close()


class Screen:
    """Lines on standard output, and on a terminal what is being done below them."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._live = quiet, sys.stderr.isatty() and not quiet

    def line(self, text: str) -> None:
        """One whole line, at once."""
        if not self._quiet:
            self._wipe()
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def tell(self, item: str, step: str) -> None:
        """What is being done; only for somebody who watches."""
        if self._live:
            sys.stderr.write(f"\r\x1b[K... {item}: {step}")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """What takes its time, line by line."""
        if not self._quiet:
            self._wipe()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _wipe(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
