"""Read a run for the auditor, by the rig's strict reader, so that auditor and rig refuse the same files.

Each file is opened once, so that the hashed content is the used content. All computations are the auditor's own.
Untrusted files are read only if they are regular, bounded and inside their folder; untrusted text is cleaned to one
line.
"""

import functools
import json
import os
import posixpath
import stat
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from rig.errors import StoreError
from rig.recording.columns.buffers import array_of
from rig.recording.disk.decoding import strict
from rig.recording.disk.files import Folder, Opened
from rig.recording.disk.size_limits import check_json
from rig.recording.events import Brackets, ChunkArrived, HostGap, Stop
from rig.recording.reader import Run as Recorded, open_run
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats, Indices

BLOCK, BESIDE = 1 << 18, 4
T = TypeVar("T")
TEXT_BYTES, FILES_MOST = 16 << 20, 100_000
REMEDY = "No recording of the rig is like this; ask for the original"
WHAT_TO_NAME = "Name a run, a session (with its session.json) or a submission, or its archive"


def refuse(where: object, what: str, value: object = None, remedy: str = REMEDY) -> NoReturn:
    """Raise a ``StoreError`` about a file that cannot be audited."""
    raise StoreError(clean(f"{where} {what}"), field="audit", value=value, remedy=remedy)


def clean(text: object, most: int = 300) -> str:
    """Return untrusted text on one line of at most ``most`` characters, without control and direction characters."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * most]).split())
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def walk(root: Path) -> dict[str, int]:
    """Return the bytes in each regular file below ``root``, by its relative path. Refuses links and special files."""
    held: dict[str, int] = {}
    for folder, inner, files in os.walk(root, onerror=_unlisted):
        below = Path(folder).relative_to(root)
        for own in sorted((*inner, *files)):  # as texts, because Path objects of thousands of files take seconds
            found, name = os.lstat(f"{folder}/{own}"), posixpath.join(*below.parts, own)
            if stat.S_ISREG(found.st_mode):
                held[name] = found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                refuse(name, "is a link or no regular file")
        if len(held) > FILES_MOST:
            refuse(root.name, f"holds more than {FILES_MOST} files")
    return held


def _unlisted(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed."""
    raise error


def inside(root: Path, name: object) -> Path:
    """Return the file below ``root`` that an untrusted relative path names. Refuse other paths and any link."""
    parts = str(name).split("/")
    if not isinstance(name, str) or any(p in ("", ".", "..") or "\\" in p or "\0" in p or ":" in p for p in parts):
        refuse(f"the path {name!r}", "leads outside of its folder")
    place = root.joinpath(*parts)
    if any(map(os.path.islink, (place, *place.parents[: len(parts) - 1]))):
        refuse(name, "is a link")
    return place


def read_bytes(path: Path, most: int = TEXT_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes. Raises ``StoreError`` for anything else."""
    try:
        return Folder.at(path.parent).read(path.name, most)
    except OSError as error:
        refuse(path.name, f"cannot be read: {error.strerror or error}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file in hex, read in blocks. Raises ``StoreError`` for anything else."""
    try:
        return Opened(Folder.at(path.parent), path.name).sha256()
    except OSError as error:
        refuse(path.name, f"cannot be read: {error.strerror or error}")


def parse_json(text: bytes, where: str) -> Any:
    """Decode JSON. Refuses NaN, infinity, repeated keys, endless nesting and numbers of thousands of digits."""
    try:
        check_json(text, where)
        return strict(text)
    except (ValueError, RecursionError) as error:
        refuse(where, f"is no JSON that can be read: {error}")


@cache
def held(name: str) -> Any:
    """Return the content of a JSON file of the auditor's own, which lies beside its code."""
    return json.loads(Path(__file__).parents[1].joinpath(name).read_bytes())


@dataclass(frozen=True, eq=False)
class Run:
    """One run as it was recorded."""

    path: Path
    start: dict[str, Any]
    """The start line as it is in the file."""
    brackets: Mapping[str, Indices]
    """By clock: rows of before (ns), tick, after (ns), of shape (n, 3), as int64."""
    stop: Stop | None = None
    recorded: Recorded | None = None
    gaps: int = 0
    """The number of times that the host did not run."""
    arrived: Mapping[str, int] = field(default_factory=dict)
    """The number of readings of each rail that arrived, from the lines of the log."""

    @property
    def whole(self) -> Recorded:
        """Return the run as the rig's reader returns it. Refuses a run that was not read from files."""
        return self.recorded or refuse(self.path.name, "was not read")

    @property
    def purpose(self) -> str:
        """Return the purpose of the run: all, performance, accuracy, power, compliance or probe."""
        return str(self.start.get("purpose", "all"))

    @property
    def ended(self) -> bool:
        """Return whether the run came to its end."""
        return self.stop is not None and self.stop.error is None

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the scenario."""
        return self.start["scenario"].get("options") or {}

    @property
    def details(self) -> dict[str, Any]:
        """Return the facts of the workload for which the format has no field."""
        return self.start["workload"].get("details") or {}


def once(compute: Callable[[Run], T]) -> Callable[[Run], T]:
    """Compute a value of a run at its first use, and keep it as long as the run."""
    kept = WeakKeyDictionary[Run, T]()

    @functools.wraps(compute)
    def found(run: Run) -> T:
        if run not in kept:
            kept[run] = compute(run)
        return kept[run]

    return found


def read_run(path: Path | Folder) -> Run:
    """Read a run directory. Raises what ``rig.open_run`` raises."""
    found = open_run(path)
    rows: dict[str, list[Any]] = {}
    arrived = Counter[str]()
    for line in found.events:
        if isinstance(line, ChunkArrived):
            arrived[line.rail] += line.readings
        elif isinstance(line, Brackets):
            rows.setdefault(line.clock, []).extend(line.rows)
    brackets = {name: np.array(own, dtype=np.int64).reshape(-1, 3) for name, own in rows.items()}
    start, gaps = found.start.as_recorded, len(found.of_type(HostGap))
    return Run(found.path, start, brackets, found.stop, found, gaps, arrived)


def table(run: Run, name: str) -> pa.Table:
    """Return a table of the run: samples, replies or progress."""
    return getattr(run.whole, name)


def column(of: pa.Table, name: str) -> list[Any]:
    """Return a column as Python values, null as ``None``."""
    return list(of.column(name).to_pylist())


def by_sample(run: Run, name: str) -> dict[str, Any]:
    """Return a column of the samples by sample name."""
    samples = table(run, "samples")
    return dict(zip(column(samples, "id"), column(samples, name), strict=True))


def ticks(of: pa.Table, name: str) -> tuple[Indices, Bools]:
    """Return a column of whole numbers as int64 with null as 0, and whether each value is not null."""
    found = of.column(name)
    return array_of(found, 0), np.asarray(found.is_valid())


def traces(run: Run) -> Mapping[str, Trace]:
    """Return the traces of a run by the name of their rail."""
    return run.whole.traces


def blocks(trace: Trace, origin: int, within: tuple[float, float] = (-np.inf, np.inf)) -> Iterator[Floats]:
    """Yield the readings that begin between two ticks (``within``, from ``origin``), and ``BESIDE`` more on each side.

    Each block is float64 of shape (4, n) with at most ``BLOCK`` readings. The rows are begin and end (ticks of the
    meter's clock, counted from ``origin``), raw value, and 1 for a reading at the end of its range, else 0. Raises
    ``StoreError`` for a trace whose times do not rise.
    """
    last, limit = -np.inf, np.inf if trace.rail.range_max is None else trace.rail.range_max
    low, high = (bisect_left(trace.start_tick, origin + tick) for tick in within)
    for first in range(max(0, low - BESIDE), min(high + BESIDE, len(trace.value)), BLOCK):
        part = trace.part(first, min(first + BLOCK, high + BESIDE))
        begin, end = (np.asarray(tick - origin, dtype=np.float64) for tick in (part.start_tick, part.end_tick))
        if begin[0] <= last or np.any(np.diff(begin) <= 0) or np.any(end < begin):
            refuse(f"the trace of {trace.rail.name}", "has readings whose times do not rise")
        last = begin[-1]
        over = part.overload | (part.value >= limit)
        yield finite(np.array([begin, end, part.value, over]))


def finite(block: Floats) -> Floats:
    """Return the readings of a block whose values are numbers."""
    good = np.isfinite(block[2])
    return block if good.all() else block[:, good]
