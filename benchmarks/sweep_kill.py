"""Does a sweep survive a kill? The same grid runs undisturbed, killed on one machine, and killed on a cluster.

    python -m benchmarks.sweep_kill --cells 200 --kills 3 --seed 1

Every kill is SIGKILL to the whole process group of the sweep at a random time. On the cluster (Dask, two workers of one
thread, on this machine) one worker is killed too. Three things are required: the three tables have the same bytes, no
finished cell is recorded again, and only damaged recordings are set aside.

Prints a table and, last, one JSON line. Exits 1 if a requirement is missed.
"""

import csv
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.command_line import concluded, parser_of
from rig.recording.disk.files import BROKEN
from rig.recording.layout import SEAL
from rig.sweep.grid import cells_of
from rig.sweep.sweep_folder import CELLS, frozen, torn

SWEEP = """
import argparse, sys
from rig.commands.sweep import add_arguments, run
parser = argparse.ArgumentParser()
parser.add_argument("--json", action="store_true")
add_arguments(parser)
sys.exit(run(parser.parse_args()))
"""
INFERENCE_S = (0.005, 0.01, 0.02, 0.04, 0.08)
RATE_HZ = (500, 1000, 2000, 4000)
SHARED = ("samples=2", "audio_hz=1000", "idle_s=0.2")


@dataclass(frozen=True)
class Kill:
    """Kill the sweep ``then_s`` after ``done`` cells are done."""

    done: int
    then_s: float


@dataclass
class Story:
    """The outcome of one sweep: seconds at work, cells done at each kill, and the missed requirements."""

    name: str
    work_s: float = 0.0
    at_kills: list[int] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    broken: int = 0
    cells: int = 0


def grid(cells: int) -> list[str]:
    """Return the arguments of a grid of at least this many cells."""
    repetitions = -(-cells // (len(INFERENCE_S) * len(RATE_HZ)))
    vary = [f"inference_s={','.join(map(str, INFERENCE_S))}", f"rate_hz={','.join(map(str, RATE_HZ))}"]
    words = ["--device", "mock", "--simulate", "--repetitions", str(repetitions)]
    return words + [w for text in vary for w in ("--vary", text)] + [w for text in SHARED for w in ("--option", text)]


def started(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a sweep in its own process group."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", SWEEP, *words], start_new_session=True, **quiet)  # type: ignore[call-overload,no-any-return]


def seals(folder: Path) -> dict[str, str]:
    """Return for every finished cell its recording's digest, and when it was sealed."""
    files = [path / SEAL for path in sorted((folder / CELLS).glob("*"))]
    return {file.parent.name: f"{file.read_text()} {file.stat().st_mtime_ns}" for file in files}


def told(name: str, folder: Path, words: Sequence[str], kills: Sequence[Kill], victims: Sequence[int] = ()) -> Story:
    """Start the sweep, kill it at each of ``kills``, and continue it to the end; ``victims`` die at the first kill."""
    story = Story(name)
    done: dict[str, str] = {}
    for kill in [*kills, None]:
        began_s = time.monotonic()
        process = started([*words, "--out", str(folder)])
        if kill is None:
            process.wait()
        while kill is not None and process.poll() is None and len(seals(folder)) < kill.done:
            time.sleep(0.02)
        time.sleep(kill.then_s if kill is not None else 0.0)
        story.work_s += time.monotonic() - began_s
        if kill is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for victim in victims if not story.at_kills else ():
                os.kill(victim, signal.SIGKILL)
            process.wait()
            before, done = done, seals(folder)
            story.missed += [f"{key} was recorded again" for key in before if done.get(key) != before[key]]
            story.at_kills.append(len(done))
        elif process.returncode:
            story.missed.append(f"the sweep ended with exit code {process.returncode}")
    return checked(story, folder, done)


def checked(story: Story, folder: Path, done: dict[str, str]) -> Story:
    """Check the requirements for a completed sweep."""
    final = seals(folder)
    story.missed += [f"{key} was recorded again" for key in done if final.get(key) != done[key]]
    with (folder / "table.csv").open() as file:
        states = [row["state"] for row in csv.DictReader(file)]
    if set(states) != {"done"} or len(final) != len(states):
        story.missed.append(f"{len(final)} recordings for {len(states)} cells, in states {sorted(set(states))}")
    aside = sorted((folder / BROKEN).glob("*")) if (folder / BROKEN).is_dir() else []
    story.broken, story.cells = len(aside), len(states)
    cells = {cell.key: cell for cell in cells_of(entry.grid for entry in frozen(folder))}
    story.missed += [f"{p.name} was set aside and is whole" for p in aside if not torn(p, cells[p.stem])]
    if left := list((folder / "pending").glob("*")):
        story.missed.append(f"{left[0].name} is still pending")
    story.digests["table.csv"] = hashlib.sha256((folder / "table.csv").read_bytes()).hexdigest()
    return story


def moments(rng: random.Random, whole: Story, kills: int) -> list[Kill]:
    """Return the numbers of finished cells at which to kill: random, different and rising."""
    counts = sorted(rng.sample(range(max(whole.cells - 10, kills)), kills))
    return [Kill(count, rng.uniform(0.0, 0.5)) for count in counts]


@contextmanager
def cluster() -> Iterator[tuple[str, list[int]]]:
    """Start a local Dask cluster of two workers; yield its address, and the process of each worker."""
    from distributed import LocalCluster

    made: Any = LocalCluster
    with made(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local:
        yield local.scheduler_address, [worker.pid for worker in local.workers.values()]


def main() -> int:
    args = parser_of(__doc__, cells=200, kills=3, seed=1, jobs=2).parse_args()
    rng = random.Random(args.seed)
    words = [*grid(args.cells), "--jobs", str(args.jobs)]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        whole = told("uninterrupted", root / "a", words, [])
        stories = [whole, told("killed, one machine", root / "b", words, moments(rng, whole, args.kills))]
        with cluster() as (address, pids):
            over = [*words, "--scheduler", address]
            stories.append(told("killed, cluster", root / "c", over, moments(rng, whole, args.kills), pids[:1]))
    print(f"{'sweep':22}{'at work':>10}{'cells done at each kill':>28}{'set aside':>11}   table.csv")
    for story in stories:
        kills = " ".join(map(str, story.at_kills)) or "-"
        table = story.digests["table.csv"][:12]
        print(f"{story.name:22}{story.work_s:8.1f} s{kills:>28}{story.broken:>11}   {table}")
        for what in story.missed[:10]:
            print(f"    {what}")
    same = all(story.digests == whole.digests for story in stories)
    passed = same and not any(story.missed for story in stories)
    found = {s.name: {"work_s": round(s.work_s, 2), "at_kills": s.at_kills, "set_aside": s.broken} for s in stories}
    return concluded({"benchmark": "sweep_kill", "sweeps": found, "tables_identical": same, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
