"""Errors that all importers raise: an option that cannot be used, and a file that is not of the format."""

from __future__ import annotations

from pathlib import Path

from rig.errors import DataError, UsageError


def bad_option(name: str, value: object, remedy: str) -> UsageError:
    """The error for an option whose value cannot be used."""
    return UsageError(f"{name} is {value!r}", field=name, value=value, remedy=remedy)


def bad_file(path: Path, what: str, remedy: str, *, field: str = "source", value: object = None) -> DataError:
    """The error for a file that is unusable because of ``what``; the value is its path where none is given."""
    return DataError(f"{path.name} {what}", field=field, value=str(path) if value is None else value, remedy=remedy)


def check_inferences(inferences: int | None) -> None:
    """Refuse a stated count of inferences that no window can hold. Raises ``UsageError``."""
    if inferences is not None and not 1 <= inferences < 2**31:
        raise bad_option("inferences", inferences, "Give a whole number, 1 or more")


def check_limits(**options: float) -> None:
    """Refuse a limit of error below 0, or beyond 1e5. Raises ``UsageError``."""
    for name, value in options.items():
        if not 0.0 <= value <= 1e5:
            raise bad_option(name, value, "Give a number, 0 or more")


def unstated(option: str, what: str, how: str, value: object = None) -> UsageError:
    """The error for what the files leave open and an option must state, with ``how`` it is written."""
    return UsageError(what, field=option, value=value, remedy=f"State it: {how}")
