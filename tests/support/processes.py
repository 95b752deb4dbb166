"""Python in a process of its own, such as the command line of the rig."""

import os
import subprocess
import sys
from typing import Any

from tests.support.paths import ROOT

MAIN = "import sys; from rig.commands.shell.main import main; sys.exit(main())"
"""The program of the command line, which takes its words from ``sys.argv``."""


def begun(program: str, *words: object, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
    """Start a program on this repository, with more in its environment; what it prints is kept as text."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
    around = os.environ | {"PYTHONPATH": str(ROOT)} | (env or {})
    return subprocess.Popen([sys.executable, "-c", program, *map(str, words)], env=around, **given)


def python(program: str, *words: object, timeout: float = 300.0, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and what it printed."""
    with begun(program, *words, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()  # a broken program fails its test instead of waiting for ever
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def options(*texts: str) -> list[str]:
    """Return the words of a command line that give these options."""
    return [word for text in texts for word in ("--option", text)]
