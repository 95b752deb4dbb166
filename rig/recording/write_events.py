"""Write ``events.jsonl``: hashes chain the lines."""

import errno
import hashlib
import os
import sys
from contextlib import suppress

import msgspec

from rig.recording.anonymise import without_identity
from rig.recording.disk.decoding import decode
from rig.recording.disk.files import Folder, Opened, storing
from rig.recording.disk.full_disk import MAKE_ROOM, ROOM_BYTES, Whole, unwritable
from rig.recording.disk.size_limits import EVENTS_BYTES, check_line
from rig.recording.events import Line, Note, Start, Stop, plain
from rig.recording.layout import EVENTS, GENESIS, SEAL


class Chain:
    """Writes the lines of one run. Without ``keep_identity``, home directories and names of hosts are removed."""

    def __init__(self, folder: Folder, keep_identity: bool) -> None:
        self._folder, self._keep_identity = folder, keep_identity
        self._last, self._next = (0, GENESIS), (0, (0, GENESIS))
        # only a new file, because the lines of two writers would break both chains
        self._file = Whole(EVENTS, "ab", opener=lambda name, flags: folder.open(name, flags | os.O_EXCL))

    def append(self, event: Line) -> None:
        """Append one line, chained to the line before by its SHA-256.

        Raises ``StoreError``, also for a line that readers would refuse.
        """
        self._counted()
        seq, prev = self._last
        line = line_of(event, self._keep_identity, seq, prev)
        end = self._file.tell()
        try:
            if not isinstance(event, Stop):
                _within_limit(end + len(line) + ROOM_BYTES)
            self._next = end + len(line) + 1, (seq + 1, hashlib.sha256(line).hexdigest())
            self._file.write(line + b"\n")
        except OSError as error:
            with suppress(OSError):  # a partial line would break the chain to the stop line
                self._file.truncate(end)
            raise unwritable(str(self._folder.path / EVENTS), error, MAKE_ROOM) from error
        self._counted()

    def _counted(self) -> None:
        """Count the newest line if it is in the file: an interruption may come after its write, before its count."""
        end, last = self._next
        if self._file.tell() >= end:
            self._last = last

    def seal(self, stop: Stop) -> None:
        """Write the last line, and then the seal. Raises ``OSError`` or ``StoreError``."""
        self.append(stop)
        os.fsync(self._file.fileno())
        self._file.close()
        digest = Opened(self._folder, EVENTS).sha256()
        with storing(self._folder.path / SEAL):
            self._folder.write(SEAL, f"{digest}  {EVENTS}\n".encode(), sync=True)

    def close(self) -> None:
        """Close the file without a last line."""
        with suppress(OSError):  # a driver may have closed it, and the first error is the more useful one
            self._file.close()


def line_of(event: Line, keep_identity: bool, number: int = 0, previous: str = GENESIS) -> bytes:
    """Return the bytes of a line as they are written.

    NaN and infinity are written as null, because JSON has no form for them. Raises ``StoreError``, also for a line that
    readers would refuse.
    """
    type_ = str(event.__struct_config__.tag)
    try:
        body = msgspec.json.encode(event, enc_hook=plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise unwritable(f"the {type_} line", error, "Give plain numbers, texts, lists and objects") from error
    if not keep_identity and isinstance(event, (Start, Note, Stop)):
        body = without_identity(body.decode()).encode()
    line = b'{"seq":%d,"prev":"%s",' % (number, previous.encode()) + body[1:]
    check_line(line, number)
    decode(line, type_, number)
    return line


def _within_limit(size: int) -> None:
    """Raise ``OSError`` if a file of this size would exceed the limit of this process or of a reader."""
    if size > EVENTS_BYTES:
        raise OSError(errno.EFBIG, f"a reader takes {EVENTS_BYTES} bytes at most")
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if 0 <= limit < size:
            raise OSError(errno.EFBIG, f"files of this process may hold {limit} bytes at most")
