"""Find the files of a recording below a folder, and read them as text or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drivers.importers.refusals import bad_file
from rig.errors import reason

KEPT = "artifacts/original/"


def below(source: Path, pattern: str) -> list[Path]:
    """Return files of a name in or below a folder, in order, without the originals inside imported runs."""
    return sorted(p for p in source.rglob(pattern) if p.is_file() and KEPT not in p.relative_to(source).as_posix())


def read_text(path: Path, remedy: str) -> str:
    """Return a text with any line ends. Raises ``DataError``."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise bad_file(path, f"cannot be read: {reason(error)}", remedy, field=path.name) from error


def read_json(path: Path, remedy: str) -> Any:
    """Return the values of a JSON file. Raises ``DataError``."""
    try:
        return json.loads(read_text(path, remedy))
    except (ValueError, RecursionError) as error:
        raise bad_file(path, f"is not JSON: {error}", remedy, field=path.name) from error
