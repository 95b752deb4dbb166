"""Find the files of a recording below a folder, read them as text or JSON, and refuse them as all importers do.

The remedy of an error names the format that the names and first lines of files show.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from rig.errors import DataError, UsageError, reason, refused

KEPT = "artifacts/original/"
MOST = 5_000
"""At most this many files are looked at, so that a wrong folder, such as a home directory, is refused soon."""
_NAMES = (
    ("-energy.bin", "energyrunner"), ("spl.txt", "mlperf-power"), (".jls", "joulescope-jls"),
)  # fmt: skip
_HEADS = (
    ("#time,current,voltage,power", "joulescope-csv"), ("timestamp(ms),current(ua)", "ppk2"),
    ("soc watch", "socwatch"), ("timestamp,value", "otii"),
)  # fmt: skip


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


def looks_like(source: Path) -> str:
    """Return a remedy that names the format of the files at ``source``, from their names and first lines."""
    files = [source]
    if source.is_dir():
        files = sorted(p for p in itertools.islice(source.rglob("*"), MOST) if p.is_file())
    if not files:
        return "It is empty"
    for path in files:
        if kind := _format(path):
            return f"{path.name} looks like --format {kind}"
    if source.is_file() and (near := [k for p in sorted(source.parent.iterdir()) if p.is_file() and (k := _format(p))]):
        return f"This is one file of a recording; name its folder, which looks like --format {near[0]}"
    if any(p.name == "mlperf_log_detail.txt" for p in files):
        return "It holds LoadGen logs, but none of a power meter (spl.txt)"
    if any(p.name in ("log.txt", "script.async") for p in files):
        return "It looks like a performance or accuracy session of EnergyRunner, which has no energy trace"
    return "It looks like no known format; name the folder that holds the recording"


def _format(path: Path) -> str:
    for end, kind in _NAMES:
        if path.name == end or (end[0] in "-." and path.name.endswith(end)):
            return kind
    if path.name == "results.json":
        return "energyrunner" if b'"samples"' in _head(path, 100_000) else ""
    if path.suffix.lower() != ".csv":
        return ""
    head = _head(path, 2_000).decode("utf-8", "replace").lower()
    return next((kind for mark, kind in _HEADS if mark in head), "plain-csv")


def _head(path: Path, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(length)
    except OSError:
        return b""
