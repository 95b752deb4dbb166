"""Lines of text as readings: columns declared as NAME:UNIT, the check of lines, and the options of a board.

This module uses no port and no clock. The declaration ``time:ms, vdd:mW, bus:V, current:mA, n:count, -, sum:xor8``
names every column in order. A column is one of time (s, ms, us, ns), a rail (W, A, V, J with a prefix), a line counter,
or skipped (``-``). The last column may be a checksum in hexadecimal.
"""

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial, reduce
from operator import xor
from typing import Annotated, Literal

import numpy as np

from drivers.meters.common_options import Instrument
from drivers.units import ALIASES, NS, unit_of
from rig.bench.settings import Positive, within
from rig.errors import UsageError, refused
from rig.types import Chunk, Rail

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "whitespace": None}
CHECKSUMS: dict[str, tuple[int, Callable[[bytes], int]]] = {
    "xor8": (2, lambda data: reduce(xor, data, 0)),
    "sum8": (2, lambda data: sum(data) & 0xFF),
    "crc32": (8, zlib.crc32),
}
NO_NUMBER = ("ovf", "inf", "+inf", "-inf", "nan", "-nan", "ol", "overflow")
"""Arduino's ``Print`` and common sketches write these words for a number out of range."""
UNITS = ("W", "A", "V", "J")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.(?P<part>\d*))?|\.(?P<bare>\d+))(?P<power>[eE][+-]?\d{1,3})?")


class LineError(ValueError):
    """A line that is not a reading. The message completes a sentence whose subject is the line."""


@dataclass(frozen=True)
class Column:
    """One column. ``factor`` converts its numbers to the SI unit ``si``, and a time to nanoseconds."""

    name: str
    role: Literal["time", "rail", "count", "check", "skip"]
    unit: str = ""
    si: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Row:
    """A valid line.

    ``time_ns`` is the time that the board printed; ``time_step_ns`` is the step of its last digit. ``time_ns`` and
    ``count`` are None without such a column. The other fields have one entry for each rail: ``value`` in the rail's SI
    unit (NaN if the board printed no number), ``flag`` set for such a NaN, and ``step``, the step of the last digit.
    """

    time_ns: int | None
    time_step_ns: float
    count: int | None
    value: tuple[float, ...]
    flag: tuple[bool, ...]
    step: tuple[float, ...]


@dataclass(frozen=True)
class Layout:
    """The format of a line. If ``separator`` is None, any run of spaces and tabs separates columns."""

    columns: tuple[Column, ...]
    separator: str | None
    ignore: re.Pattern[str] | None

    @property
    def rails(self) -> tuple[Column, ...]:
        """Return the columns that become rails, in order."""
        return tuple(c for c in self.columns if c.role == "rail")

    def has(self, role: str) -> bool:
        """Return whether there is a column with this role."""
        return any(c.role == role for c in self.columns)

    def ignored(self, text: str) -> bool:
        """Return whether a line is empty, a comment or a heading."""
        return not text or (self.ignore is not None and self.ignore.match(text) is not None)

    def row(self, text: str) -> Row:
        """Parse one line. Raises ``LineError`` for a line that is not exactly as declared."""
        cells = self._cells(text)
        if len(cells) != len(self.columns):
            raise LineError(f"has {len(cells)} columns, and {len(self.columns)} are declared")
        time_ns, time_step_ns, count = None, 0.0, None
        found: list[tuple[float, bool, float]] = []
        for column, cell in zip(self.columns, cells, strict=True):
            if column.role == "time":
                time_ns, time_step_ns = _time(column, cell)
            elif column.role == "count":
                count = _whole(column, cell)
            elif column.role == "rail":
                found.append(_value(column, cell))
        value, flag, step = zip(*found, strict=True)
        return Row(time_ns, time_step_ns, count, value, flag, step)

    def _cells(self, body: str) -> list[str]:
        last = self.columns[-1]
        tail: list[str] = []
        if last.role == "check":
            body, sum_ = _cut(body, self.separator)
            _checked(last, body, sum_)
            tail = [sum_]
        return [cell.strip() for cell in body.split(self.separator)] + tail


def layout_of(columns: str, separator: str, ignore: str = "") -> Layout:
    """Parse the declaration of the columns. Raises ``UsageError`` if it is ambiguous or has an unknown unit."""
    found = tuple(_column(part.strip()) for part in columns.split(",")) if columns.strip() else ()
    for role in ("time", "count", "check"):
        if sum(c.role == role for c in found) > 1:
            raise _bad("columns", columns, f"has more than one column of {role}", "Skip all but one with -")
    names = [c.name for c in found if c.role == "rail"]
    if not names or len(set(names)) < len(names):
        what = "names no rail" if not names else "names a rail twice"
        raise _bad("columns", columns, what, "Write columns='time:ms, vdd:mW', every column in its order")
    if any(c.role == "check" for c in found[:-1]):
        remedy = "Put the checksum at the end of the line"
        raise _bad("columns", columns, "has a checksum before the last column", remedy)
    if separator not in (*SEPARATORS, ",", ";"):
        raise _bad("separator", separator, "is not a separator", f"Give {', '.join(SEPARATORS)}")
    try:
        pattern = re.compile(ignore) if ignore else None
    except re.error as error:
        remedy = "Give a regular expression; lines that match it are left out"
        raise _bad("ignore", ignore, f"is not a regular expression: {error}", remedy) from error
    return Layout(found, SEPARATORS.get(separator, separator), pattern)


def by_rail(option: str, text: str | None, names: tuple[str, ...]) -> dict[str, str]:
    """Parse ``1.2`` for all of ``names``, or ``vdd=1.2, io=1.8`` for some. Raises ``UsageError`` for another name."""
    if text is None or not text.strip():
        return {}
    if "=" not in text:
        return dict.fromkeys(names, text.strip())
    found = {}
    for part in text.split(","):
        name, _, value = (side.strip() for side in part.partition("="))
        if name not in names or not value:
            remedy = f"Write RAIL=VALUE with a rail of {', '.join(names)}"
            raise _bad(option, text, f"contains {part.strip()!r}", remedy)
        found[name] = value
    return found


def numbers_by_rail(option: str, text: str | None, names: tuple[str, ...]) -> dict[str, float]:
    """Return the values of ``by_rail`` as numbers. Raises ``UsageError`` for a number that is not above zero."""
    found = by_rail(option, text, names)
    for value in found.values():
        if not (_NUMBER.fullmatch(value) and 0 < float(value) < math.inf):
            raise _bad(option, value, "is not a number above zero", "Write 1.2, or RAIL=1.2, RAIL=1.8")
    return {name: float(value) for name, value in found.items()}


def _column(text: str) -> Column:
    if text == "-":
        return Column("-", "skip")
    name, _, unit = (side.strip() for side in text.rpartition(":"))
    plain = ALIASES.get(unit.lower(), unit)
    if name and plain in NS:
        return Column(name, "time", plain, "s", float(NS[plain]))
    if name and unit == "count":
        return Column(name, "count", unit)
    if name and unit in CHECKSUMS:
        return Column(name, "check", unit)
    found = unit_of(unit)
    if not name or found is None or found[0] not in UNITS:
        known = f"W, A, V or J with a prefix (mW, uA), s, ms, us, ns, count, {', '.join(CHECKSUMS)}, or - to skip it"
        raise _bad("columns", text, "does not state a unit", f"Write NAME:UNIT with {known}")
    return Column(name, "rail", unit, found[0], found[1])


def _cut(body: str, separator: str | None) -> tuple[str, str]:
    """Split a line into text and checksum, at its last separator or at its ``*``."""
    at = body.rfind("*")
    parts = [body[:at], body[at + 1 :]] if at >= 0 else body.rsplit(separator, 1)
    if len(parts) != 2:
        raise LineError("has no checksum")
    return parts[0], parts[1].strip()


def _checked(column: Column, body: str, text: str) -> None:
    digits, compute = CHECKSUMS[column.unit]
    if not re.fullmatch(rf"(?:0[xX])?[0-9a-fA-F]{{1,{digits}}}", text):
        raise LineError(f"has {text!r} where its {column.unit} should be")
    if int(text, 16) != compute(body.encode("latin-1")):
        raise LineError(f"does not match its {column.unit}")


def _whole(column: Column, cell: str) -> int:
    if not re.fullmatch(r"\d{1,18}", cell):
        raise LineError(f"has {cell!r} for {column.name}")
    return int(cell)


def _time(column: Column, cell: str) -> tuple[int, float]:
    found = _NUMBER.fullmatch(cell)
    if found is None or cell[0] == "-" or found["power"] or len(cell) > 24:
        raise LineError(f"has {cell!r} for {column.name}")
    decimals = len(found["part"] or found["bare"] or "")
    return round(Decimal(cell) * int(column.factor)), column.factor / 10**decimals


def _value(column: Column, cell: str) -> tuple[float, bool, float]:
    """Return the number in SI (NaN if the cell is no number), whether it is NaN, and the step of its last digit."""
    for mark in (f"{column.name}:", f"{column.name}="):
        cell = cell.removeprefix(mark).strip()
    cell = cell.removesuffix(column.unit).strip()
    if cell.lower() in NO_NUMBER:
        return math.nan, True, 0.0
    found = _NUMBER.fullmatch(cell)
    if found is None:
        raise LineError(f"has {cell!r} for {column.name}")
    value = float(cell) * column.factor
    if not math.isfinite(value):
        return math.nan, True, 0.0
    step = float(f"1{found['power'] or 'e0'}") * 10.0 ** -len(found["part"] or found["bare"] or "")
    return value, False, step * column.factor


def _bad(option: str, value: str, what: str, remedy: str) -> UsageError:
    return refused(option, value, remedy, f"option {option}={value!r} {what}")


# ---- from a line to a reading -------------------------------------------------------------

Stamped = Literal["count", "column"]
STAMP_AT = {"start": 0.0, "middle": 0.5, "end": 1.0, "": 0.5}
"""The point of a reading to which its time refers, as a share of its length; 0.5 if unknown (empty)."""


@dataclass(frozen=True)
class Board:
    """The options. See ``meter.open_meter``."""

    own: Instrument = Instrument("serial-text", 5e-3)
    port: str = ""
    baud: int = 115200
    columns: str = ""
    separator: str = "comma"
    ignore: str = "#"
    start_command: str = ""
    stop_command: str = ""
    stamp_at: Literal["start", "middle", "end", ""] = "end"
    rate_hz: Annotated[float, partial(within, 0.0, 1e6, "Hz")] = 0.0
    kind: str = "mean"
    aperture_s: Positive | None = None
    filter_tau_s: Annotated[float, partial(within, 0.0, 1e3, "s")] = 0.0
    timer_bits: Annotated[int, partial(within, 0, 64)] = 32
    counter_wrap: Annotated[int, partial(within, 0, 2**62)] = 0
    supply_v: str | None = None
    voltage: str | None = None
    resolution: str | None = None
    range_max: str | None = None
    latency_s: Annotated[float, partial(within, 0.0, 10.0, "s")] | None = None
    bad_share: Annotated[float, partial(within, 0.0, 0.5)] = 0.01
    timeout_s: Positive = 3.0
    boot_s: Positive = 5.0
    dtr: bool = True
    serial_number: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class Plan:
    """How the lines of a ``board`` become readings, stamped by a time ``column`` or by their ``count``.

    A mean lasts ``aperture_s`` (0: the readings are points). A line arrives at most ``latency_s`` after its reading.
    """

    board: Board
    layout: Layout
    stamp: Stamped
    aperture_s: float
    latency_s: float = 0.0

    @property
    def at(self) -> float:
        """Return the point of a reading to which its time refers: 0 is the start, 1 the end."""
        return STAMP_AT[self.board.stamp_at] if self.stamp == "column" else 1.0

    @property
    def stamp_uncertainty_s(self) -> float:
        """Return the largest error of a time (s) if its point in the reading is unknown."""
        return 0.5 * self.aperture_s if self.stamp == "column" and not self.board.stamp_at else 0.0

    @property
    def wrap_ns(self) -> int:
        """Return the value at which the board's time wraps; 0 if it never wraps."""
        unit_ns = next((column.factor for column in self.layout.columns if column.role == "time"), 0.0)
        return round(unit_ns) << self.board.timer_bits if self.board.timer_bits else 0


@dataclass
class Readings:
    """Readings in order: stamps (ns of the meter's clock), and values and flags for each rail."""

    tick: list[int] = field(default_factory=list)
    value: list[tuple[float, ...]] = field(default_factory=list)
    flag: list[tuple[bool, ...]] = field(default_factory=list)

    def add(self, tick: int, value: tuple[float, ...], flag: tuple[bool, ...]) -> None:
        self.tick.append(tick)
        self.value.append(value)
        self.flag.append(flag)

    def fill(self, after: int, tick: int, missing: int, rails: int) -> None:
        """Add NaN for each missing reading, spread evenly between two ticks."""
        for k in range(missing):
            self.add(after + (tick - after) * (k + 1) // (missing + 1), (np.nan,) * rails, (False,) * rails)

    def chunks(self, rails: Sequence[Rail], plan: Plan) -> list[Chunk]:
        """Return one chunk for each rail: on a grid if stamped by count, else with the ticks of each reading."""
        if not self.value:
            return []
        value = np.array(self.value, dtype=np.float64)
        flags = np.array(self.flag, dtype=np.uint8)
        if plan.stamp == "count":
            return [Chunk(rail.name, value[:, k], flags=flags[:, k]) for k, rail in enumerate(rails)]
        tick = np.array(self.tick, dtype=np.int64)
        end = tick + round((1.0 - plan.at) * plan.aperture_s * 1e9)
        start = end - round(plan.aperture_s * 1e9)
        ticks = {rail.name: (tick, tick) if rail.kind == "cumulative" else (start, end) for rail in rails}
        return [Chunk(rail.name, value[:, k], *ticks[rail.name], flags[:, k]) for k, rail in enumerate(rails)]
