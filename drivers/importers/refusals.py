"""The two errors that importers raise most: an option that cannot be used, and a file that is not of the format."""

from __future__ import annotations

from pathlib import Path

from rig.errors import DataError, UsageError


def bad_option(name: str, value: object, remedy: str) -> UsageError:
    """The error for an option whose value cannot be used."""
    return UsageError(f"{name} is {value!r}", field=name, value=value, remedy=remedy)


def bad_file(path: Path, what: str, remedy: str, *, field: str = "source", value: object = None) -> DataError:
    """The error for a file of which ``what`` is said; the value is its path where none is given."""
    return DataError(f"{path.name} {what}", field=field, value=str(path) if value is None else value, remedy=remedy)
