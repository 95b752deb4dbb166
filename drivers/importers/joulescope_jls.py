"""Joulescope: recordings in the JLS v2 format, read by pyjls."""

import logging
import shutil
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from drivers.failures import UNFIT, raising
from drivers.importers.files import bad_file, unstated
from drivers.importers.single_trace import Readings, SingleTrace, check_power, conversion, single_trace, watts
from drivers.importers.time_axis import BLOCK, TimeAxis
from rig.errors import DataError, reason
from rig.plugins import imported
from rig.types import Floats, Rail

MAGIC = b"jlsfmt\r\n \n \x1a  \xb2\x1c"
HEADER = struct.Struct("<16sQ")
"""The identification and the length of the file; the length is 0 until the recording is closed (jls/format.h)."""
UNITS = {"power": "W", "current": "A", "voltage": "V"}
FLOATS = {(0x04, 32), (0x04, 64)}
"""Base type and size in bits of the data types that hold real numbers (jls/format.h)."""
RAIL = "joulescope"
T = TypeVar("T")


@single_trace
def open_import(source: Path, *, supply_v: float | None = None, instrument: str | None = None) -> SingleTrace:
    """Import the power of a Joulescope recording (JLS v2): its power, else current times voltage or ``supply_v``.

    Seconds count from the first sample that all its signals have. If the file has several instruments, ``instrument``
    names one of them. Samples that the instrument dropped are left out. Raises ``UsageError`` for an option that must
    be stated, ``DataError`` for a file that is damaged or was not closed, ``MissingExtraError`` without pyjls.
    """
    file = _File(source)
    unit, taken, others = _taken(_chosen(file.signals, instrument, source), source)
    first = taken[0]
    if others:
        check_power(source, ((p, vi) for (_, p), (_, vi) in zip(file.blocks(taken), file.blocks(others), strict=False)))
    rail = Rail(RAIL, "mean", conversion(unit, supply_v), first.rate_hz)
    details = {"signals": [s.name for s in taken], "source": first.source}
    return SingleTrace("Joulescope", [Readings(rail, TimeAxis(0, first.rate_hz), file.blocks(taken))], details=details)


@dataclass(frozen=True)
class _Signal:
    number: int
    name: str
    unit: str
    source: str
    rate_hz: float
    first: int
    length: int


class _File:
    """A private copy of a JLS file, because pyjls repairs a damaged file in place and an original must not change."""

    def __init__(self, source: Path) -> None:
        self._source = source
        _check_closed(source)
        folder = tempfile.mkdtemp(prefix="jls-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._copy = Path(folder) / "copy.jls"
        with raising(lambda error: _bad(source, f"cannot be copied: {error}"), OSError):
            shutil.copyfile(source, self._copy)
        self.signals = self._with(_signals)

    def blocks(self, taken: list[_Signal]) -> Iterator[tuple[None, Floats]]:
        """Yield the signal in blocks; two signals are multiplied where both have samples, by the ids of samples."""
        begin, end = max(s.first for s in taken), min(s.first + s.length for s in taken)
        for start in range(begin, end, BLOCK):
            count = min(BLOCK, end - start)
            parts = [self._block(s.number, start - s.first, count) for s in taken]
            yield None, parts[0] if len(parts) == 1 else watts(parts[0], parts[1])

    def _block(self, number: int, start: int, count: int) -> Floats:
        values = np.asarray(self._with(lambda reader: reader.fsr(number, start, count)))
        if values.shape != (count,) or not np.issubdtype(values.dtype, np.floating):
            raise _bad(self._source, f"holds {values.shape} {values.dtype} where it says {count} numbers")
        return np.where(np.isnan(values), values.dtype.type(np.nan), values)  # no signalling NaN

    def _with(self, use: Callable[[Any], T]) -> T:
        pyjls = imported("pyjls", "a JLS file", "joulescope", field="importer", value="joulescope-jls")
        log = logging.getLogger("pyjls")
        if not log.handlers:  # keep its messages off standard error, because the rig's own error names the damage
            log.addHandler(logging.NullHandler())
        said = "cannot be read by pyjls: "
        with (
            raising(lambda e: _bad(self._source, said + str(e)[:100]), *UNFIT),
            pyjls.Reader(str(self._copy)) as reader,
        ):
            return use(reader)


def _check_closed(source: Path) -> None:
    with raising(lambda error: _bad(source, f"cannot be read: {reason(error)}"), OSError):
        with source.open("rb") as file:
            head = file.read(HEADER.size)
        size = source.stat().st_size
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise _bad(source, "is not a JLS v2 file")
    length = HEADER.unpack(head)[1]
    if length != size:
        what = f"has {size} bytes but states {length}: it was cut off, or never closed"
        remedy = "Copy it again. Or open it in the Joulescope UI, which repairs it, and import what the UI saves"
        raise bad_file(source, what, remedy, value=size)


def _signals(reader: Any) -> list[_Signal]:
    """Return every signal of real numbers at a fixed rate with at least two samples."""
    found = []
    for number, s in reader.signals.items():
        real = (s.data_type & 0x0F, (s.data_type >> 8) & 0xFF) in FLOATS
        if s.signal_type == 0 and real and s.sample_rate > 0 and s.length >= 2:
            owner = reader.sources.get(s.source_id)
            name = f"{owner.name} {owner.serial_number}".strip() if owner else str(s.source_id)
            found.append(
                _Signal(
                    number,
                    str(s.name),
                    str(s.units),
                    name,
                    float(s.sample_rate),
                    int(s.sample_id_offset),
                    int(s.length),
                )
            )
    return found


def _chosen(signals: list[_Signal], instrument: str | None, source: Path) -> list[_Signal]:
    """Return the signals of one instrument."""
    known = sorted({s.source for s in signals})
    if not known:
        raise _bad(source, "holds no signal of real numbers")
    fitting = [k for k in known if instrument is None or instrument == k or instrument in k.split()]
    if len(fitting) != 1:
        what = f"{source.name} holds the instruments {', '.join(known)}"
        raise unstated("instrument", what, f"instrument={known[0]}", instrument)
    return [s for s in signals if s.source == fitting[0]]


def _taken(signals: list[_Signal], source: Path) -> tuple[Literal["W", "A"], list[_Signal], list[_Signal]]:
    """Return the unit of the rail (W or A), its signals (two are multiplied), and current and voltage to check them."""
    by_name: dict[str, _Signal] = {}
    for s in signals:
        name = s.name.strip().lower()
        if name in UNITS and s.unit != UNITS[name]:
            raise _bad(source, f"states its {name} in {s.unit!r}")
        if by_name.setdefault(name, s) is not s and name in UNITS:
            raise _bad(source, f"holds two signals {s.name}")
    current, voltage = by_name.get("current"), by_name.get("voltage")
    both = [current, voltage] if current and voltage and current.rate_hz == voltage.rate_hz else []
    if "power" in by_name:
        return "W", [by_name["power"]], both
    if current is None:
        raise _bad(source, f"holds neither power nor current: {', '.join(by_name)[:100]}")
    if voltage is None:
        return "A", [current], []
    if not both:
        raise _bad(source, f"samples current at {current.rate_hz} Hz and voltage at {voltage.rate_hz} Hz")
    return "W", both, []


def _bad(source: Path, what: str) -> DataError:
    return bad_file(source, what, "Check the file; record again")
