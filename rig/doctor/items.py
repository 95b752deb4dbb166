"""Examine one device or meter: open it, and read its info, its clock and its rails.

An examination is a generator of findings. Between findings it yields texts that name the next step, so that its caller
knows where a driver hangs. When the generator is closed, it closes what it opened.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from rig.doctor.clock import bracketed, clock_findings
from rig.doctor.findings import Finding, broken, of_error, ok, si
from rig.doctor.meter import reading_findings, take
from rig.errors import DeviceError, MeterError, RigError, said
from rig.factories import Factory, build
from rig.session.setup import close_quietly
from rig.types import Clock, Clocked, ClockInfo, DeviceInfo, MeterInfo, Rail

T = TypeVar("T")
Steps = Iterator[Finding | str]


@dataclass(frozen=True)
class Item:
    """One device or meter to examine, from an entry of a bench file or by the name of its driver.

    ``rails`` are those in the bench file; ``paths`` are values of options, which may be files to open. ``feeds`` states
    whether the device gets its power through this meter. ``boot_s`` is how long the device boots
    after the meter that feeds it was opened.
    """

    name: str
    factory: Factory
    options: Mapping[str, str]
    rails: tuple[str, ...]
    driver: str
    patience_s: float
    paths: tuple[object, ...] = ()
    feeds: bool = False
    boot_s: float | None = None


def examine_device(device_item: Item, given: Mapping[str, Any], seconds: float, held: list[Any]) -> Steps:
    """Yield the findings of a device. It stays open, in ``held``, for the meters that see it."""
    item = device_item.name
    with ExitStack() as opened:
        device, info = yield from _opened(device_item, given, opened, DeviceInfo, DeviceError)
        yield ok(item, "identity", _identity(info))
        if info.clock is not None and isinstance(device, Clocked):
            yield from _clock(item, info.clock, device, given["clock"], seconds, DeviceError)
        elif info.clock is None:
            yield ok(item, "clock", "spans are on a pin" if info.spans_on_pin else "stamped by the host")
        else:
            text = f"it stamps by {info.clock.name}, which cannot be read (no timer())"
            yield ok(item, "clock", f"{text}: its offset is found only from the trace")
        opened.pop_all()
    held.append(device)


def examine_meter(meter_item: Item, given: Mapping[str, Any], seconds: float, held: list[Any] | None = None) -> Steps:
    """Yield the findings of a meter. It is closed at the end, or with ``held`` stays open in this list."""
    item = meter_item.name
    with ExitStack() as opened:
        meter, info = yield from _opened(meter_item, given, opened, MeterInfo, MeterError)
        sees = ", ".join(f"{r.name} ({r.conversion.unit}, {r.kind}{_range(r)})" for r in info.rails)
        yield ok(item, "identity", f"{_identity(info)}; rails: {sees}")
        yield f"reading it for {seconds:g} s"
        taken = take(meter, info, given["clock"], seconds)
        trip_s = (taken.trigger.after_ns - taken.trigger.before_ns) * 1e-9
        yield ok(item, "trigger", f"{si(trip_s, 's')} from request to answer", trip_s=trip_s)
        yield from reading_findings(item, info, taken, meter_item.rails)
        if isinstance(meter, Clocked) and info.clock.name != "host":
            yield from _clock(item, info.clock, meter, given["clock"], seconds, MeterError)
        if held is not None:
            opened.pop_all()
            held.append(meter)


def failed(item: str, step: str, error: BaseException) -> Finding:
    """Return the finding for an error that ended an examination."""
    if isinstance(error, RigError):
        return of_error(item, "open" if step == "opening it" else "use", error)
    text = f"its driver failed while {step}: {said(error)}"
    return broken(item, "driver", text, "Correct its driver; `rig check` names each rule that it breaks", DeviceError)


def _opened(
    item: Item, given: Mapping[str, Any], handles: ExitStack, wanted: type[T], error: type[RigError]
) -> Generator[str, None, tuple[Any, T]]:
    """Open a device or a meter, which ``handles`` closes; return it and its info."""
    yield "opening it"
    driver = build(item.factory, given, item.options)
    handles.callback(close_quietly, driver)
    yield "reading its info"
    info = driver.info()
    if not isinstance(info, wanted):
        what, remedy = f"its info() gives a {type(info).__name__}", f"Return a {wanted.__name__} from it"
        if isinstance(info, MeterInfo):  # `rig doctor path.py:function` examines devices
            remedy = "To examine a meter of your own, write it into a bench file as [meters.NAME]"
        raise error(what, field="info", remedy=remedy)
    return driver, info


def _clock(item: str, info: ClockInfo, source: Clocked, clock: Clock, seconds: float, error: type[RigError]) -> Steps:
    yield f"reading its clock for {seconds:g} s"
    yield from clock_findings(item, info, bracketed(source.timer, clock, seconds), clock.now_ns(), error)


def _range(rail: Rail) -> str:
    return f", up to {si(rail.range_max, rail.conversion.unit)}" if rail.range_max is not None else ""


def _identity(info: DeviceInfo | MeterInfo) -> str:
    known = ", ".join(f"{k} {v}" for k, v in info.versions.items())
    return f"{info.description or info.name} ({info.mode}{'; ' + known if known else ''})"
