"""The examination of a bench: the host, the bench file, then each device with the meters that see it.

Each part has a deadline, so that a driver that hangs does not stop the doctor.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.bench.bench_file import examine
from rig.bench.bench_file_fields import DOCTOR_PATIENCE_S, BenchFile, Problem
from rig.bench.power_up import boot
from rig.doctor.findings import Finding, broken, checked, of_error, ok
from rig.doctor.groups import BenchGroup, groups_of
from rig.doctor.host import host_findings, permission_findings
from rig.doctor.items import Item, Steps, examine_device, examine_meter, failed
from rig.engine.clock import HostClock
from rig.errors import RigError, SetupError
from rig.factories import build, needs
from rig.session.locks import device_lock
from rig.session.setup import bench_of, close_quietly, plant_factory_of, which_of

LEAVE_S = 2.0
"""An interrupted examination may take this long (s) to close what it opened."""


@dataclass(frozen=True)
class Settings:
    """Settings of an examination. ``timeout_s`` replaces every entry's ``patience_s``; ``tell`` gets item and step."""

    seconds: float = 1.0
    timeout_s: float | None = None
    simulate: bool = False
    trust: bool = False
    options: tuple[str, ...] = ()
    tell: Callable[[str, str], None] = field(default=lambda item, step: None)

    def within_deadline(self, item: str, steps: Steps, patience_s: float) -> Iterator[Finding]:
        """Yield the findings of one item, until its patience plus the time of its measurements is over."""
        allowed_s = (patience_s if self.timeout_s is None else self.timeout_s) + 4.0 * self.seconds
        return with_deadline(item, steps, allowed_s, self.tell)


def diagnose(wanted: Sequence[str], path: Path | None, settings: Settings) -> Generator[Finding, None, None]:
    """Yield every finding: of the host, of the bench file, then of each device with its meters.

    ``wanted`` are names of the bench file or of drivers; without names, the whole bench file is examined. Raises
    ``UnknownNameError`` for any other name, ``UsageError`` for options without the name of a driver, and, with names,
    the error of a bench file that cannot be read.
    """
    bench, problems, failure = _read(path, settings.trust)
    if failure is not None and wanted:
        raise failure
    groups = groups_of(wanted, bench, problems, settings.options)
    yield from settings.within_deadline("host", host_findings(settings.seconds), DOCTOR_PATIENCE_S)
    if failure is not None:
        yield of_error("bench", "file", failure)
    elif bench is not None:
        yield from _of_file(bench, problems)
    elif not wanted:
        remedy = "Write one with `rig init`, name one with --bench, or name a driver: rig doctor NAME"
        yield checked("bench", "file", "there is no bench.toml here", remedy)
    for group in groups:
        yield from _of_group(group, settings)


def _read(path: Path | None, trust: bool) -> tuple[BenchFile | None, list[Problem], RigError | None]:
    if path is None:
        return None, [], None
    try:
        return (*examine(path, trust), None)
    except RigError as error:
        return None, [], error


def _of_file(bench: BenchFile, problems: Sequence[Problem]) -> Iterator[Finding]:
    for p in problems:
        yield of_error(p.entry or "bench", "file", p.error)
    if not problems:
        text = f"{bench.path}: devices {', '.join(bench.devices) or 'none'}; meters {', '.join(bench.meters) or 'none'}"
        yield ok("bench", "file", text + (f"; {bench.lab}" if bench.lab else ""))


def _of_group(group: BenchGroup, s: Settings) -> Iterator[Finding]:
    """Examine the meters that feed the device, the device, and its other meters while it is open; then close all."""
    fed: list[Any] = []
    held: list[Any] = []
    given: dict[str, Any] = {"bench": None, "clock": HostClock(), "simulate": s.simulate, "workload": None}
    device = group.device
    feeding = [meter for meter in group.meters if meter.feeds and device is not None]
    others = [meter for meter in group.meters if meter not in feeding]
    if device is not None and group.meters:
        order = [*(f"{meter.name} (feeds it)" for meter in feeding), device.name, *(meter.name for meter in others)]
        yield ok(device.name, "power", f"opened in this order: {', '.join(order)}")
    if device is not None and (plant_factory := plant_factory_of(device.factory, s.simulate)):
        plant = build(plant_factory, {}, {})
        given |= {"bench": plant, "clock": plant.clock}
    alone = ExitStack()
    if device is not None and isinstance(given["clock"], HostClock):
        try:
            alone.enter_context(_alone(device))
        except SetupError as error:
            yield of_error(device.name, "open", error)
            return
    try:
        for meter in feeding:
            yield from _examined(meter, examine_meter(meter, given, s.seconds, fed), s)
        if fed and device is not None:
            boot(given["clock"], device.boot_s)
        if device is not None:
            yield from _examined(device, examine_device(device, given, s.seconds, held), s)
        given["device"] = held[0] if held else None
        given["bench"] = given["bench"] or (bench_of(held[0]) if held else None)
        for meter in others:
            if given["device"] is None and needs(meter.factory, "device"):
                text = f"it opens only with its device, but {device.name if device else 'no device'} is not open"
                yield broken(meter.name, "open", text, "Name the device that it `sees`, and correct that device first")
            else:
                yield from _examined(meter, examine_meter(meter, given, s.seconds), s)
    finally:
        if fed or held:
            list(s.within_deadline("bench", _close([*fed, *held]), DOCTOR_PATIENCE_S))
        alone.close()


def _alone(device: Item) -> AbstractContextManager[None]:
    """Lock a device as a measurement does. A device whose driver cannot be loaded is reported when it is opened."""
    which = ""
    with suppress(RigError):
        which = which_of(device.driver, (f"{key}={value}" for key, value in device.options.items()))
    return device_lock(device.driver, wait=False, which=which)


def _examined(item: Item, steps: Steps, s: Settings) -> Iterator[Finding]:
    """Yield findings of the permissions that a driver needs; if none is missing, also those of the item."""
    needed = list(permission_findings(item.name, item.driver, item.paths))
    yield from needed
    if all(finding.level != "broken" for finding in needed):
        yield from s.within_deadline(item.name, steps, item.patience_s)


def _close(held: Sequence[Any]) -> Steps:
    yield "closing it"
    for handle in reversed(held):
        close_quietly(handle)


# ---- deadlines ---------------------------------------------------------------------------


def with_deadline(item: str, steps: Steps, patience_s: float, tell: Callable[[str, str], None]) -> Iterator[Finding]:
    """Run an examination in a separate thread, and yield its findings as they come.

    An examination that takes longer than ``patience_s`` becomes a broken finding and is abandoned. Its thread cannot be
    ended, but closes what it opened as soon as the driver returns. ``tell`` is called with the item and each step. An
    error of an examination becomes a finding.
    """
    out: queue.SimpleQueue[Finding | str | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()
    thread = threading.Thread(target=_work, args=(steps, out, left), name=f"doctor {item}", daemon=True)
    until_s = time.monotonic() + patience_s
    step = "beginning"
    try:
        thread.start()
        while True:
            try:
                said = out.get(timeout=max(until_s - time.monotonic(), 0.0))
            except queue.Empty:
                remedy = "Check its power and its cable, and close other programs that use it. "
                remedy += "To wait longer, set patience_s in the bench file, or --timeout"
                yield broken(item, "patience", f"no answer within {patience_s:g} s while {step}", remedy, SetupError)
                return
            if said is None:
                return
            if isinstance(said, Finding):
                yield said
            elif isinstance(said, str):
                step = said
                tell(item, step)
            else:
                yield failed(item, step, said)
    finally:
        left.set()
        if time.monotonic() < until_s:  # Ctrl-C, or the caller wants no more findings
            with suppress(RuntimeError):  # interrupted before the thread started
                thread.join(LEAVE_S)


def _work(steps: Steps, out: queue.SimpleQueue[Finding | str | BaseException | None], left: threading.Event) -> None:
    try:
        for said in steps:
            out.put(said)
            if left.is_set():
                break
    except BaseException as error:
        out.put(error)
    finally:
        if isinstance(steps, Generator):
            steps.close()
        out.put(None)
