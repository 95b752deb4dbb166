"""Remove what identifies a person or a host: home directories, absolute paths and host names."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePath
from typing import Any

_BEGIN, _END = r"""(?<![^\s"'=:,;(\[])""", r"""(?=[/\\"'\s:,;)\]]|$)"""
_USER = r"""(?:/home/|/Users/|[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2})[^/\\"'\s:,;)\]]+"""
_ABSOLUTE = re.compile(_BEGIN + r"""(?:/(?!dev/|sys/|proc/|/)|[A-Za-z]:[\\/])[^\s"'=:,;]+""")

_HOST_FIELD, _HOST_OPTION = re.compile(r'"(host(?:_?name)?)":"(?:[^"\\]|\\.)+"'), re.compile(r"(?<=\bhost=)\S+")
LEFT_OUT = "left out"


@cache
def _homes() -> re.Pattern[str]:
    try:
        home = str(Path.home())
    except RuntimeError:  # a user without a home directory
        home = "/"
    own = rf"{re.escape(home)}|" if home != "/" else ""
    return re.compile(f"{_BEGIN}(?:{own}{_USER}){_END}")


def without_homes(text: str) -> str:
    """Return a text in which ``~`` replaces every home directory, of this and other users.

    This also works in JSON, where a backslash is doubled.
    """
    return _homes().sub("~", text)


def without_identity(line: str) -> str:
    """Return a line of JSON without home directories, and without texts of the fields host, hostname and host_name."""
    return without_homes(_HOST_FIELD.sub(rf'"\1":"{LEFT_OUT}"', line))


def without_place(value: Any) -> Any:
    """Shorten each absolute path in a text: to ``~/...`` if it is below a home directory, else to its last part.

    The value after ``host=`` is removed, and paths below ``/dev``, ``/sys`` and ``/proc`` stay. Values that are not
    text are unchanged.
    """
    if not isinstance(value, str):
        return value
    return _ABSOLUTE.sub(lambda m: PurePath(m[0]).name, without_homes(_HOST_OPTION.sub(LEFT_OUT, value)))


def without_places(argv: Iterable[str]) -> list[str]:
    """Return a command line with ``without_place`` applied to each word; the first word keeps only its last part."""
    words = [without_place(word) for word in argv]
    return [PurePath(words[0]).name, *words[1:]] if words else []
