"""Check before an evaluation begins that there is enough memory for it.

Otherwise the kernel would kill the process halfway.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from rig.errors import MeasurementRefusedError
from rig.recording.layout import read_files

RUN_BYTES = 26
"""Bytes for each reading of an opened run: value, both ticks and two flags; see ``rig.recording.reader.Trace``."""
HELD_BYTES = 88
"""Bytes for each reading of every rail until the evaluation ends, including those of the run itself."""
WORK_BYTES = 112
"""Most bytes at a time for each reading of the largest rail. The sum is a tenth above the most memory that runs of
5e6 to 1e8 readings took, with hum and without (docs/how-to/long-traces.md)."""
FIXED_BYTES = 300 << 20
"""Bytes of the interpreter, its libraries and the figures."""
SMALL = 1_000_000
"""Fewer readings than this are not checked."""
LIBRARY_BYTES = 128 << 20
"""What OpenBLAS maps for its work, in numpy and in scipy each. If it gets none, it asks again without end."""


def needed_bytes(readings: Sequence[int]) -> int:
    """Return how many bytes the opening and evaluation of a run take, from the number of readings of each rail."""
    return FIXED_BYTES + HELD_BYTES * sum(readings) + WORK_BYTES * max(readings, default=0)


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many bytes new work can take without swapping, within the control groups of this process.

    psutil does not know the control groups of Linux, version 2 or 1. Each one leaves its limit minus its usage, plus
    the part of the file cache that the kernel frees first.
    """
    limits = [_left_in(group) for group in _groups(proc, cgroup)]
    return min([int(psutil.virtual_memory().available), *(left for left in limits if left is not None)])


def check_memory(
    readings: Sequence[int], *, opened: bool = True, available: Callable[[], int] = available_bytes
) -> None:
    """Check that there is enough memory to evaluate rails with these numbers of readings.

    ``opened`` says that the run is already in memory. Raises ``MeasurementRefusedError``, which states how much memory
    the evaluation needs and what to do instead.
    """
    _check_limit()
    if sum(readings) < SMALL:
        return
    free = available()
    needed = needed_bytes(readings) - (RUN_BYTES * sum(readings) if opened else 0)
    if needed <= free:
        return
    scale = max((needed - FIXED_BYTES) / max(free - FIXED_BYTES, 1), 1.0)
    fewer = f", or average {math.ceil(scale)} readings to one before it is imported" if scale < 1e3 else ""
    gigabytes = f"about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are available"
    raise MeasurementRefusedError(
        f"evaluating {sum(readings):,} readings takes {gigabytes}",
        field="memory",
        value=needed,
        remedy="Sum its windows with `rig reduce RUN`, which needs no memory for readings and states no uncertainty; "
        f"report it on a machine with more{fewer}",
    )


def _check_limit() -> None:
    try:
        mmap.mmap(-1, LIBRARY_BYTES).close()
    except OSError as error:
        raise MeasurementRefusedError(
            f"evaluating takes {LIBRARY_BYTES >> 20} MiB more than this process gets: {error}",
            field="memory",
            value=LIBRARY_BYTES,
            remedy="Raise its limit (`ulimit -v`) or free memory, and report the recording again",
        ) from error


def check_recording(path: Path) -> None:
    """Check that there is enough memory for a run directory, by the lengths that its traces declare.

    Raises ``MeasurementRefusedError``, and ``StoreError`` for a link in the place of a trace. A trace that cannot be
    read is not reported here but when the run is opened.
    """
    import pyarrow as pa

    sizes = [file for file in read_files(path, ()) if file.parent.name == "traces"]
    if sum(file.stat().st_size for file in sizes) < SMALL:
        return
    counts = []
    for file in sizes:
        count = 0
        try:
            with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    count += batch.num_rows
        except (pa.ArrowException, EOFError, OSError):
            pass  # a crash cut the file off
        counts.append(count)
    check_memory(counts, opened=False)


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """The folders of this process's control group and of those that hold it."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        number, kinds, inner = line.split(":", 2)
        if number == "0" or "memory" in kinds.split(","):
            root = cgroup if number == "0" else cgroup / "memory"
            folder = root / inner.strip().lstrip("/")
            found += [folder, *(p for p in folder.parents if p == root or root in p.parents)]
    return found


def _left_in(group: Path) -> int | None:
    """Bytes that a control group leaves; None where it sets no limit."""
    for limit, current, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        texts = ["".join(_lines(group / name)).strip() for name in (limit, current)]
        if all(t.isdigit() for t in texts):
            freed = [int(x.split()[1]) for x in _lines(group / "memory.stat") if x.startswith(cache + " ")]
            return max(int(texts[0]) - int(texts[1]) + sum(freed), 0)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
