"""The one place where text goes to the terminal: without control characters, which a terminal would obey.

Names in recordings, messages of drivers and names of plug-ins are written by others.
"""

from __future__ import annotations

import io
import os
import sys

MOST = 20_000
"""The longest line that is printed as text, in characters; JSON is printed whole."""


def clean(text: object) -> str:
    """Return text as one line without control or direction characters, which a terminal or an XML reader would obey."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in said)


def say(*lines: object, error: bool = False) -> None:
    """Print lines on standard output, or on standard error; a newline inside one of them becomes a space."""
    stream = sys.stderr if error else sys.stdout
    stream.write("".join(f"{_short(clean(line))}\n" for line in lines))
    stream.flush()


def tell(text: str) -> None:
    """Print a line on standard error for who watches; one that takes no more text ends nothing, and is left."""
    try:
        say(text, error=True)
    except OSError:
        drop_full_streams()


def say_json(document: str) -> None:
    """Print one JSON document, whose text is ASCII."""
    sys.stdout.write(f"{document}\n")
    sys.stdout.flush()


def usable_streams() -> bool:
    """Make standard streams take all text: a closed one is a null device, and what an encoding lacks is spelt.

    Return whether one was closed.
    The first file that is opened would else get the number of a closed stream, and what a library prints with it.
    """
    closed = False
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        closed = True
        os.set_inheritable(null, True)
    os.close(null)
    for number, name in enumerate(("stdout", "stderr"), 1):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            closed = True
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return closed


def drop_full_streams() -> None:
    """Lead a standard stream that takes no more text to a null device, so that the interpreter can end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _short(line: str) -> str:
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"
