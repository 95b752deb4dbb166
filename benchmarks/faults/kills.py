"""Kills and other signals at random moments, for all scenarios, sessions, sweeps and imports."""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.outcome import Case, ended, left_by, rig, started
from benchmarks.faults.tally import Outcome, Tally
from benchmarks.import_cases import cases

MOCK = ("measure", "--device", "mock", "--simulate", "--option", "idle_s=0.2", "--speed", "4")
SAMPLES = 30
MEASURES: dict[str, tuple[str, ...]] = {
    "single-stream": (*MOCK, "--mode", "together", "--option", f"workload.samples={SAMPLES}"),
    "offline": (*MOCK, "--mode", "together", "--scenario", "offline", "--option", f"workload.samples={SAMPLES}"),
    "server": (*MOCK, "--mode", "together", "--scenario", "server", "--option", "scenario.arrival_hz=20", "--option",
               "scenario.duration_s=2"),
    "real-time": (*MOCK, "--mode", "together", "--scenario", "real-time", "--option", f"workload.samples={SAMPLES}"),
    "optimization": (
        "measure", "--device", "cpu-mis", "--scenario", "optimization", "--meter", "none", "--mode", "performance",
        "--option", "nodes=50", "--option", "density=0.05", "--option", "timeout_s=0.1",
    ),
    "session": (*MOCK, "--option", f"workload.samples={SAMPLES}"),
}  # fmt: skip
DONE = (0, 30, 31)
"""Exit codes of a run that ended normally: VALID, no power stated, INVALID."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def sweep() -> tuple[str, ...]:
    """Return a small sweep of the mock device."""
    return (
        "sweep", "--device", "mock", "--simulate", "--vary", "inference_s=0.02,0.05", "--vary", "rate_hz=500,2000",
        "--option", "samples=5", "--option", "idle_s=0.2",
    )  # fmt: skip


def commands(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every command that records something, by name; the source files of imports are written to ``folder``."""
    yield from MEASURES.items()
    yield "sweep", sweep()
    case = cases()["plain-csv"]
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    options = {k: str(folder / v) if k == "windows" else v for k, v in case.options.items()}
    given = [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
    yield "import", ("import", "--format", case.format, str(folder / case.source), *given)


def campaign(kills: int, seed: int, workers: int) -> Tally:
    """Kill commands at ``kills`` random moments in total."""
    tally, rng = Tally("kills and signals"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(workers) as pool:
        folder = Path(name)
        found = list(pool.map(lambda c: undisturbed(folder, tally, *c), commands(folder)))
        tasks = []
        for k in range(kills):
            length_s, case = found[k % len(found)]
            tasks.append((case, rng.choice(SIGNALS), rng.uniform(-0.1, 0.9) * length_s))
        for what, outcome, said in pool.map(lambda t: killed(folder, *t), tasks):
            tally.add(what, outcome, said)
    return tally


def undisturbed(folder: Path, tally: Tally, command: str, words: tuple[str, ...]) -> tuple[float, Case]:
    """Run one command without a fault; return its time (s), and its case with the number of answered samples."""
    with tempfile.NamedTemporaryFile() as err:
        process = started([*words, "--out", str(folder / command)], err.name)
        wait_for(folder / command, process)
        began_s = time.monotonic()
        done = ended(process, err.name, 600.0)
    length_s = time.monotonic() - began_s
    if done.code is None or done.code not in DONE:
        tally.add(f"{command} without a fault", Outcome.TRACEBACK, done.err)
    return length_s, Case(command, words, _answered(folder / command) if command != "sweep" else 0)


def wait_for(out: Path, process: Any) -> None:
    """Wait until a command makes its directory, or ends."""
    while not out.exists() and process.is_alive():
        time.sleep(0.005)


def killed(folder: Path, case: Case, number: signal.Signals, after_s: float) -> tuple[str, Outcome, str]:
    """Run one command, send a signal to its process group, and judge the files that the command left.

    The signal is sent ``after_s`` after the command makes its directory; if negative, ``-after_s`` after its start.
    """
    what = f"{case.name}, {number.name} after {after_s:.2f} s"
    with tempfile.TemporaryDirectory(dir=folder) as name, tempfile.NamedTemporaryFile() as err:
        out = Path(name) / "out"
        process = started([*case.words, "--out", str(out)], err.name)
        if after_s > 0:
            wait_for(out, process)
        time.sleep(abs(after_s))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        left = ended(process, err.name, 60.0)
        if case.name == "sweep" and out.exists():
            again = rig([*case.words, "--out", str(out)])
            done = again.code in DONE and "Traceback" not in again.err
            return what, Outcome.WHOLE if done else Outcome.TRACEBACK, again.err
        if {*Path(name).iterdir()} - {out}:
            return what, Outcome.OUTSIDE, str(sorted(Path(name).iterdir()))
        return what, *left_by(left, out, case)


def _answered(path: Path) -> int:
    from rig.recording.reader import open_run
    from rig.recording.session_json import runs_in

    return sum(open_run(run).replies.num_rows for run, _ in runs_in(path))
