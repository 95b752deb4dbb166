"""Check before an evaluation begins that the process gets the memory that its libraries need."""

from __future__ import annotations

import mmap

from rig.errors import MeasurementRefusedError

LIBRARY_BYTES = 128 << 20
"""What OpenBLAS maps for its work, in numpy and in scipy each. If it gets none, it asks again without end."""


def check_limit() -> None:
    """Raise ``MeasurementRefusedError`` if a limit of the process leaves no memory for the libraries."""
    try:
        mmap.mmap(-1, LIBRARY_BYTES).close()
    except OSError as error:
        raise MeasurementRefusedError(
            f"evaluating takes {LIBRARY_BYTES >> 20} MiB more than this process gets: {error}",
            field="memory",
            value=LIBRARY_BYTES,
            remedy="Raise its limit (`ulimit -v`) or free memory, and report the recording again",
        ) from error
