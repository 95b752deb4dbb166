"""The row of a cell: its figures, computed from its recording alone and kept in the user's cache.

The file name of a row is a digest of the cell, the recording's seal and the estimators. A row is never read from the
sweep's directory, because others may have written it. The last bits of a figure depend on the number of threads of
linear algebra. Rows are therefore computed with one thread (``one_thread``), except with ``--jobs 0``, so that the same
recordings have the same rows.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from rig.analysis.result.quantity import FigureKey, Quantity
from rig.errors import IntegrityError, RigError
from rig.recording.disk.size_limits import read_bounded
from rig.recording.reader import Run
from rig.session.trusted_requests import cache_dir
from rig.sweep.grid import Cell, digest
from rig.sweep.sweep_folder import keep, place_of, seal_of, torn

ESTIMATORS = ("analysis", "bench", "network", "recording")
"""The packages whose files count as estimators, beside the modules at the root of ``rig``."""
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
VOLATILE = ("run_id", "created_utc", "argv", "environment", "seq", "prev")
"""Fields of lines in which two recordings of one simulated cell differ."""


class Figure(msgspec.Struct, frozen=True):
    """One figure of a row: its value, and the half-width of its 95 % interval; each is None if it is not finite.

    The half-width is also None if it is 0. ``whole`` is the result of ``Quantity.to_json``, if the interval is stated.
    """

    key: FigureKey
    value: float | None
    half_width: float | None
    whole: dict[str, Any] | None = None


class Row(msgspec.Struct, frozen=True):
    """The table's entries for one recorded cell. ``runs`` has the digest of each run by its directory."""

    runs: dict[str, str]
    content_sha256: str
    created_utc: str
    verdict: str
    simulated: bool
    refusals: int
    error: str
    figures: tuple[Figure, ...]


def one_thread() -> bool:
    """Return whether the linear algebra of this process has one thread."""
    return all(os.environ.get(name) == value for name, value in THREADS.items())


def row_path(path: Path, cell: Cell) -> Path:
    """Return the file for the row of the recording ``path``. Raises ``OSError`` for a recording without a seal."""
    seal = read_bounded(seal_of(path))
    return cache_dir("rows") / f"{digest([cell.key, seal.hex(), figures_by()])}.json"


def kept_row(folder: Path, cell: Cell) -> Row | None:
    """Return the kept row of a cell, or None. It is found by the seal of the recording; no file is verified."""
    try:
        return msgspec.json.decode(read_bounded(row_path(place_of(folder, cell), cell)), type=Row)
    except (OSError, msgspec.DecodeError):
        return None


def verified_row(folder: Path, cell: Cell) -> Row | None:
    """Verify every file of a cell's recording, and return the kept row. Raises ``IntegrityError``."""
    check_whole(place_of(folder, cell), cell)
    return kept_row(folder, cell)


def keep_row(path: Path, cell: Cell) -> None:
    """Compute and keep the row of the recording ``path``. Raises ``IntegrityError`` if it is not whole."""
    target = row_path(path, cell)
    keep(target.parent, target, msgspec.json.encode(row_of(path, cell)) + b"\n")


def check_whole(path: Path, cell: Cell) -> None:
    """Check that ``path`` is the whole recording of a cell. Raises ``IntegrityError``."""
    if why := torn(path, cell):
        remedy = "Run the sweep without --table: the cell is then set aside and measured again"
        raise IntegrityError(why, field="run", value=str(path), remedy=remedy)


def row_of(path: Path, cell: Cell) -> Row:
    """Read, verify and evaluate a run directory or session as `rig report` does, and return its row."""
    from rig.analysis.evaluate import evaluate
    from rig.analysis.sessions.part import Part
    from rig.analysis.sessions.summary import summarise
    from rig.recording.reader import open_run
    from rig.recording.session_json import is_session, runs_in

    check_whole(path, cell)
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
        runs={name: run.digest for name, run in runs.items()}, content_sha256=content_digest(list(runs.values())),
        created_utc=starts[0].created_utc if starts else "", verdict="" if result is None else result.verdict,
        simulated=any(start.simulated for start in starts), refusals=0 if result is None else len(result.refusals),
        error=error, figures=() if result is None else tuple(_figure(k, q) for k, q in result.quantities.items()),
    )  # fmt: skip


def _figure(key: FigureKey, q: Quantity) -> Figure:
    try:
        half = q.half_width()
    except OverflowError:
        half = math.inf
    stated = math.isfinite(half) and half > 0.0
    value = float(q.value) if math.isfinite(q.value) else None
    whole = q.to_json() if q.stated and value is not None and math.isfinite(half) else None
    return Figure(key, value, float(half) if stated else None, whole)


def content_digest(runs: list[Run]) -> str:
    """Return the SHA-256 of what was measured: all events and file hashes, except time, machine and command.

    It is the same for two recordings of one simulated cell; their run digests differ.
    """
    total = hashlib.sha256()
    for run in runs:
        for line in run.lines:
            kept: Mapping[str, Any] = {k: v for k, v in json.loads(line).items() if k not in VOLATILE}
            total.update(json.dumps(kept, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


@cache
def figures_by() -> str:
    """Return the SHA-256 of the estimators: their source files, and the versions of numpy and scipy."""
    total, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in estimator_sources():
        total.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    for package in ("numpy", "scipy"):
        total.update(f"{package} {version(package)}".encode())
    return total.hexdigest()


def estimator_sources() -> list[Path]:
    """Return the files of the packages that make figures, of the modules at the root, and this file."""
    root = Path(__file__).parents[1]
    packages = (file for name in ESTIMATORS for file in root.glob(f"{name}/**/*.py"))
    return sorted([Path(__file__), *root.glob("*.py"), *packages])
