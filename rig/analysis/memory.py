"""Is there memory for the estimators? Asked before they begin, so that the kernel never ends them halfway."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rig.errors import MeasurementRefusedError

RUN_BYTES = 26
"""For each reading, once a run is opened: its value, both ticks and two flags; see ``rig.recording.reader.Trace``."""
HELD_BYTES = 88
"""For each reading of every rail, from then to the end of an evaluation, the run itself included."""
WORK_BYTES = 112
"""For each reading of the largest rail, at most at a time. With what is held, a tenth above the most memory that
runs of 5e6 to 1e8 readings took, with hum and without (docs/how-to/long-traces.md)."""
FIXED_BYTES = 300 << 20
"""The interpreter, its libraries and the pictures."""
SMALL = 1_000_000
"""Readings below which nobody asks."""


def needed_bytes(readings: Sequence[int]) -> int:
    """Memory that opening and evaluating a run takes, for so many readings by rail."""
    return FIXED_BYTES + HELD_BYTES * sum(readings) + WORK_BYTES * max(readings, default=0)


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the kernel would give to new work without swapping, and the control group allows; None where nobody says.

    ``MemAvailable`` of proc(5); ``memory.max`` and ``memory.current`` less ``inactive_file`` of control groups v2, or
    their older names.
    """
    found = [_meminfo(proc / "meminfo"), *(_group(folder) for folder in _groups(proc, cgroup))]
    return min((x for x in found if x is not None), default=None)


def check_room(
    readings: Sequence[int], *, opened: bool = True, available: Callable[[], int | None] = available_bytes
) -> None:
    """Refuse to evaluate what does not fit; ``opened`` says that the run is already held.

    Raises ``MeasurementRefusedError`` that says what it would take, and the way round.
    """
    if sum(readings) < SMALL:
        return
    room = available()
    needed = needed_bytes(readings) - (RUN_BYTES * sum(readings) if opened else 0)
    if room is None or needed <= room:
        return
    scale = max((needed - FIXED_BYTES) / max(room - FIXED_BYTES, 1), 1.0)
    fewer = f", or average {math.ceil(scale)} readings to one before it is imported" if scale < 1e3 else ""
    gigabytes = f"about {needed / 1e9:.1f} GB and {room / 1e9:.1f} GB are available"
    raise MeasurementRefusedError(
        f"evaluating {sum(readings):,} readings takes {gigabytes}",
        field="memory",
        value=needed,
        remedy="Sum its windows with `rig reduce RUN`, which needs no memory for readings and states no uncertainty; "
        f"report it on a machine with more{fewer}",
    )


def check_recording(path: Path) -> None:
    """``check_room`` of a run directory before it is opened, by what its traces say of themselves.

    Raises ``MeasurementRefusedError``. What cannot be read is left to who opens it.
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
            pass  # what a crash tore off
        counts.append(count)
    check_room(counts, opened=False)


def _meminfo(path: Path) -> int | None:
    for line in _lines(path):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """The folder of this process's control group and of those around it."""
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
