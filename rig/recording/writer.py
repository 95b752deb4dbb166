"""Write a run directory: lines chained by hashes, and tables and traces that grow by whole batches.

``docs/reference/run-directory.md`` describes the format, and ``rig.recording.reader`` reads it. Nothing here computes a
result.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec.structs import replace

from rig.errors import DataError, DeviceError, Ended, MeterError, RigError, StoreError
from rig.network.description import NetworkInfo, activity_rows
from rig.recording.columns.arrow_files import ArrowFiles, Steps
from rig.recording.columns.packing import table_columns
from rig.recording.columns.rows import PART_ROWS, ROWS, ReplyRows
from rig.recording.columns.tables import TABLES
from rig.recording.descriptions import check_descriptions, described
from rig.recording.disk.files import Folder, Opened, sync_to_disk
from rig.recording.disk.full_disk import MAKE_ROOM, ROOM, keep_room, unwritable
from rig.recording.events import Brackets, Line, SampleNetwork, Start, Stop, plain
from rig.recording.layout import EVENTS, TRACES, payload_path, recorded_files, trace_path
from rig.recording.records import error_record
from rig.recording.traces.readings import Check, Readings
from rig.recording.validation import check_sample, check_text, progress_row
from rig.recording.write_events import Chain
from rig.types import Bracket, Chunk, MeterInfo, Rail, Reply, Sample

STEP_ROWS = 64
"""The most rows that one step writes to a table other than the replies."""


class Recorder:
    """The writer of one run directory.

    Rows wait in memory until ``flush``. Lines of ``events.jsonl`` are written at once; for ``keep_identity`` see
    ``Chain``. With ``background``, a separate thread writes the readings, and ``flush`` does not wait for it.
    """

    def __init__(self, path: Path, keep_identity: bool = False, background: bool = False) -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            remedy = "Name a new directory; a recording is never overwritten"
            raise StoreError(f"{path} is not an empty directory", field="out", value=str(path), remedy=remedy)
        self._files, self._keep_identity = 8, keep_identity
        try:
            self.path, self._folder = path, Folder.at(path, make=True)
            self._folder.sub(TRACES, make=True)
            self._room = keep_room(self._folder, 0, self._files)  # first: without room, no file of lines is made
            self._chain = Chain(self._folder, keep_identity)
        except OSError as error:
            what = f"cannot create {path}: {error.strerror}"
            raise StoreError(what, field="out", value=str(path), remedy="Choose another --out") from error
        self._arrows = ArrowFiles(self._folder)
        self._readings = Readings(self._arrows, background)
        self.replies = ReplyRows()
        self.device = "without a name"
        self._start: Start | None = None
        self._steps: Steps[None] | None = None
        """The steps that remain of a write of replies, which ``write_some`` began."""
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES if name != "replies"}
        self.seen: set[str] = set()
        self._networks: dict[str, NetworkInfo] = {}

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close_files()

    def event(self, event: Line) -> None:
        """Append one line, as ``Chain.append`` does. Raises ``StoreError``."""
        if isinstance(event, Start):
            self.device, self.replies.on_host_clock = event.device.name, event.device.clock is None
            self._start = event
            event = replace(event, as_recorded={})
        self._chain.append(event)

    def brackets(self, clock: str, rows: Iterable[Bracket], why: str) -> None:
        """Record readings of one clock; ``why`` is trigger, mark, periodic or imported."""
        self.event(Brackets(clock=clock, why=why, rows=[(b.before_ns, b.tick, b.after_ns) for b in rows]))

    def sample(self, sample: Sample) -> None:
        """Add a row that describes a sample, unless ``seen`` has its id; store its payload if it is to be kept.

        Raises ``DataError`` for a sample that readers would refuse, and ``StoreError`` if its payload is not stored.
        """
        if sample.id in self.seen:
            return
        try:
            check_sample(sample)
        except (TypeError, ValueError) as error:
            remedy = "Correct the workload that makes this sample"
            raise DataError(f"sample {sample.id!r}: {error}", field="sample", value=sample.id, remedy=remedy) from error
        self.seen.add(sample.id)
        if sample.keep:
            with self._stored(payload_path(sample.id)) as file:
                np.save(file, sample.payload, allow_pickle=False)
        digest = hashlib.sha256(sample.payload.tobytes()).hexdigest()
        described = (getattr(sample, name) for name in list(TABLES["samples"])[2:])
        self._rows["samples"].append((sample.id, digest, *described))

    def reply(
        self, issue: int, reply: Reply, due_ns: int | None, issued_ns: int, completed_ns: int, warmup: bool = False
    ) -> None:
        """Add a row for each span of an answer, with the output in the first, and the solver's progress.

        Rows wait in a buffer of fixed size, which is written when it is full. Raises ``DeviceError`` for a value that
        does not fit its column, and ``StoreError`` if the buffer cannot be written.
        """
        if self.replies.put(issue, reply, due_ns, issued_ns, completed_ns, warmup):
            self.remainder(issue, reply, (due_ns, issued_ns, completed_ns), warmup)

    def remainder(self, issue: int, reply: Reply, times_ns: tuple[int | None, int, int], warmup: bool) -> None:
        """Finish what ``replies.put`` left: record the reply if ``put`` added no row, and write a full buffer."""
        if len(reply.spans) != 1 or reply.progress:
            output: str | None = self.replies.encode(reply.output)
            for span in reply.spans or (None,):
                phase = None if span is None else span.phase
                self.replies.put_row(issue, (reply.sample_id, phase, output, warmup), times_ns, span)
                output = None
                if self.replies.full:
                    _raise_first(self._append_replies())
            self._rows["progress"].extend(self._progress(issue, reply))
        if self.replies.full:
            _raise_first(self._append_replies())

    def _progress(self, issue: int, reply: Reply) -> list[tuple[Any, ...]]:
        try:
            return [(issue, reply.sample_id, *progress_row(p)) for p in reply.progress]
        except (TypeError, ValueError, OverflowError) as error:
            remedy = "Give Progress with an integer tick, a cost and the solution as bytes"
            raise self._unfit("progress", reply, error, remedy) from error

    def _unfit(self, part: str, reply: Reply, error: Exception, remedy: str) -> DeviceError:
        why = error.message if isinstance(error, StoreError) else error
        what = f"device {self.device} answered sample {reply.sample_id}, but its {part} cannot be recorded: {why}"
        return DeviceError(what, field=part, value=reply.sample_id, remedy=remedy)

    def unanswered(
        self, issue: int, sample_id: str, due_ns: int | None, issued_ns: int | None, warmup: bool = False
    ) -> None:
        """Add a row for a sample that got no answer.

        ``issued_ns`` is None if the sample was dropped before it was issued.
        """
        self.replies.put_row(issue, (sample_id, None, None, warmup), (due_ns, issued_ns, None), None)
        if self.replies.full:
            _raise_first(self._append_replies())

    @property
    def waiting(self) -> float:
        """Return how full the buffer of replies is, 0 to 1."""
        return len(self.replies) / ROWS

    def write_some(self, long: bool) -> bool:
        """Take one step of writing rows if enough rows wait, and return whether a step was taken.

        A step takes a fraction of a millisecond. It writes replies, or else rows of another table in which ``ROWS``
        rows wait; with ``long``, ``STEP_ROWS`` rows are enough. Raises what ``flush`` raises.
        """
        if self._steps is not None or len(self.replies) >= PART_ROWS:
            steps, self._steps = self._steps or self._replies_to_disk(PART_ROWS), None
            if next(steps, True) is None:
                self._steps = steps
            return True
        for name, rows in self._rows.items():
            if len(rows) >= (STEP_ROWS if long else ROWS):
                waiting, rows[:STEP_ROWS] = rows[:STEP_ROWS], []
                _raise_first(self._append_rows(name, waiting))
                return True
        return False

    def _append_replies(self) -> list[RigError]:
        """Finish a begun write of replies, write all that wait, and return the errors."""
        failed: list[RigError] = []
        begun, self._steps = self._steps, None
        for steps in (begun, self._replies_to_disk(ROWS)):
            try:
                deque(steps or (), maxlen=0)
            except RigError as error:
                failed.append(error)
        return failed

    def _replies_to_disk(self, most: int) -> Steps[None]:
        error = None
        if len(self.replies):
            error = yield from self._arrows.appending("replies.arrows", self.replies.take(most))
        if error is not None:
            raise error
        if self.replies.refused is not None:
            (sample_id, why), self.replies.refused = self.replies.refused, None
            what = f"device {self.device} gave sample {sample_id} a span that {why}"
            raise DeviceError(what, field="spans", value=sample_id, remedy="Correct the spans of its driver")

    def activity(self, issue: int, reply: Reply) -> None:
        """Record what a reply states of a network: its activity in each execution, and the network of the sample.

        The network of a sample is recorded once. Raises ``DeviceError`` for counts that are no integers, for a network
        that readers would refuse, and for a second network of the sample.
        """
        part, remedy = "network", "Give one NetworkInfo for each sample, as its docstring says"
        try:
            if reply.network is not None:
                self._network(reply.sample_id, reply.network)
            part = "activity"
            remedy = "Give arrays of integers by layer and counter, as rig.network.counting.count does"
            rows = [(issue, reply.sample_id, *row) for row in activity_rows(reply.activity or {})]
            for _, _, layer, counter, _ in rows:
                check_text(layer, "a layer")
                check_text(counter, "a counter")
        except (TypeError, ValueError, AttributeError, StoreError) as error:
            raise self._unfit(part, reply, error, remedy) from error
        self._rows["activity"].extend(rows)

    def _network(self, sample_id: str, given: NetworkInfo) -> None:
        """Record the network of a sample once. Raises ``TypeError`` or ``ValueError`` for a bad or a second network."""
        known = self._networks.get(sample_id)
        if known is not None and known == given:
            return
        network = msgspec.convert(msgspec.to_builtins(given, enc_hook=plain), NetworkInfo)
        if known is None:
            self.event(SampleNetwork(sample_id=sample_id, network=network))
            self._networks[sample_id] = network
        elif known != network:
            raise ValueError("it is another network than before")

    def open_trace(self, info: MeterInfo, rail: Rail, trigger_tick: int, check: Check | None = None) -> None:
        """Declare one rail; ``chunk`` takes its readings. ``check`` is called with each chunk before it is written.

        Raises ``StoreError`` for a rail that readers would refuse, or whose file another rail has.
        """
        try:
            meta = described(info, rail, trigger_tick, self._keep_identity)
            if self._start is not None:
                check_descriptions(self._start, {rail.name: rail})
        except (TypeError, ValueError, RigError) as error:
            why = error.message if isinstance(error, RigError) else error
            what = f"the rail {rail.name!r} of {info.name} cannot be written: {why}"
            remedy = "Correct what the driver of this meter declares"
            raise StoreError(what, field="rail", value=rail.name, remedy=remedy) from error
        if any(trace_path(rail.name).casefold() == trace_path(known).casefold() for known in self._readings):
            what = f"two rails would share the file {trace_path(rail.name)}"
            remedy = "Give every rail of every meter a name of its own"
            raise StoreError(what, field="rail", value=rail.name, remedy=remedy)
        self._readings.open(rail, meta, check)

    def chunk(self, chunk: Chunk, arrived_ns: int) -> None:
        """Take raw readings, and the time when they reached the host (host ns), which bounds the meter's clock.

        The readings are announced in ``events.jsonl`` once they are written; until then, the arrays must not change.
        Raises ``MeterError`` for an undeclared rail, and ``DiskTooSlowError``, once, if too many readings wait.
        """
        if chunk.rail not in self._readings:
            what = f"readings came for the rail {chunk.rail!r}, which no meter declared"
            remedy = "A meter's info() must name every rail that it reads"
            raise MeterError(what, field="rail", value=chunk.rail, remedy=remedy)
        self._readings.put(chunk, arrived_ns)

    def artifact(self, name: str, content: bytes) -> None:
        """Store a file with the recording, such as a model, a bench file or a calibration."""
        with self._stored(f"artifacts/{name}") as file:
            file.write(content)

    @contextmanager
    def _stored(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file of the recording, which is removed if it cannot be written. Raises ``StoreError``."""
        try:
            self._files += 1
            self._room = keep_room(self._folder, self._room, self._files)
            self._folder.sub(str(PurePosixPath(name).parent), make=True)
            with open(name, "wb", opener=self._folder.open) as file:
                yield file
        except OSError as error:
            with suppress(OSError):
                self._folder.remove(name)
            raise unwritable(str(self.path / name), error, MAKE_ROOM) from error

    def flush(self) -> None:
        """Write every waiting row as one batch per file, and announce the readings that are written.

        Raises the first error of a write or of a check, after everything else is written.
        """
        self._flush(self._readings.write)

    def settle(self) -> None:
        """Flush, and wait until all readings are written and announced."""
        self._flush(self._readings.settle)

    def _flush(self, write_readings: Callable[[], None]) -> None:
        failed = self._append_replies()
        for name, rows in self._rows.items():
            waiting, rows[:] = list(rows), []
            failed += self._append_rows(name, waiting)
        write_readings()
        try:
            for line in self._readings.written():
                self.event(line)
        except RigError as error:
            failed.append(error)
        _raise_first([*failed, *self._readings.failed()])

    def stop(self, error: Ended | None = None, issues: int = 0, replies: int = 0) -> None:
        """Flush, close, and write the last line with the hash of every other file, and then the seal.

        Raises the first error of a write or of a check, after the seal is written. Raises ``StoreError`` if the last
        line cannot be written and the run has no other error.
        """
        failed = None
        try:
            self.settle()
            self._arrows.check_there()
        except RigError as caught:
            failed = caught
            error = error or caught
        self._folder.remove(ROOM)
        try:
            self._seal(error, issues, replies)
        except (OSError, MemoryError) as caught:
            if error is None:
                raise unwritable("the end of the recording", caught, MAKE_ROOM) from caught
        if failed is not None:
            raise failed

    def _seal(self, error: Ended | None, issues: int, replies: int) -> None:
        """Sync every file, then write stop line and seal, so that a power cut leaves no stop line without its files.

        Raises ``OSError``.
        """
        self._readings.end()
        digests = self._arrows.finished()
        names = recorded_files(self._folder)
        for place in {str(PurePosixPath(name).parent) for name in (EVENTS, *names)}:
            self._folder.sub(place).sync()
        sync_to_disk(self.path.parent)
        files = {name: digests.get(name) or Opened(self._folder, name).sha256() for name in names}
        for name in (n for n in names if n not in digests):
            sync_to_disk(self.path / name)
        ended = None if error is None else error_record(error)
        self._chain.seal(Stop(files=files, error=ended, issues=issues, replies=replies))

    def close_files(self) -> None:
        """Close the files without a stop line, as after a crash."""
        self._readings.end()
        self._arrows.close()
        self._chain.close()
        self._folder.close()

    def _append_rows(self, name: str, rows: list[tuple[Any, ...]]) -> list[RigError]:
        """Append one batch of rows, which were checked when they came; return the error of the write, if any."""
        error = self._arrows.append(f"{name}.arrows", partial(table_columns, name, rows)) if rows else None
        return [] if error is None else [error]


def _raise_first(errors: Sequence[RigError]) -> None:
    if errors:
        raise errors[0]
