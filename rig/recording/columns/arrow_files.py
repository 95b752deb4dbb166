"""Append whole batches to the Arrow streams of a run directory, and hash the files while they are written."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from rig.errors import StoreError
from rig.recording.columns.arrow_stream import END, Column, batch, opening
from rig.recording.disk.files import Folder
from rig.recording.disk.full_disk import MAKE_ROOM, Hashed, unwritable

CHECK_DRIVER = "Check what the driver delivers. What came before is kept"


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work in short steps. The caller does each step between two samples, so that the work delays no sample."""


def to_the_end(steps: Steps[T]) -> T:
    """Do all remaining steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


class _Stream(NamedTuple):
    file: Hashed
    types: dict[str, str]
    known: dict[str, Column]
    """The dictionaries that were written last, by the names of their columns."""


class ArrowFiles:
    """The streams of one run. Two threads may append at the same time, but not to the same file."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._streams: dict[str, _Stream] = {}
        self._digests: dict[str, str] = {}
        self.meta: dict[str, Mapping[str, str]] = {}
        """By file, the metadata of its schema."""
        self.full: set[str] = set()
        """Files to which a write failed; each ends with its last whole batch."""

    def append(self, name: str, make: Callable[[], dict[str, Column]]) -> StoreError | None:
        """Write a batch to the file ``name`` unless it is in ``full``; return the error or None."""

        def made() -> Steps[dict[str, Column]]:
            return make()
            yield

        return to_the_end(self.appending(name, made()))

    def appending(self, name: str, making: Steps[dict[str, Column]]) -> Steps[StoreError | None]:
        """Do what ``append`` does in steps: first the steps of ``making``, which makes the batch, then the write."""
        try:
            columns = yield from making
            yield
            if name in self.full:
                return None  # the first failure was already reported
            file, _, known = self._stream(name, columns)
            data = batch(columns, known)
            yield
            file.write(data)
            known.update({name: column.texts for name, column in columns.items() if column.texts})
        except (OSError, TypeError, ValueError, OverflowError, MemoryError) as error:
            disk = isinstance(error, OSError)
            if disk:
                self._end(name)
            return unwritable(f"a batch of {name}", error, MAKE_ROOM if disk else CHECK_DRIVER)
        return None

    def check_there(self) -> None:
        """Raise ``StoreError`` if another program removed a file while it was written."""
        gone = [name for name in self._streams if self._folder.stat(name) is None]
        if gone:
            remedy = "Measure again, and leave the directory alone meanwhile"
            raise StoreError(f"{gone[0]} was removed while it was recorded", field="out", value=gone[0], remedy=remedy)

    def finished(self) -> dict[str, str]:
        """Sync and close every file. Return by name the SHA-256 that was computed while the file was written.

        A file whose length differs from the number of hashed bytes is left out. Raises ``OSError``.
        """
        for name, (file, *_) in self._streams.items():
            with suppress(OSError):  # the reader accepts a stream without an end mark
                file.write(END)
            os.fsync(file.fileno())
            self._close(name, file)
        self._streams.clear()
        return self._digests

    def close(self) -> None:
        """Close the files without end marks, as after a crash."""
        for file, *_ in self._streams.values():
            with suppress(OSError):  # a driver may have closed it, and the first error is more useful
                file.close()
        self._streams.clear()

    def _stream(self, name: str, columns: Mapping[str, Column]) -> _Stream:
        types = {field: column.type for field, column in columns.items()}
        if name not in self._streams:
            first = opening(columns, self.meta.get(name, {}))
            self._streams[name] = _Stream(Hashed(self._folder, name), types, {})
            self._streams[name].file.write(first)
        elif types != (before := self._streams[name].types):
            raise TypeError(f"its columns are {types}, and before they were {before}")
        return self._streams[name]

    def _end(self, name: str) -> None:
        """End a file after its last whole batch, so that no batch follows a gap."""
        self.full.add(name)
        if name in self._streams:
            file = self._streams.pop(name).file
            with suppress(OSError):
                file.truncate(file.hashed)
            with suppress(OSError):
                self._close(name, file)

    def _close(self, name: str, file: Hashed) -> None:
        if os.fstat(file.fileno()).st_size == file.hashed:
            self._digests[name] = file.sha256.hexdigest()
        file.close()
