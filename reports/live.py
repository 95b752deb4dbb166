"""Progress with live watts while a run is recorded: one line on a terminal, and nothing where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.watching import Room, counted, room_text, watts_text

Show = Callable[[int, dict[str, float]], None]


@contextmanager
def live(total: int, path: Path | None = None, now: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    """Return a callback for (samples done, latest reading by rail), which shows progress.

    ``total`` is the size of the set. If a run goes on after it, in rounds or for a time, the line shows the count.
    ``path`` is the directory of the run: the line then says how much room is left on its disk, and what waits to be
    written there.
    """
    if not sys.stderr.isatty():
        yield lambda done, readings: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    fields = (TextColumn(f"{{task.fields[{name}]}}") for name in ("count", "rails", "room"))
    columns = (BarColumn(bar_width=12), next(fields), TimeRemainingColumn(), *fields)
    room = None if path is None else Room(path, now)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("samples", total=total, count=counted(0, total), rails="", room="")

        def show(done: int, readings: dict[str, float]) -> None:
            if done > total:
                bar.tasks[0].total = None  # update() takes None for no change
            left = "" if room is None else room_text(room.look())
            bar.update(task, completed=done, count=counted(done, total), rails=watts_text(readings), room=left)

        yield show
