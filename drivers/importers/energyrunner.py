"""EEMBC EnergyRunner (MLPerf Tiny, ULPMark-ML): energy traces with the stamps of the device's pin."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import numpy as np

from drivers.importers.windows import idle_of
from rig.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing import CRYSTAL, ImportedRun, ImportedSpan, ImportedTrace
from rig.types import Bracket, Chunk, ClockInfo, Conversion, DeviceInfo, Floats, MeterInfo, Rail

MAGIC = 0xF1
ENERGY, STAMPS = "-energy.bin", "-timestamps.json"
BESIDE = ("log.txt", "results.txt", "script.async")
CLOCK, RAIL = "emon", "dut"
GUARD_S = 0.1
"""Taken off idle windows: the log is stamped by the host, a few hundredths of a second late."""
_LINE = re.compile(r"^(?P<t>\d+(?:\.\d+)?) (?P<who>[^:]+): (?P<what>.*)$")
_SCRIPT = re.compile(r"cmd:\s*'((?:[^'\\]|\\.)*)'")


def open_import(
    source: Path,
    *,
    inferences: int | None = None,
    idle: str = "tail",
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> list[ImportedRun]:
    """Every EnergyRunner trace in a folder or below it: ``NAME-energy.bin`` with ``NAME-timestamps.json``.

    Window k lies between stamps 2k - 1 and 2k, counted from 0. How many inferences each holds is read from
    ``log.txt``, else from ``script.async``, else from ``results.txt``; where none of them is there, ``inferences``
    must state it. Idle is the ``tail`` that the script leaves alone after the last inference, or the ``head`` before
    the first (the state of a device that has not yet worked, at another level on the boards we saw), as the log
    stamps them; or START:END,... in seconds of the trace. Without a log it must be given in seconds, or there is no
    idle. The clock's rate is trusted to ``clock_tolerance`` (relative); ``calibration`` names a calibration file.

    Raises ``DataError`` for files that are not of the format, ``UsageError`` for what must be stated.
    """
    found = _bins(source)
    if not found:
        raise DataError(
            f"{source} holds no NAME{ENERGY}", field="source", value=str(source), remedy="Name a session's folder"
        )
    top = source if source.is_dir() else source.parent
    runs = []
    for path in found:
        alone = sum(p.parent == path.parent for p in found) == 1
        where = path.parent.relative_to(top).as_posix()
        name = (where if where != "." else path.parent.resolve().name) + ("" if alone else f"-{_prefix(path)}")
        session = _session(path, inferences)
        rail = Rail(RAIL, "mean", Conversion("W"), session.rate_hz)
        day = _day(session.facts.get("session", ""))
        rail = calibrated(rail, calibration, range_max=calibration_range, temperature_c=temperature_c, on=day)
        runs.append(_run(name, session, rail, idle, clock_tolerance))
    return runs


@dataclass(frozen=True)
class _Line:
    t_s: float
    who: str
    what: str


@dataclass(frozen=True)
class _Session:
    """One trace as its files hold it. ``energy_uj`` has shape (n,), ``stamps_s`` is in order."""

    rate_hz: float
    energy_uj: Floats
    stamps_s: tuple[float, ...]
    counts: tuple[int, ...]
    log: tuple[_Line, ...]
    facts: dict[str, str]
    files: tuple[Path, ...]


def _bins(source: Path) -> list[Path]:
    if source.is_file():
        return [source] if source.name.endswith(ENERGY) else []
    return sorted(p for p in source.rglob(f"*{ENERGY}") if p.is_file())


def _prefix(path: Path) -> str:
    return path.name.removesuffix(ENERGY)


def _session(path: Path, inferences: int | None) -> _Session:
    rate_hz, energy = _energy(path)
    stamps_path = path.with_name(_prefix(path) + STAMPS)
    stamps = _stamps(stamps_path)
    texts = {name: _text(path.with_name(name)) for name in BESIDE if path.with_name(name).is_file()}
    before, log = _log(texts.get("log.txt", ""), _prefix(path))
    counts = _counts(texts, log, _prefix(path), len(stamps[2::2]), inferences)
    files = (path, stamps_path, *(path.with_name(name) for name in texts))
    return _Session(rate_hz, energy, stamps, counts, log, _facts([*before, *log]), files)


def _energy(path: Path) -> tuple[float, Floats]:
    """Sampling rate (Hz) and microjoules per sample: byte 0xF1, float32 rate, float32 samples, little-endian."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", None) from error
    if len(raw) < 13 or raw[0] != MAGIC:
        raise _bad(path, f"does not begin with 0x{MAGIC:X} and two samples", raw[:1].hex())
    if (len(raw) - 1) % 4:
        raise _bad(path, "ends within a sample", len(raw))
    values = np.frombuffer(raw, "<f4", offset=1)
    with np.errstate(invalid="ignore"):  # a signalling NaN; refused below
        rate_hz, energy = float(values[0]), values[1:].astype(np.float64)
    if not (math.isfinite(rate_hz) and 1e-3 <= rate_hz <= 1e9):
        raise _bad(path, f"states a sampling rate of {rate_hz} Hz", rate_hz)
    broken = np.flatnonzero(~np.isfinite(energy))
    if len(broken):
        raise _bad(path, f"holds {energy[broken[0]]} as sample {broken[0]}", float(energy[broken[0]]))
    return rate_hz, energy


def _stamps(path: Path) -> tuple[float, ...]:
    """Seconds, in order: one, then two for each window."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", None) from error
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"is not JSON: {error}", None) from error
    numbers = isinstance(found, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in found)
    if not numbers or not all(0.0 <= x < 1e9 for x in found):
        raise _bad(path, "is not a list of seconds", str(found)[:60])
    stamps = tuple(float(x) for x in found)
    if list(stamps) != sorted(stamps) or len(stamps) % 2 == 0:
        raise _bad(path, f"holds {len(stamps)} stamps, which are not one and then two for each window, in order", None)
    return stamps


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", None) from error


def _log(text: str, prefix: str) -> tuple[tuple[_Line, ...], tuple[_Line, ...]]:
    """The lines before, and from, where the trace of this name was switched on, to where it was off again."""
    lines = tuple(_Line(float(m["t"]), m["who"], m["what"]) for m in map(_LINE.match, text.splitlines()) if m)
    on = [k for k, line in enumerate(lines) if line.what == f'Command "emon trace on {prefix}"']
    if not on:
        return lines, ()
    off = [k for k, line in enumerate(lines) if k > on[-1] and line.what == "m-trace[off]"]
    return lines[: on[-1]], lines[on[-1] : off[0] + 1 if off else len(lines)]


def _counts(
    texts: dict[str, str], log: Sequence[_Line], prefix: str, windows: int, inferences: int | None
) -> tuple[int, ...]:
    """Inferences in each window, from the first source that tells. Raises where they contradict each other."""
    if inferences is not None and not 1 <= inferences < 2**31:
        raise UsageError(f"inferences is {inferences}", field="inferences", value=inferences, remedy="Give 1 or more")
    script = _SCRIPT.findall(texts.get("script.async", ""))
    starts = [k for k, command in enumerate(script) if command == f"emon trace on {prefix}"]
    script = script[starts[-1] :] if starts else []
    told = {
        "log.txt": [m[1] for line in log if (m := re.fullmatch(r"\[dut\]: m-infer-start-(\d{1,9})", line.what))],
        "script.async": [m[1] for command in script if (m := re.match(r"io dut infer (\d{1,9})\b", command))],
        "results.txt": re.findall(r"# Inferences\s*:\s*(\d{1,9})\b", texts.get("results.txt", "")),
    }
    for name, found in told.items():
        if not found:
            continue
        counts = tuple(int(x) for x in found)
        if len(counts) != windows or min(counts) < 1:
            raise DataError(
                f"{name} tells of {len(counts)} windows and the stamps of {windows}",
                field=name,
                value=len(counts),
                remedy="Check that they are of one session; remove what is not",
            )
        if inferences is not None and set(counts) != {inferences}:
            raise UsageError(
                f"{name} counts {counts[0]} inferences and the option {inferences}",
                field="inferences",
                value=inferences,
                remedy="Leave the option away",
            )
        return counts
    if inferences is None and windows:
        raise UsageError(
            "neither log.txt, script.async nor results.txt tells how many inferences a window holds",
            field="inferences",
            remedy="State it: inferences=NUMBER",
        )
    return (inferences or 1,) * windows


def _run(name: str, session: _Session, rail: Rail, idle: str, clock_tolerance: float) -> ImportedRun:
    hz = _tick_hz(session.stamps_s)
    clock = ClockInfo(CLOCK, hz, clock_tolerance)
    ticks = [round(s * hz) for s in session.stamps_s]
    values = session.energy_uj * (session.rate_hz * 1e-6)
    said = session.facts
    spans = tuple(
        ImportedSpan("inference", on, off, executions=count, sample_id=f"window-{2 * k + 2}")
        for k, (on, off, count) in enumerate(zip(ticks[1::2], ticks[2::2], session.counts, strict=True))
    )
    peer = {"method": "energyrunner", "rail": RAIL, "clock": CLOCK, "stamps": ticks, "inferences": session.counts}
    return ImportedRun(
        name=name,
        device=DeviceInfo(said.get("model", "device under test"), "hardware", clock=clock, details=said),
        meters=(MeterInfo(said.get("meter", "energy monitor"), "hardware", clock, (rail,)),),
        traces=(ImportedTrace(RAIL, (Chunk(RAIL, values),)),),
        spans=spans,
        brackets={CLOCK: (Bracket(0, 0, 0),)},
        originals={path.name: path for path in session.files},
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


def _facts(log: Sequence[_Line]) -> dict[str, str]:
    known = {
        "session": r"m-session-start-id\[(\d+)\]",
        "model": r"\[dut\]: m-model-\[(.+)\]",
        "profile": r"\[dut\]: m-profile-\[(.+)\]",
        "meter": r"m-regfile-fn\[.+\]-type\[emon\]-name\[(.+)\]",
    }
    return {key: m[1][:80] for key, pattern in known.items() for line in log if (m := re.fullmatch(pattern, line.what))}


def _day(session: str) -> date | None:
    """The day of a session by its number, which begins YYYYMMDD."""
    try:
        return datetime.strptime(session[:8], "%Y%m%d").date()
    except ValueError:
        return None


def _idle(session: _Session, idle: str) -> tuple[tuple[int, int], ...]:
    """Declared idle windows in ns of the trace's own time, inside the trace."""
    length_s = len(session.energy_uj) / session.rate_hz
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


def _bad(path: Path, what: str, value: object) -> DataError:
    return DataError(
        f"{path.name} {what}", field=path.name, value=value, remedy="Copy the session's folder again, whole"
    )
