"""Whether memory suffices for an evaluation, checked before it begins so that the kernel never ends it halfway."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rig.errors import MeasurementRefusedError

RUN_BYTES = 26
"""Per reading of an opened run: its value, both ticks and two flags; see ``rig.recording.reader.Trace``."""
HELD_BYTES = 88
"""Per reading of every rail, held to the end of an evaluation, the run itself included."""
WORK_BYTES = 112
"""Per reading of the largest rail, at most at a time.

Together with ``HELD_BYTES`` it is a tenth above the most memory that runs of 5e6 to 1e8 readings took, with hum and
without (docs/how-to/long-traces.md)."""
FIXED_BYTES = 300 << 20
"""The interpreter, its libraries and the pictures."""
SMALL = 1_000_000
"""Readings below which memory is not checked."""


def needed_bytes(readings: Sequence[int]) -> int:
    """Memory that opening and evaluating a run takes, from the number of readings of each rail."""
    return FIXED_BYTES + HELD_BYTES * sum(readings) + WORK_BYTES * max(readings, default=0)


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that the kernel and the control group would give to new work without swapping; None if neither tells.

    ``MemAvailable`` of proc(5); ``memory.max`` and ``memory.current`` less ``inactive_file`` of control groups v2, or
    their older names.
    """
    found = [_meminfo(proc / "meminfo"), *(_group(folder) for folder in _groups(proc, cgroup))]
    return min((x for x in found if x is not None), default=None)


def check_memory(
    readings: Sequence[int], *, opened: bool = True, available: Callable[[], int | None] = available_bytes
) -> None:
    """Raise ``MeasurementRefusedError`` if an evaluation does not fit; ``opened`` says that the run is already held."""
    if sum(readings) < SMALL:
        return
    free = available()
    needed = needed_bytes(readings) - (RUN_BYTES * sum(readings) if opened else 0)
    if free is None or needed <= free:
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


def check_recording(path: Path) -> None:
    """``check_memory`` for a run directory before it is opened, from the sizes of its traces.

    Raises ``MeasurementRefusedError``. Files that cannot be read are left to the reader.
    """
    import pyarrow as pa

    sizes = sorted((path / "traces").glob("*.arrows"))
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
            pass  # the end that a crash tore off
        counts.append(count)
    check_memory(counts, opened=False)


def _meminfo(path: Path) -> int | None:
    for line in _lines(path):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """The folders of this process's control group and of the groups around it."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        number, kinds, inner = line.split(":", 2)
        if number == "0" or "memory" in kinds.split(","):
            root = cgroup if number == "0" else cgroup / "memory"
            folder = root / inner.strip().lstrip("/")
            found += [folder, *(p for p in folder.parents if p == root or root in p.parents)]
    return found


def _group(folder: Path) -> int | None:
    for limit, current, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        texts = ["".join(_lines(folder / name)).strip() for name in (limit, current)]
        if all(t.isdigit() for t in texts):
            freed = [int(x.split()[1]) for x in _lines(folder / "memory.stat") if x.startswith(cache + " ")]
            return max(int(texts[0]) - int(texts[1]) + sum(freed), 0)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
