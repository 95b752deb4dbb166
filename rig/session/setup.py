"""Names and options to an opened bench: plant, device, meters, workload, scenario and its rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.collect import check_pin
from rig.errors import RigError, SetupError, UnknownNameError, UsageError
from rig.plugins import Factory, build, load, located, names, needs, options_of, split_options, takes, values_of
from rig.types import Clock, Device, DeviceInfo, Meter, MeterInfo, Mode, Plant, Repeats, Rules, Workload

PLANT = "mock"
WORKLOAD, WORKLOADS = "asc", {"optimization": "qubo-mis"}
"""What a scenario is played with when nobody names a workload."""
TELL_APART = (
    "address",
    "port",
    "host",
    "serial",
    "serial_number",
    "instrument",
    "channel",
    "board",
    "index",
    "device_id",
)
"""Options by which two instruments or boards of one driver differ."""


@dataclass(frozen=True)
class Request:
    """What to measure, by the names and options of the command line. No meter means the device's own."""

    device: str
    meters: tuple[str, ...] = ()
    scenario: str = "single-stream"
    workload: str = WORKLOAD
    simulate: bool = False
    data: str | None = None
    amortise_s: float | None = None
    options: tuple[str, ...] = ()
    out: Path | None = None
    argv: tuple[str, ...] = ()
    rules: str = "quick"
    mode: str = "session"
    trials: int | None = None
    compliance: bool = False
    find_peak: bool = False
    find_size: bool = False
    exclusive: bool = False
    """Lock the device against other commands on this host; a caller that holds the lock leaves it False."""
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By taker (device, meter, meter1): where in a bench file its options stand; see ``rig.plugins.located``."""


@dataclass(frozen=True)
class Opened:
    """An opened bench with what its scenario needs."""

    bench: Bench
    workload: Workload
    scenario: Factory
    scenario_options: Mapping[str, str]
    rules: Rules
    other_workload: Callable[[Mapping[str, str]], Workload]
    """The workload again, with some options otherwise."""


def workload_for(scenario: str, asked: str | None = None) -> str:
    """The name of the workload: that asked for, else the one that goes with the scenario."""
    return asked or WORKLOADS.get(scenario, WORKLOAD)


def which_of(device: str, texts: Iterable[str]) -> str:
    """What tells a device from others of its driver: those of its options, ``key=value``, that say where it is.

    Defaults count, and a link to a port is the port. Raises what ``load`` raises.
    """
    factory = load("devices", device)
    declared = options_of(factory)
    given: dict[str, str] = {}
    for text in texts:
        key, _, value = text.removeprefix("device.").partition("=")
        if key in declared:
            given[key] = value
    values = values_of(factory, {k: v for k, v in given.items() if k in TELL_APART})
    said = {k: str(values[k]) for k in TELL_APART if values.get(k) not in (None, "")}
    return " ".join(f"{k}={os.path.realpath(v) if v.startswith('/dev/') else v}" for k, v in said.items())


@contextmanager
def opened(request: Request) -> Iterator[Opened]:
    """Open plant, device, meters and workload; close what was opened, whatever happens."""
    device_factory = load("devices", request.device)
    scenario = load("scenarios", request.scenario)
    rules: Rules = load("rules", request.rules)(request.scenario)
    workload_factory = load("workloads", request.workload)
    for name in request.meters:
        if name != "none":
            load("meters", name)
    lives_by_plant = needs(device_factory, "plant") or (request.simulate and takes(device_factory, "plant"))
    plant_factory = load("plants", PLANT) if lives_by_plant else None
    takers = {"device": device_factory, "scenario": scenario, "workload": workload_factory}
    takers |= {"plant": plant_factory} if plant_factory else {}
    texts = list(request.options) + ([f"workload.data={request.data}"] if request.data else [])
    mine, rest = _own(texts, takers)
    options = split_options(mine, takers)
    workload: Workload = build(workload_factory, {}, options["workload"])

    def again(changed: Mapping[str, str]) -> Workload:
        other: Workload = build(workload_factory, {}, {**options["workload"], **changed})
        return other

    plant: Plant | None = build(plant_factory, {}, options["plant"]) if plant_factory else None
    clock: Clock = plant.clock if plant is not None else HostClock()
    given: dict[str, Any] = {"plant": plant, "clock": clock, "simulate": request.simulate, "workload": workload}
    handles: list[Any] = []
    try:
        with located(request.places.get("device", {})):
            device: Device = build(device_factory, given, options["device"])
        handles.append(device)
        _check_mode(request, _described(device, "device", request.device))
        chosen = _meter_names(request, device)
        factories = {f"meter{k}" if k else "meter": load("meters", name) for k, name in enumerate(chosen)}
        metered = split_options(rest, takers | factories) if rest else {}
        meters: list[Meter] = []
        for key, factory in factories.items():
            with located(request.places.get(key, {})):
                meters.append(build(factory, given | {"device": device}, metered.get(key, {})))
            handles.append(meters[-1])
            _described(meters[-1], "meter", chosen[len(meters) - 1])
        _check_scenario(device, scenario, options["scenario"])
        check_pin(device.info(), [meter.info() for meter in meters])
        yield Opened(Bench(device, tuple(meters), clock), workload, scenario, options["scenario"], rules, again)
    finally:
        for handle in reversed(handles):
            with suppress(Exception):
                handle.close()


def _own(texts: list[str], takers: Mapping[str, Factory]) -> tuple[list[str], list[str]]:
    """Options that these takers declare, and those left for a meter that is not chosen yet."""
    known = {key for factory in takers.values() for key in options_of(factory)}
    mine: list[str] = []
    rest: list[str] = []
    for text in texts:
        key = text.partition("=")[0]
        who, dot, _ = key.partition(".")
        own = (who in takers if dot else key in known) or "=" not in text
        (mine if own else rest).append(text)
    return mine, rest


def _described(driver: Any, kind: str, name: str) -> Any:
    """What a driver says it is. Raises ``SetupError`` for what is no driver, or fails to say."""
    wanted = DeviceInfo if kind == "device" else MeterInfo
    try:
        info = driver.info()
    except RigError:
        raise
    except Exception as error:
        raise SetupError(
            f"{kind} {name} does not say what it is: {type(error).__name__}: {error}",
            field=kind,
            value=name,
            remedy="Its factory must return an object with info(); try rig.conformance.device on it",
        ) from error
    if not isinstance(info, wanted):
        raise SetupError(
            f"{name} is no {kind}: its info() gives a {type(info).__name__}",
            field=kind,
            value=name,
            remedy=f"A {kind} gives a {wanted.__name__}; give a device to --device and a meter to --meter",
        )
    return info


def _check_mode(request: Request, info: DeviceInfo) -> None:
    if info.mode not in get_args(Mode):
        raise SetupError(
            f"device {info.name} is in mode {info.mode!r}",
            field="mode",
            value=info.mode,
            remedy="Declare hardware or simulator",
        )
    if info.max_batch < 1 or (info.max_pending is not None and info.max_pending < 1) or not info.timeout_s > 0:
        raise SetupError(
            f"device {info.name} declares max_batch {info.max_batch}, max_pending {info.max_pending} and "
            f"timeout_s {info.timeout_s}",
            field="info",
            remedy="Declare a batch and a number pending of 1 or more and a positive timeout",
        )
    if request.simulate and info.mode != "simulator":
        raise UsageError(
            f"device {info.name} has no simulator mode", field="simulate", value=True, remedy="Leave --simulate out"
        )


def _check_scenario(device: Device, scenario: Factory, options: Mapping[str, str]) -> None:
    if values_of(scenario, options).get("apart") and not isinstance(device, Repeats):
        raise SetupError(
            f"device {device.info().name} cannot run its phases one at a time",
            field="apart",
            value=True,
            remedy="Leave --per-phase out, or implement submit_repeated in its driver",
        )


def _meter_names(request: Request, device: Device) -> tuple[str, ...]:
    if request.meters:
        return tuple(n for n in request.meters if n != "none")
    own = device.info().onboard_meter
    if own is None:
        raise SetupError(
            f"device {device.info().name} has no meter on board",
            field="meter",
            remedy=f"Name one with --meter (known: {', '.join(names('meters'))}), or --meter none",
        )
    if own not in names("meters") and ".py:" not in own:
        raise UnknownNameError("meter", own, list(names("meters")))
    return (own,)
