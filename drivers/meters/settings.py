"""Settings of meters: what all of them share, and factories whose options are the fields of a record."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rig.bench.calibration import load, stated
from rig.bench.options import one_of, positive
from rig.errors import DataError
from rig.types import Clock, ClockInfo, MeterInfo, Rail

M = TypeVar("M")
Positive = Annotated[float, positive]
"""What follows the type of a field is called with its value, by name, and raises ``UsageError`` for a bad one."""
IN_ONE_SUPPLY = ("every supply but the one that the meter is in",)


@dataclass(frozen=True)
class Instrument:
    """The settings that meters share.

    ``clock_tolerance`` limits the rate of its sample timer (relative). ``calibration`` names a calibration file with
    limits in the rail's unit, ``calibration_range`` the range in it where it has several; without a file no accuracy is
    stated. See docs/reference/calibration.md.
    """

    name: str
    clock_tolerance: Positive = 1e-3
    calibration: str | None = None
    calibration_range: float | None = None
    temperature_c: float | None = None

    def limited(self, rail: Rail, serial: str, range_: float | None = None, *, one_range: bool = True) -> Rail:
        """A rail with the limits of its owner's calibration file, today; without a file none is stated.

        ``one_range`` is false for an instrument that changes its range by itself: the linearity of one range says
        nothing of two of its readings. Raises ``DataError`` for a file of another instrument or another time,
        ``UsageError`` for one that does not fit.
        """
        path = self.calibration
        if path is None:
            return stated(rail, None, range_max=self.calibration_range, temperature_c=self.temperature_c)
        own = load(Path(path)).serial
        if own and own != serial:
            what = f"the calibration {Path(path).name} is for the instrument {own}, but this instrument is {serial}"
            raise DataError(what, field="calibration", value=own, remedy="Give the calibration of this instrument")
        chosen, today = self.calibration_range or range_, datetime.now(UTC).date()
        found = stated(rail, path, range_max=chosen, temperature_c=self.temperature_c, on=today)
        if one_range or found.accuracy is None:
            return found
        return replace(found, accuracy=replace(found.accuracy, linearity=None))

    def info(
        self, description: str, *rails: Rail, simulated: bool = False, tick_hz: float = 1e9,
        omitted: tuple[str, ...] = IN_ONE_SUPPLY, details: Mapping[str, Any], **more: Any,
    ) -> MeterInfo:  # fmt: skip
        """What the meter is; ``more`` are further fields of ``MeterInfo``."""
        path = None if self.calibration is None else Path(self.calibration)
        file = path and {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        return MeterInfo(
            self.name, "simulator" if simulated else "hardware", ClockInfo(self.name, tick_hz, self.clock_tolerance),
            rails, omitted, f"{'SIMULATED ' if simulated else ''}{description}",
            details={**details, "calibration": file}, **more,
        )  # fmt: skip


def of_settings(open_: Callable[..., M]) -> Callable[..., M]:
    """Make a factory of ``open_(settings, clock)``: its options are the fields of the record ``settings``.

    A field that is a record itself stands for its fields. Raises ``UsageError`` for a value that its annotation does
    not allow.
    """
    kind = get_type_hints(open_)["settings"]
    options = {name: (hint, default) for name, hint, default in _flat(kind, kind())}
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in options.items()
    ]

    @wraps(open_)
    def opened(clock: Clock | None = None, **given: Any) -> M:
        if strange := sorted(given.keys() - options):
            raise TypeError(f"{open_.__module__} has no option {strange[0]}")
        for name, (hint, default) in options.items():
            _check(name, hint, given.get(name, default))
        return open_(_filled(kind(), given), clock)

    first = inspect.Parameter("clock", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    opened.__signature__ = inspect.Signature([first, *keywords])  # type: ignore[attr-defined]
    opened.__annotations__ = {name: hint for name, (hint, _) in options.items()}
    return opened


def _flat(kind: Any, at: Any) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint, default = hints[field.name], getattr(at, field.name)
        if is_dataclass(hint):
            yield from _flat(hint, default)
        else:
            yield field.name, hint, default


def _filled(at: Any, given: Mapping[str, Any]) -> Any:
    own = {field.name: getattr(at, field.name) for field in fields(at)}
    return replace(at, **{k: _filled(v, given) if is_dataclass(v) else given.get(k, v) for k, v in own.items()})


def _check(name: str, hint: Any, value: Any) -> None:
    """Check a value by its annotation; None, where it may be None, passes."""
    if get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint) if value is not None else ():
            _check(name, member, value)
    elif get_origin(hint) is Literal:
        one_of(get_args(hint), **{name: value})
    else:
        for check in getattr(hint, "__metadata__", ()):
            check(**{name: value})
