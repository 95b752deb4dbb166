"""How many bytes of memory this process may still take."""

from __future__ import annotations

from pathlib import Path

import psutil


def free_bytes() -> int | None:
    """Return the least memory that the machine, the control group and the address space limit (RLIMIT_AS) leave."""
    try:
        import resource
    except ImportError:  # not on Windows
        return available_bytes()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    left = available_bytes() if limit == resource.RLIM_INFINITY else limit - psutil.Process().memory_info().vms
    return max(min(available_bytes(), left), 0)


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many bytes new work can take without swapping, within the control groups of this process.

    psutil ignores the control groups of Linux, version 2 or 1. Each group leaves its limit minus its usage, plus
    the part of the file cache that the kernel frees first.
    """
    limits = [_left_in(group) for group in _groups(proc, cgroup)]
    return min([int(psutil.virtual_memory().available), *(left for left in limits if left is not None)])


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """Return the folders of this process's control group and of its parent groups."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        number, kinds, inner = line.split(":", 2)
        if number == "0" or "memory" in kinds.split(","):
            root = cgroup if number == "0" else cgroup / "memory"
            folder = root / inner.strip().lstrip("/")
            found += [folder, *(p for p in folder.parents if p == root or root in p.parents)]
    return found


def _left_in(group: Path) -> int | None:
    """Return the bytes that a control group leaves; None where it sets no limit."""
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
