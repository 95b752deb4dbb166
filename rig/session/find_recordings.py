"""Find recordings by a path, or by a part of their name below ``runs/``."""

import time
from pathlib import Path

from rig.errors import UsageError, refused
from rig.recording.layout import EVENTS
from rig.recording.session_json import FILE, REQUEST
from rig.session.default_out import RUNS
from rig.terminal import say

MOST = 10
"""At most this many recordings are listed."""


def recordings_in(folder: Path = RUNS) -> list[Path]:
    """Return the sessions and runs in a folder, newest first."""
    inside = folder.iterdir() if folder.is_dir() else ()
    found = {path: time_s for path in inside if (time_s := _recorded_s(path)) is not None}
    return sorted(found, key=lambda path: -found[path])


def unfinished_in(folder: Path = RUNS) -> list[Path]:
    """Return the sessions in a folder that can be resumed, newest first."""
    return [path for path in recordings_in(folder) if (path / REQUEST).is_file()]


def meant(path: Path) -> Path:
    """Return ``path`` if it exists, or else the only recording in ``runs/`` whose name equals or contains ``path``.

    If no name matches, return ``path``. If several names match, print them and raise ``UsageError``.
    """
    if path.exists() or path.is_absolute():
        return path
    known = [one for one in recordings_in() if path.name == str(path) and path.name in one.name]
    exact = [one for one in known if one.name == path.name]
    if len(found := exact or known) > 1:
        raise several(found, str(path), f"{path} may be one of {len(found)} recordings")
    return found[0] if found else path


def one_of(path: Path) -> Path:
    """Return ``path``, unless it is a folder of recordings: then print them and raise ``UsageError``."""
    inside = [] if _recorded_s(path) is not None else recordings_in(path)
    if inside:
        lost = "" if any((one / FILE).is_file() for one in inside) else f" and no {FILE} that binds them"
        raise several(inside, str(path), f"{path} holds {len(inside)} recordings{lost}")
    return path


def several(found: list[Path], given: str, what: str) -> UsageError:
    """Print the possible recordings, newest first; return the error that asks the user to name one."""
    say(*(f"  {path}, {ago(path)}" for path in found[:MOST]), error=True)
    say(*([f"  and {len(found) - MOST} older"] if len(found) > MOST else []), error=True)
    return refused("path", given, f"Name one of them, such as {found[0]}", what)


def _recorded_s(path: Path) -> float | None:
    """Return when a recording was last written, in seconds of the system's clock; None if it is no recording."""
    times = [file.stat().st_mtime for name in (FILE, EVENTS) if (file := path / name).is_file()]
    return max(times, default=None)


def ago(path: Path) -> str:
    """Return in words how long ago a recording was last written."""
    s = time.time() - (_recorded_s(path) or 0.0)
    size, unit = next((pair for pair in ((86400, "d"), (3600, "h"), (60, "min")) if s >= pair[0]), (1, "s"))
    return f"{s / size:.0f} {unit} ago"
