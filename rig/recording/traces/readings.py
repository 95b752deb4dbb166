"""Check readings, join them, and write them to the trace files, optionally in a separate thread."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from msgspec.structs import replace

from rig.errors import DiskTooSlowError, RigError
from rig.recording.columns.arrow_files import CHECK_DRIVER, ArrowFiles
from rig.recording.columns.arrow_stream import Column
from rig.recording.columns.packing import columns_of, joined, numbers
from rig.recording.disk.full_disk import unwritable
from rig.recording.events import ChunkArrived
from rig.recording.layout import trace_path
from rig.types import Chunk, Rail

HOLDS_BYTES = 1 << 28
"""At most this many bytes may wait for the disk: 16 s of two rails at 2,000,000 readings of 4 bytes per second."""
BATCH = 1 << 20
"""Chunks are joined into batches of at most this many readings."""

Check = Callable[[Chunk, Chunk | None], None]
"""Compares a chunk with the one before it, and raises a ``RigError`` for readings that no reader could use."""


_Arrived = tuple[Chunk, int, float | None]
"""A chunk, its arrival (host ns), and how many seconds of readings of its rail waited then; None if not known."""


@dataclass
class _Waiting:
    """The chunks of one rail that wait to be written, and the written chunks that are not announced yet."""

    rail: Rail
    check: Check | None
    chunks: deque[_Arrived] = field(default_factory=deque)
    written: deque[ChunkArrived] = field(default_factory=deque)
    came: int = 0
    """Number of readings put so far. Only the thread of the run changes it."""
    gone: int = 0
    """Number of readings that no longer wait. Only the thread that writes changes it."""
    last: Chunk | None = None
    ended: bool = False
    """Whether the check refused a chunk. Later readings are then dropped: their ticks may depend on earlier ones."""


class Readings:
    """The readings of all rails of a run.

    ``put`` adds a chunk and never waits for the disk. ``write`` writes all waiting chunks; with ``background``, it lets
    a thread write them. ``settle`` returns when all are written. ``written`` and ``failed`` return the outcome.
    """

    def __init__(self, files: ArrowFiles, background: bool) -> None:
        self._files, self._background = files, background
        self._rails: dict[str, _Waiting] = {}
        self._writing, self._work, self._halt = threading.Lock(), threading.Event(), False
        self._thread: threading.Thread | None = None
        self._failed: deque[RigError] = deque()
        self._late = False
        self._came = self._gone = 0
        """Bytes of readings put so far, and bytes that no longer wait; for the threads see ``_Waiting``."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._rails)

    def open(self, rail: Rail, meta: Mapping[str, str], check: Check | None) -> None:
        """Declare a rail; ``meta`` describes it in its file."""
        self._rails[rail.name] = _Waiting(rail, check)
        self._files.meta[trace_path(rail.name)] = meta

    def put(self, chunk: Chunk, arrived_ns: int) -> None:
        """Add readings of a declared rail. A value that is no array counts as no reading.

        Raises ``DiskTooSlowError`` once if more than ``HOLDS_BYTES`` wait for the thread. The readings are still
        written.
        """
        own = self._rails[chunk.rail]
        rate_hz, waiting = own.rail.rate_hz, self._came - self._gone
        own.came += _count(chunk)
        self._came += _bytes(chunk)
        waiting_s = (own.came - own.gone) / rate_hz if self._background and rate_hz > 0 else None
        own.chunks.append((chunk, arrived_ns, waiting_s))
        if self._background and waiting > HOLDS_BYTES and not self._late:
            self._late = True
            what = f"{waiting} bytes of readings wait to be written, {waiting_s or 0.0:.1f} s of rail {chunk.rail}"
            said = f"the disk is too slow: {what}, but only {HOLDS_BYTES} bytes may"
            remedy = "Choose another --out, or a lower rate of the meter. What had arrived is kept"
            raise DiskTooSlowError(said, field="out", value=waiting, remedy=remedy)

    def write(self) -> None:
        """Write the waiting readings; with ``background``, let the thread do it.

        Raises ``MemoryError`` if the system cannot start a thread (Python raises ``RuntimeError``).
        """
        if not self._background:
            self.settle()
            return
        if self._thread is None:
            self._thread = started(threading.Thread(target=self._run, name="readings to disk", daemon=True))
        self._work.set()

    def settle(self) -> None:
        """Write all waiting readings; the thread, if there is one, writes none meanwhile."""
        with self._writing:
            while any([self._write_some(own) for own in self._rails.values()]):  # noqa: C419  each rail in turn
                pass

    def end(self) -> None:
        """End the thread after it has written all waiting readings."""
        if self._thread is not None:
            self._halt = True
            self._work.set()
            self._thread.join()

    def written(self) -> Iterator[ChunkArrived]:
        """Yield lines for the readings written since the last call: one for the chunks of a rail that came together."""
        for own in self._rails.values():
            lines = [own.written.popleft() for _ in range(len(own.written))]
            for _, together in groupby(lines, key=lambda line: line.arrived_ns):
                *before, last = together
                yield replace(last, readings=last.readings + sum(line.readings for line in before))

    def failed(self) -> list[RigError]:
        """Return the errors of writes and checks since the last call."""
        return [self._failed.popleft() for _ in range(len(self._failed))]

    def _run(self) -> None:
        while not self._halt:
            self._work.wait()
            self._work.clear()
            self.settle()

    def _write_some(self, own: _Waiting) -> bool:
        """Write one batch of a rail, and return whether anything waited."""
        taken = self._taken(own)
        if not taken:
            return False
        chunks = [chunk for chunk, *_ in taken]
        name = trace_path(own.rail.name)
        try:
            usable = self._usable(own, chunks)
            if usable:
                error = self._files.append(name, lambda: _columns(joined(usable)))
                if error is not None:
                    self._failed.append(error)
                elif name not in self._files.full:
                    own.written.extend(map(_line, taken[: len(usable)]))
        except Exception as error:
            self._failed.append(unwritable(f"readings of rail {own.rail.name}", error, CHECK_DRIVER))
        own.gone += sum(map(_count, chunks))
        self._gone += sum(map(_bytes, chunks))
        return True

    def _taken(self, own: _Waiting) -> list[_Arrived]:
        """Take the next chunks of one type: as many as fit a batch, or a single one that is larger."""
        taken: list[_Arrived] = []
        held = 0
        while own.chunks:
            chunk = own.chunks[0][0]
            held += _count(chunk)
            if taken and (held > BATCH or _kind(chunk) != _kind(taken[0][0])):
                break
            taken.append(own.chunks.popleft())
        return taken

    def _usable(self, own: _Waiting, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Return the chunks before the first one that the check refuses."""
        usable: list[Chunk] = []
        for chunk in chunks:
            if own.ended:
                break
            try:
                if own.check is not None:
                    own.check(chunk, own.last)
            except RigError as error:
                own.ended = True
                self._failed.append(error)
                break
            own.last = chunk if _count(chunk) else own.last
            usable.append(chunk)
        return usable


def _columns(chunk: Chunk) -> dict[str, Column]:
    return {name: numbers(values) for name, values in columns_of(chunk).items()}


def _line(arrived: _Arrived) -> ChunkArrived:
    chunk, arrived_ns, waiting_s = arrived
    return ChunkArrived(rail=chunk.rail, readings=_count(chunk), arrived_ns=arrived_ns, waiting_s=waiting_s)


def _count(chunk: Chunk) -> int:
    return len(chunk.value) if isinstance(chunk.value, np.ndarray) and chunk.value.ndim == 1 else 0


def _bytes(chunk: Chunk) -> int:
    return sum(getattr(column, "nbytes", 0) for column in columns_of(chunk).values())


def _kind(chunk: Chunk) -> dict[str, str]:
    return {k: f"{getattr(c, 'dtype', type(c))}, {getattr(c, 'ndim', 0)} axes" for k, c in columns_of(chunk).items()}


def started(thread: threading.Thread) -> threading.Thread:
    """Start a thread. Raises ``MemoryError`` if the system cannot (Python raises ``RuntimeError``)."""
    try:
        thread.start()
    except RuntimeError as error:
        raise MemoryError(str(error)) from error
    return thread
