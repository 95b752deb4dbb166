"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path

from rig.analysis.memory import available_bytes

_STATM = Path("/proc/self/statm")


def free_bytes() -> int | None:
    """The smaller of what the machine or its container has free and what the process's limit leaves, in bytes.

    None where the system states neither; Linux does.
    """
    return min((known for known in (available_bytes(), _below_limit()) if known is not None), default=None)


def _below_limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    held = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if _STATM.exists() else 0
    return max(limit - held, 0)
