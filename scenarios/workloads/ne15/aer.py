"""AER-DAT2.0 files (.aedat) of a 128 x 128 retina: ``#`` lines, then 32-bit address and microseconds, big-endian.

Bits 1 to 7 of an address are x, bits 8 to 14 are y, and bit 0 is set for OFF events. There are two dialects. An OFF
event has the address of the pixel's ON event plus 1 in jAER, and minus 1 in NE15-MNIST. After the subtraction, bits 1
to 7 are the x of the neighbouring pixel, and must be corrected.

``export`` also writes arrays of spike times for PyNN.
"""

from pathlib import Path

import numpy as np

from rig.bench.settings import one_of
from rig.errors import DataError, reason, refused
from rig.recording.disk.files import replacing
from scenarios.workloads.ne15 import mnist
from scenarios.workloads.ne15.digit_stream import Events

SIDE = 128
PIXELS = SIDE * SIDE
DIALECTS = ("jaer", "ne15")
_MAGIC = b"#!AER-DAT2.0"
_HEADER = (
    b"#!AER-DAT2.0\r\n# This is a raw AE data file - do not edit\r\n"
    b"# Data format is int32 address, int32 timestamp (8 bytes total), repeated for each event\r\n"
    b"# Timestamps tick is 1 us\r\n"
)
_MOST_US = 2**32 - 1


def read_aedat(path: Path, dialect: str) -> Events:
    """Return the events as microseconds and address: ``y * 128 + x`` for ON events, 16384 more for OFF events.

    Raises ``UsageError`` for an unknown dialect. Raises ``DataError`` for a file that cannot be read or has another
    format, a file that ends inside an event, an address of no pixel, and times that decrease.
    """
    one_of(DIALECTS, dialect=dialect)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unfit(path, "data", str(path), f"it cannot be read: {reason(error)}") from error
    if not data.startswith(_MAGIC):
        raise _unfit(path, "data", data[:12].hex(), "it does not begin with #!AER-DAT2.0")
    start = 0
    while data[start : start + 1] == b"#":
        end = data.find(b"\n", start)
        start = len(data) if end < 0 else end + 1
    if (len(data) - start) % 8:
        raise _unfit(path, "size", len(data), "it ends inside an event")
    address, times = np.frombuffer(data, ">u4", offset=start).astype(np.int64).reshape(-1, 2).T
    off = address & 1
    place = address + off if dialect == "ne15" else address
    if (outside := place >> 15 != 0).any():
        raise _unfit(path, "address", int(address[outside][0]), "an address belongs to no pixel")
    if (np.diff(times) < 0).any():
        raise _unfit(path, "time", int(times[:-1][np.diff(times) < 0][0]), "its times go back")
    return np.column_stack([times, off * PIXELS + ((place >> 8) & 127) * SIDE + ((place >> 1) & 127)])


def write_aedat(path: Path, events: Events, side: int, dialect: str = "jaer") -> None:
    """Write events of a sensor of ``side`` x ``side`` pixels; addresses from ``side * side`` on are OFF events.

    Raises ``DataError`` for addresses and times that do not fit into the format. Raises ``UsageError`` for an unknown
    dialect and for a path that cannot be written.
    """
    one_of(DIALECTS, dialect=dialect)
    times, address = events[:, 0], events[:, 1]
    for field, values, most in (("address", address, 2 * side * side - 1), ("time", times, _MOST_US)):
        if len(values) and not 0 <= values.min() <= values.max() <= most:
            raise _unfit(path, field, int(values.max()), f"each {field} must be 0 to {most} in a .aedat file")
    off, place = address // (side * side), address % (side * side)
    raw = (place // side << 8) + (place % side << 1) + (-off if dialect == "ne15" else off)
    if len(raw) and raw.min() < 0:
        raise _unfit(path, "address", 0, "this dialect has no OFF event of the first pixel: use jaer")
    with replacing(path) as file:
        file.write(_HEADER + np.column_stack([raw, times]).astype(">u4").tobytes())


def _unfit(path: Path, field: str, value: object, why: str) -> DataError:
    remedy = "Give a whole AER-DAT2.0 file of a 128 x 128 sensor"
    return DataError(f"{path} cannot be used: {why}", field=field, value=value, remedy=remedy)


def export(events: Events, sources: int, out: Path) -> None:
    """Write a stream of 28 x 28 pixels or of a retina as ``.aedat``, or of any sources as ``.npy``.

    The ``.npy`` has one array of spike times in milliseconds for each source, as in PyNN's
    ``SpikeSourceArray(spike_times=...)``; NumPy reads it with ``allow_pickle=True``. Raises ``UsageError`` for another
    suffix and if ``out`` cannot be written. Raises ``DataError`` for values that do not fit into the format.
    """
    if out.suffix == ".aedat":
        write_aedat(out, events, SIDE if sources == 2 * PIXELS else mnist.SIDE)
    elif out.suffix == ".npy":
        order = np.lexsort((events[:, 0], events[:, 1]))
        arrays = np.empty(sources, object)
        arrays[:] = np.split(1e-3 * events[order, 0], np.searchsorted(events[order, 1], range(1, sources)))
        with replacing(out) as file:
            np.save(file, arrays, allow_pickle=True)
    else:
        raise refused("out", str(out), "Name a file that ends in .aedat or .npy")
