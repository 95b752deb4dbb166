"""One row for each cell: its figures, computed from its recording alone and kept beside it.

A row is used again only while the recording is the one it was computed from and the estimators are the ones
that computed it. The last bits of a figure depend on how many threads the linear algebra runs on, so rows are
computed by processes that have one (``one_thread``), and the same recordings give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from rig.analysis.figure_key import FigureKey
from rig.analysis.quantity import Quantity
from rig.errors import IntegrityError, RigError
from rig.recording.reader import Run
from rig.recording.writer import DERIVED, SEAL
from rig.sweep.grid import Cell
from rig.sweep.store import place_of, sizes, sync, torn, write_whole

ROW = "sweep-row.json"
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
VOLATILE = ("run_id", "created_utc", "argv", "environment", "seq", "prev")
"""What of the start line differs between two recordings of one simulated cell."""


class Figure(msgspec.Struct, frozen=True):
    """One figure of a row: its value and the half width of its 95 % interval, None where there is none."""

    key: FigureKey
    value: float | None
    half_width: float | None


class Row(msgspec.Struct, frozen=True):
    """What the table says of one cell that is done. ``sizes`` and ``runs`` tie it to its recording."""

    key: str
    figures_by: str
    sizes: dict[str, int]
    runs: dict[str, str]
    content_sha256: str
    created_utc: str
    verdict: str
    simulated: bool
    refusals: int
    error: str
    figures: tuple[Figure, ...]
    seconds: float | None = None


def one_thread() -> bool:
    """Whether this process was started with linear algebra on one thread."""
    return all(os.environ.get(name) == value for name, value in THREADS.items())


def row_path(path: Path) -> Path:
    """Where the row of the recording ``path`` is kept."""
    return path / DERIVED / ROW


def kept_row(folder: Path, cell: Cell) -> Row | None:
    """The row of a cell that is done, if it is of this recording and of these estimators."""
    path = place_of(folder, cell)
    try:
        row = msgspec.json.decode(row_path(path).read_bytes(), type=Row)
        same = row.key == cell.key and row.figures_by == figures_by()
        same = same and all((path / n).stat().st_size == s for n, s in row.sizes.items())
        same = same and all((path / run / SEAL).read_text().split()[0] == sha for run, sha in row.runs.items())
    except (OSError, msgspec.DecodeError, IndexError, UnicodeDecodeError):
        return None
    return row if same else None


def keep_row(path: Path, cell: Cell, seconds: float | None = None) -> Row:
    """Compute the row of the recording ``path`` and keep it there. Raises ``IntegrityError`` when it is not whole."""
    row = row_of(path, cell, seconds_of(path) if seconds is None else seconds)
    _keep(path, msgspec.json.encode(row))
    return row


def keep_seconds(path: Path, seconds: float | None) -> None:
    """Keep how long a recording took until its row is computed."""
    _keep(path, json.dumps({"seconds": seconds}).encode())


def seconds_of(path: Path) -> float | None:
    """How long the recording ``path`` took, where that was kept."""
    try:
        return msgspec.json.decode(row_path(path).read_bytes(), type=_Took).seconds
    except (OSError, msgspec.DecodeError):
        return None


class _Took(msgspec.Struct):
    seconds: float | None = None


def _keep(path: Path, content: bytes) -> None:
    target = row_path(path)
    write_whole(target, content + b"\n")
    sync(path)


def row_of(path: Path, cell: Cell, seconds: float | None = None) -> Row:
    """The row of a run directory or session: read back, verified, evaluated, as `rig report` does it."""
    from rig.analysis.evaluate import evaluate
    from rig.analysis.summary import Part, summarise
    from rig.recording.reader import open_run
    from rig.recording.session import is_session, runs_in

    if why := torn(path, cell):
        raise IntegrityError(why, field="run", value=str(path), remedy="Without --table it is set aside and done again")
    error, result = "", None
    runs: dict[str, Run] = {}
    try:
        found = [(folder, purpose, open_run(folder)) for folder, purpose in runs_in(path)]
        runs = {folder.relative_to(path).as_posix(): run for folder, _, run in found}
        parts = [Part(folder.name, purpose, run, evaluate(run)) for folder, purpose, run in found]
        result = summarise(path.name, parts) if is_session(path) else parts[0].result
    except IntegrityError:
        raise
    except RigError as caught:
        error = f"{type(caught).__name__}: {caught.message}"
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    starts = [run.start for run in runs.values()]
    return Row(
        key=cell.key,
        figures_by=figures_by(),
        sizes=sizes(path),
        runs={name: run.digest for name, run in runs.items()},
        content_sha256=content_digest(list(runs.values())),
        created_utc=str(starts[0].get("created_utc", "")) if starts else "",
        verdict="" if result is None or result.validity is None else result.validity.verdict,
        simulated=any(i.get("mode") != "hardware" for start in starts for i in [start["device"], *start["meters"]]),
        refusals=0 if result is None else len(result.refusals),
        error=error,
        figures=() if result is None else tuple(_figure(key, q) for key, q in result.quantities.items()),
        seconds=seconds,
    )


def _figure(key: FigureKey, q: Quantity) -> Figure:
    try:
        half = q.half_width()
    except OverflowError:
        half = math.inf
    stated = math.isfinite(half) and half > 0.0
    return Figure(key, float(q.value) if math.isfinite(q.value) else None, float(half) if stated else None)


def content_digest(runs: list[Run]) -> str:
    """SHA-256 of what was measured: every event and every file's hash, without when, where and by which command.

    Two recordings of one simulated cell have the same; their run digests differ.
    """
    total = hashlib.sha256()
    for run in runs:
        for event in run.events:
            kept: Mapping[str, Any] = {k: v for k, v in event.items() if k not in VOLATILE}
            total.update(json.dumps(kept, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


@cache
def figures_by() -> str:
    """SHA-256 of what a figure depends on beside the recording: the sources of the analysis, numpy and scipy."""
    rig = Path(__file__).parents[1]
    sources = [*(rig / "analysis").rglob("*.py"), *(rig / "recording").rglob("*.py"), rig / "types.py"]
    total = hashlib.sha256()
    for path in sorted(sources):
        total.update(path.relative_to(rig).as_posix().encode() + path.read_bytes())
    for package in ("numpy", "scipy"):
        try:
            total.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            total.update(package.encode())
    return total.hexdigest()
