"""The picture of the terminal in the README, made by running its commands on the simulated bench.

``python -m tests.support.terminal_picture`` writes ``docs/images/terminal.svg``. A test makes it again and compares.
"""

import io
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rig.commands.shell.main import main
from tests.support.paths import DOCS

PICTURE = DOCS / "images" / "terminal.svg"
COMMANDS = ("rig check --device mock", "rig measure --device mock --option samples=20 --out runs/first")
WIDTH = 92


def picture() -> str:
    """Return the SVG of the commands and their output, without external fonts."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        for command in COMMANDS:
            with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()):
                assert main(command.split()[1:]) == 0
            console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
            console.print(Text.from_ansi(said.getvalue().rstrip("\n")))
    svg = console.export_svg(title="a simulated bench", unique_id="rig")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def told(svg: str) -> str:
    """Return the picture without the digest, which differs between two recordings."""
    return re.sub(r"[0-9a-f]{64}", "0" * 64, svg)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
