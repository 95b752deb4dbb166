"""Carry out a sweep: record the open cells, then compute the missing rows; show the progress and the time left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rig import errors
from rig.engine.interrupts import ENDING, on_signals
from rig.errors import Interrupted, RigError, SetupError, UsageError
from rig.plugins import digests_of
from rig.recording.anonymise import without_place
from rig.recording.disk.files import set_aside
from rig.recording.events import changed
from rig.recording.read_events import read_log
from rig.recording.session_json import runs_in
from rig.session.locks import Say, locked
from rig.session.trusted_requests import cache_dir
from rig.status_line import StatusLine
from rig.sweep.cells import Outcome, Task
from rig.sweep.grid import Cell, cells_of, in_order
from rig.sweep.pool import Brake, spread
from rig.sweep.row_of_cell import kept_row
from rig.sweep.sweep_folder import Frozen, failure_of, place_of, state_of, torn
from rig.terminal import command, say


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count() or 1


@dataclass(frozen=True)
class Means:
    """How to carry out a sweep. ``jobs`` cells run at once; None means one per core, or one if none may overlap."""

    jobs: int | None = None
    scheduler: str | None = None
    wait: bool = True
    retry_failed: bool = False
    cores: int = field(default_factory=available_cores)

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 0:
            raise UsageError(f"{self.jobs} jobs", field="jobs", value=self.jobs, remedy="Give 0 or more")

    @property
    def row_jobs(self) -> int:
        """Return how many rows are computed at once."""
        return self.cores if self.jobs is None else self.jobs


def work_off(folder: Path, grids: Sequence[Frozen], means: Means) -> list[Cell]:
    """Record every open cell and compute every missing row; return all cells.

    Raises ``Interrupted`` after Ctrl-C or a signal of ``ENDING``, ``SetupError`` if another process works on the sweep
    or the workers cannot work, ``StoreError`` if nothing can be written. Finished cells are kept.
    """
    cells = cells_of(entry.grid for entry in grids)
    cache_dir("rows")  # a cell without a place for its row would be measured in vain
    with locked(folder / ".lock", f"the sweep {folder}", wait=False), _braking(means.jobs == 0) as brake:
        _sort_out(folder, cells, means.retry_failed)
        states = {cell.key: state_of(folder, cell) for cell in cells}
        left = [cell for cell in in_order(cells) if states[cell.key] == "open"]
        if left and (mixed := changed_in(folder, cells, left)):
            what = f"{', '.join(mixed)} changed since cells were recorded: the table then mixes two versions"
            say(f"{what}. Begin a new sweep if the change concerns the measured work", error=True)
        progress = Progress(len(cells), [cell.key for cell in left], list(states.values()).count("failed"))
        try:
            with suppress(KeyboardInterrupt):  # of this brake, between two recordings
                for exclusive in (True, False):
                    _record(folder, [cell for cell in left if cell.exclusive is exclusive], means, brake, progress)
                if brake.level == 0:
                    compute_rows(folder, cells, means.row_jobs, brake, progress.say)
        finally:
            progress.end()
        if brake.level:
            done = sum(state_of(folder, cell) == "done" for cell in cells)
            remedy = f"Continue with: {command('sweep', folder)}"
            raise Interrupted(f"interrupted with {done} of {len(cells)} cells done", remedy=remedy)
        if missing := sum(state_of(folder, cell) == "open" for cell in cells):
            what = f"{missing} of {len(cells)} cells are missing now"
            raise SetupError(what, field="out", value=str(folder), remedy="Give the same command again to measure them")
    return cells


def changed_in(folder: Path, cells: Sequence[Cell], left: Sequence[Cell] = ()) -> list[str]:
    """Return what has several versions in the recordings, and in the user's own files for the cells ``left``."""
    codes = [digests_of(cell.request(place_of(folder, cell)).code) for cell in left]
    found = [{without_place(file): digest for file, digest in code.items()} for code in codes]
    for place in (place_of(folder, cell) for cell in cells):
        with suppress(RigError):  # an open cell has no recording; a damaged one is noticed where its row is computed
            found += [read_log(path).start.versions for path, _ in runs_in(place)]
    return changed(found)


def compute_rows(folder: Path, cells: Sequence[Cell], jobs: int, brake: Brake, say: Say, mend: bool = True) -> None:
    """Compute the row of every done cell without a row.

    With ``mend``, a cell with an altered recording is opened again. Raises ``IntegrityError`` for it without ``mend``,
    and ``SetupError`` if the estimators change meanwhile.
    """
    missing = [c for c in cells if state_of(folder, c) == "done" and kept_row(folder, c) is None]
    if missing:
        say(f"computing the figures of {len(missing)} cell{'s' * (len(missing) > 1)}")
    tasks = [Task("row", str(folder), cell, mend=mend) for cell in missing]
    with closing(spread(tasks, jobs, brake, say, quiet_cores=True)) as outcomes:
        for outcome in outcomes:
            if outcome is not None and outcome.state == "again":
                say(f"{outcome.key} differs from what was recorded; it was set aside and will be measured again")
            elif outcome is not None:
                _stop_if_halted(outcome)
    if brake.level == 0 and any(place_of(folder, c).exists() and kept_row(folder, c) is None for c in missing):
        what = "the estimators were changed while figures were computed"
        remedy = f"What is recorded is kept; make the table with: {command('sweep', folder, '--table')}"
        raise SetupError(what, field="figures", value=str(folder), remedy=remedy)


def _sort_out(folder: Path, cells: Sequence[Cell], retry: bool) -> None:
    """Set incomplete recordings aside, and with ``retry`` also failures."""
    for cell in cells:
        place = place_of(folder, cell)
        if place.exists() and (why := torn(place, cell)):
            say(f"{why}; it was set aside and is recorded again", error=True)
            set_aside(folder, place, cell.key)
        if retry and failure_of(folder, cell).exists():
            set_aside(folder, failure_of(folder, cell), cell.key)


def _record(folder: Path, cells: Sequence[Cell], means: Means, brake: Brake, progress: Progress) -> None:
    if not cells or brake.level:
        return
    exclusive = cells[0].exclusive
    jobs = means.jobs if means.jobs is not None else 1 if exclusive else min(means.cores, len(cells))
    if means.scheduler is not None and exclusive:
        progress.say(f"{len(cells)} cells need exclusive use of their device and are measured here, not on the cluster")
    tasks = [Task("cell", str(folder), cell, means.wait) for cell in cells]
    if means.scheduler is not None and not exclusive:
        from rig.sweep.dask import over_cluster

        outcomes = over_cluster(tasks, means.scheduler, brake, progress.say)
    else:
        outcomes = spread(tasks, jobs, brake, progress.say, quiet_cores=not exclusive)
    asked = 0
    with closing(outcomes):
        for outcome in outcomes:
            if brake.level > asked:
                asked = brake.level
                gently = "finishing the cells in progress; press Ctrl-C again to interrupt them"
                progress.say(gently if asked == 1 else "interrupting the cells in progress")
            if outcome is not None:
                _stop_if_halted(outcome)
                if outcome.state == "interrupted":
                    brake.level = max(brake.level, 1)
                progress.note(outcome)
            progress.show()


def _stop_if_halted(outcome: Outcome) -> None:
    """Raise the error of an outcome that ends the sweep, with its original type."""
    if outcome.state == "halted":
        sent = outcome.error or {}
        error: RigError = RigError.__new__(getattr(errors, str(sent.get("error")), SetupError))
        given = {"field": str(sent.get("field", "")), "remedy": str(sent.get("remedy", ""))}
        RigError.__init__(error, str(sent.get("message")), value=sent.get("value"), **given)
        raise error


@contextmanager
def _braking(here: bool) -> Iterator[Brake]:
    """Yield a brake that Ctrl-C sets to level 1, and a second Ctrl-C or a signal of ``ENDING`` to level 2.

    If this process records the cells itself (``here``), level 2 also raises ``KeyboardInterrupt``.
    """
    brake = Brake()

    def slower(number: int, _: object) -> None:
        brake.level = 2 if number in ENDING else min(brake.level + 1, 2)
        if here and brake.level == 2:
            raise KeyboardInterrupt

    with on_signals(slower, signal.SIGINT, *ENDING):
        yield brake


class Progress:
    """Counts outcomes, and estimates the time left from the time of the cells that have ended.

    ``left`` names the open cells of ``total``, and ``failed`` is the number of cells that failed before.
    """

    def __init__(self, total: int, left: Sequence[str], failed: int) -> None:
        self._total, self._left, self._failed = total, set(left), failed
        self._open, self._began_s = len(left), time.monotonic()
        self._live = StatusLine()

    def note(self, outcome: Outcome) -> None:
        """Count a cell that is done or has failed."""
        if outcome.key in self._left and outcome.state in ("done", "failed"):
            self._left.discard(outcome.key)
            if outcome.state == "failed":
                self._failed += 1
                self.say(f"{outcome.key} failed: {(outcome.error or {}).get('message')}")

    def left_s(self) -> float | None:
        """Return the seconds that the open cells may take; None before the first has ended."""
        ended = self._open - len(self._left)
        return (time.monotonic() - self._began_s) / ended * len(self._left) if ended else None

    def show(self) -> None:
        """Show the progress of the sweep, if an update is due."""
        failed = f", {self._failed} failed" if self._failed else ""
        left_s = self.left_s()
        rest = f"; about {span(left_s)} left" if left_s is not None else ""
        if self._left:
            self._live.pace(f"{self._total - len(self._left)}/{self._total} cells{failed}{rest}")

    def say(self, text: str) -> None:
        self._live.clear()
        say(text, error=True)

    def end(self) -> None:
        self._live.clear()


def span(seconds: float) -> str:
    """Return a readable time: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
