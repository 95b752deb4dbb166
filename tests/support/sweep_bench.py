"""Sweeps for tests: quick cells on the plant, and a way to request them like the command line."""

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rig.commands.sweep import add_arguments, run
from rig.recording.layout import SEAL
from rig.sweep.grid import Cell, cells_of
from rig.sweep.row_of_cell import row_path
from rig.sweep.sweep_folder import frozen, place_of
from tests.support.paths import ROOT

QUICK = (
    "--simulate", "--option", "samples=2", "--option", "audio_hz=1000", "--option", "idle_s=0.1",
    "--option", "marks=false",
)  # fmt: skip
GRID = ("--vary", "inference_s=0.01,0.02", "--repetitions", "2")
FAILS = ("--vary", "fail_at=0,2", "--option", "fail=raise")
PROGRAM = "import sys; from tests.support.sweep_bench import sweep; sys.exit(sweep(*sys.argv[1:]))"


def sweep(*words: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_arguments(parser)
    return run(parser.parse_args(list(words)))


def quick(out: Path, *words: str, jobs: int = 0) -> int:
    """Measure a grid of the mock device, in this process unless there are jobs; return the exit code."""
    return sweep("--device", "mock", *QUICK, *words, "--out", str(out), "--jobs", str(jobs))


def started(*words: str) -> subprocess.Popen[str]:
    """Start a sweep as its own process group."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": ""}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=environment,
    )  # fmt: skip


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def seals(out: Path) -> dict[str, str]:
    """Return the digest of each done cell's recording, and when it was sealed."""
    files = [path / SEAL for path in sorted((out / "cells").glob("*"))]
    return {file.parent.name: f"{file.read_text()} {file.stat().st_mtime_ns}" for file in files}


def aside(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "broken").glob("*"))


def states(out: Path) -> list[str]:
    return [row["state"] for row in rows(out)]


def column(out: Path, name: str) -> Sequence[str]:
    return [row[name] for row in rows(out)]


def cells(out: Path) -> list[Cell]:
    return cells_of(entry.grid for entry in frozen(out))


def go_on(out: Path, *words: str) -> int:
    return sweep(str(out), "--jobs", "0", *words)


def unseal(cell: Path) -> None:
    (cell / SEAL).unlink()


def forget_rows(out: Path) -> None:
    for cell in cells(out):
        row_path(place_of(out, cell), cell).unlink()
