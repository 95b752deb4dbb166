"""Checks of options. A failed check raises ``UsageError`` with the option, its value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rig.errors import refused, unfit

T = TypeVar("T")


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
    """Check that each option is one of the known values. An empty text in ``known`` means that none is required."""
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
