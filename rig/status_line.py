"""One line on the terminal that says what a command does now.

`rig measure` draws the progress of its runs in another way (``reports/watch/run_progress.py``).
"""

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rig.terminal import clean, say

PLAIN_EVERY_S, TERMINAL_EVERY_S = 5.0, 0.2


class StatusLine:
    """A line on standard error below other output; if ``quiet`` or not on a terminal, ``pace`` prints whole lines."""

    def __init__(self, quiet: bool = False) -> None:
        err = Console(stderr=True)
        self.shown, self._due_s = err.is_interactive and not quiet, float("-inf")
        self._live = Live(console=err, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(self, text: str) -> None:
        if self.shown:
            self._live.start()
            self._live.update(Text(clean(text), no_wrap=True, overflow="ellipsis"), refresh=True)

    def pace(self, text: str) -> None:
        """Show progress, if an update is due: in place on a terminal, otherwise as one more line."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + (TERMINAL_EVERY_S if self.shown else PLAIN_EVERY_S)
        if self.shown:
            self.show(text)
        else:
            say(text, error=True)

    def clear(self) -> None:
        """Remove the line, before other output or at the end."""
        self._live.stop()
