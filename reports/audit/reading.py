"""Reads a run directory by itself: the lines of ``events.jsonl``, the tables, and the traces block by block."""

from __future__ import annotations

import functools
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pyarrow as pa

from reports.audit.arrow_sizes import unpacked_bytes
from reports.audit.files import (
    FILE_BYTES,
    RATIO_MOST,
    SMALL,
    inside,
    line_faults,
    opened,
    parse_json,
    read_bytes,
    refuse,
    schema_faults,
)
from rig.types import Floats, Indices

GENESIS = "0" * 64
END = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow stream."""
BLOCK = 1 << 20
BATCH_BYTES = 1 << 30
ORIGIN = msgspec.Meta(ge=-(2**62), le=2**62)
EVENTS_BYTES, LINE_BYTES = 1 << 30, 64 << 20
TABLE_BYTES, PAYLOAD_BYTES = 1 << 30, 1 << 28
KEPT = ("idle", "gap", "marks", "note")
COLUMNS = {
    "samples": ("id", "payload_sha256", "label", "target_cost", "duration_s", "rate_hz", "inferences", "seed"),
    "replies": (
        "issue", "sample_id", "phase", "due_ns", "issued_ns", "completed_ns", "on_tick", "off_tick", "executions",
        "output", "warmup",
    ),
    "progress": ("issue", "sample_id", "tick", "cost", "solution"),
}  # fmt: skip


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Run:
    """One run as it was recorded. ``faults`` is what of it contradicts the format or its own hashes."""

    path: Path
    start: dict[str, Any]
    stop: dict[str, Any] | None
    events: dict[str, list[dict[str, Any]]]
    brackets: dict[str, Indices]
    """By clock: rows of before (ns), tick, after (ns), of shape (n, 3), as int64."""
    digest: str
    faults: tuple[str, ...]
    arrived: dict[str, int] = field(default_factory=dict)
    """How many readings of each rail arrived, by the lines of the log."""
    tables: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def purpose(self) -> str:
        """What the run is for: all, performance, accuracy, power, compliance or probe."""
        return str(self.start.get("purpose", "all"))

    @property
    def ended(self) -> bool:
        """Whether the run came to its end."""
        return self.stop is not None and self.stop.get("error") is None

    @property
    def options(self) -> dict[str, Any]:
        """The options of the scenario."""
        return self.start["scenario"].get("options") or {}

    @property
    def details(self) -> dict[str, Any]:
        """What the workload tells beyond the format."""
        return self.start["workload"].get("details") or {}


def once(compute: Callable[[Run], T]) -> Callable[[Run], T]:
    """Compute something of a run when it is first asked for, and keep it as long as the run is kept."""
    kept = WeakKeyDictionary[Run, T]()

    @functools.wraps(compute)
    def found(run: Run) -> T:
        if run not in kept:
            kept[run] = compute(run)
        return kept[run]

    return found


def read_run(path: Path) -> Run:
    """Read the events and tables of a run directory.

    A fault that leaves something to audit is collected; raises ``StoreError`` where nothing can be read.
    """
    faults: list[str] = []
    events: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*KEPT, "start", "stop", "brackets")}
    whole, previous, arrived = hashlib.sha256(), GENESIS, Counter[str]()
    for number, line in enumerate(_lines(path / "events.jsonl", whole)):
        where = f"line {number + 1} of events.jsonl"
        event = parse_json(line, where)
        if not isinstance(event, dict):
            refuse(where, "is no JSON object")
        kind = str(event.get("type"))
        wrong = line_faults(event)
        if number == 0 and (wrong or kind != "start"):
            refuse("the start line", f"is not of the format: {'; '.join(wrong) or f'its type is {kind!r}'}")
        if event.get("seq") != number or event.get("prev") != previous:
            faults.append(f"{where} does not follow from the line before")
        if events["stop"]:
            faults.append(f"{where} follows the stop line")
        previous = hashlib.sha256(line).hexdigest()
        faults += [f"{where}: {text}" for text in wrong]
        if kind == "chunk" and not wrong:
            arrived[event["rail"]] += event["readings"]
        if kind in events and not wrong:
            events[kind].append(event)
    if not events["start"]:
        refuse("events.jsonl", "is empty")
    rows: dict[str, list[list[int]]] = {}
    for event in events.pop("brackets"):
        rows.setdefault(event["clock"], []).extend(event["rows"])
    brackets = {name: np.array(found, dtype=np.int64).reshape(-1, 3) for name, found in rows.items()}
    start, stops = events.pop("start")[0], events.pop("stop")
    stop = stops[-1] if stops else None
    tables = {name: _table(path, name, stop is not None) for name in COLUMNS}
    return Run(path, start, stop, events, brackets, whole.hexdigest(), tuple(faults), dict(arrived), tables)


def _lines(path: Path, whole: Any) -> Iterator[bytes]:
    """The lines of a file without their newlines; ``whole`` is fed with every byte."""
    with opened(path, EVENTS_BYTES) as file:
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                refuse(path.name, f"has a line of more than {LINE_BYTES} bytes")
            whole.update(line)
            if line.endswith(b"\n"):  # a torn last line is that of a run that was killed
                yield line[:-1]


def _stream(path: Path, most: int = FILE_BYTES) -> pa.RecordBatchStreamReader:
    try:
        with opened(path, most):  # only to refuse links and the like
            _check_unpacked(path)
            return pa.ipc.open_stream(pa.OSFile(str(path)))  # mapped pages would count as memory
    except (pa.ArrowException, OSError, ValueError) as error:
        refuse(path.name, f"is no Arrow stream: {error}")


def _check_unpacked(path: Path) -> None:
    """Refuse a stream whose compressed batches become far larger than recordings do."""
    total, most = 0, max(SMALL, RATIO_MOST * path.stat().st_size)
    for count in unpacked_bytes(path):
        total += count
        if count > BATCH_BYTES or total > most:
            refuse(path.name, f"is a bomb: it unpacks to more than {min(most, BATCH_BYTES)} bytes")


def _batches(path: Path, stream: pa.RecordBatchStreamReader, closed: bool) -> Iterator[pa.RecordBatch]:
    """The record batches of a stream, each checked, to where the stream ends or is torn.

    Raises ``StoreError`` where the stream of a run that was ``closed`` is torn.
    """
    if closed and not _ends(path):
        refuse(path.name, "has lost its end, and its run was closed")
    rows_most = 8 * path.stat().st_size  # a row takes a bit at least
    with stream:
        while True:
            try:
                batch = stream.read_next_batch()
                if batch.num_rows > rows_most:
                    refuse(path.name, f"holds a batch of {batch.num_rows} rows in {rows_most // 8} bytes")
                batch.validate(full=True)
            except StopIteration:
                return
            except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
                if closed:
                    refuse(path.name, f"is damaged, and its run was closed: {error}")
                return
            yield batch


def _ends(path: Path) -> bool:
    """Whether a file has the mark at which an Arrow stream ends."""
    with opened(path, FILE_BYTES) as file:
        file.seek(max(0, path.stat().st_size - len(END)))
        return file.read() == END


def _table(folder: Path, name: str, closed: bool) -> pa.Table:
    """A table as recorded; without a file, a table of no rows."""
    path = folder / f"{name}.arrows"
    if not path.exists() and not path.is_symlink():
        return pa.table({column: pa.nulls(0) for column in COLUMNS[name]})
    stream = _stream(path, TABLE_BYTES)
    table = pa.Table.from_batches(_batches(path, stream, closed), schema=stream.schema)
    if missing := [column for column in COLUMNS[name] if column not in table.column_names]:
        refuse(path.name, f"has no column {missing[0]}")
    return table


def column(table: pa.Table, name: str) -> list[Any]:
    """A column as Python values, null as ``None``."""
    return list(table.column(name).to_pylist())


def by_sample(run: Run, name: str) -> dict[str, Any]:
    """A column of the samples, by the name of the sample."""
    samples = run.tables["samples"]
    return dict(zip(column(samples, "id"), column(samples, name), strict=True))


def ticks(table: pa.Table | pa.RecordBatch, name: str) -> tuple[Indices, Any]:
    """A column of whole numbers as int64 with null as 0, and where it is not null."""
    found = table.column(name)
    if not (pa.types.is_signed_integer(found.type) or pa.types.is_null(found.type)):
        refuse(f"the column {name}", f"does not hold whole numbers, but {found.type}")
    return np.asarray(found.cast(pa.int64()).fill_null(0)), np.asarray(found.is_valid())


def _reals(batch: pa.RecordBatch, name: str) -> Floats:
    """A column of numbers as float64, null as NaN."""
    found = batch.column(name)
    if not (pa.types.is_integer(found.type) or pa.types.is_floating(found.type)):
        refuse(f"the column {name}", f"does not hold numbers, but {found.type}")
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.float64)


def payload(run: Run, sample: str) -> Any:
    """The array that is stored for a sample, of any type but objects; None where none is stored."""
    place = inside(run.path, f"artifacts/payloads/{sample}.npy")
    if not place.is_file():
        return None
    try:
        return np.load(io.BytesIO(read_bytes(place, PAYLOAD_BYTES)), allow_pickle=False)
    except (ValueError, TypeError, MemoryError, OSError, EOFError):
        refuse(f"the payload of {sample!r}", "is no array")


class Grid(msgspec.Struct, frozen=True):
    """Readings at equal distances, in ticks of the meter's clock; an origin may be too large for a float64."""

    t0_tick: Annotated[int, ORIGIN] | Annotated[float, ORIGIN]
    period_tick: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    aperture_tick: Annotated[float, msgspec.Meta(ge=0, le=1e18)]


@dataclass(frozen=True)
class Trace:
    """One rail's file: what its metadata says. Readings are read by ``blocks``."""

    path: Path
    rail: dict[str, Any]
    clock: str
    grid: Grid | None
    closed: bool
    """Whether the run of the trace was closed, so that the trace has an end."""

    @property
    def readings(self) -> int:
        """How many readings the file holds."""
        return sum(batch.num_rows for batch in _batches(self.path, _stream(self.path), self.closed))


@once
def traces(run: Run) -> dict[str, Trace]:
    """The traces of a run by the name of their rail. Raises ``StoreError`` for metadata that cannot be used."""
    found: dict[str, Trace] = {}
    folder = run.path / "traces"
    for path in sorted(folder.glob("*.arrows")) if folder.is_dir() and not folder.is_symlink() else []:
        with _stream(path) as stream:
            told = stream.schema.metadata or {}
        rail, grid = (parse_json(told.get(key, b"null"), f"the metadata of {path.name}") for key in (b"rail", b"grid"))
        wrong = schema_faults(rail, "start", "Rail")
        if wrong or rail["name"] in found:
            refuse(path.name, f"describes no rail of its own: {'; '.join(wrong) or 'the name stands twice'}")
        clock = told.get(b"clock", b"").decode("utf-8", "replace")
        try:
            found[rail["name"]] = Trace(path, rail, clock, msgspec.convert(grid, Grid | None), run.stop is not None)
        except msgspec.ValidationError as error:
            refuse(f"the grid of {path.name}", f"cannot be used: {error}")
    return found


def blocks(trace: Trace, origin: int) -> Iterator[Floats]:
    """The readings of a trace, at most ``BLOCK`` at a time: float64 of shape (4, n).

    The rows are begin and end in ticks of the meter's clock, counted from ``origin``, raw values, and 1 for a reading
    at the end of its range, else 0. Raises ``StoreError`` for a trace whose times do not rise, or whose columns are not
    those of the format.
    """
    rows, last, limit = 0, -np.inf, trace.rail.get("range_max")
    for batch in _gathered(_batches(trace.path, _stream(trace.path), trace.closed)):
        names = set(batch.schema.names)
        grid = None if "start_tick" in names else trace.grid
        if not names.issuperset(("value",) if grid else ("value", "start_tick", "end_tick")):
            refuse(trace.path.name, "has no column value, or neither ticks nor a grid")
        value = _reals(batch, "value")
        if grid is None:
            begin, end = ((ticks(batch, name)[0] - origin).astype(np.float64) for name in ("start_tick", "end_tick"))
        else:
            at = (grid.t0_tick - origin) + grid.period_tick * (rows + np.arange(len(value)))
            begin = at.astype(np.float64)
            end = begin + grid.aperture_tick
        rows += len(value)
        if begin[0] <= last or np.any(np.diff(begin) <= 0) or np.any(end < begin):
            refuse(trace.path.name, "has readings whose times do not rise")
        last = begin[-1]
        flags = _reals(batch, "flags") if "flags" in names else np.zeros(len(value))
        over = (flags != 0) | (value >= (np.inf if limit is None else limit))
        yield np.array([begin, end, value, over])[:, np.isfinite(value)]


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a quarter of a block to a block each, but for the last, so that small ones cost nothing."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= BLOCK // 4:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(BLOCK)
            waiting = []
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(BLOCK)
