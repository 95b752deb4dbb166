"""MLPerf Inference power: PTDaemon's log of a wall-power meter with the LoadGen log of the run it watched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from drivers.importers.kinds import below, looks_like
from drivers.importers.mlperf_power.dates import MS, ORDERS, Axis
from drivers.importers.mlperf_power.logs import DETAIL, METER_LOG, Part, counts_of, detail_of, read_part
from drivers.units import zone
from rig.bench.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun, ImportedSpan, ImportedTrace
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
    loadgen_timezone: str | None = None,
    inferences: int | None = None,
    sync_s: float = PEER_SYNC_S,
    idle_guard_s: float | None = 15.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> list[ImportedRun]:
    """Every measured run in a folder or below it: ``spl.txt`` beside ``mlperf_log_detail.txt``.

    A folder ``ranging`` (or whose name ends so) beside a run is recorded with it, as warm-up: its readings are in the
    same trace. Stamps state no zone. Where ``power/server.json`` and ``client.json`` are there, the phases they count
    since 1970 place both logs. Else LoadGen writes month-day-year; whether the meter's log does (``date_order=mdy``)
    or writes day-month-year (``dmy``) is asked for, unless only one of the two puts LoadGen's window inside the log.
    ``timezone`` is the zone of the meter's log where it is not that of LoadGen, ``loadgen_timezone`` LoadGen's (IANA
    names or offsets; UTC where nothing tells). ``inferences`` states how many samples the measured run processed,
    where LoadGen's log does not count them. ``sync_s`` limits how far the two machines' clocks are apart (the peer's
    own limit by default). Idle is what the meter saw from ``idle_guard_s`` outside ``power_begin`` and ``power_end``
    on, by this importer's convention, since the peer declares none; ``none`` declares none. ``calibration`` names a
    calibration file.

    Raises ``UsageError`` for what must be stated, ``DataError`` for files that are not of the format.
    """
    _check(date_order, sync_s=sync_s, idle_guard_s=idle_guard_s or 0.0, clock_tolerance=clock_tolerance)
    source = source.resolve()
    if source.name in (METER_LOG, DETAIL) and source.is_file():
        source = source.parent
    stated = [
        None if text is None else zone(text, name)
        for name, text in (("timezone", timezone), ("loadgen_timezone", loadgen_timezone))
    ]
    axis = Axis(stated[0], stated[1], zone("UTC"), date_order)
    folders = sorted({p.parent for p in below(source, METER_LOG)}) if source.is_dir() else []
    if not folders:
        raise DataError(f"{source} holds no {METER_LOG}", field="source", value=str(source), remedy=looks_like(source))
    calibrate = partial(calibrated, path=calibration, range_max=calibration_range, temperature_c=temperature_c)
    runs = []
    for folder in [f for f in folders if not _is_ranging(f)] or folders:
        main = read_part(folder, axis, ranging=_is_ranging(folder))
        beside = _beside(folder, folders)
        lacks = beside is not None and detail_of(beside) is None
        ranging = None if beside is None or lacks else read_part(beside, axis, ranging=True)
        rail = calibrate(_rail(main, ranging), on=datetime.fromtimestamp(main.begin_ms / 1000, UTC).date())
        notes = {"ranging": f"left out: {RANGING} has no {DETAIL}"} if lacks else {}
        counted, limits = counts_of(main, inferences), (sync_s, idle_guard_s, clock_tolerance)
        runs.append(_run(folder, source, (main, ranging), rail, limits, counted, notes))
    return runs


def _check(date_order: str | None, **limits: float) -> None:
    if date_order not in (None, *ORDERS):
        raise UsageError(f"date_order is {date_order!r}", field="date_order", value=date_order, remedy="mdy or dmy")
    for name, value in limits.items():
        if not 0.0 <= value <= 1e5:
            raise UsageError(f"{name} is {value}", field=name, value=value, remedy="Give a number, 0 or more")


def _is_ranging(folder: Path) -> bool:
    return folder.name.lower().endswith(RANGING)


def _beside(folder: Path, folders: list[Path]) -> Path | None:
    """The ranging run of the same session: the folder of that name, or the only one beside whose name ends so."""
    near = [f for f in folders if f.parent == folder.parent and f != folder and _is_ranging(f)]
    named = [f for f in near if f.name.lower() == RANGING] or near
    return named[0] if len(named) == 1 else None


def _rail(main: Part, ranging: Part | None) -> Rail:
    steps = np.concatenate([np.diff(p.stamp_ms) for p in (ranging, main) if p is not None])
    typical = float(np.median(steps))
    if typical <= 0:
        raise DataError(f"{main.folder.name}/{METER_LOG} repeats its stamps", field="time", remedy="Check the log")
    return Rail(RAIL, "mean", Conversion("W"), 1e3 / typical)


def _run(
    folder: Path,
    source: Path,
    read: tuple[Part, Part | None],
    rail: Rail,
    said: tuple[float, float | None, float],
    counted: tuple[int | None, int, str],
    notes: dict[str, str],
) -> ImportedRun:
    (main, ranging), (sync_s, guard_s, tolerance), (queries, samples, how) = read, said, counted
    parts = sorted((p for p in (ranging, main) if p is not None), key=lambda p: int(p.stamp_ms[0]))
    _refuse_overlap(folder, parts)
    meter, device = (ClockInfo(name, 1e3, tolerance) for name in (METER_CLOCK, DEVICE_CLOCK))
    middle, doubt = (main.begin_ms + main.end_ms) // 2, round(1e9 * sync_s)
    peer = {
        "method": "mlperf-power", "rail": RAIL, "clock": METER_CLOCK, "testing": [main.begin_ms, main.end_ms],
        "ranging": [ranging.begin_ms, ranging.end_ms] if ranging else None, "queries": queries,
        "scenario": str(main.said.get("effective_scenario") or ""), "duration_s": (main.end_ms - main.begin_ms) / 1e3,
    }  # fmt: skip
    spans = [
        ImportedSpan("inference", p.begin_ms, p.end_ms, samples, sample_id=folder.name or "run")
        if p is main and samples
        else ImportedSpan("inference", p.begin_ms, p.end_ms, sample_id=p.folder.name or "run", warmup=True)
        for p in parts
    ]
    where = folder.relative_to(source).as_posix()
    keys = ("sut_name", "effective_scenario", "loadgen_version", "qsl_name", "result_validity", "test_datetime")
    return ImportedRun(
        name=where if where != "." else folder.name or "run",
        device=DeviceInfo(str(main.said.get("sut_name") or "system under test")[:80], "hardware", clock=device),
        meters=(MeterInfo(main.meter or "PTDaemon", "hardware", meter, (rail,), description="wall power by PTDaemon"),),
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
        details={k: main.said[k] for k in keys if isinstance(main.said.get(k), (str, int, float))}
        | ({"counted": how} if how else {})
        | notes,
    )


def _refuse_overlap(folder: Path, parts: list[Part]) -> None:
    for before, after in pairwise(parts):
        if before.stamp_ms[-1] >= after.stamp_ms[0]:
            raise DataError(
                f"the logs of the ranging run and of {folder.name} overlap",
                field="ranging",
                value=int(before.stamp_ms[-1]),
                remedy="Check that both are of one session, and their dates",
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
