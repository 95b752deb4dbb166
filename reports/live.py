"""Progress with live watts while a run is recorded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reports.format import si
from rig.terminal import clean, say

PLAIN_EVERY_S = 5.0


@contextmanager
def live(total: int) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Return a callback for (samples done, latest reading by rail), which shows progress.

    It draws a bar on a terminal, and otherwise prints a line now and then. ``total`` is the size of the set. If a run
    goes on after it, in rounds or for a time, the callback shows the count.
    """
    if not sys.stderr.isatty():
        yield _plain(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count, rails = TextColumn("{task.fields[count]}"), TextColumn("{task.fields[rails]}")
    columns = (BarColumn(), count, TimeRemainingColumn(), rails)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("samples", total=total, count=_count(0, total), rails="")

        def show(done: int, readings: dict[str, float]) -> None:
            if done > total:
                bar.tasks[0].total = None  # update() takes None for no change
            bar.update(task, completed=done, count=_count(done, total), rails=_text(readings))

        yield show


def _plain(total: int) -> Callable[[int, dict[str, float]], None]:
    last = [time.monotonic()]

    def show(done: int, readings: dict[str, float]) -> None:
        if time.monotonic() - last[0] >= PLAIN_EVERY_S:
            last[0] = time.monotonic()
            say(f"{_count(done, total)}  {_text(readings)}", error=True)

    return show


def _count(done: int, total: int) -> str:
    return f"{done} samples" if done > total else f"{done}/{total} samples"


def _text(readings: dict[str, float]) -> str:
    return "  ".join(f"{clean(rail)} {si(value, 'W', 3)}" for rail, value in readings.items())
