"""MLPerf Inference power: PTDaemon's log of a wall-power meter with the LoadGen log of the run it watched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np

from drivers.importers.mlperf_logs import METER_LOG, MS, ORDERS, Part, counts_of, read_part
from drivers.importers.units import zone
from rig.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing import CRYSTAL, ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, MeterInfo, Rail

RANGING, RAIL = "ranging", "wall"
METER_CLOCK, DEVICE_CLOCK = "ptdaemon", "loadgen"
PEER_SYNC_S = 0.8
"""How far the power checker of mlcommons/power-dev lets the two machines' clocks be apart."""


def open_import(
    source: Path,
    *,
    date_order: str | None = None,
    timezone: str | None = None,
    loadgen_timezone: str = "UTC",
    sync_s: float = PEER_SYNC_S,
    idle_guard_s: float | None = 15.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> list[ImportedRun]:
    """Every measured run in a folder or below it: ``spl.txt`` beside ``mlperf_log_detail.txt``.

    A folder ``ranging`` beside a run is recorded with it, as warm-up: its readings are in the same trace. LoadGen
    writes month-day-year; whether the meter's log does (``date_order=mdy``) or writes day-month-year (``dmy``) is
    asked for, unless only one of the two puts LoadGen's window inside the log. ``timezone`` is the zone of the
    meter's log where it is not that of LoadGen, ``loadgen_timezone`` LoadGen's (IANA names or offsets). ``sync_s``
    limits how far the two machines' clocks are apart (the peer's own limit by default). Idle is what the meter saw
    from ``idle_guard_s`` outside ``power_begin`` and ``power_end`` on, by this importer's convention, since the peer
    declares none; ``none`` declares none. ``calibration`` names a calibration file.

    Raises ``UsageError`` for what must be stated, ``DataError`` for files that are not of the format.
    """
    if date_order not in (None, *ORDERS):
        raise UsageError(f"date_order is {date_order!r}", field="date_order", value=date_order, remedy="mdy or dmy")
    for name, value in (
        ("sync_s", sync_s),
        ("idle_guard_s", idle_guard_s or 0.0),
        ("clock_tolerance", clock_tolerance),
    ):
        if not 0.0 <= value <= 1e5:
            raise UsageError(f"{name} is {value}", field=name, value=value, remedy="Give a number, 0 or more")
    source = source.resolve()
    zones = zone(timezone or loadgen_timezone), zone(loadgen_timezone, "loadgen_timezone")
    folders = sorted({p.parent for p in source.rglob(METER_LOG) if p.is_file()}) if source.is_dir() else []
    measured = [f for f in folders if f.name != RANGING] or folders
    if not measured:
        raise DataError(
            f"{source} holds no {METER_LOG}", field="source", value=str(source), remedy="Name the run's folder"
        )
    runs = []
    for folder in measured:
        main = read_part(folder, zones, date_order)
        beside = folder.parent / RANGING
        ranging = read_part(beside, zones, date_order) if folder != beside and beside in folders else None
        on = datetime.fromtimestamp(main.begin_ms / 1000, UTC).date()
        rail = _rail(main, ranging, calibration, calibration_range, temperature_c, on)
        runs.append(_run(folder, source, main, ranging, rail, (sync_s, idle_guard_s, clock_tolerance)))
    return runs


def _rail(
    main: Part, ranging: Part | None, path: str | None, range_max: float | None, degrees: float | None, on: date
) -> Rail:
    steps = np.concatenate([np.diff(p.stamp_ms) for p in (ranging, main) if p is not None])
    typical = float(np.median(steps))
    if typical <= 0:
        raise DataError(f"{main.folder.name}/{METER_LOG} repeats its stamps", field="time", remedy="Check the log")
    rail = Rail(RAIL, "mean", Conversion("W"), 1e3 / typical)
    return calibrated(rail, path, range_max=range_max, temperature_c=degrees, on=on)


def _run(
    folder: Path,
    source: Path,
    main: Part,
    ranging: Part | None,
    rail: Rail,
    said: tuple[float, float | None, float],
) -> ImportedRun:
    sync_s, guard_s, tolerance = said
    parts = [p for p in (ranging, main) if p is not None]
    if ranging is not None and ranging.stamp_ms[-1] >= main.stamp_ms[0]:
        raise DataError(
            f"the ranging run does not end before {folder.name} begins",
            field="ranging",
            value=int(ranging.stamp_ms[-1]),
            remedy="Check that both are of one session, and their dates",
        )
    queries, samples = counts_of(main)
    meter, device = (ClockInfo(name, 1e3, tolerance) for name in (METER_CLOCK, DEVICE_CLOCK))
    middle, doubt = (main.begin_ms + main.end_ms) // 2, round(1e9 * sync_s)
    peer = {
        "method": "mlperf-power", "rail": RAIL, "clock": METER_CLOCK, "testing": [main.begin_ms, main.end_ms],
        "ranging": [ranging.begin_ms, ranging.end_ms] if ranging else None, "queries": queries,
        "scenario": str(main.said.get("effective_scenario")), "duration_s": (main.end_ms - main.begin_ms) / 1e3,
    }  # fmt: skip
    spans = [ImportedSpan("inference", p.begin_ms, p.end_ms, sample_id=RANGING, warmup=True) for p in parts[:-1]]
    spans.append(ImportedSpan("inference", main.begin_ms, main.end_ms, samples, sample_id=folder.name or "run"))
    where = folder.relative_to(source).as_posix()
    keys = ("sut_name", "effective_scenario", "loadgen_version", "qsl_name", "result_validity", "test_datetime")
    return ImportedRun(
        name=where if where != "." else folder.name or "run",
        device=DeviceInfo(str(main.said.get("sut_name") or "system under test")[:80], "hardware", clock=device),
        meters=(MeterInfo("PTDaemon", "hardware", meter, (rail,), description="wall power, all channels"),),
        traces=(ImportedTrace(RAIL, tuple(_chunks(parts))),),
        spans=tuple(spans),
        brackets={
            METER_CLOCK: (Bracket(middle * MS - doubt, middle, middle * MS + doubt),),
            DEVICE_CLOCK: (Bracket(middle * MS, middle, middle * MS),),
        },
        originals={name: path for p in parts for name, path in p.files.items()},
        idle_ns=tuple(w for p in parts for w in _idle(p, guard_s)),
        t0_ns=int(parts[0].stamp_ms[0]) * MS,
        task="MLPerf Inference",
        peers=(peer,),
        details={k: main.said[k] for k in keys if isinstance(main.said.get(k), (str, int, float))},
    )


def _chunks(parts: list[Part]) -> Iterator[Chunk]:
    """Each reading is a mean up to its stamp: from the one before, or as long as a typical one after a gap."""
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
