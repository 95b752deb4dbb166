"""Write streams of spikes for other programs: AER-DAT2.0 for jAER, and arrays of spike times for PyNN."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rig.errors import refused
from rig.recording.disk.atomic_write import replacing
from scenarios.workloads.ne15 import aer
from scenarios.workloads.ne15.aer import write_aedat
from scenarios.workloads.ne15.digit_stream import Events
from scenarios.workloads.ne15.mnist import SIDE


def export(events: Events, sources: int, out: Path) -> None:
    """Write a stream of 28 x 28 pixels or of a retina as ``.aedat``, or of any sources as ``.npy``.

    The ``.npy`` has one array of spike times in milliseconds for each source, as in PyNN's
    ``SpikeSourceArray(spike_times=...)``; NumPy reads it with ``allow_pickle=True``. Raises ``UsageError`` for another
    suffix and if ``out`` cannot be written. Raises ``DataError`` for values that do not fit into the format.
    """
    if out.suffix == ".aedat":
        write_aedat(out, events, aer.SIDE if sources == 2 * aer.PIXELS else SIDE)
    elif out.suffix == ".npy":
        order = np.lexsort((events[:, 0], events[:, 1]))
        arrays = np.empty(sources, object)
        arrays[:] = np.split(1e-3 * events[order, 0], np.searchsorted(events[order, 1], range(1, sources)))
        with replacing(out) as file:
            np.save(file, arrays, allow_pickle=True)
    else:
        raise refused("out", str(out), "Name a file that ends in .aedat or .npy")
