"""Common parts of the checks of devices and meters: failures, and the rules of clocks and of closing."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar, get_args

import numpy as np
from msgspec import convert, to_builtins

from rig.driver_call_timeouts import PATIENCE_S, SIMULATED_S
from rig.engine.clock import HostClock
from rig.engine.watchdog import Watch
from rig.errors import ConformanceError, RuleFailure, said
from rig.recording.events import plain
from rig.types import Bracket, Clock, Clocked, ClockInfo, Device, DeviceInfo, Meter, MeterInfo, Mode

_T = TypeVar("_T")
HANGS_S = 10.0
"""A call that takes longer than this (s) on the host's clock hangs. Calls in ``PATIENCE_S`` have their own limit."""


class Checks:
    """Collects the first failure of each rule."""

    def __init__(self, clock: Clock, prompt_s: float, kind: str = "driver") -> None:
        self.clock, self.prompt_s, self.kind = clock, prompt_s, kind
        self.name = "?"
        self._checked: dict[str, RuleFailure | None] = {}

    def rule(self, rule: str, ok: bool, found: str, asked: str) -> bool:
        """Note that ``rule`` was checked, and what was found if it fails; return ``ok``."""
        if not ok and self._checked.get(rule) is None:
            self._checked[rule] = RuleFailure(rule, found, asked)
        self._checked.setdefault(rule, None)
        return ok

    def complete(self, driver: object, protocol: type) -> bool:
        """Return whether an object is an opened driver with the methods of a protocol."""
        methods = members_of(protocol)
        lacks = [name for name in methods if not callable(getattr(driver, name, None))]
        found = f"{type(driver).__name__} without {', '.join(lacks)}"
        return self.rule("methods", not lacks, found, f"an opened driver with {', '.join(methods)}")

    def promptly(self, rule: str, call: Callable[[], _T], waits_s: float = 0.0) -> _T:
        """Return the call's value; a call that takes too long is a failure."""
        took_s = 0.0

        def timed() -> _T:
            nonlocal took_s
            before_ns = self.clock.now_ns()
            value = call()
            took_s = (self.clock.now_ns() - before_ns) * 1e-9
            return value

        value = self.call(f"{rule.partition('.')[0]}()", timed)
        limit_s = waits_s + self.prompt_s
        self.rule(rule, took_s <= limit_s, f"a call that took {took_s:.3g} s", f"{limit_s:.3g} s at most")
        return value

    def call(self, name: str, call: Callable[[], _T]) -> _T:
        """Return the call's value. A call that hangs is abandoned, with an error that names it."""
        known = name.partition("(")[0] in PATIENCE_S
        patience_s = None if known else HANGS_S if isinstance(self.clock, HostClock) else SIMULATED_S
        watch = Watch(patience_s)
        with watch.watching(lambda error: None):
            return watch.read(f"{name} of {self.kind} {self.name}", lambda _: call(), None)

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """Note a failure if the block raises; the block uses the driver only as the protocols allow."""
        try:
            yield
        except Exception as error:
            found = said(error, f" from {what}")
            self.rule("calls", False, found, "no exception when it is used as the protocols say")

    def verdict(self) -> tuple[str, ...]:
        """Return the rules that were checked. Raises ``ConformanceError`` if one failed."""
        failures = [f for f in self._checked.values() if f is not None]
        if failures:
            raise ConformanceError(self.name, failures, [rule for rule, f in self._checked.items() if f is None])
        return tuple(self._checked)


def members_of(protocol: type) -> tuple[str, ...]:
    """Return the names of the methods and attributes that a protocol defines."""
    return tuple(name for name in vars(protocol) if not name.startswith("_"))


def clock_info(c: Checks, clock: ClockInfo) -> bool:
    """Check the rate and the name of a clock; return whether the rate can be used."""
    sane = 0 < clock.tick_hz < math.inf and 0 <= clock.tolerance <= 0.5
    found = f"{clock.tick_hz} Hz within {clock.tolerance}"
    c.rule("clock.rate", sane, found, "a finite rate above zero, a tolerance from 0 to 0.5")
    named = bool(clock.name) and (clock.name != "host" or clock.tick_hz == 1e9)
    c.rule("clock.name", named, f"{clock.name!r} at {clock.tick_hz} Hz", "a name; 'host' only for host nanoseconds")
    return sane


def read_timer(c: Checks, source: Clocked) -> Bracket | None:
    """Read a timer twice, check that it does not go back, and return the second reading; None if it is no integer."""
    with c.calling("timer()"):
        first = source.timer()
        before_ns = c.clock.now_ns()
        tick, after_ns = source.timer(), c.clock.now_ns()
        if c.rule("timer.whole", isinstance(tick, (int, np.integer)), repr(tick), "an integer"):
            asked = "a reading that is at least the one before"
            c.rule("timer.monotone", tick >= first, f"{tick} after {first}", asked)
            return Bracket(before_ns, int(tick), after_ns)
    return None


def rate(c: Checks, clock: ClockInfo, first: Bracket, last: Bracket) -> None:
    """Check the timer's rate between two readings, within the bounds that the host stamps around them allow."""
    seconds = (last.tick - first.tick) / clock.tick_hz
    slack_s = 2.0 / clock.tick_hz
    low = (last.before_ns - first.after_ns) * 1e-9 * (1.0 - clock.tolerance) - slack_s
    high = (last.after_ns - first.before_ns) * 1e-9 * (1.0 + clock.tolerance) + slack_s
    found = f"{seconds:.6g} s by its clock in {low:.6g} to {high:.6g} s"
    c.rule("timer.rate", low <= seconds <= high, found, f"{clock.tick_hz:g} Hz within {clock.tolerance:g}")


def identity(c: Checks, info: DeviceInfo | MeterInfo, again: DeviceInfo | MeterInfo) -> None:
    """Check name and mode of a driver, and that its info can be recorded and stays the same."""
    c.name = str(info.name) or "?"
    c.rule("info.name", bool(info.name), repr(info.name), "a name")
    c.rule("info.mode", info.mode in get_args(Mode), repr(info.mode), " or ".join(get_args(Mode)))
    c.rule("info.details", isinstance(info.details, Mapping), repr(info.details), "a mapping")
    steady = _recorded(c, info) == _recorded(c, again)
    c.rule("info.steady", steady, "another info in the second call", "the same each time")


def _recorded(c: Checks, info: DeviceInfo | MeterInfo) -> str:
    """Return the info as a recording holds it; empty if it cannot be written."""
    text: list[str] = []
    error = raised(lambda: text.append(json.dumps(asdict(info), default=str, allow_nan=False)))
    error = error or raised(lambda: convert(to_builtins(info, enc_hook=plain), type(info)))
    c.rule("info.json", error is None, f"{type(error).__name__}: {error}", "values of the declared types, and no NaN")
    return "".join(text)


def close(c: Checks, driver: Device | Meter) -> None:
    """Check that a driver can be closed twice."""
    errors = [e for e in (raised(driver.close), raised(driver.close)) if e is not None]
    found = f"{errors[0]!r}" if errors else ""
    c.rule("close.twice", not errors, found, "close() that can be called twice and does not raise")


def raised(call: Callable[[], Any]) -> Exception | None:
    """Return the exception of a call, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None
