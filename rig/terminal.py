"""The one place where text goes to the terminal: without control characters, which a terminal would obey.

Names in recordings, messages of drivers and names of plug-ins are written by others.
"""

from __future__ import annotations

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


def say_json(document: str) -> None:
    """Print one JSON document, whose text is ASCII."""
    sys.stdout.write(f"{document}\n")


def _short(line: str) -> str:
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"
