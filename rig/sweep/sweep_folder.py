"""The directory of a sweep: the place of each file, and whether a cell is done.

sweep.json            the grids, frozen, with their digests
cells/KEY/            one run directory (or session) of each cell that is done
failed/KEY.json       the error of each cell that failed
broken/KEY.N/         torn, failed or interrupted recordings; never deleted
pending/KEY/          the recording of a cell in progress
table.csv, runs.csv, sweep.svg
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from rig.errors import IntegrityError, RigError, SetupError, StoreError
from rig.recording import session_json as session
from rig.recording.disk.files import Folder, folder_inside, inside, not_stored, sync_to_disk, write_whole
from rig.recording.disk.size_limits import read_bounded
from rig.recording.layout import EVENTS, SEAL
from rig.recording.read_events import read_log, verified
from rig.sweep.grid import Cell, Grid, check_whole_grid, digest

SCHEMA = "neurorig-sweep/1"
FILE = "sweep.json"
CELLS, FAILED, PENDING = "cells", "failed", "pending"
State = Literal["done", "failed", "open"]


class Frozen(msgspec.Struct, frozen=True):
    """A grid in ``sweep.json``: when and by which command it was added, and its digest."""

    created_utc: str
    argv: tuple[str, ...]
    grid: Grid
    grid_sha256: str


class Document(msgspec.Struct, frozen=True):
    schema: str
    grids: tuple[Frozen, ...]


# ---- the grid -------------------------------------------------------------------------------


def is_sweep(folder: Path) -> bool:
    return (folder / FILE).is_file()


def check_empty(folder: Path) -> None:
    """Check that a sweep can begin in ``folder``. Raises ``StoreError`` if it holds other files."""
    if folder.exists() and (not folder.is_dir() or any(not p.name.startswith(".") for p in folder.iterdir())):
        what = f"{folder} is not a sweep: it has no {FILE}, and is not empty"
        remedy = "Name a new directory, or the directory of a sweep, with --out"
        raise StoreError(what, field="out", value=str(folder), remedy=remedy)


def frozen(folder: Path) -> tuple[Frozen, ...]:
    """Return the grids of a sweep. Raises ``StoreError`` without a sweep, ``IntegrityError`` for an altered one."""
    try:
        document = msgspec.json.decode(read_bounded(folder / FILE), type=Document)
    except FileNotFoundError as error:
        what = f"{folder} is not a sweep: it has no {FILE}"
        remedy = "Name the directory that `rig sweep --out` wrote"
        raise StoreError(what, field="sweep", value=str(folder), remedy=remedy) from error
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        what = f"{folder / FILE} cannot be read: {error}"
        remedy = "Restore this file; `rig report` still reads each recording"
        raise StoreError(what, field="sweep", value=str(folder), remedy=remedy) from error
    if document.schema != SCHEMA:
        what = f"{folder} has schema {document.schema!r}"
        raise StoreError(what, field="schema", value=document.schema, remedy=f"This version reads {SCHEMA}")
    for entry in document.grids:
        try:
            check_whole_grid(entry.grid, entry.grid_sha256)
        except (KeyError, ValueError) as error:
            what = f"{folder / FILE} was altered: a grid contradicts itself in {error}"
            remedy = "Restore the original; cells are added with --extend"
            raise IntegrityError(what, field="sweep", value=str(folder), remedy=remedy) from error
    return document.grids


def freeze(folder: Path, grid: Grid, argv: Iterable[str]) -> tuple[Frozen, ...]:
    """Add a grid to a sweep, or begin a sweep with it; return all its grids."""
    before = frozen(folder) if is_sweep(folder) else ()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    grids = (*before, Frozen(now, tuple(argv), grid, digest(grid)))
    content = msgspec.json.format(msgspec.json.encode(Document(SCHEMA, grids)), indent=1)
    keep(folder, folder / FILE, content + b"\n")
    return grids


# ---- the state of a cell --------------------------------------------------------------------


def place_of(folder: Path, cell: Cell) -> Path:
    """Return the place of a done cell's recording."""
    return folder / CELLS / cell.key


def desk_of(folder: Path, cell: Cell) -> Path:
    """Return where a cell is recorded until it is done. Raises ``StoreError`` if a link leads out of the sweep."""
    return inside(folder, folder / PENDING / cell.key / cell.key).parent


def failure_of(folder: Path, cell: Cell) -> Path:
    return folder / FAILED / f"{cell.key}.json"


def state_of(folder: Path, cell: Cell) -> State:
    """Return whether a cell is done, failed or open; ``torn`` checks that its recording is whole."""
    if place_of(folder, cell).exists():
        return "done"
    return "failed" if failure_of(folder, cell).exists() else "open"


def note_failure(folder: Path, cell: Cell, error: Mapping[str, Any], recording: Path | None) -> None:
    """Store a cell's error, and the place of its incomplete recording."""
    place, now = recording and recording.relative_to(folder).as_posix(), datetime.now(UTC).isoformat(timespec="seconds")
    document = {"key": cell.key, "error": dict(error), "recording": place, "created_utc": now}
    keep(folder, failure_of(folder, cell), json.dumps(document, indent=1, default=str).encode() + b"\n")


def error_of(folder: Path, cell: Cell) -> dict[str, Any]:
    """Return the error of a failed cell; if its file cannot be read, an error that says so."""
    try:
        return dict(json.loads(read_bounded(failure_of(folder, cell)))["error"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {"error": "unknown", "message": "its file cannot be read", "exit_code": StoreError.exit_code}


def outcome_of(folder: Path, cells: Iterable[Cell]) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """Return how many cells are in each state, and the error of each failed cell by its key."""
    states = [(cell, state_of(folder, cell)) for cell in cells]
    count = {known: sum(state == known for _, state in states) for known in get_args(State)}
    return count, {cell.key: error_of(folder, cell) for cell, state in states if state == "failed"}


def exit_code_of(errors: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the exit code of the first error, or 0 if there is none."""
    return next((int(error.get("exit_code") or SetupError.exit_code) for error in errors.values()), 0)


def seal_of(path: Path) -> Path:
    """Return the file that seals a run directory or session."""
    return path / (session.SEAL if session.is_session(path) else SEAL)


def torn(path: Path, cell: Cell) -> str:
    """Return why a recording cannot be used; "" if it is of this cell, sealed, without error and unaltered."""
    try:
        runs = [run for run, _ in session.runs_in(path)]
        if not seal_of(path).is_file():
            return f"{path} is not sealed"
        return next((why for run in runs if (why := _torn_run(run, cell))), "")
    except RigError as error:
        return error.message
    except OSError as error:
        return f"{path} cannot be read: {error}"


def _torn_run(run: Path, cell: Cell) -> str:
    if not (run / EVENTS).is_file() or not (run / SEAL).is_file():
        return f"{run} is not sealed"
    log = read_log(run)
    if log.start.argv[-1:] != cell.command()[-1:]:
        return f"{run} is the recording of another cell"
    if log.stop is None or log.stop.error is not None:
        return f"{run} ended with an error"
    verified(Folder.at(run), log.stop)
    return ""


# ---- whole or not at all --------------------------------------------------------------------


def put(folder: Path, work: Path, target: Path) -> bool:
    """Put a finished recording on disk and move it to its place in the sweep; return False if the place is taken."""
    inside(folder, folder_inside(folder, target.parent) / target.name)
    for path in (*work.rglob("*"), work):
        sync_to_disk(path)
    try:
        work.rename(target)
    except OSError:
        if target.exists():
            return False
        raise
    sync_to_disk(target.parent)
    return True


def keep(folder: Path, path: Path, content: bytes) -> None:
    """Write a whole file inside the directory ``folder``, and sync it to disk. Raises ``StoreError``."""
    inside(folder, folder_inside(folder, path.parent) / path.name)
    write_whole(path, content, sync=True, refuse=not_stored)
