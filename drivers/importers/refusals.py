"""Errors that all importers raise: an option that cannot be used, and a file that is not of the format."""

from __future__ import annotations

from pathlib import Path

from rig.errors import DataError, UsageError, refused


def bad_file(path: Path, what: str, remedy: str, *, field: str = "source", value: object = None) -> DataError:
    """The error for a file that is unusable because of ``what``; the value is its path where none is given."""
    return DataError(f"{path.name} {what}", field=field, value=str(path) if value is None else value, remedy=remedy)


def check_inferences(inferences: int | None) -> None:
    """Refuse a stated count of inferences that no window can hold. Raises ``UsageError``."""
    if inferences is not None and not 1 <= inferences < 2**31:
        raise refused("inferences", inferences, "Give a whole number, 1 or more")


def unstated(option: str, what: str, how: str, value: object = None) -> UsageError:
    """The error for what the files leave open and an option must state, with ``how`` it is written."""
    return UsageError(what, field=option, value=value, remedy=f"State it: {how}")
