"""The status of a run while it is recorded: samples, watts, data waiting to be written, and the room on its disk."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reports.format import si
from rig.errors import RigError
from rig.recording.disk.size_limits import START_BYTES
from rig.recording.events import ChunkArrived, Stop
from rig.recording.layout import EVENTS
from rig.recording.traces.conversion import to_watts
from rig.recording.traces.trace_validation import rail_from_json
from rig.session.expected_samples import known_total
from rig.terminal import clean

LOOK_EVERY_S = 1.0
TAIL_BYTES = 1 << 14
"""The last chunk of each rail is searched in this many bytes at the end of ``events.jsonl``."""
LATEST = 10_000
"""The latest power is the mean of at most this many readings."""
_LAST = msgspec.json.Decoder(ChunkArrived | Stop)
FAR_S = 30 * 86_400.0
"""A disk that will be full later than this is reported as not filling."""


@dataclass(frozen=True)
class RoomLeft:
    """Bytes free on the disk of a run, and seconds until it is full, or inf if it does not fill.

    ``waiting_s`` is how many seconds of readings wait to be written, or NaN if the recording does not say so.
    """

    free: int
    full_in_s: float
    waiting_s: float


@dataclass(frozen=True)
class Standing:
    """Progress of a run: samples done, their total if the start line states it, the latest power of each rail (W)."""

    run: Path
    done: int
    total: int | None
    watts: dict[str, float]
    room: RoomLeft | None
    ended: bool
    error: str

    def text(self) -> str:
        """Return the progress as one line."""
        end = ("", f"  ended{': ' + self.error if self.error else ''}")[self.ended]
        count = counted(self.done, self.total or 0)
        return "  ".join(x for x in (self.run.name, count, watts_text(self.watts), room_text(self.room)) if x) + end

    def to_json(self) -> dict[str, Any]:
        """Return the progress as a JSON object; what is not known is null."""
        room = None if self.room is None else {k: v if math.isfinite(v) else None for k, v in asdict(self.room).items()}
        left = None if self.total is None else max(self.total - self.done, 0)
        watts = {k: v if math.isfinite(v) else None for k, v in self.watts.items()}
        return {
            "run": str(self.run), "done": self.done, "left": left, "watts": watts, "room": room, "ended": self.ended,
            "error": self.error,
        }  # fmt: skip


class Room:
    """The room on the disk of a run, read once a second at most, and the run's growth since it was first read."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, now
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, RoomLeft] | None = None

    def look(self) -> RoomLeft | None:
        """Return the room left, or None as long as there is no directory."""
        at = self._now()
        if self._last is not None and at - self._last[0] < LOOK_EVERY_S:
            return self._last[1]
        try:
            free, held = shutil.disk_usage(self._path).free, written_bytes(self._path)
        except OSError:
            return None
        self._first = self._first or (at, held)
        since_s, grown = at - self._first[0], held - self._first[1]
        left = RoomLeft(free, free * since_s / grown if grown > 0 else math.inf, waiting_s(self._path / EVENTS))
        self._last = at, left
        return left


def written_bytes(path: Path) -> int:
    """Return the size of the files of a run so far. Raises ``OSError``."""
    return sum(p.stat().st_size for folder in (path, path / "traces") for p in folder.glob("*.*") if p.is_file())


class Growing:
    """A run that may still be recorded, read from its growing files; ``look`` reads only the new part of a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.room = Room(path)
        self._at: dict[Path, int] = {}
        """The begin of the last whole batch of each trace."""

    def look(self) -> Standing:
        """Return the progress of the run, without data that is not written yet or cannot be read."""
        watts = {}
        for file in sorted((self.path / "traces").glob("*.arrows")):
            last = None
            for at, batch in batches_at(file, self._at.get(file, 0)):
                self._at[file], last = at, batch
            if last is not None and (power := _latest_w(last)) is not None:
                watts[power[0]] = power[1]
        stop = next((line for line in _last_lines(self.path / EVENTS) if isinstance(line, Stop)), None)
        said = "" if stop is None or stop.error is None else clean(stop.error.message)
        done = answered(self.path / "replies.arrows")
        return Standing(self.path, done, _total(self.path), watts, self.room.look(), stop is not None, said)


def batches_at(path: Path, offset: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield whole batches of an Arrow stream and where each begins, from ``offset``, or from the first batch if 0.

    A file that is still written, or that a crash cut off, ends with its last whole batch. It is mapped into memory, so
    only the parts in use are read.
    """
    import pyarrow as pa  # 26 MB that `rig measure`, which shows its own progress, does not need

    try:
        with pa.memory_map(str(path)) as source:
            schema = pa.ipc.read_schema(source)
            source.seek(offset or source.tell())
            while True:
                at = source.tell()
                yield at, pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
    except (pa.ArrowException, EOFError, OSError):
        return


def answered(replies: Path) -> int:
    """Return how many samples were answered so far, without warm-up."""
    import pyarrow as pa

    count = 0
    with (
        suppress(pa.ArrowException, EOFError, OSError, KeyError),
        pa.memory_map(str(replies)) as source,
        pa.ipc.open_stream(source) as reader,
    ):
        for batch in reader:  # the output is in the first row of an answer
            first = np.asarray(batch.column("output").is_valid())
            count += int(np.count_nonzero(first & ~batch.column("warmup").to_numpy(zero_copy_only=False)))
    return count


def newest(path: Path) -> Path | None:
    """Return the run that was begun last in a session, or the run itself; None as long as there is none."""
    if (path / EVENTS).is_file():
        return path
    runs = [p for p in path.glob("*/" + EVENTS) if p.is_file()]
    return max(runs, key=lambda p: p.stat().st_mtime_ns).parent if runs else None


def _total(path: Path) -> int | None:
    """Return how many samples a run has, from its start line; None if it ends by time."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        with (path / EVENTS).open("rb") as file:
            start = json.loads(file.readline(START_BYTES))
        options, least_s = start["scenario"].get("options", {}), (start.get("rules") or {}).get("min_duration_s", 0)
        return known_total(int(start["workload"]["samples"]), start.get("purpose", "all"), options, least_s) or None
    return None


def _latest_w(batch: Any) -> tuple[str, float] | None:
    """Return the rail of a batch and the mean power of its last readings; None if its values alone give no power."""
    try:
        rail = rail_from_json(json.loads((batch.schema.metadata or {})[b"rail"]))
        if rail.kind not in ("mean", "point") or rail.conversion.supply_rail or not batch.num_rows:
            return None
        values = batch.slice(max(batch.num_rows - LATEST, 0)).column("value").to_numpy(zero_copy_only=False)
        return rail.name, float(np.mean(to_watts(values.astype(np.float64), rail.conversion)))
    except (RigError, KeyError, ValueError, TypeError, RecursionError):
        return None


def waiting_s(events: Path) -> float:
    """Return how many seconds of readings waited when the last readings arrived, or NaN if no line says so."""
    came = [line for line in _last_lines(events) if isinstance(line, ChunkArrived)]
    return max({line.rail: line.waiting_s for line in came if line.waiting_s is not None}.values(), default=math.nan)


def _last_lines(path: Path) -> Iterator[ChunkArrived | Stop]:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        for line in file.read(TAIL_BYTES).split(b"\n"):
            with suppress(ValueError, RecursionError):  # the first line may be cut, and the last incomplete
                yield _LAST.decode(line)


# ---- text ---------------------------------------------------------------------------------


def counted(done: int, total: int) -> str:
    """Return how many samples are done, and how many are left of a total that is known and not yet reached."""
    return some_samples(done) if done > total or not total else f"{done}/{some_samples(total)}, {total - done} left"


def some_samples(count: int) -> str:
    """Return a number of samples as text."""
    return "1 sample" if count == 1 else f"{count} samples"


def watts_text(readings: dict[str, float]) -> str:
    """Return the latest power of each rail."""
    return "  ".join(f"{clean(rail)} {si(value, 'W', 3)}" for rail, value in readings.items())


def room_text(left: RoomLeft | None) -> str:
    """Return the free space of a disk, when the disk will be full, and the readings that wait to be written."""
    if left is None:
        return ""
    full = f", full in {_span(left.full_in_s)}" if left.full_in_s < FAR_S else ""
    waits = f"buffer {left.waiting_s:.1f} s  " if math.isfinite(left.waiting_s) else ""
    return f"{waits}disk {left.free / 1e9:.3g} GB left{full}"


def _span(seconds: float) -> str:
    for size, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.0f} s"
