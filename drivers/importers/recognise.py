"""Recognises the format of files by their names and first lines, for the remedy of an error."""

from __future__ import annotations

import itertools
from pathlib import Path

MOST = 5_000
"""At most this many files are looked at, so that a wrong folder, such as a home directory, is refused soon."""
_NAMES = (
    ("-energy.bin", "energyrunner"), ("spl.txt", "mlperf-power"), (".jls", "joulescope-jls"),
)  # fmt: skip
_HEADS = (
    ("#time,current,voltage,power", "joulescope-csv"), ("timestamp(ms),current(ua)", "ppk2"),
    ("soc watch", "socwatch"), ("timestamp,value", "otii"),
)  # fmt: skip


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
