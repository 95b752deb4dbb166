"""Set up a bench: open the device, meters and workload that a request names, and find its scenario and rules."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rig.bench.bench_file import meter_slot
from rig.bench.power_up import boot, feeds
from rig.bench.request import Request
from rig.bench.value_checks import APART, WHERE
from rig.conformance.rule_failures import members_of
from rig.driver_call_timeouts import MORE_S, patience_of
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock, host_clock
from rig.engine.play_steps import check_wiring
from rig.engine.watchdog import let_go, patiently
from rig.errors import SetupError, UnknownNameError, closest, refused
from rig.factories import STATE_POWER, Factory, build, located, needs, options_of, split_options, takes, values_of
from rig.plugins import digests_of, load, names
from rig.recording.disk.size_limits import read_bounded
from rig.types import Clock, Device, DeviceInfo, Meter, MeterInfo, Rail, Repeats, Rules, SimulatedBench, Workload

PLANT = "mock"
OPENING_S = "start_s"
"""The option for how long a driver may take to open (s), if it takes longer than usual."""
YEAR_S = 365.25 * 86400
Takers = dict[str, Factory]
"""The factories that take options, by the name before the dot in ``name.key=value``."""


@dataclass(frozen=True)
class BenchSetup:
    """An opened bench with its workload, scenario and rules."""

    bench: Bench
    workload: Workload
    scenario: Factory
    scenario_options: Mapping[str, str]
    rules: Rules
    other_workload: Callable[[Mapping[str, str]], Workload]
    """Opens the workload again, with some options changed."""
    workload_options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with which the workload was opened."""
    device_options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with which a device of the user's own was opened; empty for a driver of the rig."""
    local_code: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that was loaded by its path."""
    calibrations: Mapping[str, bytes] = field(default_factory=dict)
    """The calibration files with which the meters were opened, by a name for each."""


def which_of(device: str, texts: Iterable[str]) -> str:
    """Return the options, ``key=value``, that distinguish a device from others of its driver, such as its port.

    Default values are included, and a link to a port is replaced by the port. Raises as ``load`` does.
    """
    factory = load("devices", device)
    declared = options_of(factory)
    pairs = (text.removeprefix("device.").partition("=") for text in texts)
    given = {key: value for key, _, value in pairs if key in declared and key in (*WHERE, *APART)}
    values = values_of(factory, given)
    said = {k: str(values[k]) for k in (*WHERE, *APART) if values.get(k) not in (None, "")}
    return " ".join(f"{k}={os.path.realpath(v) if v.startswith('/dev/') else v}" for k, v in said.items())


def plant_factory_of(device_factory: Factory, simulate: bool) -> Factory | None:
    """Return the factory of the simulated bench if the device needs one, or can use one and ``simulate`` is set."""
    simulated = needs(device_factory, "bench") or (simulate and takes(device_factory, "bench"))
    return load("plants", PLANT) if simulated else None


def bench_of(device: Device) -> SimulatedBench | None:
    """Return the simulated real-time bench for a device that states its own power; None for any other device."""
    if not getattr(device, "power", None) or not hasattr(device, "draw_from"):
        return None
    bench: SimulatedBench = build(load("plants", PLANT), {"clock": HostClock()}, {})
    device.draw_from(bench)
    return bench


@contextmanager
def set_up_bench(request: Request) -> Iterator[BenchSetup]:
    """Open device, meters and workload, and a simulated bench if one is needed; close all at the end.

    Raises a ``RigError`` for a name, an option or a driver that cannot be used.
    """
    device_factory = load("devices", request.device)
    scenario = load("scenarios", request.scenario)
    rules = _rules(request)
    workload_factory = load("workloads", request.workload)
    for name in request.meters:
        if name != "none":
            load("meters", name)
    local_code = digests_of(request.code)  # at once: a driver may change the working directory
    plant_factory = plant_factory_of(device_factory, request.simulate)
    if request.data and "data" not in options_of(workload_factory):
        raise refused("data", request.data, "Leave it out", f"{request.workload} takes no --data")
    takers = {"device": device_factory, "scenario": scenario, "workload": workload_factory}
    takers |= {"bench": plant_factory} if plant_factory else {}
    known = _of_takers([*request.options, *([f"workload.data={request.data}"] if request.data else [])], takers)
    options = split_options(known, takers)

    def open_workload(changed: Mapping[str, str]) -> Workload:
        opened: Workload = build(workload_factory, {}, {**options["workload"], **changed})
        return opened

    workload = open_workload({})
    _check_workload(workload, request.workload)
    if request.repeats_sha256 not in ("", workload.digest_sha256):
        what = f"the samples of workload {request.workload} are not those of the recording that is repeated"
        remedy = "Give the same data with --data, and its options with --option; see `rig list NAME`"
        raise refused("workload", workload.digest_sha256, remedy, what)
    plant: SimulatedBench | None = build(plant_factory, {}, options["bench"]) if plant_factory else None
    clock: Clock = plant.clock if plant is not None else host_clock()
    given: dict[str, Any] = {"bench": plant, "clock": clock, "simulate": request.simulate, "workload": workload}
    with ExitStack() as handles:
        meters = _feeding(request, given, takers, handles)
        with located(request.places.get("device", {})):
            device: Device = opened(device_factory, given, options["device"], "device", request.device)
        timeout_s = 0.0
        handles.callback(lambda: close_quietly(device, timeout_s))
        info = _described(device, "device", request.device)
        _check_mode(request, info)
        timeout_s = info.timeout_s
        given |= {"device": device, "bench": plant or bench_of(device)}
        chosen = _meter_names(request, device)
        local_code |= digests_of(chosen)
        slots = _slots(chosen)
        of_meters = _of_meters(request, chosen, takers)
        meters |= {s: _meter(s, request, slots, given, of_meters, handles) for s in slots if s not in meters}
        ordered = tuple(meters[slot] for slot in slots)
        _check_scenario(device, scenario, options["scenario"])
        check_wiring(device.info(), [meter.info() for meter in ordered])
        bench = Bench(device, ordered, clock)
        opened_with = values_of(workload_factory, options["workload"])
        shipped = getattr(device_factory, "__module__", "").startswith(("drivers.", "fixtures."))
        own = {} if shipped else values_of(device_factory, options["device"])
        yield BenchSetup(
            bench, workload, scenario, options["scenario"], rules, open_workload, opened_with, own, local_code,
            _calibrations(of_meters),
        )  # fmt: skip


def _feeding(request: Request, given: Mapping[str, Any], takers: Takers, handles: ExitStack) -> dict[str, Meter]:
    """Open the named meters that feed the device, and let it boot; return them by slot."""
    named = _slots(request.meters)
    slots = [slot for slot, name in named.items() if feeds(load("meters", name), request.feeds.get(slot))]
    if not slots:
        return {}
    options = _of_meters(request, request.meters, takers)
    meters = {slot: _meter(slot, request, named, given, options, handles) for slot in slots}
    boot(given["clock"], request.boot_s)
    return meters


def _slots(meters: Sequence[str]) -> dict[str, str]:
    """Return the names of the meters' drivers by slot; in ``slot.key=value``, the slot names the meter."""
    return {meter_slot(k): name for k, name in enumerate(name for name in meters if name != "none")}


def _of_meters(request: Request, chosen: Sequence[str], takers: Takers) -> dict[str, dict[str, str]]:
    """Return the options of each chosen meter by slot. Raises ``UsageError`` for an option that no part declares."""
    factories = {slot: load("meters", name) for slot, name in _slots(chosen).items()}
    return split_options(list(request.options), {**takers, **factories})


def _calibrations(options: Mapping[str, Mapping[str, str]]) -> dict[str, bytes]:
    files = {slot: Path(given.get("calibration", "")) for slot, given in options.items()}
    return {f"calibration-{slot}{file.suffix}": read_bounded(file) for slot, file in files.items() if file.is_file()}


def _meter(
    slot: str, request: Request, slots: Mapping[str, str], given: Mapping[str, Any],
    options: Mapping[str, Mapping[str, str]], handles: ExitStack,
) -> Meter:  # fmt: skip
    with located(request.places.get(slot, {})):
        meter: Meter = opened(load("meters", slots[slot]), given, options[slot], "meter", slots[slot])
    handles.callback(close_quietly, meter)
    _check_wiring(_described(meter, "meter", slots[slot]), slots[slot], slot, request)
    return meter


def _check_wiring(info: MeterInfo, name: str, slot: str, request: Request) -> None:
    """Raise ``SetupError`` if a meter lacks a rail that the bench file names for it, or has an unknown rail.

    A rail of power is unknown if the file names the rails of the device, and this rail is not among them.
    """
    known, there = [rail.name for rail in info.rails], request.rails.get("device", ())
    powered = [rail.name for rail in info.rails if rail.kind != "edges" and rail.conversion.unit != "V"]
    if there and slot in request.rails and (other := [rail for rail in powered if rail not in there]):
        place = request.places.get("device", {}).get("", "the bench file")
        what = f"meter {name} reports the rail {other[0]}, and the device has no such rail ({place})"
        raise SetupError(what, field="rail", value=other[0], remedy=closest(other[0], there))
    if absent := [rail for rail in request.rails.get(slot, ()) if rail not in known]:
        place = request.places.get(slot, {}).get("", "the bench file")
        what = f"{place}: meter {name} has no rail {absent[0]}"
        remedy = f"Write rail = one of {', '.join(known)}" if known else "Leave `rail` out: it declares no rail"
        raise SetupError(what, field="rail", value=absent[0], remedy=remedy)


def opened(factory: Factory, given: Mapping[str, Any], options: Mapping[str, str], kind: str, name: str) -> Any:
    """Open a driver. The time limit is above its option ``OPENING_S``, so that the driver's own timeout comes first.

    Raises a ``RigError`` if the driver fails, calls ``sys.exit``, or does not return.
    """
    patience_s = patience_of("open", values_of(factory, options).get(OPENING_S, 0.0) + MORE_S)
    open_it = partial(build, factory, given, options)
    return patiently(open_it, SetupError, f"{kind} {name} failed to open", f"open() of {kind} {name}", patience_s)


def close_quietly(driver: Device | Meter, timeout_s: float = 0.0) -> None:
    """Close a device or meter, ignore its errors, and do not wait forever.

    ``timeout_s`` is the timeout that the device declares.
    """
    close = lambda: driver.close()  # noqa: E731, PLW0108 - the driver may have no close()
    let_go(close, f"close() of {type(driver).__name__}", patience_of("close", timeout_s))


def _of_takers(texts: Iterable[str], takers: Takers) -> list[str]:
    """Return the options that the takers declare. The other options may belong to a meter that is not chosen yet."""
    known = {key for factory in takers.values() for key in options_of(factory)}

    def theirs(text: str) -> bool:
        key = text.partition("=")[0]
        who, dot, _ = key.partition(".")
        return (who in takers if dot else key in known) or "=" not in text

    return [text for text in texts if theirs(text)]


def _described(driver: Any, kind: str, name: str) -> Any:
    """Return the info of a driver. Raises ``SetupError`` for an object that is not a driver of this kind."""
    wanted, protocol = (DeviceInfo, Device) if kind == "device" else (MeterInfo, Meter)
    try:
        what = f"{kind} {name} failed to describe itself"
        describe = lambda: driver.info()  # noqa: E731, PLW0108 - a missing info() is reported like a failing one
        info = patiently(describe, SetupError, what, f"info() of {kind} {name}")
    except SetupError as error:
        error.field, error.value = kind, name
        error.remedy = f"Its factory must return an object with info(); rig.check_{kind} checks it"
        raise
    if not isinstance(info, wanted):
        what = f"{name} is not a {kind}: its info() gives a {type(info).__name__}"
        remedy = f"A {kind} gives a {wanted.__name__}; give a device to --device and a meter to --meter"
        raise SetupError(what, field=kind, value=name, remedy=remedy)
    many, of = (info.phases, str) if isinstance(info, DeviceInfo) else (info.rails, Rail)
    if not isinstance(many, tuple | list | str) or not all(isinstance(one, of) for one in many):
        what = f"{kind} {name} declares {many!r} as its {'phases' if kind == 'device' else 'rails'}"
        raise SetupError(what, field=kind, value=name, remedy="Declare a tuple: a single one has a comma, as in (one,)")
    missing = [method for method in members_of(protocol) if not callable(getattr(driver, method, None))]
    if missing:
        what = f"{kind} {name} has no {', '.join(missing)}"
        remedy = f"Give it the methods of a {kind} (for a device, rig.blocking has them); rig.check_{kind} checks it"
        raise SetupError(what, field=missing[0], value=name, remedy=remedy)
    return info


def _check_workload(workload: Any, name: str) -> None:
    """Raise ``SetupError`` for an object that is not a workload, such as a list of samples."""
    missing = [attribute for attribute in members_of(Workload) if not hasattr(workload, attribute)]
    if missing:
        what = f"workload {name} is a {type(workload).__name__} without {', '.join(missing)}"
        remedy = "Return rig.workload(samples, name=...) from its function; rig.check_workload checks it"
        raise SetupError(what, field="workload", value=name, remedy=remedy)


def _rules(request: Request) -> Rules:
    rules_of = load("rules", request.rules)
    try:
        found = rules_of(request.scenario)
    except LookupError as error:  # of a table by scenario
        what = f"the rules {request.rules} do not cover the scenario {request.scenario!r}"
        raise refused("rules", request.rules, "Use --rules quick for others", what) from error
    if not isinstance(found, Rules):
        what = f"rules {request.rules} give a {type(found).__name__} for the scenario {request.scenario}"
        raise refused("rules", request.rules, "Name a set of rules that `rig list` shows", what)
    return found


def _check_mode(request: Request, info: DeviceInfo) -> None:
    if not (isinstance(info.timeout_s, (int, float)) and 0 < info.timeout_s <= YEAR_S):
        what, remedy = f"device {info.name} declares a timeout_s of {info.timeout_s!r}", "Declare seconds within a year"
        raise SetupError(what, field="timeout_s", value=info.timeout_s, remedy=remedy)
    if request.simulate and info.mode != "simulator":
        remedy = f"Leave --simulate out. To measure the device with a simulated meter, {STATE_POWER}"
        raise refused("simulate", True, remedy, f"device {info.name} has no simulator mode")


def _check_scenario(device: Device, scenario: Factory, options: Mapping[str, str]) -> None:
    if values_of(scenario, options).get("apart") and not isinstance(device, Repeats):
        what = f"device {device.info().name} cannot run its phases one at a time"
        remedy = "Leave --per-phase out, or implement submit_repeated in its driver"
        raise SetupError(what, field="apart", value=True, remedy=remedy)


def _meter_names(request: Request, device: Device) -> tuple[str, ...]:
    if request.meters:
        return tuple(n for n in request.meters if n != "none")
    own = device.info().onboard_meter
    if own is None:
        remedy = "Name one with --meter (`rig list` shows them), or --meter none"
        name = device.info().name
        raise SetupError(f"device {name} has no meter on board", field="meter", value=name, remedy=remedy)
    if own not in names("meters") and ".py:" not in own:
        raise UnknownNameError("meter", own, list(names("meters")))
    return (own,)
