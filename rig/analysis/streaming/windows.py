"""Windows for a long trace from a table of seconds, in a few dozen bytes each."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rig.errors import DataError
from rig.recording.bounded import check_dense, check_lines, open_bounded
from rig.types import Floats

START, END, NAME = ("start", "begin", "start_s", "begin_s"), ("end", "end_s"), ("phase", "name")
DEFAULT_NAME = "inference"
MOST_BYTES = 1 << 30
"""The largest table: some 40 million windows."""
REMEDY = "Write start,end[,phase] in seconds of the trace; windows of the phase idle give the idle power"


def read_windows(path: Path) -> tuple[list[str], Floats]:
    """Return names and seconds, shape (k, 2), of a table ``start,end[,phase]``; other columns are ignored.

    Raises ``DataError`` for a file that is none or too large, and, with the row, for text, for an infinite number, or
    for an end before the begin.
    """
    try:
        check_dense(path.stat(), path.name)
        check_lines(path)
        with io.TextIOWrapper(open_bounded(path, MOST_BYTES), encoding="utf-8-sig", newline="") as file:
            return _read(path, file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a table: {error}", field="windows", value=str(path), remedy=REMEDY
        ) from error


def _read(path: Path, file: Iterator[str]) -> tuple[list[str], Floats]:
    head = next(file, "")
    separator = max(",;\t", key=head.count)
    columns = [c.strip().lower() for c in next(csv.reader([head], delimiter=separator), [])]
    at = [next((columns.index(c) for c in known if c in columns), -1) for known in (START, END, NAME)]
    if min(at[:2]) < 0:
        raise DataError(
            f"{path.name} has the columns {', '.join(columns)[:100] or 'none'}, not start and end",
            field="windows",
            value=head[:100].strip(),
            remedy=REMEDY,
        )
    names, seconds, known = list[str](), array("d"), dict[str, str]()
    for row in csv.reader(file, delimiter=separator):
        if not row:
            continue
        try:
            start, end = (float(row[k]) for k in at[:2])
        except (ValueError, IndexError) as error:
            raise _bad(path, len(names), f"is {separator.join(row)[:60]!r}") from error
        if not (math.isfinite(start) and math.isfinite(end)):
            raise _bad(path, len(names), f"runs from {start} to {end}")
        if end < start:
            raise _bad(path, len(names), f"ends {start - end:g} s before it begins")
        name = row[at[2]].strip() if 0 <= at[2] < len(row) else ""
        names.append(known.setdefault(name, name) or DEFAULT_NAME)
        seconds.extend((start, end))
    if not names:
        raise DataError(f"{path.name} holds no window", field="windows", value=str(path), remedy=REMEDY)
    return names, np.frombuffer(seconds, dtype=np.float64).reshape(-1, 2)


def _bad(path: Path, row: int, what: str) -> DataError:
    return DataError(f"{path.name}: data row {row + 1} {what}", field="windows", value=row + 1, remedy=REMEDY)
