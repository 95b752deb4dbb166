"""What ``rig doctor`` does with one device or one meter: open it, ask who it is, read its clock and its rails.

An examination is a generator of findings and, between them, texts that say what is tried next, so that whoever runs
it knows where it hangs. It closes what it opened when it is closed itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from rig.doctor.clock import bracketed, clock_findings
from rig.doctor.findings import Finding, broken, of_error, ok, si
from rig.doctor.meter import reading_findings, take
from rig.errors import DeviceError, MeterError, RigError
from rig.plugins import Factory, build, takes
from rig.types import Clock, Clocked, ClockInfo, DeviceInfo, MeterInfo

T = TypeVar("T")
Steps = Iterator[Finding | str]


@dataclass(frozen=True)
class Patient:
    """One device or meter to be opened: its name here, its factory, the texts of its options, the wired rails."""

    item: str
    factory: Factory
    options: Mapping[str, str] = field(default_factory=dict)
    rails: tuple[str, ...] = ()


def examine_device(patient: Patient, given: Mapping[str, Any], clock: Clock, seconds: float, held: list[Any]) -> Steps:
    """Findings of a device. It stays open, in ``held``, for the meters that see it."""
    item = patient.item
    yield "opening it"
    device = build(patient.factory, given, patient.options)
    try:
        yield "asking who it is"
        info = _asked(device.info, DeviceInfo, DeviceError)
        yield ok(item, "identity", _who(info.name, info.mode, info.description, info.versions))
        if info.clock is not None and isinstance(device, Clocked):
            yield f"reading its clock for {seconds:g} s"
            yield from _clock(item, info.clock, device, clock, seconds, DeviceError)
        elif info.clock is None:
            yield ok(item, "clock", "stamped by the host")
        else:
            text = f"it stamps by {info.clock.name}, which cannot be read (no timer())"
            yield ok(item, "clock", f"{text}: its offset is found in the trace alone")
    except BaseException:
        _close(device)
        raise
    held.append(device)


def examine_meter(patient: Patient, given: Mapping[str, Any], clock: Clock, seconds: float) -> Steps:
    """Findings of a meter, which is closed at the end."""
    item = patient.item
    yield "opening it"
    meter = build(patient.factory, given, patient.options)
    try:
        yield "asking who it is"
        info = _asked(meter.info, MeterInfo, MeterError)
        sees = ", ".join(f"{r.name} ({r.conversion.unit}, {r.kind})" for r in info.rails)
        yield ok(item, "identity", f"{_who(info.name, info.mode, info.description, info.versions)}; rails: {sees}")
        yield f"reading it for {seconds:g} s"
        taken = take(meter, info, clock, seconds)
        trip_s = (taken.trigger.after_ns - taken.trigger.before_ns) * 1e-9
        yield ok(item, "trigger", f"{si(trip_s, 's')} from asking to answer", trip_s=trip_s)
        yield from reading_findings(item, info, taken, patient.rails)
        if isinstance(meter, Clocked) and info.clock.name != "host":
            yield f"reading its clock for {seconds:g} s"
            yield from _clock(item, info.clock, meter, clock, seconds, MeterError)
    finally:
        _close(meter)


def doctor_of(factory: Factory) -> Callable[..., Any] | None:
    """The function ``doctor`` of a driver's module, where it has one."""
    own = getattr(sys.modules.get(getattr(factory, "__module__", "")), "doctor", None)
    return own if callable(own) else None


def own_doctor(
    item: str, own: Callable[..., Any], options: Mapping[str, str], build_it: bool, say: Callable[[str], None]
) -> Steps:
    """What a driver says of itself: it is handed ``build``, ``say`` for progress, and what it takes of the options.

    Each finding it returns has ``ok`` (true or false), ``what`` and ``remedy``.
    """
    yield "asking its driver's own doctor"
    asked = partial(own, say=say) if takes(own, "say") else own
    for each in build(asked, {"build": build_it}, {**options, "build": str(build_it).lower()}):
        what, remedy = str(getattr(each, "what", each)), str(getattr(each, "remedy", ""))
        yield ok(item, "driver", what) if getattr(each, "ok", False) else broken(item, "driver", what, remedy)


def failed(item: str, step: str, error: BaseException) -> Finding:
    """What ended an examination."""
    if isinstance(error, RigError):
        return of_error(item, "open" if step == "opening it" else "use", error)
    text = f"its driver failed while {step}: {type(error).__name__}: {error}"
    return broken(item, "driver", text, "Mend its driver; try rig.conformance.device on it", DeviceError)


def _clock(
    item: str, info: ClockInfo, source: Clocked, clock: Clock, seconds: float, error: type[RigError]
) -> Sequence[Finding]:
    brackets = bracketed(source.timer, clock, seconds)
    return list(clock_findings(item, info, brackets, clock.now_ns(), error))


def _asked(info: Callable[[], T], wanted: type[T], error: type[RigError]) -> T:
    found = info()
    if not isinstance(found, wanted):
        raise error(
            f"its info() gives a {type(found).__name__}", field="info", remedy=f"Return a {wanted.__name__} from it"
        )
    return found


def _who(name: str, mode: str, description: str, versions: Mapping[str, str]) -> str:
    known = ", ".join(f"{k} {v}" for k, v in versions.items())
    return f"{description or name} ({mode}{'; ' + known if known else ''})"


def _close(handle: Any) -> None:
    with suppress(Exception):
        handle.close()
