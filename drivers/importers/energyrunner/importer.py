"""EEMBC EnergyRunner (MLPerf Tiny, ULPMark-ML): energy traces with the stamps of the device's pin.

The importer also reads the ``results.json`` with samples that the runner of MLPerf Tiny 1.3 (mlcommons/tiny) writes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from drivers.importers.common_options import Count, Recorded
from drivers.importers.energyrunner import session as sessions
from drivers.importers.files import OTHER, bad_file, below, read_json, unstated
from drivers.importers.windows import idle_of
from rig.bench.settings import of_settings, within
from rig.errors import DataError, refused
from rig.importing.imported import ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, Floats, MeterInfo, Rail

CLOCK, RAIL = "emon", "dut"
GUARD_S = 0.1
"""Time cut off both ends of an idle window: the host stamps the log a few hundredths of a second late."""
RESULTS = "results.json"
RUNNER_HZ = 1000.0
"""The sampling rate that the runner sets in its meters and uses to compute; its files do not state it."""
LAID = "one behind the other; the pauses between them were not recorded"


@dataclass(frozen=True)
class EnergyRunner:
    """The options. See ``open_import``."""

    inferences: Count | None = None
    idle: str = "tail"
    unit: Literal["J", "mJ", "uJ", "nJ"] = "uJ"
    rate_hz: Annotated[float, partial(within, 1e-3, 1e9, "Hz")] | None = None
    own: Recorded = Recorded()


@of_settings
def open_import(settings: EnergyRunner, source: Path) -> list[ImportedRun]:
    """Import every EnergyRunner trace in or below a folder: ``NAME-energy.bin`` with ``NAME-timestamps.json``.

    Window k is between stamps 2k - 1 and 2k, counted from 0. The number of inferences in each window is read from
    ``log.txt``, else from ``results.txt`` (or the one file with such an ending). Without these files, ``inferences``
    states it. A sample is an energy in microjoules, with any meter. If ``results.txt`` prints energies that mean
    another ``unit``, the unit must be stated. The runner of MLPerf Tiny 1.3 writes ``results.json`` instead, with
    joules per sample at ``rate_hz`` (1000, which its files do not state).

    ``idle`` is ``tail``, ``head``, or START:END,... in seconds of the trace. ``tail`` is the time that the script
    leaves idle after the last inference. ``head`` is the time before the first inference, when a device that has not
    worked yet may have another power. Head and tail are stamped in the log. Without a log there is no idle time unless
    it is given in seconds. ``clock_tolerance`` limits the relative error of the clock's rate. ``calibration`` names a
    calibration file. ``device_description`` and ``meter_description`` describe what was measured, and with which meter;
    an audit needs both.

    Raises ``DataError`` for files that are not of the format, ``UsageError`` for an option that must be stated.
    """
    s, found = settings, [*below(source, f"*{sessions.ENERGY}"), *jsons(source)]
    if not found:
        what = f"{source} holds no NAME{sessions.ENERGY} and no {RESULTS} with samples"
        raise DataError(what, field="source", value=str(source), remedy=OTHER)
    top = source if source.is_dir() else source.parent
    runs = []
    for path in found:
        alone = sum(p.parent == path.parent for p in found) == 1
        where = path.parent.relative_to(top).as_posix()
        prefix = path.name.removesuffix(sessions.ENERGY).removesuffix(".json")
        name = (where if where != "." else path.parent.resolve().name) + ("" if alone else f"-{prefix}")
        if path.name.endswith(sessions.ENERGY):
            session = sessions.read_session(path, name, alone, s.inferences, s.unit)
            if s.rate_hz is not None and s.rate_hz != session.rate_hz:
                what = f"states {session.rate_hz:g} Hz, but the option says {s.rate_hz:g} Hz"
                raise bad_file(path, what, "Leave the option out", field="rate_hz", value=s.rate_hz)
        else:
            session = read_results(path, name, s.inferences, s.rate_hz or RUNNER_HZ)
        rail = Rail(RAIL, "mean", Conversion("W"), session.rate_hz)
        rail = s.own.limited(rail, sessions.day_of(session.facts.get("session", "")))
        runs.append(s.own.described(_run(session, rail, s.idle, s.own.clock_tolerance)))
    return runs


def _run(session: sessions.Session, rail: Rail, idle: str, clock_tolerance: float) -> ImportedRun:
    # the coarsest clock (ms, us or ns) on which all stamps are whole numbers
    hz = next((hz for hz in (1e3, 1e6) if all(round(s * hz) / hz == s for s in session.stamps_s)), 1e9)
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


def _idle(session: sessions.Session, idle: str) -> tuple[tuple[int, int], ...]:
    """Return the declared idle windows, in ns of the trace's own time; head and tail are cut to the trace."""
    length_s = len(session.watts) / session.rate_hz
    if ":" in idle:
        return idle_of(idle)
    if idle not in ("head", "tail"):
        raise refused("idle", idle, "Give tail, head or START:END,...")
    echoed = [k for k, line in enumerate(session.log) if line.what.startswith(f'Command "echo {idle} ')]
    # when the host was told that each window began and ended
    marks = [line.t_s for line in session.log if re.fullmatch(r"\[dut\]: m-infer-(start-\d+|done)", line.what)]
    if not echoed or len(marks) != len(session.stamps_s) - 1 or not marks:
        return ()
    lag_s = min(t - s for t, s in zip(marks, session.stamps_s[1:], strict=True))
    ends = [line.t_s for line in session.log[echoed[-1] :] if line.what == f"m-echo-message[{idle}]"]
    on_s, off_s = session.log[echoed[-1]].t_s - lag_s + GUARD_S, (ends or [math.inf])[0] - lag_s - GUARD_S
    off_s = min(off_s, length_s, *[s for s in session.stamps_s if s > on_s])
    return ((round(on_s * 1e9), round(off_s * 1e9)),) if 0.0 <= on_s < off_s else ()


def jsons(source: Path) -> list[Path]:
    """Return the files ``results.json`` with energy samples in or below a folder; ``source`` may also be one file."""
    found = [source] if source.is_file() else below(source, RESULTS)
    return [p for p in found if p.suffix == ".json" and _holds_samples(p)]


def _holds_samples(path: Path) -> bool:
    try:
        return b'"samples"' in path.read_bytes()
    except OSError:
        return True  # reading it raises the error


def read_results(path: Path, name: str, inferences: int | None, rate: float) -> sessions.Session:
    """Return the trials of one session as one trace, in sequence. Raises ``DataError``, ``UsageError``.

    A trial contains joules per sample, and the numbers of the samples at which the device's pin fell. Its window is
    between the last two falls.
    """
    trials = [_trial(path, k, entry, inferences) for k, entry in enumerate(_entries(path))]
    beside, texts = sessions.texts_beside(path.parent)
    _check_elapsed(texts.get("results.txt", ""), [(off - on) / rate for _, on, off, _ in trials])
    at, stamps = 0, [0]
    for joules, on, off, _ in trials:
        stamps += [at + on, at + off]
        at += len(joules)
    watts = np.concatenate([joules for joules, *_ in trials]) * rate
    facts = _facts(texts.get("log.txt", "")) | ({"trials": LAID} if len(trials) > 1 else {})
    files = {p.name: p for p in (path, *beside)}
    counts = tuple(count for *_, count in trials)
    return sessions.Session(
        name, rate, watts, tuple(s / rate for s in stamps), counts, facts, files, "mlperf-tiny-runner"
    )


def _entries(path: Path) -> list[Mapping[str, Any]]:
    found = read_json(path, sessions.REMEDY)
    entries = found if isinstance(found, list) else [found]
    trials: list[Mapping[str, Any]] = [e for e in entries if isinstance(e, dict) and isinstance(e.get("power"), dict)]
    if not trials:
        raise sessions.bad(path, "holds no trial with power samples", str(found)[:60])
    return trials


def _trial(path: Path, k: int, entry: Mapping[str, Any], inferences: int | None) -> tuple[Floats, int, int, int]:
    """Return joules per sample, shape (n,), begin and end of the window in samples, and the number of inferences."""
    samples, stamps = entry["power"].get("samples"), entry["power"].get("timestamps")
    if not (isinstance(samples, list) and samples and all(_number(x) for x in samples)):
        raise sessions.bad(path, f"trial {k} holds no list of joules per sample", str(samples)[:60])
    joules = np.array(samples, dtype=np.float64)
    if np.any(np.isinf(joules)) or np.all(np.isnan(joules)):
        raise sessions.bad(path, f"trial {k} holds an infinite sample, or only NaN", None)
    ends = [s[1] for s in stamps if isinstance(s, list) and len(s) == 2] if isinstance(stamps, list) else []
    if len(ends) < 2 or len(ends) != len(stamps) or not all(isinstance(e, int) for e in ends):
        raise sessions.bad(path, f"trial {k} does not stamp the begin and end of its window", str(stamps)[:60])
    on, off = ends[-2], ends[-1]
    if not 0 <= on < off <= len(joules):
        raise sessions.bad(path, f"trial {k} has a window from sample {on} to {off} of {len(joules)} samples", off)
    infer = entry.get("infer")
    count = infer.get("iterations") if isinstance(infer, dict) else None
    if inferences is not None and count not in (None, inferences):
        raise sessions.other_count(path.name, count, inferences)
    count = inferences if count is None else count
    if not (isinstance(count, int) and not isinstance(count, bool) and 1 <= count < 2**31):
        what = f"{path.name}, trial {k} does not count its inferences"
        raise unstated("inferences", what, "inferences=NUMBER", count)
    return joules, on, off, count


def _number(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and not abs(x) >= 1e300  # NaN is a dropped sample


def _check_elapsed(results: str, lengths_s: list[float]) -> None:
    """Refuse lengths in ``results.txt`` that contradict the sampling rate. Raises ``UsageError``."""
    printed = [float(x) for x in re.findall(r"Elapsed time {2,}: (\d+(?:\.\d+)?)", results)]
    for stated_s, length in zip(printed, lengths_s, strict=False):
        if len(printed) == len(lengths_s) and abs(stated_s - length) > 1e-3 * max(stated_s, length):
            what = f"results.txt prints a window of {stated_s:g} s, which is {length:g} s at the assumed sampling rate"
            raise unstated("rate_hz", what, "rate_hz=NUMBER", length)


def _facts(log: str) -> dict[str, str]:
    known = {
        "session": r"sessions[\\/](\d{8}_\d{6})",
        "model": r"Device model retrieved: (.+)",
        "profile": r"Device profile retrieved: (.+)",
        "meter": r"(JS220|LPM01A)",
    }
    return {key: m[1].strip()[:80] for key, pattern in known.items() if (m := re.search(pattern, log))}
