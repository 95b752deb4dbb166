"""The two logs of an MLPerf power run, PTDaemon's and LoadGen's, on one axis of time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from drivers.importers.files import bad_file, check_inferences, read_text
from drivers.importers.mlperf_power.dates import DateOptions, Stamp, on_one_axis, read_session_files, stamp_of
from rig.errors import DataError
from rig.types import Floats, Indices

METER_LOG, DETAIL, SUMMARY = "spl.txt", "mlperf_log_detail.txt", "mlperf_log_summary.txt"
MOST = 2**31 - 1
_ENDS = re.compile(r"Mark|Ch\d+|Analyzer\d+")
"""The cell of a meter's line that ends the totals; single channels or meters follow it."""
_OLD = re.compile(
    r"\b(power_begin|power_end)\b.*?(\d{1,2}-\d{1,2}-\d{4} \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)", re.IGNORECASE
)
_PER_QUERY = "result_qps_with_loadgen_overhead"
_RATES = ("result_completed_samples_per_sec", "result_samples_per_second", _PER_QUERY)


@dataclass(frozen=True)
class Part:
    """One folder: the meter's readings (UTC ms by its own clock, W; shapes (n,)) and LoadGen's window (UTC ms).

    ``values`` are the values in LoadGen's log by key.
    """

    folder: Path
    stamp_ms: Indices
    watts: Floats
    begin_ms: int
    end_ms: int
    values: Mapping[str, Any]
    meter: str
    files: Mapping[str, Path]


def detail_of(folder: Path) -> Path | None:
    """LoadGen's log in a folder, or the one file of that name below it (some harnesses nest it)."""
    direct = folder / DETAIL
    if direct.is_file():
        return direct
    below = sorted(p for p in folder.rglob(DETAIL) if p.is_file())
    return below[0] if len(below) == 1 else None


def read_part(folder: Path, dates: DateOptions, ranging: bool) -> Part:
    """Read one folder. Raises ``DataError``, ``UsageError``."""
    detail = detail_of(folder)
    if detail is None:
        remedy = f"Copy LoadGen's {DETAIL} of the same run into this folder"
        raise bad_file(folder, f"holds {METER_LOG} but no {DETAIL}", remedy, field=DETAIL)
    values = _loadgen(detail)
    stamps, watts = _meter(folder / METER_LOG)
    window = [stamp_of(values[key], f"{folder.name}/{DETAIL}") for key in ("power_begin", "power_end")]
    session = read_session_files(folder, ranging)
    stamp_ms, (begin, end) = on_one_axis(folder.name, stamps, window, dates, session)
    if not begin < end:
        what = "states a power_end that is not after power_begin"
        raise bad_file(detail, what, "Copy the log again", field="power_end", value=end - begin)
    kept = {METER_LOG: folder / METER_LOG, DETAIL: detail, SUMMARY: detail.with_name(SUMMARY)}
    files = {f"{folder.name or 'run'}/{name}": path for name, path in kept.items() if path.is_file()}
    return Part(folder, stamp_ms, watts, begin, end, values, session.meter, {**files, **session.files})


def _loadgen(path: Path) -> dict[str, Any]:
    """Return the last value of every key of LoadGen's ``:::MLLOG`` lines. The two stamps must be texts.

    The older log format, which is not JSON, is read as well. Raises ``DataError``.
    """
    found: dict[str, Any] = {}
    for line in _lines(path):
        _, mark, text = line.partition(":::MLLOG ")
        if not mark:
            found |= {old[1].lower(): old[2] for old in [_OLD.search(line)] if old}
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            continue  # a line that was cut off; a missing key is named below
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            found[entry["key"]] = entry.get("value")
    for key in ("power_begin", "power_end"):
        if not isinstance(found.get(key), str):
            remedy = "Run LoadGen in a mode that logs it, or copy the whole log"
            raise bad_file(path, f"of {path.parent.name} has no {key}", remedy, field=key)
    return found


def _meter(path: Path) -> tuple[list[Stamp], Floats]:
    """Return the fields of every stamp, and the total watts.

    PTDaemon writes -1 or nan for what is absent. A wall socket delivers no negative power, so a negative value is NaN.
    """
    stamps: list[Stamp] = []
    watts: list[float] = []
    where = f"{path.parent.name}/{path.name}"
    for number, line in enumerate(_lines(path), start=1):
        if not line.startswith("Time,"):
            continue
        cells = line.strip().split(",")
        at = next((k for k, cell in enumerate(cells) if _ENDS.fullmatch(cell)), len(cells))
        total = dict(zip(cells[2:at:2], cells[3:at:2], strict=False)).get("Watts", "")
        try:
            value = math.nan if total.lower().lstrip("+-").startswith("nan") else float(total)
        except ValueError as error:
            raise DataError(
                f"{where}, line {number} holds no Watts", field="Watts", value=line[:80], remedy="Copy the log again"
            ) from error
        if abs(value) > 1e12:
            raise DataError(f"{where}, line {number}: {value} W", field="Watts", value=value, remedy="Check")
        stamps.append(stamp_of(cells[1], f"{where}, line {number}"))
        watts.append(math.nan if value < 0.0 else value)
    if len(stamps) < 2:
        what = f"holds {len(stamps)} readings"
        raise bad_file(path, what, "A trace needs at least two readings", value=len(stamps))
    return stamps, np.array(watts)


class Counted(NamedTuple):
    """Queries as LoadGen counts them, the samples in them, and how samples were counted if not by LoadGen."""

    queries: int | None
    samples: int
    how: str


def counts_of(part: Part, inferences: int | None) -> Counted:
    """Count the queries and samples of a run.

    LoadGen 1.0 did not count the queries it issued. In the Offline scenario it issued all that it generated; otherwise
    the logged rate times the window gives the samples, to the six digits of that rate. If neither is known, samples
    are 0.
    """
    values = part.values
    each = _whole(values.get("effective_samples_per_query", 1))
    queries = _whole(values.get("result_query_count"))
    if inferences is not None:
        check_inferences(inferences)
        return Counted(queries, inferences, "samples as the option inferences states")
    if queries and each:
        return Counted(queries, queries * each, "")
    generated = [_whole(values.get(f"generated_{name}")) for name in ("query_count", "samples_per_query")]
    if values.get("effective_scenario") == "Offline" and all(generated):
        return Counted(None, int(generated[0] or 0) * int(generated[1] or 0), "samples generated; the log counts none")
    for name in _RATES:
        rate, length_s = values.get(name), (part.end_ms - part.begin_ms) / 1e3
        if isinstance(rate, (int, float)) and rate * length_s >= 1.0 and rate * length_s * (each or 1) < MOST:
            samples = round(rate * length_s) * (each if each and name == _PER_QUERY else 1)
            return Counted(None, samples, f"samples from {name} over the window; the log counts none")
    return Counted(None, 0, "samples not counted at all: state inferences=NUMBER for figures of the rig's own")


def _whole(x: object) -> int | None:
    return x if isinstance(x, int) and not isinstance(x, bool) and 1 <= x <= MOST else None


def _lines(path: Path) -> list[str]:
    return read_text(path, f"{METER_LOG} and {DETAIL} must be in one folder, here {path.parent}").split("\n")
