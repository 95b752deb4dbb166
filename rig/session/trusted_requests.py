"""Note which requests this user wrote on this computer. Code that a noted request names may run again at a resume.

A note is an empty file in the user's cache. Its name is the digest of the path and content of a request file. Other
users cannot write a note. A request file that was changed, moved or copied has no note.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rig.errors import RigError
from rig.plugins import check_trusted, code_of_others
from rig.recording.disk.files import not_stored, unwritten
from rig.session.locks import own_dir

CACHE = "NEURORIG_CACHE_DIR"
FOREIGN = "no one asked for this here, so it may have come from others together with its directory"


def cache_dir(name: str) -> Path:
    """Return the user's directory ``name`` in ``NEURORIG_CACHE_DIR``, else in ``neurorig`` in the cache.

    Raises ``StoreError`` if it cannot be made, ``SetupError`` if it is a link or others own it or can write it.
    """
    named = os.environ.get(CACHE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    folder = (Path(named) if named else user / "neurorig") / name
    try:
        return own_dir(folder.expanduser(), CACHE)
    except (OSError, RuntimeError) as error:  # ``expanduser`` raises RuntimeError without a home
        raise not_stored(folder, unwritten(error), f"Name a directory of your own in {CACHE}") from error


def note(file: Path, said: bytes) -> None:
    """Note that this user wrote the request in ``file``. If this fails, resuming later needs ``--trust``."""
    with suppress(RigError, OSError):
        _place(file, said).touch()


def code_of_continued(code: Sequence[str], file: Path, said: bytes) -> dict[str, str]:
    """Return the entries of ``code``, named in the request ``file``, that may come from others, and why."""
    with suppress(RigError, OSError):
        if _place(file, said).is_file():
            return code_of_others(code, file, Path())
    return dict.fromkeys(code, FOREIGN)


def check_continued(code: Sequence[str], file: Path, said: bytes, trust: bool) -> None:
    """Raise ``UsageError`` if code named in the request ``file`` may come from others, unless ``trust`` is set."""
    check_trusted(code_of_continued(code, file, said), file, trust)


def _place(file: Path, said: bytes) -> Path:
    return cache_dir("asked") / hashlib.sha256(os.fsencode(file.resolve()) + b"\0" + said).hexdigest()
