"""How many bytes of memory this process may still take."""

from __future__ import annotations

import psutil

from rig.analysis.memory_check import available_bytes


def free_bytes() -> int | None:
    """The least of what the machine, the control group and the address space limit (RLIMIT_AS) leave."""
    try:
        import resource
    except ImportError:  # not on Windows
        return available_bytes()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    left = available_bytes() if limit == resource.RLIM_INFINITY else limit - psutil.Process().memory_info().vms
    return max(min(available_bytes(), left), 0)
