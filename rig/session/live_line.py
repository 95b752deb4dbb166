"""One line on the terminal that shows what is being done at the moment."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rig.terminal import clean


class LiveLine:
    """A line on standard error below what is printed; nothing where standard error is not a terminal or ``quiet``."""

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
        """Take the line away, before something else is printed or at the end."""
        self._live.stop()
