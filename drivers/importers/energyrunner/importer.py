"""EEMBC EnergyRunner (MLPerf Tiny, ULPMark-ML): energy traces with the stamps of the device's pin."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from drivers.importers.energyrunner.files import ENERGY, Session, bins, day_of, read_session
from drivers.importers.energyrunner.results_json import RESULTS, jsons, read_results, wrong_rate
from drivers.importers.recognise import looks_like
from drivers.importers.windows import idle_of
from rig.bench.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, MeterInfo, Rail

CLOCK, RAIL = "emon", "dut"
GUARD_S = 0.1
"""Taken off idle windows: the log is stamped by the host, a few hundredths of a second late."""


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
) -> list[ImportedRun]:
    """Every EnergyRunner trace in a folder or below it: ``NAME-energy.bin`` with ``NAME-timestamps.json``.

    Window k lies between stamps 2k - 1 and 2k, counted from 0. How many inferences each holds is read from
    ``log.txt``, else from ``script.async``, else from ``results.txt`` (or the one file whose name ends so); where none
    of them is there, ``inferences`` must state it. A sample holds microjoules, whatever the meter; where
    ``results.txt`` prints energies that tell of another ``unit``, it is asked for. The successor of EnergyRunner in
    MLPerf Tiny 1.3 writes ``results.json`` with joules per sample instead, at ``rate_hz`` (1000, which it does not
    write down). Idle is the ``tail`` that the script leaves alone after the last inference, or the ``head`` before
    the first (the state of a device that has not yet worked, at another level on the boards we saw), as the log
    stamps them; or START:END,... in seconds of the trace. Without a log it must be given in seconds, or there is no
    idle. The clock's rate is trusted to ``clock_tolerance`` (relative); ``calibration`` names a calibration file.

    Raises ``DataError`` for files that are not of the format, ``UsageError`` for what must be stated.
    """
    found = [*bins(source), *jsons(source)]
    if not found:
        raise DataError(
            f"{source} holds no NAME{ENERGY} and no {RESULTS} with samples",
            field="source", value=str(source), remedy=looks_like(source),
        )  # fmt: skip
    if not 0.0 <= clock_tolerance <= 1e3:
        raise UsageError(
            f"clock_tolerance is {clock_tolerance}", field="clock_tolerance", value=clock_tolerance, remedy="0 or more"
        )
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
        runs.append(_run(session, rail, idle, clock_tolerance))
    return runs


def _prefix(path: Path) -> str:
    return path.name.removesuffix(ENERGY).removesuffix(".json")


def _run(session: Session, rail: Rail, idle: str, clock_tolerance: float) -> ImportedRun:
    hz = _tick_hz(session.stamps_s)
    clock = ClockInfo(CLOCK, hz, clock_tolerance)
    ticks = [round(s * hz) for s in session.stamps_s]
    said = dict(session.facts)
    spans = tuple(
        ImportedSpan("inference", on, off, executions=count, sample_id=f"window-{2 * k + 2}")
        for k, (on, off, count) in enumerate(zip(ticks[1::2], ticks[2::2], session.counts, strict=True))
    )
    peer = {"method": session.method, "rail": RAIL, "clock": CLOCK, "stamps": ticks, "inferences": session.counts}
    return ImportedRun(
        name=session.name,
        device=DeviceInfo(said.get("model", "device under test"), "hardware", clock=clock, details=said),
        meters=(MeterInfo(said.get("meter", "energy monitor"), "hardware", clock, (rail,)),),
        traces=(ImportedTrace(RAIL, (Chunk(RAIL, session.watts),)),),
        spans=spans,
        brackets={CLOCK: (Bracket(0, 0, 0),)},
        originals=dict(session.files),
        idle_ns=_idle(session, idle),
        task="MLPerf Tiny",
        peers=(peer,),
        details=said,
    )


def _tick_hz(stamps_s: Sequence[float]) -> float:
    """The coarsest clock, of milli-, micro- or nanoseconds, on which the stamps are whole."""
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
        raise UsageError(f"idle is {idle!r}", field="idle", value=idle, remedy="Give tail, head or START:END,...")
    echoed = [k for k, line in enumerate(session.log) if line.what.startswith(f'Command "echo {idle} ')]
    marks = [line.t_s for line in session.log if re.fullmatch(r"\[dut\]: m-infer-(start-\d+|done)", line.what)]
    if not echoed or len(marks) != len(session.stamps_s) - 1 or not marks:
        return ()
    lag_s = min(t - s for t, s in zip(marks, session.stamps_s[1:], strict=True))
    ends = [line.t_s for line in session.log[echoed[-1] :] if line.what == f"m-echo-message[{idle}]"]
    on_s, off_s = session.log[echoed[-1]].t_s - lag_s + GUARD_S, (ends or [math.inf])[0] - lag_s - GUARD_S
    edges = [s for s in session.stamps_s if s > on_s]
    off_s = min(off_s, length_s, *edges)
    return ((round(on_s * 1e9), round(off_s * 1e9)),) if 0.0 <= on_s < off_s else ()
