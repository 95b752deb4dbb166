"""The run directory, written: append-only, hash-chained, flushed a whole batch at a time.

``docs/run-directory.md`` describes the format; ``rig.run`` reads it. Nothing here computes a result.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa

from rig.errors import StoreError
from rig.types import Bracket, Chunk, MeterInfo, Progress, Rail, Sample

SCHEMA = "neurorig-run/1"
GENESIS = "0" * 64
EVENTS = "events.jsonl"
SEAL = "events.jsonl.sha256"
DERIVED = "derived"

SAMPLES = pa.schema(
    [
        ("id", pa.string()),
        ("payload_sha256", pa.string()),
        ("label", pa.string()),
        ("target_cost", pa.float64()),
        ("duration_s", pa.float64()),
        ("rate_hz", pa.float64()),
        ("inferences", pa.int32()),
        ("seed", pa.int64()),
    ]
)
REPLIES = pa.schema(
    [
        ("issue", pa.int64()),
        ("sample_id", pa.string()),
        ("phase", pa.string()),
        ("due_ns", pa.int64()),
        ("issued_ns", pa.int64()),
        ("completed_ns", pa.int64()),
        ("on_tick", pa.int64()),
        ("off_tick", pa.int64()),
        ("executions", pa.int32()),
        ("output", pa.string()),
        ("warmup", pa.bool_()),
    ]
)
PROGRESS = pa.schema(
    [
        ("issue", pa.int64()),
        ("sample_id", pa.string()),
        ("tick", pa.int64()),
        ("cost", pa.float64()),
        ("solution", pa.binary()),
    ]
)
TABLES = {"samples": SAMPLES, "replies": REPLIES, "progress": PROGRESS}


class Recorder:
    """Writes one run directory. Rows wait in memory until ``flush``; events go out at once."""

    def __init__(self, path: Path) -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError(
                f"{path} is not an empty directory",
                field="out",
                value=str(path),
                remedy="Name a new directory; a recording is never overwritten",
            )
        try:
            (path / "traces").mkdir(parents=True)
        except OSError as error:
            raise StoreError(
                f"cannot create {path}: {error.strerror}",
                field="out",
                value=str(path),
                remedy="Choose another --out",
            ) from error
        self.path = path
        self._events = (path / EVENTS).open("ab", buffering=0)
        self._seq = 0
        self._prev = GENESIS
        self._streams: dict[str, tuple[BinaryIO, pa.ipc.RecordBatchStreamWriter]] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._chunks: dict[str, list[Chunk]] = {}
        self._trace_meta: dict[str, dict[str, str]] = {}
        self._seen: set[str] = set()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close_files()

    def event(self, type_: str, **fields: Any) -> None:
        """Append one line, chained to the line before by its SHA-256."""
        line = json.dumps(
            {"seq": self._seq, "prev": self._prev, "type": type_, **fields}, default=_plain, allow_nan=False
        ).encode()
        _write_all(self._events, line + b"\n")
        self._prev = hashlib.sha256(line).hexdigest()
        self._seq += 1

    def brackets(self, clock: str, rows: Iterable[Bracket], why: str) -> None:
        """Readings of one clock; ``why`` is trigger, mark or periodic."""
        self.event("brackets", clock=clock, why=why, rows=[[b.before_ns, b.tick, b.after_ns] for b in rows])

    def sample(self, sample: Sample) -> None:
        """Describe a sample once, however often it is issued."""
        if sample.id in self._seen:
            return
        self._seen.add(sample.id)
        digest = hashlib.sha256(sample.payload.tobytes()).hexdigest()
        self._rows["samples"].append(
            (
                sample.id,
                digest,
                sample.label,
                sample.target_cost,
                sample.duration_s,
                sample.rate_hz,
                sample.inferences,
                sample.seed,
            )
        )

    def reply_row(self, row: tuple[Any, ...]) -> None:
        """One row in the order of ``REPLIES``."""
        self._rows["replies"].append(row)

    def progress(self, issue: int, sample_id: str, steps: Sequence[Progress]) -> None:
        """A solver's progress record."""
        self._rows["progress"].extend((issue, sample_id, p.tick, p.cost, p.solution) for p in steps)

    def open_trace(self, info: MeterInfo, rail: Rail, trigger_tick: int) -> None:
        """Declare one rail; its readings follow by ``chunk``."""
        period = info.clock.tick_hz / rail.rate_hz if rail.rate_hz > 0 else 0.0
        aperture = period if rail.aperture_s is None else rail.aperture_s * info.clock.tick_hz
        meta = {
            "meter": info.name,
            "clock": info.clock.name,
            "rail": json.dumps(dataclasses.asdict(rail)),
            "grid": json.dumps({"t0_tick": trigger_tick, "period_tick": period, "aperture_tick": aperture}),
        }
        self._chunks[rail.name] = []
        self._trace_meta[rail.name] = meta

    def chunk(self, chunk: Chunk, arrived_ns: int) -> None:
        """Keep readings, raw; note when they reached the host, which bounds the meter's clock."""
        self._chunks[chunk.rail].append(chunk)
        self.event("chunk", rail=chunk.rail, readings=len(chunk.value), arrived_ns=arrived_ns)

    def artifact(self, name: str, content: bytes) -> None:
        """Keep a file beside the recording (model, bench.toml, calibration)."""
        target = self.path / "artifacts" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def flush(self) -> None:
        """Write every waiting row as one batch per file."""
        for name, rows in self._rows.items():
            if rows:
                columns = zip(*rows, strict=True)
                batch = pa.record_batch(
                    [pa.array(c, f.type) for c, f in zip(columns, TABLES[name], strict=True)],
                    schema=TABLES[name],
                )
                self._stream(f"{name}.arrows", TABLES[name]).write_batch(batch)
                rows.clear()
        for rail, chunks in self._chunks.items():
            for chunk in chunks:
                batch = _trace_batch(chunk, self._trace_meta[rail])
                self._stream(trace_path(rail), batch.schema).write_batch(batch)
            chunks.clear()

    def stop(self, error: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Flush, close, and write the last line with the hash of every other file; then the seal."""
        self.flush()
        for file, writer in self._streams.values():
            writer.close()
            file.close()
        self._streams.clear()
        files = {str(p.relative_to(self.path)): sha256_of(p) for p in recorded_files(self.path)}
        self.event("stop", error=error, files=files, **fields)
        os.fsync(self._events.fileno())
        self._events.close()
        digest = sha256_of(self.path / EVENTS)
        (self.path / SEAL).write_text(f"{digest}  {EVENTS}\n")

    def close_files(self) -> None:
        """Let go of the files without a stop line, as a crash would."""
        for file, _ in self._streams.values():
            file.close()
        self._streams.clear()
        self._events.close()

    def _stream(self, name: str, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if name not in self._streams:
            file = (self.path / name).open("wb", buffering=0)
            self._streams[name] = (file, pa.ipc.new_stream(file, schema))
        return self._streams[name][1]


def trace_path(rail: str) -> str:
    """Where a rail's readings stand, relative to the run directory."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in rail)
    return f"traces/{safe}.arrows"


def recorded_files(path: Path) -> list[Path]:
    """Every file of a run that the stop line vouches for, sorted."""
    own = {path / EVENTS, path / SEAL}
    derived = path / DERIVED
    return sorted(p for p in path.rglob("*") if p.is_file() and p not in own and derived not in p.parents)


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _trace_batch(chunk: Chunk, meta: Mapping[str, str]) -> pa.RecordBatch:
    columns = {"value": pa.array(chunk.value)}
    for name in ("start_tick", "end_tick", "flags"):
        values = getattr(chunk, name)
        if values is not None:
            columns[name] = pa.array(values)
    schema = pa.schema([(k, v.type) for k, v in columns.items()], metadata=dict(meta))
    return pa.record_batch(list(columns.values()), schema=schema)


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
