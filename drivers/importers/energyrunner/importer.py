"""EEMBC EnergyRunner (MLPerf Tiny, ULPMark-ML): energy traces with the stamps of the device's pin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from drivers.importers.energyrunner.results_json import RESULTS, jsons, read_results, wrong_rate
from drivers.importers.energyrunner.session import ENERGY, Session, bins, day_of, marks_of, read_session
from drivers.importers.recognise import looks_like
from drivers.importers.windows import idle_of
from rig.bench.calibration import stated as calibrated
from rig.bench.option_checks import within
from rig.errors import DataError, refused
from rig.importing.imported import CRYSTAL, ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, MeterInfo, Rail

CLOCK, RAIL = "emon", "dut"
GUARD_S = 0.1
"""Time cut off both ends of an idle window: the host stamps the log a few hundredths of a second late."""


def open_import(
    source: Path,
    *,
    inferences: int | None = None,
    idle: str = "tail",
    unit: str = "uJ",
    rate_hz: float | None = None,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    device_description: str = "",
    meter_description: str = "",
) -> list[ImportedRun]:
    """Every EnergyRunner trace in or below a folder: ``NAME-energy.bin`` with ``NAME-timestamps.json``.

    Window k lies between stamps 2k - 1 and 2k, counted from 0. The inferences of each are read from ``log.txt``, else
    from ``script.async``, else from ``results.txt`` (or the one file with such an ending); without these files
    ``inferences`` states them. A sample holds microjoules, whatever the meter; where ``results.txt`` prints energies
    that show another ``unit``, the unit must be stated. The runner of MLPerf Tiny 1.3 writes ``results.json`` instead,
    with joules per sample at ``rate_hz`` (1000, which its files do not state).

    ``idle`` is ``tail``, the time that the script leaves idle after the last inference; ``head``, the time before the
    first, when a device that has not yet worked may have another power; or START:END,... in seconds of the trace. The
    log stamps head and tail: without a log there is no idle unless it is given in seconds. ``clock_tolerance`` limits
    the relative error of the clock's rate; ``calibration`` names a calibration file. ``device_description`` and
    ``meter_description`` say what was measured and by what; an audit asks for both.

    Raises ``DataError`` for files that are not of the format, ``UsageError`` for an option that must be stated.
    """
    found = [*bins(source), *jsons(source)]
    if not found:
        what = f"{source} holds no NAME{ENERGY} and no {RESULTS} with samples"
        raise DataError(what, field="source", value=str(source), remedy=looks_like(source))
    within(0.0, 1e5, clock_tolerance=clock_tolerance)
    top = source if source.is_dir() else source.parent
    runs = []
    for path in found:
        alone = sum(p.parent == path.parent for p in found) == 1
        where = path.parent.relative_to(top).as_posix()
        name = (where if where != "." else path.parent.resolve().name) + ("" if alone else f"-{_prefix(path)}")
        if path.name.endswith(ENERGY):
            session = read_session(path, name, alone, inferences, unit)
            if rate_hz is not None and rate_hz != session.rate_hz:
                raise wrong_rate(path, session.rate_hz, rate_hz)
        else:
            session = read_results(path, name, inferences, rate_hz)
        rail = Rail(RAIL, "mean", Conversion("W"), session.rate_hz)
        day = day_of(session.facts.get("session", ""))
        rail = calibrated(rail, calibration, range_max=calibration_range, temperature_c=temperature_c, on=day)
        run = _run(session, rail, idle, clock_tolerance)
        runs.append(run.described(device_description, meter_description))
    return runs


def _prefix(path: Path) -> str:
    return path.name.removesuffix(ENERGY).removesuffix(".json")


def _run(session: Session, rail: Rail, idle: str, clock_tolerance: float) -> ImportedRun:
    hz = _tick_hz(session.stamps_s)
    clock = ClockInfo(CLOCK, hz, clock_tolerance)
    ticks = [round(s * hz) for s in session.stamps_s]
    facts = session.facts
    spans = tuple(
        ImportedSpan("inference", on, off, executions=count, sample_id=f"window-{2 * k + 2}")
        for k, (on, off, count) in enumerate(zip(ticks[1::2], ticks[2::2], session.counts, strict=True))
    )
    peer = {"method": session.method, "rail": RAIL, "clock": CLOCK, "stamps": ticks, "inferences": session.counts}
    return ImportedRun(
        name=session.name,
        device=DeviceInfo(facts.get("model", "device under test"), "hardware", clock=clock, details=facts),
        meters=(MeterInfo(facts.get("meter", "energy monitor"), "hardware", clock, (rail,)),),
        traces=(ImportedTrace(RAIL, (Chunk(RAIL, session.watts),)),),
        spans=spans,
        brackets={CLOCK: (Bracket(0, 0, 0),)},
        originals=dict(session.files),
        idle_ns=_idle(session, idle),
        task="MLPerf Tiny",
        peers=(peer,),
        details=facts,
    )


def _tick_hz(stamps_s: Sequence[float]) -> float:
    """Return the rate of the coarsest clock (ms, us or ns) on which all stamps are whole numbers."""
    for hz in (1e3, 1e6):
        if all(round(s * hz) / hz == s for s in stamps_s):
            return hz
    return 1e9


def _idle(session: Session, idle: str) -> tuple[tuple[int, int], ...]:
    """Declared idle windows in ns of the trace's own time, inside the trace."""
    length_s = len(session.watts) / session.rate_hz
    if ":" in idle:
        return idle_of(idle)
    if idle not in ("head", "tail"):
        raise refused("idle", idle, "Give tail, head or START:END,...")
    echoed = [k for k, line in enumerate(session.log) if line.what.startswith(f'Command "echo {idle} ')]
    marks = marks_of(session.log)
    if not echoed or len(marks) != len(session.stamps_s) - 1 or not marks:
        return ()
    lag_s = min(t - s for t, s in zip(marks, session.stamps_s[1:], strict=True))
    ends = [line.t_s for line in session.log[echoed[-1] :] if line.what == f"m-echo-message[{idle}]"]
    on_s, off_s = session.log[echoed[-1]].t_s - lag_s + GUARD_S, (ends or [math.inf])[0] - lag_s - GUARD_S
    edges = [s for s in session.stamps_s if s > on_s]
    off_s = min(off_s, length_s, *edges)
    return ((round(on_s * 1e9), round(off_s * 1e9)),) if 0.0 <= on_s < off_s else ()
