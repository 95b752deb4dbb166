"""Errors of instruments that end a measurement, errors of libraries about unfit data, and clean-up after errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rig.errors import MeterError

KEPT = "The recording up to here is kept; `rig report` reads it"


def meter_failed(
    message: str, field: str, value: object, remedy: str, kind: type[MeterError] = MeterError
) -> MeterError:
    """Return the error for an instrument that failed while it measured. The error states that recorded data is kept."""
    return kind(message, field=field, value=value, remedy=f"{remedy}. {KEPT}")


UNFIT = (OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
         AssertionError, MemoryError)  # fmt: skip
"""Errors of numpy, HDF5, nir and torch for damaged or unfit data; any other error is reported as an error of the
driver."""


@contextmanager
def released_on_error(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` when the block raises."""
    try:
        yield
    except BaseException:
        release()
        raise


@contextmanager
def raising(make: Callable[[Any], Exception], *kinds: type[Exception]) -> Iterator[None]:
    """Raise ``make(error)`` from an error of the block that is of one of ``kinds``."""
    try:
        yield
    except kinds as error:
        raise make(error) from error


def quietly(call: Callable[..., Any], *arguments: Any) -> None:
    """Call ``call`` and ignore its failure, which no longer matters."""
    with suppress(Exception):
        call(*arguments)


def brief(error: Exception) -> str:
    """Return the text of a library's error in one line of at most 160 characters, or its class if it has no text."""
    return " ".join(str(error).split())[:160] or type(error).__name__
