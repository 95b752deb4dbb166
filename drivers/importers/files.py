"""Functions of all importers: find the files of a recording, read them as text or JSON, and report bad files."""

import json
from pathlib import Path
from typing import Any

from drivers.failures import raising
from rig.errors import DataError, UsageError, reason

KEPT = "artifacts/original/"
OTHER = "Name the folder that holds the recording, or another format (`rig list` names them)"


def bad_file(path: Path, what: str, remedy: str, *, field: str = "source", value: object = None) -> DataError:
    """Return the error for a file that is unusable because of ``what``. Without ``value``, the value is its path."""
    return DataError(f"{path.name} {what}", field=field, value=str(path) if value is None else value, remedy=remedy)


def unstated(option: str, what: str, how: str, value: object = None) -> UsageError:
    """Return the error for a fact that an option must state, because the files do not; ``how`` is the option's form."""
    return UsageError(what, field=option, value=value, remedy=f"State it: {how}")


def below(source: Path, pattern: str) -> list[Path]:
    """Return the files in or below a folder whose names match, in order. ``source`` may also be one file.

    The originals in imported runs are left out. For one file whose name does not match, the list is empty.
    """
    if source.is_file():
        return [source] if source.match(pattern) else []
    return sorted(p for p in source.rglob(pattern) if p.is_file() and KEPT not in p.relative_to(source).as_posix())


def read_text(path: Path, remedy: str) -> str:
    """Return the text of a file; any line end becomes a newline. Raises ``DataError``."""
    with raising(lambda error: bad_file(path, f"cannot be read: {reason(error)}", remedy, field=path.name), OSError):
        return path.read_text(encoding="utf-8-sig", errors="replace")


def read_json(path: Path, remedy: str) -> Any:
    """Return the values of a JSON file. Raises ``DataError``."""
    try:
        return json.loads(read_text(path, remedy))
    except (ValueError, RecursionError) as error:
        raise bad_file(path, f"is not JSON: {error}", remedy, field=path.name) from error
