"""The two logs of an MLPerf power run, PTDaemon's and LoadGen's, on one axis of time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from drivers.importers.units import utc_ns
from rig.errors import DataError, UsageError
from rig.types import Floats, Indices

METER_LOG, DETAIL, SUMMARY = "spl.txt", "mlperf_log_detail.txt", "mlperf_log_summary.txt"
ORDERS = {"mdy": (0, 1), "dmy": (1, 0)}
"""Where the month and where the day stands among the first two numbers of a date."""
MS = 1_000_000
_STAMP = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")


@dataclass(frozen=True)
class Part:
    """One folder: the meter's readings (UTC ms by its own clock, W; shapes (n,)) and LoadGen's window (UTC ms)."""

    folder: Path
    stamp_ms: Indices
    watts: Floats
    begin_ms: int
    end_ms: int
    said: Mapping[str, Any]
    files: Mapping[str, Path]


def read_part(folder: Path, zones: tuple[tzinfo, tzinfo], date_order: str | None) -> Part:
    """Read one folder; ``zones`` are those of the meter's log and of LoadGen. Raises ``DataError``, ``UsageError``."""
    said = _loadgen(folder / DETAIL)
    stamps, watts = _meter(folder / METER_LOG)
    window = [_fields(said[key], folder / DETAIL) for key in ("power_begin", "power_end")]
    stamp_ms, (begin, end) = _on_one_axis(folder, stamps, window, zones, date_order)
    if not begin < end:
        raise DataError(
            f"{folder.name}: power_end is not after power_begin", field="power_end", value=end - begin, remedy="Check"
        )
    names = [n for n in (METER_LOG, DETAIL, SUMMARY) if (folder / n).is_file()]
    files = {f"{folder.name or 'run'}/{name}": folder / name for name in names}
    return Part(folder, stamp_ms, watts, begin, end, said, files)


def _loadgen(path: Path) -> dict[str, Any]:
    """The last value of every key of LoadGen's ``:::MLLOG`` lines; those needed must be texts."""
    found: dict[str, Any] = {}
    for line in _lines(path):
        _, mark, text = line.partition(":::MLLOG ")
        if not mark:
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            continue  # a line cut off; what is needed and missing is named below
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            found[entry["key"]] = entry.get("value")
    for key in ("power_begin", "power_end"):
        if not isinstance(found.get(key), str):
            raise DataError(
                f"{path.parent.name}/{path.name} has no {key}",
                field=key,
                value=str(found.get(key)),
                remedy="Run LoadGen in a mode that logs it, or copy the whole log",
            )
    return found


def _meter(path: Path) -> tuple[list[tuple[int, ...]], Floats]:
    """The fields of every stamp and the total watts; -1, by which PTDaemon says absent, is NaN."""
    stamps: list[tuple[int, ...]] = []
    watts: list[float] = []
    for number, line in enumerate(_lines(path), start=1):
        if not line.startswith("Time,"):
            continue
        cells = line.strip().split(",")
        try:
            at = next((k for k, cell in enumerate(cells) if cell == "Mark" or re.fullmatch(r"Ch\d+", cell)), len(cells))
            value = float(dict(zip(cells[2:at:2], cells[3:at:2], strict=False))["Watts"])
        except (KeyError, ValueError) as error:
            raise DataError(
                f"{path.parent.name}/{path.name}, line {number} holds no Watts",
                field="Watts",
                value=line[:80],
                remedy="Copy the log again, whole",
            ) from error
        if not math.isfinite(value) or abs(value) > 1e12:
            raise DataError(
                f"{path.parent.name}/{path.name}, line {number}: {value} W", field="Watts", value=value, remedy="Check"
            )
        stamps.append(_fields(cells[1], path, number))
        watts.append(math.nan if value == -1.0 else value)
    if len(stamps) < 2:
        raise DataError(
            f"{path.parent.name}/{path.name} holds {len(stamps)} readings",
            field="source",
            value=len(stamps),
            remedy="A trace needs two at least",
        )
    return stamps, np.array(watts)


def _fields(text: str, path: Path, line: int | None = None) -> tuple[int, ...]:
    """Two numbers of which one is the month, year, hour, minute, second, microsecond."""
    found = _STAMP.fullmatch(text.strip())
    if not found:
        where = f"{path.parent.name}/{path.name}" + (f", line {line}" if line else "")
        raise DataError(
            f"{where}: {text[:40]!r} is no time stamp", field="time", value=text[:40], remedy="Copy the log again"
        )
    return *(int(x) for x in found.groups()[:6]), int((found[7] or "0").ljust(6, "0"))


def _on_one_axis(
    folder: Path,
    stamps: list[tuple[int, ...]],
    window: list[tuple[int, ...]],
    zones: tuple[tzinfo, tzinfo],
    date_order: str | None,
) -> tuple[Indices, tuple[int, int]]:
    """Meter stamps and LoadGen's window in UTC ms, under the one order of dates that lets them meet."""
    found: dict[tuple[int, int], tuple[Indices, tuple[int, int]]] = {}
    for loadgen, meter in product(ORDERS, [date_order] if date_order else ORDERS):  # LoadGen's own order first
        log, edges = _placed(stamps, meter, zones[0]), _placed(window, loadgen, zones[1])
        if log is not None and edges is not None and log[0] < edges[1] and log[-1] > edges[0]:
            key = (int(log[0] - edges[0]), int(log[-1] - log[0]))
            found.setdefault(key, (log, (int(edges[0]), int(edges[1]))))
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(
            f"the dates of {folder.name}/{METER_LOG} may be month-day-year or day-month-year",
            field="date_order",
            remedy="State it: date_order=mdy or date_order=dmy",
        )
    first, begin = ("-".join(map(str, s[:3])) + " " + ":".join(map(str, s[3:6])) for s in (stamps[0], window[0]))
    raise UsageError(
        f"{folder.name}: the meter's log, from {first} on, does not meet LoadGen's window, from {begin} on",
        field="timezone",
        value=first,
        remedy="State the zone of the meter's log: timezone=Europe/Berlin or +02:00; and date_order=, if it is another",
    )


def _placed(stamps: list[tuple[int, ...]], order: str, where: tzinfo) -> Indices | None:
    """UTC ms, shape (n,); None where the order makes dates that do not exist, or time go backwards."""
    month, day = ORDERS[order]
    days: dict[tuple[int, int, int], date] = {}
    out = []
    try:
        for s in stamps:
            key = (s[2], s[month], s[day])
            midnight = days.setdefault(key, date(*key))
            moment = datetime(midnight.year, midnight.month, midnight.day, s[3], s[4], s[5], s[6], where)
            out.append(utc_ns(moment) // MS)
    except (ValueError, OverflowError, DataError):
        return None
    return None if any(b < a for a, b in pairwise(out)) else np.array(out, dtype=np.int64)


def counts_of(part: Part) -> tuple[int, int]:
    """Queries answered and samples in them, by LoadGen's own count."""
    queries, each = part.said.get("result_query_count"), part.said.get("effective_samples_per_query", 1)
    whole = [isinstance(x, int) and not isinstance(x, bool) and x >= 1 for x in (queries, each)]
    if not all(whole):
        raise DataError(
            f"{part.folder.name}/{DETAIL} does not count its queries",
            field="result_query_count" if not whole[0] else "effective_samples_per_query",
            value=str(queries if not whole[0] else each),
            remedy="Copy the whole log of a run that ended",
        )
    return int(queries or 0), int(queries or 0) * int(each)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            yield from file
    except OSError as error:
        raise DataError(
            f"cannot read {path.parent.name}/{path.name}: {error.strerror}",
            field=path.name,
            value=str(path),
            remedy=f"{METER_LOG} and {DETAIL} stand in one folder",
        ) from error
