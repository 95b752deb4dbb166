"""Windows of activity and of idle, from a separate table, an option or a digital channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drivers.importers.csv_table import Columns, Table, find, unit_of_time
from drivers.importers.files import bad_file
from drivers.units import NS, named_unit, stamp_ns
from rig.errors import DataError, refused
from rig.importing.checks import DATES_NS, GAP_PERIODS, from_to
from rig.importing.imported import ImportedSpan
from rig.types import MARK_PHASE, Bools, Floats, Indices

IDLE, WARMUP, DEFAULT_PHASE = "idle", "warmup", "inference"
_RESERVED = (IDLE, WARMUP)
ALIKE = 0.7
"""A phase or column that resembles a known name at least this much (``difflib``) is refused as a misspelling."""
COLUMNS = ("start", "end", "phase", "inferences")


@dataclass(frozen=True)
class Windows:
    """Spans and idle windows in ns of the trace's axis, and the files that state them.

    ``tick_ns`` is the sampling period of the channel that bounds the spans, or 0 if stamps bound them. ``notes`` are
    sentences on what the channel lacks.
    """

    spans: tuple[ImportedSpan, ...] = ()
    idle_ns: tuple[tuple[int, int], ...] = ()
    files: tuple[Path, ...] = ()
    tick_ns: float = 0.0
    notes: tuple[str, ...] = ()

    def joined(self, other: Windows) -> Windows:
        return Windows(
            self.spans + other.spans, self.idle_ns + other.idle_ns, self.files + other.files,
            max(self.tick_ns, other.tick_ns), self.notes + other.notes,
        )  # fmt: skip

    def since(self, first_ns: int | None) -> Windows:
        """Count the windows' seconds from the first row of a trace that has dates. Windows with dates do not change."""
        if first_ns is None:
            return self

        def date(ns: int) -> int:
            return ns if ns >= DATES_NS else first_ns + ns

        spans = tuple(replace(s, on_tick=date(s.on_tick), off_tick=date(s.off_tick)) for s in self.spans)
        return replace(self, spans=spans, idle_ns=tuple((date(on), date(off)) for on, off in self.idle_ns))


def stated(windows: str | None, idle: str | None, timezone: str | None, inferences: int | None) -> Windows:
    """Return the windows from the options ``windows=FILE.csv`` and ``idle=START:END,...`` (seconds)."""
    found = Windows() if windows is None else read_windows(Path(windows), timezone, inferences)
    return found.joined(Windows(idle_ns=idle_of(idle)))


def read_windows(path: Path, timezone: str | None = None, inferences: int | None = None) -> Windows:
    """Read a table ``start,end[,phase,inferences]`` with one row per window.

    Times are seconds on the trace's own axis; if the trace has dates, the seconds count from its first row. ``start
    (ms)`` or ``start_ms`` name another unit. ISO 8601 stamps without an offset are in ``timezone``. Columns may be
    separated by semicolons or tabs, with decimal commas. The phase ``idle`` declares an idle window. A window of the
    phase ``warmup`` enters no figure. An empty phase means ``inference``. Without a column of counts, each window has
    ``inferences`` inferences, by default 1. An empty cell of this column needs ``inferences``, except in a window of
    idle or warm-up. Raises ``UsageError`` and ``DataError``.
    """
    layout = find(path, _bounds)
    given = {_split(name)[0]: name for name in layout.names}
    if "start" not in given or "end" not in given:
        remedy = f"Its columns: {', '.join(layout.names)[:200]}; write start,end[,phase,inferences], in s of the trace"
        raise bad_file(path, "has no columns start and end", remedy, field="windows")
    unread = [name for name in given if name not in COLUMNS]
    for name in unread:
        if near := get_close_matches(name, set(COLUMNS) - given.keys(), 1, ALIKE):
            raise bad_file(path, f"has the column {name!r}, which nothing reads", f"Write {near[0]}", field="windows")
    table = Table(path, [given[name] for name in COLUMNS if name in given], layout).whole()
    begin, end = (_times(table, given[name], timezone) for name in ("start", "end"))
    phases = [DEFAULT_PHASE] * len(table)
    if "phase" in given:
        column = table.frame[given["phase"]]
        phases = [str(phase).strip() for phase in column.where(column.notna(), DEFAULT_PHASE)]
    counts: Floats = np.full(len(table), inferences or 1.0)
    if "inferences" in given:
        left_out = [1.0 if phase in _RESERVED else inferences or np.nan for phase in phases]
        counts = table.numbers(given["inferences"])
        counts = np.where(np.isnan(counts), left_out, counts)
    notes = (f"{path.name}: columns that are not read: {', '.join(unread)[:200]}",) if unread else ()
    return replace(_windows(path, begin, end, phases, counts), notes=notes)


def _bounds(names: Sequence[str]) -> list[str] | None:
    """Return the columns of begin and end, or None if one is missing."""
    bare = {_split(name)[0]: name for name in names}
    return [bare[k] for k in ("start", "end")] if "start" in bare and "end" in bare else None


def _windows(path: Path, begin: Indices, end: Indices, phases: list[str], counts: Floats) -> Windows:
    spans, idle, spelled = [], [], dict[str, str]()
    for k, phase in enumerate(phases):
        on, off, count = int(begin[k]), int(end[k]), float(counts[k])
        if off <= on:
            what = f"ends {1e-9 * (on - off):g} s before it begins" if off < on else "has no length"
            raise _bad(path, k, what, "Give start before end")
        if phase == MARK_PHASE or not phase:
            raise _bad(path, k, f"has the phase {phase!r}", "Give another name")
        if phase not in _RESERVED and get_close_matches(phase.lower(), _RESERVED, 1, ALIKE):
            remedy = f"Write {' or '.join(_RESERVED)}, or another name of a phase"
            raise _bad(path, k, f"has the phase {phase!r}", remedy)
        if spelled.setdefault(phase.lower(), phase) != phase:
            what = f"has the phase {phase!r}, and another has {spelled[phase.lower()]!r}"
            raise _bad(path, k, what, "Write one name of a phase in one way")
        if not (1 <= count < 2**31 and count == round(count)):
            what = "has an empty cell of inferences" if np.isnan(count) else f"counts {count:g} inferences"
            raise _bad(path, k, what, "Give a whole number, 1 or more; for empty cells, inferences=NUMBER")
        if phase == IDLE:
            idle.append((on, off))
        else:
            named = DEFAULT_PHASE if phase == WARMUP else phase
            spans.append(ImportedSpan(named, on, off, int(count), warmup=phase == WARMUP))
    return Windows(tuple(spans), tuple(idle), (path,))


def idle_of(text: str | None) -> tuple[tuple[int, int], ...]:
    """Convert ``0:1.5,20:22``, in seconds of the trace's axis, to ns. Raises ``UsageError``."""
    found = []
    for part in text.split(",") if text else []:
        start, _, end = part.partition(":")
        try:
            on, off = round(float(start) * 1e9), round(float(end) * 1e9)
        except (ValueError, OverflowError) as error:
            raise refused("idle", text, "Write idle=START:END,... in seconds") from error
        if off < on:
            raise refused("idle", text, f"Write {part!r} with its START before its END")
        found.append((on, off))
    return tuple(found)


def from_channel(blocks: Iterable[tuple[Indices, Bools]], active: str) -> Windows:
    """Return the stretches in which a digital channel is ``active``.

    ``blocks`` contain stamps (ns) and whether the channel is high, shapes (n,). A stretch that begins before the
    recording or ends after it has no known length and is left out. A stretch that begins or ends in a gap is left out
    too, because the gap may hide edges; a note names these gaps. Raises ``UsageError``, and ``DataError`` for a channel
    without a complete stretch.
    """
    if active not in ("high", "low"):
        raise refused("window_active", active, "Give high or low")
    bounds: list[_Bound] = []
    first, last, count, before, longest = 0, 0, 0, False, 0.0
    for stamps, high in (block for block in blocks if len(block[0])):
        level = high if active == "high" else ~high
        if not count:
            first, last, before, longest = int(stamps[0]), int(stamps[0]), bool(level[0]), _longest(stamps, level)
        was, earlier = np.append(before, level[:-1]), np.append(last, stamps[:-1])
        gap = stamps - earlier > longest
        at = np.flatnonzero((was != level) | gap)
        bounds += map(_Bound, *(column[at].tolist() for column in (earlier, stamps, was, level, gap)))
        last, before, count = int(stamps[-1]), bool(level[-1]), count + len(stamps)
    shortest = {
        active: min((b.ns - a.ns for a, b in pairwise(bounds) if a.now == active and not a.gap | b.gap), default=0)
        for active in (False, True)
    }  # a shorter gap hides no stretch
    bounds = [b for b in bounds if b.was != b.now or b.ns - b.last_ns > shortest[not b.now]]
    found = [(a, b) for a, b in pairwise(bounds) if a.now]
    spans = [ImportedSpan(DEFAULT_PHASE, a.ns, b.ns) for a, b in found if not a.gap | b.gap]
    if not spans:
        what = f"the window channel is never {active} between two edges"
        remedy = "Name another channel, window_active=low, or windows=FILE.csv"
        raise DataError(what, field="window_channel", value=active, remedy=remedy)
    notes = []
    if gaps := [from_to(b.last_ns, b.ns) for b in bounds if b.gap]:
        where = ", ".join(gaps[:3]) + (", and others" if len(gaps) > 3 else "")
        lost = f"{len(found) - len(spans)} windows that begin or end there are left out"
        notes.append(f"The window channel has {len(gaps)} gaps that may hide edges, {where}; {lost}")
    tick_ns = float(last - first) / (count - 1) if np.isfinite(longest) else 0.0
    return Windows(tuple(spans), tick_ns=tick_ns, notes=tuple(notes))


def is_high(part: Columns, column: str, digit: int = 0, digits: int = 1) -> Bools:
    """Return whether one digit of a column of 0 and 1 is 1, shape (n,). Raises ``DataError`` for any other cell."""
    values = part.numbers(column, whole=True)
    held = [np.floor(values / 10.0 ** (digits - 1 - k)) % 10.0 for k in range(digits)]
    if not np.all((values >= 0.0) & (values < 10.0**digits) & (values == np.floor(values)) & (np.max(held, 0) <= 1.0)):
        what = f"does not hold {digits} digits of 0 and 1 in each row of the column {column}"
        raise bad_file(part.path, what, "Name a digital channel, or give windows=FILE.csv", field=column)
    return np.asarray(held[digit] == 1.0)


class _Bound(NamedTuple):
    """A place where a channel changes or has a gap: the stamps before and after it, and the channel's level at both."""

    last_ns: int
    ns: int
    was: bool
    now: bool
    gap: bool


def _longest(stamps: Indices, level: Bools) -> float:
    """Return the longest step in ns that is not a gap; infinite for a channel that lists only its edges."""
    edges_only = len(stamps) < 2 or bool(np.all(level[1:] != level[:-1]))
    return np.inf if edges_only else GAP_PERIODS * float(np.median(np.diff(stamps)))


def _times(table: Columns, name: str, timezone: str | None) -> Indices:
    column, (_, unit) = table.cells(name), _split(name)
    known = unit_of_time(unit or "s", "windows", repr(name))
    texts = [str(x) for x in column if isinstance(x, str)]
    if texts and any("-" in t.strip()[1:] and ":" in t for t in texts):
        if len(texts) < len(column):
            what = f"{table.path.name}: {name} mixes stamps and numbers"
            raise DataError(what, field="windows", value=name, remedy="Write one kind")
        return np.array([stamp_ns(t, timezone) for t in texts], dtype=np.int64)
    return table.stamps_ns(name, known)


def _split(name: str) -> tuple[str, str]:
    """Split ``Start_ms`` or ``Start (ms)`` into ("start", "ms"); the unit is empty if the header names none."""
    bare, unit = named_unit(name)
    head, _, tail = bare.lower().rpartition("_")
    return (head, tail) if not unit and head and tail in NS else (bare.lower(), unit)


def _bad(path: Path, row: int, what: str, remedy: str) -> DataError:
    return DataError(f"{path.name}: window {row + 1} {what}", field="windows", value=row + 1, remedy=remedy)
