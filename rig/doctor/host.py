"""Findings about the host: interpreter, clock, CPU, load, disk, packages, permissions and scheduling delay."""

import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil

from rig.doctor.findings import Finding, Number, broken, checked, ok, si
from rig.engine.clock import SPIN_NS, HostClock
from rig.errors import StoreError
from rig.plugin_list import text_in
from rig.session.default_out import RUNS

TESTED = ((3, 11), (3, 12), (3, 13))
"""Python versions with which the project is tested."""
PERCENTILES = (("median", 50.0), ("p99", 99.0), ("worst", 100.0))
SLEEP_S = 1e-3
DISK_LOW, DISK_FULL = 2e9, 5e7
"""With less free disk space (bytes), the disk is doubtful or broken; a minute of a rail at 50 kHz takes 24 MB."""
CLOCK_READ_S = 1e-6
ITEM = "host"


def host_findings(seconds: float, root: Path = Path("/"), runs: Path = RUNS) -> Iterator[Finding | str]:
    """Yield the findings of the host, and the name of each slow step before its finding. ``root`` holds /sys."""
    yield _python()
    yield _clock_source(root)
    yield _governor(root)
    yield _load()
    yield f"sleeping and waking for {seconds:g} s"
    yield _wakes(seconds)
    yield _disk(runs)


def _python() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    known = ", ".join(f"{a}.{b}" for a, b in TESTED)
    remedy = "" if sys.version_info[:2] in TESTED else f"The rig is tested with {known}"
    return checked(ITEM, "python", text, remedy)


def _clock_source(root: Path) -> Finding:
    """Find the source of CLOCK_MONOTONIC, its step, and the time to read it."""
    info = time.get_clock_info("monotonic")
    steps = np.diff([time.monotonic_ns() for _ in range(2000)])
    read_s = float(np.median(steps)) * 1e-9  # other programs interrupt a few readings
    step_s = float(steps[steps > 0].min()) * 1e-9 if np.any(steps > 0) else 0.0
    source = _first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or "not stated"
    text = f"{info.implementation.partition('(')[2].rstrip(')') or info.implementation}, source {source}, resolution "
    text += f"{si(info.resolution, 's')}, step {si(step_s, 's')}, {si(read_s, 's')} for each time stamp"
    values: dict[str, Number] = {"source": source, "resolution_s": info.resolution, "read_s": read_s, "step_s": step_s}
    slow = read_s > CLOCK_READ_S or info.resolution > 1e-6
    other = "choose the clock source tsc at boot (on Windows: Python 3.13), or another computer"
    remedy = f"Time stamps are slow or coarse: {other}" if slow else ""
    return checked(ITEM, "clock", text, remedy, **values)


def _governor(root: Path) -> Finding:
    found = {_first_line(path) for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    if not found:
        return ok(ITEM, "cpu", f"{os.cpu_count()} CPUs; their frequency is not set from here (a virtual machine?)")
    text = f"{os.cpu_count()} CPUs, governor {', '.join(sorted(found))}"
    remedy = "If this computer is measured or keeps a tight schedule: sudo cpupower frequency-set -g performance"
    return checked(ITEM, "cpu", text, "" if found == {"performance"} else remedy)


def _load() -> Finding:
    share = psutil.getloadavg()[0] / (os.cpu_count() or 1)
    text = f"{share:.2g} processes for each CPU over the last minute"
    remedy = "Close other programs, because a busy host issues samples late" if share > 0.5 else ""
    return checked(ITEM, "load", text, remedy, share=share)


def _wakes(seconds: float) -> Finding:
    """Find how late a sleep of 1 ms ends, and how late a wait of the rig ends, which polls the clock near its end."""
    clock = HostClock()
    slept: list[int] = []
    late: list[int] = []
    end_ns = time.monotonic_ns() + round(seconds * 1e9)
    while time.monotonic_ns() < end_ns or len(late) < 10:
        due_ns = time.monotonic_ns() + round(SLEEP_S * 1e9)
        time.sleep(SLEEP_S)
        slept.append(time.monotonic_ns() - due_ns)
        due_ns = time.monotonic_ns() + round(SLEEP_S * 1e9)
        clock.sleep_until(due_ns)
        late.append(time.monotonic_ns() - due_ns)
    both = {"sleep": slept, "wait": late}
    values = {f"{what}_{tag}_s": _percentile(rows, p) for what, rows in both.items() for tag, p in PERCENTILES}
    text = "a sleep of 1 ms is late by {} (median), {} (99th percentile), the rig's waits by {} (99th percentile of {})"
    text = text.format(*(si(values[f"{key}_s"], "s") for key in ("sleep_median", "sleep_p99", "wait_p99")), len(late))
    awake_s = SPIN_NS * 1e-9
    late_for = f"The rig spins for only {si(awake_s, 's')} at the end of a wait"
    remedy = f"{late_for}. Close other programs, or give the rig its own CPU"
    in_time = max(values["sleep_p99_s"], values["wait_p99_s"]) <= awake_s
    return checked(ITEM, "schedule", text, "" if in_time else remedy, **values)


def _percentile(rows_ns: Sequence[int], percent: float) -> float:
    return float(np.percentile(rows_ns, percent, method="inverted_cdf")) * 1e-9


def _disk(runs: Path) -> Finding:
    """Find whether the default directory of runs can be written, and how much space it has."""
    there = next(p for p in (runs.absolute(), *runs.absolute().parents) if p.exists())
    if not os.access(there, os.W_OK):
        remedy = "Run it where you may write, or give --out"
        return broken(ITEM, "disk", f"{there} cannot be written", remedy, StoreError)
    free = float(shutil.disk_usage(there).free)
    text = f"{si(free, 'B')} free for {runs}/"
    if free < DISK_FULL:
        return broken(ITEM, "disk", text, "Free some, or give --out on another disk", StoreError, free_bytes=free)
    remedy = "A rail at 50 kHz writes 24 MB a minute" if free < DISK_LOW else ""
    return checked(ITEM, "disk", text, remedy, free_bytes=free)


# ---- what drivers need of the host -----------------------------------------------------------------------------------


def permission_findings(item: str, driver: str, options: Sequence[object], root: Path = Path("/")) -> Iterator[Finding]:
    """Yield whether the files that a driver opens exist and may be opened."""
    for value in options:
        if isinstance(value, str) and value.startswith("/dev/"):
            yield _port(item, Path(value), root)
    if driver == "rapl":
        given = (Path(value) for value in options if isinstance(value, str) and value.startswith("/"))
        yield from _powercap(item, next(given, root / "sys/class/powercap"))


def _port(item: str, path: Path, root: Path) -> Finding:
    if not path.exists():
        there = [*root.glob("dev/serial/by-id/*"), *root.glob("dev/ttyACM*"), *root.glob("dev/ttyUSB*")]
        known = ", ".join(str(p) for p in there) or "none; check the cable and the board's power"
        return broken(item, "port", f"{path} is not there", f"Serial ports: {known}")
    if os.access(path, os.R_OK | os.W_OK):
        return ok(item, "port", f"{path} can be read and written")
    return broken(item, "port", f"{path} cannot be read and written", _join(path.stat()))


def _join(status: os.stat_result) -> str:
    import grp

    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    if not status.st_mode & stat.S_IWGRP:
        return "Ask its owner, or add a udev rule"
    return f"sudo usermod -aG {group} $USER, then log in again"


def _powercap(item: str, folder: Path) -> Iterator[Finding]:
    counters = sorted(folder.glob("*/energy_uj"))
    if not counters:
        remedy = "modprobe intel_rapl_msr; a virtual machine has none"
        yield broken(item, "powercap", "this computer has no energy counters that can be read", remedy)
        return
    shut = [path for path in counters if not os.access(path, os.R_OK)]
    if shut:
        remedy = f"sudo chmod a+r {folder}/*/energy_uj until the next boot, or a udev rule"
        yield broken(item, "powercap", f"{len(shut)} of {len(counters)} energy counters may not be read", remedy)
    else:
        yield ok(item, "powercap", f"{len(counters)} energy counters may be read")


def _first_line(path: Path) -> str:
    """Return the first line of a small file; empty if it cannot be read."""
    return text_in(path).partition("\n")[0].strip()
