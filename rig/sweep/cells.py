"""Record one cell of a sweep: lock it, record it in ``pending/``, and move the complete recording to ``cells/``.

If a process dies before the move, the cell stays open. The next process finds the partial recording in ``pending/``.
Two processes never record the same cell, or use the same exclusive device, at the same time.
"""

import gc
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from rig.errors import DeviceError, IntegrityError, RigError, StoreError
from rig.recording.disk.files import not_stored, set_aside, unwritten
from rig.session.locks import Say, claimed, device_lock
from rig.session.setup import which_of
from rig.sweep.grid import Cell, texts
from rig.sweep.row_of_cell import keep_row, one_thread
from rig.sweep.sweep_folder import PENDING, desk_of, error_of, keep, note_failure, place_of, put, state_of, torn


class Task(msgspec.Struct, frozen=True):
    """A worker's task in a sweep's directory: to record a cell, or to compute the row of a done cell."""

    what: Literal["cell", "row"]
    folder: str
    cell: Cell
    wait: bool = True
    rows: bool = False
    """Whether to compute the row of a recorded cell even if linear algebra uses several threads."""
    mend: bool = True
    """Whether to set an altered recording aside, rather than stop, when its row is to be computed."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a task.

    In the state ``halted``, the sweep must end, for example because a write failed or the device is in use. In the
    state ``again``, the recording was altered and is set aside, so the cell is open again.
    """

    key: str
    state: Literal["done", "failed", "interrupted", "halted", "again"]
    error: dict[str, Any] | None = None


def perform(task: Task, say: Say | None = None) -> Outcome:
    """Do one task. A ``RigError`` or ``OSError`` becomes the outcome; a Ctrl-C only if it comes in a recording."""
    folder, cell = Path(task.folder), task.cell
    try:
        if task.what == "row":
            return _row(folder, cell, task.mend, say)
        with claimed(desk_of(folder, cell), f"cell {cell.key}", say) as desk:
            return _cell(task, folder, desk, say)
    except OSError as error:
        return Outcome(cell.key, "halted", error=not_stored(folder, unwritten(error)).to_json())
    except RigError as error:
        return Outcome(cell.key, "halted", error=error.to_json())


def give_up(task: Task, what: str) -> Outcome:
    """Note that the task's cell failed because its workers died, and set its incomplete recording aside."""
    folder, cell = Path(task.folder), task.cell
    error = DeviceError(what, field="cell", value=cell.key, remedy="Correct the driver")
    with claimed(desk_of(folder, cell), f"cell {cell.key}") as desk:
        return _failed(folder, cell, desk / cell.key, error.to_json())


def _cell(task: Task, folder: Path, desk: Path, say: Say | None) -> Outcome:
    cell, work = task.cell, desk / task.cell.key
    known = state_of(folder, cell)
    if known != "open":  # another process recorded it meanwhile
        return Outcome(cell.key, known, error=error_of(folder, cell) if known == "failed" else None)
    # the runs of a session may be complete although the session is not
    if work.exists() and (cell.mode == "session" or torn(work, cell)):
        set_aside(folder, work, cell.key)
    if not work.exists():
        which = which_of(cell.device, texts(cell.options)) if cell.exclusive else ""
        with device_lock(cell.device, task.wait, say, which) if cell.exclusive else nullcontext():
            if (ended := _record(folder, cell, work)) is not None:
                return ended
    try:
        if one_thread() or task.rows:
            keep_row(work, cell)
    except IntegrityError as error:
        return _failed(folder, cell, work, error.to_json())
    if not put(folder, work, place_of(folder, cell)):
        set_aside(folder, work, cell.key)
    return Outcome(cell.key, "done")


def _record(folder: Path, cell: Cell, work: Path) -> Outcome | None:
    """Record a cell into ``work``; return its outcome if recording did not end well."""
    from rig.session.measure import measure

    gc.collect()  # or the devices of many cells, with their models, stay in memory: their references form a cycle
    try:
        measure(cell.request(work), quiet=True)
    except KeyboardInterrupt:
        if work.exists():
            set_aside(folder, work, cell.key)
        return Outcome(cell.key, "interrupted")
    except RigError as error:
        if not _writable(folder):
            raise
        return _failed(folder, cell, work, error.to_json())
    except Exception as error:
        known = RigError(str(error), value=repr(error), remedy="This is a bug in a driver or in the rig")
        return _failed(folder, cell, work, known.to_json() | {"error": type(error).__name__})
    return None


def _failed(folder: Path, cell: Cell, work: Path, error: Mapping[str, Any]) -> Outcome:
    recording = set_aside(folder, work, cell.key) if work.exists() else None
    said = {**error, "remedy": str(error.get("remedy", "")).replace(str(work), str(recording))}
    note_failure(folder, cell, said, recording)
    return Outcome(cell.key, "failed", error=said)


def _row(folder: Path, cell: Cell, mend: bool, say: Say | None) -> Outcome:
    place = place_of(folder, cell)
    try:
        keep_row(place, cell)
    except IntegrityError:
        if not mend:
            raise
        with claimed(desk_of(folder, cell), f"cell {cell.key}", say):
            set_aside(folder, place, cell.key)
        return Outcome(cell.key, "again")
    return Outcome(cell.key, "done")


def _writable(folder: Path) -> bool:
    """Return whether a file can be written; if not, the disk is full, and the cell itself has not failed."""
    probe = folder / PENDING / ".probe"
    try:
        keep(folder, probe, b"\0" * 65536)
    except StoreError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return True
