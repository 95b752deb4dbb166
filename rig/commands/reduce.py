"""``rig reduce``: energies of windows of a trace that is too long for memory, read as a stream.

It takes a block of 256 KiB and about 300 bytes for each window, whatever the length of the trace. A JLS file is read in
blocks of a million samples; a trace of a run directory is mapped into memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.streaming.energies import bad, check_rate, cut, file_sums, heard, in_order
from rig.analysis.streaming.sums import Sums, Watts, check_inside, grid_sums, parts_of
from rig.analysis.streaming.text import document, reduced, refusal, table, write_csv
from rig.analysis.streaming.windows import REMEDY, read_windows
from rig.errors import DataError, UsageError, refused
from rig.recording.layout import EVENTS
from rig.terminal import say, say_json
from rig.types import Floats

FORMATS: dict[str, np.dtype[Any] | None] = {
    "f32": np.dtype("<f4"), "f64": np.dtype("<f8"), "i16": np.dtype("<i2"), "npy": None, "jls": None,
}  # fmt: skip
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
QUIET_S, EVERY_S, EVERY_PLAIN_S = 2.0, 0.5, 5.0
RAW = ("rate", "format", "scale", "offset", "unit", "burden_ohm", "shunt_ohm", "start")
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Streamed:
    """Windows by name with their seconds, shape (k, 2), the sums over them, and notes."""

    names: list[str]
    windows_s: Floats
    sums: Sums
    about: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    duty: float = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig reduce TRACE --windows FILE ...``."""
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE", help="a file of raw numbers, a JLS file, or a run directory")
    add(
        "--windows",
        type=Path,
        metavar="FILE",
        help="table start,end[,phase] in seconds; default: the spans and idle windows of the run",
    )
    add("--rail", metavar="NAME", help="the rail to sum, when a run directory has several")
    add(
        "--format",
        choices=FORMATS,
        help="raw little-endian numbers, .npy or JLS; default: taken from the suffix of TRACE",
    )
    add("--rate", type=float, metavar="HZ", help="sampling rate of raw numbers")
    add(
        "--start",
        type=float,
        metavar="SECONDS",
        help="begin of the first reading, on the time axis of the windows; default: 0",
    )
    add(
        "--unit",
        metavar="UNIT",
        help="unit of raw numbers: W, A or V (across --shunt-ohm), with prefixes such as mW; default: W",
    )
    add("--scale", type=float, metavar="X", help="UNIT for each step of the raw numbers; default: 1")
    add("--offset", type=float, metavar="X", help="value in UNIT of the raw number 0; default: 0")
    add("--supply-v", type=float, metavar="V", help="supply voltage before the meter, for readings in A or V")
    add(
        "--burden-ohm", type=float, metavar="OHM", help="resistance of the meter's shunt, for readings in A; default: 0"
    )
    add("--shunt-ohm", type=float, metavar="OHM", help="resistance of the shunt, for readings in V")
    add(
        "--missing",
        choices=("refuse", "mean"),
        default="refuse",
        help="what to do with readings that are not numbers; default: %(default)s",
    )
    add("--out", type=Path, metavar="FILE.csv", help="write each window as a row of this table")


def run(args: argparse.Namespace) -> int:
    """Sum and print. Raises a ``RigError`` for a trace or windows that cannot be summed."""
    if args.out is not None and args.out.exists() and any(_same(args.out, p) for p in (args.trace, args.windows)):
        raise UsageError(f"--out would overwrite {args.out}", field="out", value=str(args.out), remedy="Name another")
    fill = args.missing == "mean"
    streamed = _streamed(args)
    found = reduced(streamed.names, streamed.windows_s, streamed.sums, streamed.duty, fill)
    refused = refusal(found, fill)
    about = {"trace": str(args.trace), "missing": args.missing, **streamed.about}
    whole = document(found, about, streamed.notes, refused, args.json)
    if args.out is not None:
        write_csv(args.out, found)
    if args.json:
        say_json(json.dumps(whole))
    else:
        say(*table(found, whole).splitlines())
    if refused is not None:
        say(f"rig: {refused}", error=True)
        return refused.exit_code
    return 0


def _streamed(args: argparse.Namespace) -> Streamed:
    if not args.trace.exists():
        remedy = "Name a trace: a file of raw numbers, .npy or .jls, or a run directory"
        raise UsageError(f"{args.trace} does not exist", field="trace", value=str(args.trace), remedy=remedy)
    if args.windows is not None and not args.windows.exists():
        raise refused("windows", str(args.windows), REMEDY, f"{args.windows} does not exist")
    if args.trace.is_dir():
        return _of_run(args)
    if args.rail is not None:
        raise UsageError("--rail is for run directories only", field="rail", value=args.rail, remedy="Leave it out")
    if args.windows is None:
        raise UsageError("no windows are given", field="windows", remedy="Give --windows FILE: start,end[,phase] in s")
    format_ = args.format or args.trace.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        remedy = f"State --format {'|'.join(FORMATS)}, or name the run directory"
        raise refused("format", args.trace.suffix, remedy, f"the format of {args.trace.name} is not known")
    return _of_jls(args) if format_ == "jls" else _of_numbers(args, format_)


def _of_numbers(args: argparse.Namespace, format_: str) -> Streamed:
    if args.rate is None:
        raise UsageError("--rate is not stated", field="rate_hz", remedy="Give the sampling rate in Hz")
    check_rate(args.rate)
    watts = conversion(args)
    start_s = _number(args, "start", 0.0)
    names, windows_s = read_windows(args.windows)
    try:
        with progress() as told:
            sums = file_sums(args.trace, FORMATS[format_], windows_s, args.rate, t0_s=start_s, watts=watts, told=told)
    except OSError as error:
        raise bad(args.trace, f"cannot be read: {error.strerror or error}", None) from error
    about = {"rate_hz": args.rate, "format": format_, "unit": args.unit or "W", "supply_v": args.supply_v}
    return Streamed(names, windows_s, sums, about)


def conversion(args: argparse.Namespace) -> Watts:
    """The conversion of raw numbers to watts. Raises ``UsageError`` for a missing option or one without meaning."""
    unit = args.unit or "W"
    factor = PREFIXES.get(unit[:-1].replace("µ", "u"))
    if factor is None or unit[-1] not in "WAV":
        raise UsageError(f"unit is {unit!r}", field="unit", value=unit, remedy="Give W, A or V, or mW, uA and the like")
    scale, offset = _number(args, "scale", 1.0) * factor, _number(args, "offset", 0.0) * factor
    wanted = {"W": (), "A": ("supply_v",), "V": ("supply_v", "shunt_ohm")}[unit[-1]]
    useless = {"W": ("supply_v", "burden_ohm", "shunt_ohm"), "A": ("shunt_ohm",), "V": ("burden_ohm",)}[unit[-1]]
    for name in (*wanted, *useless):
        value, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if name in useless and value is not None:
            raise UsageError(
                f"{option} does not apply to readings in {unit}", field=name, value=value, remedy="Leave it out"
            )
        if name in wanted and not (value is not None and 0.0 < value < 1e12):
            raise UsageError(f"{option} is {value}", field=name, value=value, remedy=f"State it, above 0, for {unit}")
    if unit[-1] == "W":
        return Watts(scale, offset)
    burden_ohm = _number(args, "burden_ohm", 0.0) if unit[-1] == "A" else args.shunt_ohm
    if burden_ohm < 0.0:
        raise UsageError(f"--burden-ohm is {burden_ohm}", field="burden_ohm", value=burden_ohm, remedy="Give 0 or more")
    per_ohm = 1.0 / args.shunt_ohm if unit[-1] == "V" else 1.0
    return Watts(scale * per_ohm, offset * per_ohm, args.supply_v, burden_ohm)


def _number(args: argparse.Namespace, name: str, default: float) -> float:
    value = getattr(args, name)
    if value is None:
        return default
    if not abs(value) < 1e15:
        raise UsageError(f"--{name} is {value}", field=name, value=value, remedy="Give a plain number")
    return float(value)


def _of_jls(args: argparse.Namespace) -> Streamed:
    """Sums over a JLS file, which the importer reads in blocks; seconds count from the first sample."""
    from rig.factories import build
    from rig.plugins import load

    _refuse_raw(args, "a JLS file")
    from rig.analysis.streaming.run import declared, watts_of

    names, windows_s = read_windows(args.windows)
    options = {"windows": str(args.windows)} | ({} if args.supply_v is None else {"supply_v": str(args.supply_v)})
    found = build(load("importers", "joulescope-jls"), {"source": args.trace}, options)
    trace = found.traces[0]
    rail = found.rail(trace.rail)[1]
    low, high = (windows_s * rail.rate_hz).T
    check_inside(low, high, sys.maxsize, (0.0, float("inf")))  # the length is known at the end of the file
    with progress() as told:
        blocks = heard(cut(in_order(chunk.value for chunk in trace.chunks)), 0, told)
        parts = parts_of(np.maximum(low, 0.0), high)
        sums = grid_sums(parts, blocks, len(names), rail.rate_hz, watts_of(rail), args.trace.name)
    return Streamed(names, windows_s, sums, {"rate_hz": rail.rate_hz, "format": "jls", **declared(rail)})


def _of_run(args: argparse.Namespace) -> Streamed:
    from rig.analysis.streaming import run as recorded
    from rig.recording.reader import open_run

    _refuse_raw(args, "a run directory")
    if not (args.trace / EVENTS).is_file():
        remedy = "Name a run directory; a session has one for each run"
        raise refused("trace", str(args.trace), remedy, f"{args.trace} is not a run directory")
    if sum(p.stat().st_size for p in (args.trace / "traces").glob("*.arrows")) > 1e9:
        say("verifying the hashes of the recording", error=True)
    recording = open_run(args.trace, traces=False)
    file = recorded.rail_file(recording, args.rail)
    clock = recorded.timebase(recording, file)
    doubt_s, notes = clock.sigma_s, list[str]()
    if args.windows is not None:
        names, windows_s = read_windows(args.windows)
    else:
        every, all_s, device_s = recorded.own_windows(recording)
        doubt_s = float(np.hypot(doubt_s, device_s))
        names, windows_s = _held(every, all_s, recorded.extent_s(file, clock), file.rail.name)
        if left := len(every) - len(names):
            notes.append(f"{left} windows of the run are not wholly in the trace and are left out")
    if over := recorded.overloads(file):
        notes.append(
            f"{over} readings of the trace are at the end of the meter's range: the true values are there or above"
        )
    notes.append(
        f"Windows are placed by clock readings alone, to about {doubt_s:.2g} s; the activity in the trace was not used"
    )
    with progress() as told:
        sums = recorded.run_sums(file, clock, windows_s, told)
    duty = min((file.rail.aperture_s or 0.0) * file.rail.rate_hz, 1.0) if file.grid is None else 1.0
    about = {"run_id": recording.start.run_id, "run_digest": recording.digest, **recorded.declared(file.rail)}
    return Streamed(names, windows_s, sums, about, tuple(notes), duty or 1.0)


def _held(names: list[str], windows_s: Floats, extent_s: tuple[float, float], rail: str) -> tuple[list[str], Floats]:
    """The windows that lie wholly in the trace of a rail. Raises ``DataError`` where none does."""
    held = (windows_s[:, 0] >= extent_s[0]) & (windows_s[:, 1] <= extent_s[1])
    if not np.any(held):
        what = f"none of its {len(names)} windows lies in the trace of rail {rail}"
        raise DataError(what, field="windows", value=len(names), remedy="Give --windows FILE, in s of the run")
    return [n for n, ok in zip(names, held, strict=True) if ok], windows_s[held]


def _refuse_raw(args: argparse.Namespace, what: str) -> None:
    """Raises ``UsageError`` for an option that only raw numbers need; elsewhere the recording states it."""
    also = ("supply_v",) if what == "a run directory" else ()
    for name in (*RAW, *also):
        if getattr(args, name) is not None and (name, args.format) != ("format", "jls"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not apply to {what}", field=name, remedy="Leave it out: the recording states it"
            )


def _same(a: Path, b: Path | None) -> bool:
    return b is not None and b.exists() and a.samefile(b)


@contextmanager
def progress(now: Callable[[], float] = time.monotonic) -> Iterator[Told]:
    """A callback for (readings read, readings in all or 0) that reports on standard error after 2 s."""
    tty = sys.stderr.isatty()
    began, last, shown = now(), now(), False

    def told(done: int, of: int) -> None:
        nonlocal last, shown
        at = now()
        if at - began < QUIET_S or at - last < (EVERY_S if tty else EVERY_PLAIN_S if shown else 0.0):
            return
        last, shown = at, True
        share = f"{100.0 * done / of:3.0f} %  " if of else ""
        left = f"  {(at - began) * (of / max(done, 1) - 1.0):.0f} s left" if of else ""
        text = f"{share}{done:,} readings{left}"
        sys.stderr.write(f"\r{text:<60}" if tty else text + "\n")
        sys.stderr.flush()

    try:
        yield told
    finally:
        if tty and shown:
            sys.stderr.write("\r" + " " * 60 + "\r")
