"""Errors that all importers raise: an option that cannot be used, and a file that is not of the format."""

from __future__ import annotations

from pathlib import Path

from rig.errors import DataError, UsageError, refused


def bad_file(path: Path, what: str, remedy: str, *, field: str = "source", value: object = None) -> DataError:
    """Return the error for a file that is unusable because of ``what``. Without ``value``, the value is its path."""
    return DataError(f"{path.name} {what}", field=field, value=str(path) if value is None else value, remedy=remedy)


def check_inferences(inferences: int | None) -> None:
    """Refuse a stated count of inferences that no window can hold. Raises ``UsageError``."""
    if inferences is not None and not 1 <= inferences < 2**31:
        raise refused("inferences", inferences, "Give a whole number, 1 or more")


def unstated(option: str, what: str, how: str, value: object = None) -> UsageError:
    """Return the error for a fact that the files do not state and an option must state; ``how`` shows the option."""
    return UsageError(what, field=option, value=value, remedy=f"State it: {how}")
