"""MLPerf Inference power: PTDaemon's log of a wall-power meter, and LoadGen's log of the measured run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from drivers.importers.files import OTHER, below
from drivers.importers.mlperf_power.logs import DETAIL, METER_LOG, MS, Part, counts_of, detail_of, read_part
from drivers.importers.settings import Count, Limit, Recorded
from drivers.units import zone
from rig.bench.settings import of_settings
from rig.errors import DataError
from rig.importing.imported import ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, MeterInfo, Rail

RANGING, RAIL = "ranging", "wall"
METER_CLOCK, DEVICE_CLOCK = "ptdaemon", "loadgen"
PEER_SYNC_S = 0.8
"""The largest offset between the two machines' clocks that the power checker of mlcommons/power-dev accepts."""


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
    ``mdy`` or ``dmy``. It must be stated unless only one order puts LoadGen's window inside the meter's log.
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
        notes = {}
        if beside is not None and detail_of(beside) is None:
            beside, notes = None, {"ranging": f"left out: {RANGING} has no {DETAIL}"}
        ranging = None if beside is None else read_part(beside, *dates)
        run = s.own.described(_run(main, _in_order(main, ranging), s))
        name = folder.relative_to(source).as_posix() if folder != source else folder.name or "run"
        runs.append(replace(run, name=name, details={**run.details, **notes}))
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
