"""Print text on the terminal without control characters, which a terminal would execute.

Names in recordings, messages of drivers and names of plug-ins are written by others. Live displays use ``clean``.
"""

import errno
import io
import os
import stat
import sys
import textwrap
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

MOST = 20_000
"""A line of text is cut to this many characters; JSON is printed whole."""


def clean(text: object) -> str:
    """Return text as one line without control or direction characters, which a terminal or an XML reader would obey."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in said)


def as_cell(value: Any) -> Any:
    """Return a value of a table; a text is cleaned, and has an apostrophe before it if a spreadsheet would run it."""
    said = clean(value) if isinstance(value, str) else value
    return f"'{said}" if isinstance(value, str) and said.startswith(("=", "+", "-", "@")) else said


def width() -> int:
    """Return ``COLUMNS``, or else the number of columns of the terminal that ``own`` writes to, or else 100."""
    with suppress(OSError, ValueError):
        return max(int(os.environ.get("COLUMNS", "0")), 0) or os.get_terminal_size(own().fileno()).columns or 100
    return 100


def wrapped(text: str, wide: int, indent: str = "  ") -> list[str]:
    """Wrap a line at ``wide`` columns without breaking words; all lines but the first are indented."""
    return textwrap.wrap(text, max(wide, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def command(*words: object) -> str:
    """Return a command of the rig, quoted for a shell."""
    import shlex

    return shlex.join(["rig", *map(str, words)])


def say(*lines: object, error: bool = False) -> None:
    """Print lines on standard output, or on standard error; a newline inside one of them becomes a space."""
    _print("".join(f"{_short(clean(line))}\n" for line in lines), sys.stderr if error else own())


def tell(text: str, *, dim: bool = False) -> None:
    """Print a line on standard error for a user who watches; if the stream accepts no text, drop the line.

    With ``dim``, a terminal shows the line dim, and replaces a progress line with it.
    """
    line = _short(clean(text))
    try:
        _print(f"\r\x1b[2K\x1b[2m{line}\x1b[0m\n" if dim and sys.stderr.isatty() else f"{line}\n", sys.stderr)
    except OSError:
        drop_full_streams()


def own() -> TextIO:
    """Return the rig's standard output, which is separate from the output of drivers while they run."""
    return _own or sys.stdout


_own: TextIO | None = None
"""The standard output of the process while ``aside`` redirects ``sys.stdout`` and its descriptor."""


@contextmanager
def aside(printed: int, *, back: bool = True) -> Iterator[None]:
    """Redirect what drivers print on standard output to a descriptor; what the rig prints is not redirected.

    Without ``back``, the redirection stays after the block, for what a driver prints when the process ends.
    """
    global _own  # noqa: PLW0603  standard output belongs to the whole process
    given, kept = sys.stdout, os.dup(1)
    given.flush()
    with suppress(OSError, ValueError):
        real = given.fileno() == 1
        _own = _text(os.dup(1), given.encoding, closefd=True) if real else given
    _own = _own or given
    os.dup2(printed, 1)
    sys.stdout = _text(1, given.encoding, of_drivers=True)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # a driver may have closed it
            sys.stdout.flush()
        if back:
            os.dup2(kept, 1)
            sys.stdout, _own = given, None
        os.close(kept)


def say_json(document: str) -> None:
    """Print one JSON document, whose text is ASCII."""
    _print(f"{document}\n", own())


def answer(document: object, *lines: object, as_json: bool = True) -> int:
    """Print the result of a command, as a JSON document or as lines, and return the exit code 0."""
    if as_json:
        import json  # lines do not need it

        say_json(json.dumps(document))
    else:
        say(*lines)
    return 0


def usable_streams() -> bool:
    """Make standard streams accept all text: a closed stream becomes a null device, and text is escaped if need be.

    If a stream stayed closed, the next opened file would get its number, and with it all output of libraries. Return
    whether a stream was closed.
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
            with suppress(OSError):
                if stream.fileno() == number:
                    setattr(sys, name, _text(number, stream.encoding))
    return closed


class _Left(io.FileIO):
    """A stream whose reader may end early, as ``head`` does; the command still returns its own exit code."""

    dropped_at: Container[int] = (errno.EPIPE,)

    def write(self, data: Any, /) -> int:
        """Write, or drop the text if nobody reads."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self.dropped_at:
                raise
            return memoryview(data).nbytes


def _text(number: int, encoding: str, *, closefd: bool = False, of_drivers: bool = False) -> TextIO:
    raw = _Left(number, "w", closefd=closefd)
    if of_drivers:  # the run goes on if a driver's output cannot be written
        raw.dropped_at = errno.errorcode
    elif stat.S_ISCHR(os.fstat(number).st_mode):  # a terminal that was closed
        raw.dropped_at = (errno.EPIPE, errno.EIO)
    by_line = of_drivers or raw.isatty() or number == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=by_line)


def drop_full_streams() -> None:
    """Redirect standard streams that accept no more text to a null device, so that the interpreter can end."""
    for stream in (own(), sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()


def _short(line: str) -> str:
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"
