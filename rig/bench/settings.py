"""Check options, and make factories whose options are the fields of a settings record, not a long signature.

A failed check raises ``UsageError`` with the option, its value and the remedy.
"""

import inspect
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial, wraps
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rig.errors import refused, unfit

T = TypeVar("T")
M = TypeVar("M")


def positive(**options: float | None) -> None:
    """Check that each option is a finite number above zero. None means left out, and is accepted."""
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise refused(name, value, "Give a number above zero")


def within(low: float, high: float, unit: str = "", **options: float) -> None:
    """Check that each option is a finite number from ``low`` to ``high``, which may be infinite."""
    unit = f" {unit}" if unit else ""
    range_ = f"{low:g}{unit} or more" if high == math.inf else f"{low:g} to {high:.7g}{unit}"
    for name, value in options.items():
        if not (math.isfinite(value) and low <= value <= high):
            raise refused(name, value, f"Give {range_}")


def one_of(known: Iterable[object], **options: object) -> None:
    """Check that each option is one of the known values. An empty text in ``known`` allows an empty option."""
    for name, value in options.items():
        if value not in (allowed := list(known)):
            texts = [f"{each:g}" if isinstance(each, float) else str(each) for each in allowed if each != ""]
            raise refused(name, value, f"Give one of {', '.join(texts)}")


def first_of(items: Sequence[T], samples: int | None) -> Sequence[T]:
    """Return the first ``samples`` items, or all without a number. Raises ``UsageError`` for more than there are."""
    if samples is not None and not 0 < samples <= len(items):
        raise unfit("samples", samples, "is not possible", f"Use 1 to {len(items)}")
    return items[:samples]


def parts_of(text: str) -> list[str]:
    """Return the names in a text, separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


Positive = Annotated[float, positive]
"""A number above zero. The function in an annotation gets a field's name and value, and refuses a bad value."""
Tolerance = Annotated[float, partial(within, 0.0, 0.5)]
"""The largest relative rate error of a clock, as in ``ClockInfo``."""


def of_settings(open_: Callable[..., M]) -> Callable[..., M]:
    """Make a factory of ``open_(settings, ...)``: its options are the fields of the record ``settings``.

    A field that is a record itself is replaced by its fields. The other parameters become parameters of the factory.
    The factory raises ``UsageError`` for a value that its annotation does not allow.
    """
    kind = get_type_hints(open_)["settings"]
    options = {name: (hint, default) for name, hint, default in _flat(kind, kind())}
    keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    keywords = [keyword(name, default=default, annotation=hint) for name, (hint, default) in options.items()]
    _, *others = inspect.signature(open_).parameters.values()

    @wraps(open_)
    def opened(*args: Any, **given: Any) -> M:
        for name, (hint, default) in options.items():
            _check(name, hint, given.get(name, default))
        rest = {name: value for name, value in given.items() if name not in options}
        return open_(_filled(kind(), given), *args, **rest)

    opened.__signature__ = inspect.Signature([*others, *keywords])  # type: ignore[attr-defined]
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
    """Check a value by its annotation; None passes if the annotation allows it."""
    if get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint) if value is not None else ():
            _check(name, member, value)
    elif get_origin(hint) is Literal:
        one_of(get_args(hint), **{name: value})
    else:
        for check in getattr(hint, "__metadata__", ()):
            check(**{name: value})
