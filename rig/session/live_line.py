"""One line on the terminal that shows the current activity."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rig.terminal import clean


class LiveLine:
    """A line on standard error below other output; none if ``quiet`` or if standard error is not a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.shown = console.is_interactive and not quiet
        self._live = Live(
            console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, text: str) -> None:
        """Replace the line."""
        if self.shown:
            self._live.start()
            self._live.update(Text(clean(text), no_wrap=True, overflow="ellipsis"), refresh=True)

    def clear(self) -> None:
        """Remove the line, before other output or at the end."""
        self._live.stop()
