"""Show the progress of a run while `rig measure` records it: one line on a terminal, otherwise a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.watch.run_status import Room, counted, room_text, some_samples, watts_text
from rig.terminal import tell

Show = Callable[[int, dict[str, float]], None]
SAY_EVERY_S = 60.0
"""Without a terminal, a run that has passed its total, or has no total, reports its progress this often (s)."""
NAME_MOST = 16
"""The longest name of a run (characters) that the line shows; for a longer name it shows "run"."""


@contextmanager
def progress(total: int, path: Path | None = None, now: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    """Yield a callback that shows progress from (samples done, latest power by rail).

    ``total`` is how many samples will come, or 0 if it is not known. If it is not known, or if more come, only the
    number of samples done is shown. ``path`` is the directory of the run: with it, the line also has the room left on
    its disk and the data that waits to be written. If standard error is no terminal, it gets a line when the run
    begins, at each tenth of the total, and when the run ends.
    """
    name = "run" if path is None else path.name
    if not sys.stderr.isatty():
        with _lines(total, name, now) as told:
            yield told
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    fields = (TextColumn(f"{{task.fields[{name}]}}") for name in ("count", "rails", "room"))
    columns = (BarColumn(bar_width=12), next(fields), TimeRemainingColumn(), *fields)
    room = None if path is None else Room(path, now)
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        run = name if len(name) <= NAME_MOST else "run"
        task = bar.add_task("samples", total=total or None, count=f"{run} {counted(0, total)}", rails="", room="")

        def show(done: int, readings: dict[str, float]) -> None:
            if done > total:
                bar.tasks[0].total = None  # update() treats None as no change
            left = "" if room is None else room_text(room.look())
            count = f"{run} {counted(done, total)}"
            bar.update(task, completed=done, count=count, rails=watts_text(readings), room=left)

        yield show


@contextmanager
def _lines(total: int, name: str, now: Callable[[], float]) -> Iterator[Show]:
    """Report progress in lines: at each tenth of the total; after the total, or if it is not known, once a minute."""
    count, tenth, began_s = 0, 0, now()
    said_s = began_s

    def told(done: int, readings: dict[str, float]) -> None:
        nonlocal count, tenth, said_s
        count, reached, at_s = done, 10 * done // max(total, 1), now()
        if tenth < reached < 10 or (done > total and at_s - said_s >= SAY_EVERY_S):
            tell(f"{name}: {counted(done, total)}, after {at_s - began_s:.0f} s")
            said_s = at_s
        tenth = max(tenth, reached)

    tell(f"{name}: begins, {some_samples(total)}" if total else f"{name}: begins")
    try:
        yield told
    except BaseException:
        tell(f"{name}: broken off, {counted(count, total)}")
        raise
    tell(f"{name}: ended, {some_samples(count)} in {now() - began_s:.1f} s")
