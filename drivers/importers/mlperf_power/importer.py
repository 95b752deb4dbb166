"""MLPerf Inference power: PTDaemon's log of a wall-power meter, and LoadGen's log of the measured run.

Neither log names its zone or the order of day and month. Since MLPerf Inference 1.1 both are stamped in UTC.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from drivers.importers.common_options import Count, Limit, Recorded
from drivers.importers.files import OTHER, bad_file, below, read_text, unstated
from drivers.units import utc_ns, zone
from rig.bench.settings import of_settings
from rig.errors import DataError
from rig.importing.imported import ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, Floats, Indices, MeterInfo, Rail

RANGING, RAIL = "ranging", "wall"
METER_CLOCK, DEVICE_CLOCK = "ptdaemon", "loadgen"
PEER_SYNC_S = 0.8
"""The largest offset between the two machines' clocks that the power checker of mlcommons/power-dev accepts."""
METER_LOG, DETAIL, SUMMARY = "spl.txt", "mlperf_log_detail.txt", "mlperf_log_summary.txt"
MOST = 2**31 - 1
_ENDS = re.compile(r"Mark|Ch\d+|Analyzer\d+")
"""The cell of a meter's line after which values of single channels or meters follow the totals."""
_STAMP = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
ORDERS = {"mdy": (0, 1), "dmy": (1, 0)}
"""The positions of the month and of the day among the first two numbers of a date."""
MS = 1_000_000
Stamp = tuple[int, ...]
"""Month and day in either order, then year, hour, minute, second, microsecond."""
Found = tuple[Indices, tuple[int, int]]


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
    files: Mapping[str, Path]


def detail_of(folder: Path) -> Path | None:
    """Return LoadGen's log in a folder, or the only one in its subfolders, where some harnesses put it; else None."""
    direct = folder / DETAIL
    if direct.is_file():
        return direct
    below = sorted(p for p in folder.rglob(DETAIL) if p.is_file())
    return below[0] if len(below) == 1 else None


def read_part(folder: Path, zone: tzinfo, order: str | None) -> Part:
    """Read one folder, with the zone of the meter's log and the order of its dates (None: not stated).

    Raises ``DataError``, ``UsageError``.
    """
    detail = detail_of(folder)
    if detail is None:
        remedy = f"Copy LoadGen's {DETAIL} of the same run into this folder"
        raise bad_file(folder, f"holds {METER_LOG} but no {DETAIL}", remedy, field=DETAIL)
    values = _loadgen(detail)
    stamps, watts = _meter(folder / METER_LOG)
    window = [stamp_of(values[key], f"{folder.name}/{DETAIL}") for key in ("power_begin", "power_end")]
    stamp_ms, (begin, end) = on_one_axis(folder.name, stamps, window, zone, order)
    if not begin < end:
        what = "states a power_end that is not after power_begin"
        raise bad_file(detail, what, "Copy the log again", field="power_end", value=end - begin)
    kept = {METER_LOG: folder / METER_LOG, DETAIL: detail, SUMMARY: detail.with_name(SUMMARY)}
    files = {f"{folder.name or 'run'}/{name}": path for name, path in kept.items() if path.is_file()}
    return Part(folder, stamp_ms, watts, begin, end, values, files)


def stamp_of(text: str, where: str) -> Stamp:
    """Return the fields of one stamp. Raises ``DataError``."""
    found = _STAMP.fullmatch(text.strip())
    if not found:
        what = f"{where}: {text[:40]!r} is not a time stamp"
        raise DataError(what, field="time", value=text[:40], remedy="Copy the log again")
    return *(int(x) for x in found.groups()[:6]), int((found[7] or "0").ljust(6, "0"))


def on_one_axis(name: str, stamps: list[Stamp], window: list[Stamp], zone: tzinfo, order: str | None) -> Found:
    """Return the meter's stamps and LoadGen's window in UTC ms.

    The order of dates is chosen so that the two logs overlap. Raises ``UsageError`` if they overlap in both orders, or
    in none, and ``DataError`` for a meter's log whose time goes back.
    """
    found = _by_meeting(stamps, window, zone, order)
    if len(found) == 1:
        return found[0]
    if found:
        what = f"the dates of {name}/spl.txt may be month-day-year or day-month-year"
        raise unstated("date_order", what, "date_order=mdy or date_order=dmy")
    _refuse_backward(name, stamps)
    first, begin = ("-".join(map(str, s[:3])) + " " + ":".join(map(str, s[3:6])) for s in (stamps[0], window[0]))
    what = f"{name}: the meter's log, which begins at {first}, does not overlap LoadGen's window, begun at {begin}"
    how = "timezone=Europe/Berlin or +02:00, the zone of the log. If its dates have another order, state date_order="
    raise unstated("timezone", what, how, first)


def _by_meeting(stamps: list[Stamp], window: list[Stamp], zone: tzinfo, order: str | None) -> list[Found]:
    """Return each distinct interpretation of the meter's dates in which both logs overlap in time."""
    found: dict[tuple[int, int], Found] = {}
    edges = _in_utc(window, "mdy", UTC)
    for possible in [order] if order else ORDERS:
        log = _in_utc(stamps, possible, zone)
        if log is not None and edges is not None and log[0] < edges[1] and log[-1] > edges[0]:
            found.setdefault((int(log[0]), int(log[-1])), (log, (int(edges[0]), int(edges[1]))))
    return list(found.values())


def _in_utc(stamps: Sequence[Stamp], order: str, where: tzinfo) -> Indices | None:
    """Return UTC ms, shape (n,); None if the order gives dates that do not exist, or time that goes backwards."""
    month, day = ORDERS[order]
    try:
        out = [utc_ns(datetime(s[2], s[month], s[day], s[3], s[4], s[5], s[6], where)) // MS for s in stamps]
    except (ValueError, OverflowError, DataError):
        return None
    return None if any(b < a for a, b in pairwise(out)) else np.array(out, dtype=np.int64)


def _refuse_backward(name: str, stamps: list[Stamp]) -> None:
    """Refuse a meter's log whose time goes back within a day, because no zone explains it. Raises ``DataError``."""
    for k, (a, b) in enumerate(pairwise(stamps), start=2):
        if a[:3] == b[:3] and b[3:] < a[3:]:
            what = f"{name}/spl.txt goes back in time at its reading {k}, at {b[3]:02}:{b[4]:02}:{b[5]:02}"
            remedy = "The meter's clock was set back; remove the readings before or after this point"
            raise DataError(what, field="time", value=k, remedy=remedy)


def _loadgen(path: Path) -> dict[str, Any]:
    """Return the last value of every key of LoadGen's ``:::MLLOG`` lines.

    Raises ``DataError`` unless ``power_begin`` and ``power_end`` are texts.
    """
    found: dict[str, Any] = {}
    for line in _lines(path):
        try:
            entry = json.loads(line.partition(":::MLLOG ")[2])
        except (ValueError, RecursionError):
            continue  # another line, or one that was cut off; a missing key is named below
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            found[entry["key"]] = entry.get("value")
    for key in ("power_begin", "power_end"):
        if not isinstance(found.get(key), str):
            remedy = "Run LoadGen in a mode that logs it, or copy the whole log"
            raise bad_file(path, f"of {path.parent.name} has no {key}", remedy, field=key)
    return found


def _meter(path: Path) -> tuple[list[Stamp], Floats]:
    """Return the fields of every stamp, and the total watts.

    PTDaemon writes -1 or nan for a missing value. Power from a wall socket is never negative, so a negative value
    becomes NaN.
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
            what = f"{where}, line {number} holds no Watts"
            raise DataError(what, field="Watts", value=line[:80], remedy="Copy the log again") from error
        if abs(value) > 1e12:
            raise DataError(f"{where}, line {number}: {value} W", field="Watts", value=value, remedy="Check the log")
        stamps.append(stamp_of(cells[1], f"{where}, line {number}"))
        watts.append(math.nan if value < 0.0 else value)
    if len(stamps) < 2:
        what = f"holds {len(stamps)} readings"
        raise bad_file(path, what, "A trace needs at least two readings", value=len(stamps))
    return stamps, np.array(watts)


class Counted(NamedTuple):
    """The queries that LoadGen counted, the samples in them, and how samples were counted if not by LoadGen."""

    queries: int | None
    samples: int
    how: str


def counts_of(part: Part, inferences: int | None) -> Counted:
    """Count the queries and samples of a run. Without a count in the log or the option, samples are 0."""
    each = _whole(part.values.get("effective_samples_per_query", 1))
    queries = _whole(part.values.get("result_query_count"))
    if inferences is not None:
        return Counted(queries, inferences, "samples as the option inferences states")
    if queries and each:
        return Counted(queries, queries * each, "")
    return Counted(None, 0, "samples not counted at all: state inferences=NUMBER for figures of the rig's own")


def _whole(x: object) -> int | None:
    return x if isinstance(x, int) and not isinstance(x, bool) and 1 <= x <= MOST else None


def _lines(path: Path) -> list[str]:
    return read_text(path, f"{METER_LOG} and {DETAIL} must be in one folder, here {path.parent}").split("\n")


@dataclass(frozen=True)
class MlperfPower:
    """The options. See ``open_import``."""

    date_order: Literal["mdy", "dmy"] | None = None
    timezone: str | None = None
    inferences: Count | None = None
    sync_s: Limit = PEER_SYNC_S
    idle_guard_s: Limit | None = 15.0
    own: Recorded = Recorded()


@of_settings
def open_import(settings: MlperfPower, source: Path) -> list[ImportedRun]:
    """Import every measured run in or below a folder: ``spl.txt`` beside ``mlperf_log_detail.txt``.

    A folder ``ranging`` (or with this ending) beside a run is imported as warm-up, with its readings in the same trace.
    The stamps name no time zone. LoadGen's dates are month-day-year. ``date_order`` is the order in the meter's log,
    ``mdy`` or ``dmy``. It must be stated if LoadGen's window and the meter's log overlap in both orders.
    ``timezone`` is the zone of the meter's log (an IANA name or an offset), by default the zone of LoadGen's log, which
    is UTC since MLPerf 1.1. ``inferences`` states how many samples the run processed, if LoadGen's log does not.
    ``sync_s`` limits the offset between the two machines' clocks; the default is the limit of MLPerf's power checker.

    Idle is all readings more than ``idle_guard_s`` before ``power_begin`` or after ``power_end``. This is a
    convention of this importer, because MLPerf declares no idle time; with ``none`` there is no idle time.
    ``calibration`` names a calibration file. ``device_description`` and ``meter_description`` describe what was
    measured, and with which meter; an audit needs both.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for files that are not of the format.
    """
    s, source = settings, source.resolve()
    if source.name in (METER_LOG, DETAIL) and source.is_file():
        source = source.parent
    dates = (UTC if s.timezone is None else zone(s.timezone), s.date_order)
    folders = sorted({p.parent for p in below(source, METER_LOG)}) if source.is_dir() else []
    if not folders:
        raise DataError(f"{source} holds no {METER_LOG}", field="source", value=str(source), remedy=OTHER)
    runs = []
    for folder in [f for f in folders if not _is_ranging(f)] or folders:
        main = read_part(folder, *dates)
        beside = _beside(folder, folders)
        notes: tuple[str, ...] = ()
        if beside is not None and detail_of(beside) is None:
            beside, notes = None, (f"The run {RANGING} is left out: it has no {DETAIL}",)
        ranging = None if beside is None else read_part(beside, *dates)
        run = s.own.described(_run(main, _in_order(main, ranging), s))
        name = folder.relative_to(source).as_posix() if folder != source else folder.name or "run"
        runs.append(replace(run, name=name, notes=notes))
    return runs


def _is_ranging(folder: Path) -> bool:
    return folder.name.lower().endswith(RANGING)


def _beside(folder: Path, folders: list[Path]) -> Path | None:
    """Return the folder of the session's ranging run: ``ranging``, or the only folder with this ending."""
    near = [f for f in folders if f.parent == folder.parent and f != folder and _is_ranging(f)]
    named = [f for f in near if f.name.lower() == RANGING] or near
    return named[0] if len(named) == 1 else None


def _in_order(main: Part, ranging: Part | None) -> list[Part]:
    """Return both runs in order of time. Raises ``DataError`` if they overlap."""
    parts = sorted((p for p in (ranging, main) if p is not None), key=lambda p: int(p.stamp_ms[0]))
    if len(parts) > 1 and parts[0].stamp_ms[-1] >= parts[1].stamp_ms[0]:
        what = f"the logs of the ranging run and of {main.folder.name} overlap"
        remedy = "Check the dates of both, and that both are of one session"
        raise DataError(what, field="ranging", value=int(parts[0].stamp_ms[-1]), remedy=remedy)
    return parts


def _rail(parts: list[Part]) -> Rail:
    typical = float(np.median(np.concatenate([np.diff(p.stamp_ms) for p in parts])))
    if typical <= 0:
        what = f"{parts[-1].folder.name}/{METER_LOG} has the same time stamp in most of its readings"
        raise DataError(what, field="time", value=typical, remedy="Check the log")
    return Rail(RAIL, "mean", Conversion("W"), 1e3 / typical)


def _run(main: Part, parts: list[Part], s: MlperfPower) -> ImportedRun:
    meter, device = (ClockInfo(name, 1e3, s.own.clock_tolerance) for name in (METER_CLOCK, DEVICE_CLOCK))
    rail = s.own.limited(_rail(parts), datetime.fromtimestamp(main.begin_ms / 1000, UTC).date())
    counted = counts_of(main, s.inferences)
    middle, width_ns = (main.begin_ms + main.end_ms) // 2, round(1e9 * s.sync_s)
    ranging = next(([p.begin_ms, p.end_ms] for p in parts if p is not main), None)
    peer = {
        "method": "mlperf-power", "rail": RAIL, "clock": METER_CLOCK, "testing": [main.begin_ms, main.end_ms],
        "ranging": ranging, "queries": counted.queries, "scenario": str(main.values.get("effective_scenario") or ""),
        "duration_s": (main.end_ms - main.begin_ms) / 1e3,
    }  # fmt: skip
    keys = ("sut_name", "effective_scenario", "loadgen_version", "qsl_name", "result_validity", "test_datetime")
    details = {k: main.values[k] for k in keys if isinstance(main.values.get(k), (str, int, float))}
    return ImportedRun(
        name=main.folder.name,
        device=DeviceInfo(str(main.values.get("sut_name") or "system under test")[:80], "hardware", clock=device),
        meters=(MeterInfo("PTDaemon", "hardware", meter, (rail,), description="wall power by PTDaemon"),),
        traces=(ImportedTrace(RAIL, tuple(_chunks(parts))),),
        spans=tuple(_span(p, counted.samples if p is main else 0) for p in parts),
        brackets={
            METER_CLOCK: (Bracket(middle * MS - width_ns, middle, middle * MS + width_ns),),
            DEVICE_CLOCK: (Bracket(middle * MS, middle, middle * MS),),
        },
        originals={name: path for p in parts for name, path in p.files.items()},
        idle_ns=tuple(window for part in parts for window in _idle(part, s.idle_guard_s)),
        t0_ns=int(parts[0].stamp_ms[0]) * MS,
        task="MLPerf Inference",
        peers=(peer,),
        details=details | ({"counted": counted.how} if counted.how else {}),
    )


def _span(part: Part, samples: int) -> ImportedSpan:
    """Return the window of one run; a window without samples is warm-up."""
    name = part.folder.name or "run"
    return ImportedSpan("inference", part.begin_ms, part.end_ms, samples or 1, sample_id=name, warmup=not samples)


def _chunks(parts: list[Part]) -> Iterator[Chunk]:
    """Yield readings. Each is the mean since the previous stamp; after a gap, the mean over a typical interval."""
    for part in parts:
        steps = np.diff(part.stamp_ms)
        typical = round(float(np.median(steps)))
        back = np.concatenate([[typical], np.where(steps > 1.5 * typical, typical, steps)])
        yield Chunk(RAIL, part.watts, part.stamp_ms - back, part.stamp_ms)


def _idle(part: Part, guard_s: float | None) -> list[tuple[int, int]]:
    if guard_s is None:
        return []
    guard = round(1e3 * guard_s)
    edges = [(int(part.stamp_ms[0]), part.begin_ms - guard), (part.end_ms + guard, int(part.stamp_ms[-1]))]
    return [(on * MS, off * MS) for on, off in edges if off > on]
