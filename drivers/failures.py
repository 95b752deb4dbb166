"""Errors that end a measurement, each of which tells that what was recorded is kept; and those of unfit data."""

from __future__ import annotations

from rig.errors import MeterError

KEPT = "The recording up to here is kept; `rig report` reads it"


def meter_failed(
    message: str, field: str, value: object, remedy: str, kind: type[MeterError] = MeterError
) -> MeterError:
    """The error to raise for an instrument that failed while it measured."""
    return kind(message, field=field, value=value, remedy=f"{remedy}. {KEPT}")


UNFIT = (OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
         AssertionError, MemoryError)  # fmt: skip
"""What numpy, HDF5, nir and torch raise for what is damaged or does not fit; another error is told as a driver's."""
