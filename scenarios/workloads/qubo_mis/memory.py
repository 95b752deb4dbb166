"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def free_bytes() -> int | None:
    """The least of what the machine has free, what the process's limit leaves and what a container's leaves.

    None where the system does not say (it says on Linux).
    """
    found = [bytes_ for bytes_ in (_machine(), _process(), _container()) if bytes_ is not None]
    return min(found, default=None)


def _machine() -> int | None:
    for line in _lines(_MEMINFO):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _process() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else max(limit - _used(0), 0)


def _container() -> int | None:
    limit = next(iter(_lines(_CONTAINER_LIMIT)), "max").strip()
    return int(limit) - _used(1) if limit.isdigit() else None


def _used(column: int) -> int:
    """Bytes of this process: 0 virtual, 1 resident."""
    text = next(iter(_lines(_STATM)), "")
    return int(text.split()[column]) * os.sysconf("SC_PAGE_SIZE") if text else 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
