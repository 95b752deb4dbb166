"""Start the command line so that Ctrl-C during the imports prints no traceback."""

import os
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run one command as ``rig.commands.shell.main.main`` does; without ``words``, the command of the process."""
    try:
        from rig.commands.shell.main import main as run
        from rig.engine.interrupts import again

        sys.unraisablehook = again
        return run(words)
    except KeyboardInterrupt:
        os.write(2, b"rig: interrupted\n")
        return 130
