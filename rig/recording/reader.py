"""Read a run directory: verify the hashes, and return a read-only view. No figure is computed."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec.structs import asdict
from numpy.typing import NDArray

from rig.errors import DataError, StoreError
from rig.network.description import NetworkInfo
from rig.recording.columns.stored import Batches, batches_of
from rig.recording.columns.table_reading import read_table, without_bad_spans
from rig.recording.columns.tables import TABLES
from rig.recording.descriptions import check_descriptions
from rig.recording.disk.files import Folder
from rig.recording.events import Brackets, ChunkArrived, IdleWindow, Line, MarkPulses, SampleNetwork
from rig.recording.layout import payload_path, read_files, run_folder
from rig.recording.read_events import Log, altered, check_networks, read_log, verified
from rig.recording.records import ErrorRecord
from rig.recording.traces.traces import AT_ONCE, Trace, by_rail, read_trace
from rig.types import Bracket, ClockInfo

L = TypeVar("L", bound=Line)
PAYLOAD_BYTES = 1 << 30
"""The largest file of a payload that is read."""


class Run(Log, frozen=True, dict=True):
    """One recording.

    After a crash, ``stop`` is None, and each table and trace ends at its last whole batch.
    """

    path: Path
    samples: pa.Table
    replies: pa.Table
    progress: pa.Table
    activity: pa.Table
    traces: Mapping[str, Trace]
    truncated: tuple[str, ...]
    """Names of the files whose end is missing."""
    left_out: tuple[str, ...]
    """Spans and readings that were left out, each with its fault."""
    folder: Folder
    """The open directory, through which files below it are written."""
    trace_files: tuple[Batches, ...]
    """The files of the traces, each opened once."""

    @property
    def error(self) -> ErrorRecord | None:
        """Return the error that ended the run, if one was recorded."""
        return None if self.stop is None else self.stop.error

    @property
    def complete(self) -> bool:
        """Return whether the run ended as planned."""
        return self.stop is not None and self.stop.error is None

    def of_type(self, type_: type[L]) -> list[L]:
        """Return the lines of one type, in order."""
        return [e for e in self.events if isinstance(e, type_)]

    def clocks(self) -> dict[str, ClockInfo]:
        """Return every clock of the run by name; the host's clock is ``host``."""
        return {c.name: c for c in self.start.clocks}

    def brackets(self, clock: str) -> list[Bracket]:
        """Return every reading of a clock, each between two host stamps."""
        return self._brackets.get(clock, [])

    @cached_property
    def _brackets(self) -> dict[str, list[Bracket]]:
        found: dict[str, list[Bracket]] = {}  # all at once: there may be as many clocks as lines
        for e in self.of_type(Brackets):
            found.setdefault(e.clock, []).extend(Bracket(*row) for row in e.rows)
        return found

    def networks(self) -> dict[str, NetworkInfo]:
        """Return the network of each sample that has its own network, by sample id."""
        return {e.sample_id: e.network for e in self.of_type(SampleNetwork)}

    def marks(self) -> NDArray[np.int64]:
        """Return begin and end of the device's power pulses, in ticks of its clock, shape (k, 2)."""
        return np.array([row for e in self.of_type(MarkPulses) for row in e.spans], dtype=np.int64).reshape(-1, 2)

    def arrivals(self, rail: str) -> NDArray[np.int64]:
        """Return, for each arrival of readings, their total number so far and the host time (ns), shape (k, 2)."""
        rows = [(e.readings, e.arrived_ns) for e in self.of_type(ChunkArrived) if e.rail == rail]
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        table[:, 0] = np.cumsum(table[:, 0])
        return table

    def by_sample(self, column: str) -> dict[str, Any]:
        """Return a column of the samples by their ids; an absent value is None."""
        return dict(zip(self.samples["id"].to_pylist(), self.samples[column].to_pylist(), strict=True))

    def payload(self, sample_id: str) -> NDArray[Any] | None:
        """Return the stored payload of a sample, or None if it was not kept.

        Raises ``DataError`` if it cannot be read, and ``IntegrityError`` if it was changed after recording.
        """
        name = payload_path(sample_id)
        if not self.folder.has(name):
            return None
        try:
            content = self.folder.read(name, PAYLOAD_BYTES)
            if self.stop is not None and hashlib.sha256(content).hexdigest() != self.stop.files.get(name):
                raise altered(self.path, f"{name} differs from what was recorded")
            stored: NDArray[Any] = np.load(BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            what = f"{self.path / name} cannot be read: {error}"
            raise DataError(what, field="payload", value=sample_id, remedy="Restore the recording") from error
        return stored

    def idle_windows_ns(self) -> NDArray[np.int64]:
        """Return the declared idle windows in host time, shape (k, 2)."""
        return np.array([(e.on_ns, e.off_ns) for e in self.of_type(IdleWindow)], dtype=np.int64).reshape(-1, 2)


def open_run(path: Path | str | Folder, *, at_once: int = AT_ONCE) -> Run:
    """Read and verify a run directory.

    A trace of more than ``at_once`` readings stays in its file, and its columns are read when they are sliced.

    Raises ``StoreError`` if it is not a run directory, if a file does not have the recorded format, or if it would be
    far larger in memory than on disk. Raises ``IntegrityError`` if a byte was changed after recording. Raises
    ``DataError`` if an interval ends before it begins, if a clock goes back, if readings contradict the declared rate,
    or if a rail or a clock has two different descriptions.

    Example::

        import rig

        run = rig.open_run("runs/first")
        print(run.digest, sorted(run.traces))
    """
    try:
        return _opened(run_folder(path if isinstance(path, Folder) else Path(path)), at_once)
    except OSError as error:
        what = f"cannot read {path}: {error}"
        raise StoreError(what, field="run", value=str(path), remedy="Check its files and their permissions") from error


def _opened(folder: Folder, at_once: int) -> Run:
    log = read_log(folder)
    present = read_files(folder, TABLES)
    files = verified(folder, log.stop, present)
    truncated: list[str] = []
    hz = {clock.name: clock.tick_hz for clock in log.start.clocks}
    read = {name: read_table(files.pop(f"{name}.arrows", None), name, truncated) for name in TABLES}
    check_networks(log, read["samples"]["id"].to_pylist)
    read["replies"], left_out = without_bad_spans(read["replies"])
    trace_files = [batches for file in files.values() if (batches := batches_of(file, truncated)) is not None]
    found = [read_trace(batches, hz, at_once) for batches in trace_files]
    by_name = by_rail(folder.path, [trace for trace, _ in found])
    check_descriptions(log.start, {name: trace.rail for name, trace in by_name.items()})
    left_out = (*left_out, *(what for _, lost in found for what in lost))
    return Run(
        path=folder.path, folder=folder, **asdict(log), **read, traces=by_name, trace_files=tuple(trace_files),
        truncated=tuple(truncated), left_out=left_out,
    )  # fmt: skip
