"""Record with too few resources: small disks, and limits on file size, open files and memory."""

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.faults.outcome import Case, Ended, command, forks, left_by, rig
from benchmarks.faults.tally import Outcome, Tally

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
SAMPLES = 40
WORDS = (
    "measure", "--device", "mock", "--simulate", "--mode", "together", "--option", "idle_s=0.2", "--option",
    f"workload.samples={SAMPLES}", "--option", "rate_hz=20000",
)  # fmt: skip
MEASURE = Case("measure", WORDS, SAMPLES)


def campaign(points: int, workers: int) -> Tally:
    """Record into file systems of ``points`` sizes, up to 1.2 times the needed size, and under other limits."""
    tally = Tally("full disks and limits")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        whole = Path(folder) / "whole"
        rig([*WORDS, "--out", str(whole)])
        events = [f for f in whole.rglob("*") if f.is_file() and "derived" not in f.parts]
        size = sum(f.stat().st_size for f in events)
        sizes = [max(4096, round(1.2 * size * (k + 1) / points)) for k in range(points)]
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
            tally.add("disks", Outcome.NOT_TRIED, "a file system of limited size needs unshare -Urm")
            sizes = []
        for case, outcome, said in pool.map(partial(full_disk, MEASURE), sizes):
            tally.add(case, outcome, said)
        for case, limit in limits(size):
            out = Path(folder) / f"limited-{len(tally.counts)}-{sum(tally.counts.values())}"
            tally.add(case, *left_by(rig([*WORDS, "--out", str(out)], before=("prlimit", limit)), out, MEASURE))
    return tally


def full_disk(case: Case, size: int) -> tuple[str, Outcome, str]:
    """Record into a file system of ``size`` bytes in memory."""
    what = f"{case.name} on a disk of {size} bytes"
    with tempfile.TemporaryDirectory() as folder:
        process = forks().Process(target=_on_a_small_disk, args=(case, size, Path(folder)))
        process.start()
        process.join()
        found = Path(folder) / "found.json"
        if not found.is_file():
            return what, Outcome.TRACEBACK, f"exit code {process.exitcode}"
        outcome, said = json.loads(found.read_text())
    return what, Outcome(outcome), said


def _on_a_small_disk(case: Case, size: int, folder: Path) -> None:
    """Mount a file system that only this process and its child see; record there, and judge the result."""
    disk, err = folder / "disk", folder / "err"
    disk.mkdir()
    err.touch()
    mounted(disk, size)
    child = os.fork()
    if not child:
        try:
            command([*case.words, "--out", str(disk / "run")], str(err), False)
        except SystemExit as error:
            os._exit(error.code if isinstance(error.code, int) else 1)
        except BaseException:
            err.write_text(traceback.format_exc())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    left = Ended(os.waitstatus_to_exitcode(status), err.read_text(errors="replace"))
    (folder / "found.json").write_text(json.dumps(left_by(left, disk / "run", case)))


def mounted(place: Path, size: int) -> None:
    """Mount an empty file system in memory, in a name space of this process. Raises ``OSError`` if not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS | CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


def limits(size: int) -> Iterator[tuple[str, str]]:
    """Yield each limit by name, as an option of ``prlimit``."""
    for option, values in (
        ("fsize", [1 << 12, 1 << 14, 1 << 16, size // 4, size // 2, size]),
        ("nofile", [8, 12, 14, 16, 18, 20, 24, 32]),
        ("as", [int(g * 2**30) for g in (0.3, 0.5, 0.7, 0.9, 1.2, 1.6, 2.0)]),
    ):
        yield from ((f"{option} limited to {value}", f"--{option}={value}") for value in values)
