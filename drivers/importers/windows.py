"""Windows of activity and of idle that stand in a file of their own, or in a digital channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drivers.importers.columns import Columns, read
from drivers.importers.layout import find
from drivers.units import ALIASES, NS, iso_ns, named_unit
from rig.errors import DataError, UsageError
from rig.importing.write import ImportedSpan
from rig.types import MARK_PHASE, Bools, Floats, Indices

IDLE, WARMUP, DEFAULT_PHASE = "idle", "warmup", "inference"
COLUMNS = ("start", "end", "phase", "inferences")


@dataclass(frozen=True)
class Windows:
    """Spans and idle windows, in ns of the axis they were stated on; the files that they came from.

    ``tick_ns`` is how finely a channel was sampled that bounds them; 0 where stamps were given.
    """

    spans: tuple[ImportedSpan, ...] = ()
    idle_ns: tuple[tuple[int, int], ...] = ()
    files: tuple[Path, ...] = ()
    tick_ns: float = 0.0

    def joined(self, other: Windows) -> Windows:
        """Both."""
        tick_ns = max(self.tick_ns, other.tick_ns)
        return Windows(self.spans + other.spans, self.idle_ns + other.idle_ns, self.files + other.files, tick_ns)


def stated(windows: str | None, idle: str | None, timezone: str | None = None) -> Windows:
    """The options ``windows=FILE.csv`` and ``idle=START:END,...`` (seconds), either or both."""
    found = Windows() if windows is None else read_windows(Path(windows), timezone)
    return found.joined(Windows(idle_ns=idle_of(idle)))


def read_windows(path: Path, timezone: str | None = None) -> Windows:
    """A table ``start,end[,phase,inferences]``, one row per window.

    Times are seconds on the trace's own axis; ``start (ms)`` or ``start_ms`` name another unit, and ISO 8601 stamps
    are moments in UTC. Columns may be separated by semicolons or tabs, with decimal commas. The phase ``idle`` declares
    an idle window, ``warmup`` what enters no figure; without a phase it is ``inference``. Raises ``UsageError`` and
    ``DataError``.
    """
    layout = find(path, _bounds)
    plain = {_plain(name)[0]: name for name in layout.names if _bare(name) in COLUMNS}
    if "start" not in plain or "end" not in plain:
        raise DataError(
            f"{path.name} has no columns start and end",
            field="windows",
            value=", ".join(layout.names)[:200],
            remedy="Write start,end[,phase,inferences]; times in seconds of the trace",
        )
    table = read(path, [plain[name] for name in COLUMNS if name in plain], layout)
    begin, end = (_times(table, plain[name], timezone) for name in ("start", "end"))
    phases = [DEFAULT_PHASE] * len(table)
    if "phase" in plain:
        column = table.frame[plain["phase"]]
        phases = [str(phase).strip() for phase in column.where(column.notna(), DEFAULT_PHASE)]
    counts: Floats = np.ones(len(table))
    if "inferences" in plain:
        given = table.numbers(plain["inferences"])
        counts = np.where(np.isnan(given), 1.0, given)
    return _windows(path, begin, end, phases, counts)


def _bounds(names: Sequence[str]) -> list[str] | None:
    """The columns of begin and end, where both are there."""
    bare = {_bare(name): name for name in names}
    return [bare[k] for k in ("start", "end")] if "start" in bare and "end" in bare else None


def _windows(path: Path, begin: Indices, end: Indices, phases: list[str], counts: Floats) -> Windows:
    spans, idle = [], []
    for k, phase in enumerate(phases):
        on, off, count = int(begin[k]), int(end[k]), float(counts[k])
        if off < on:
            raise _bad(path, k, f"ends {1e-9 * (on - off):g} s before it begins", "Give start before end")
        if not (1 <= count < 2**31 and count == round(count)):
            raise _bad(path, k, f"counts {count:g} inferences", "Give a whole number, 1 or more")
        if phase == MARK_PHASE or not phase:
            raise _bad(path, k, f"has the phase {phase!r}", "Name another")
        if phase == IDLE:
            idle.append((on, off))
        else:
            named = DEFAULT_PHASE if phase == WARMUP else phase
            spans.append(ImportedSpan(named, on, off, int(count), warmup=phase == WARMUP))
    return Windows(tuple(spans), tuple(idle), (path,))


def idle_of(text: str | None) -> tuple[tuple[int, int], ...]:
    """``0:1.5,20:22`` in seconds of the trace's axis, as ns. Raises ``UsageError``."""
    found = []
    for part in text.split(",") if text else []:
        start, _, end = part.partition(":")
        try:
            on, off = round(float(start) * 1e9), round(float(end) * 1e9)
        except (ValueError, OverflowError) as error:
            raise UsageError(
                f"idle is {text!r}", field="idle", value=text, remedy="Write idle=START:END,... in seconds"
            ) from error
        found.append((on, off))
    return tuple(found)


def from_channel(high: Bools, stamps: Indices, active: str, inferences: int, phase: str = DEFAULT_PHASE) -> Windows:
    """The stretches in which a digital channel, shape (n,), is ``high`` or ``low``, in the ns of ``stamps``.

    A stretch that the recording cuts off at either end has no known length and is left out.
    """
    if active not in ("high", "low"):
        raise UsageError(f"window_active is {active!r}", field="window_active", value=active, remedy="Give high or low")
    level = high if active == "high" else ~high
    change = np.flatnonzero(np.diff(level.astype(np.int8)))
    edges = change + 1
    rising = [int(e) for e in edges if level[e]]
    falling = [int(e) for e in edges if not level[e]]
    falling = [e for e in falling if rising and e > rising[0]]
    spans = [
        ImportedSpan(phase, int(stamps[a]), int(stamps[b]), executions=inferences)
        for a, b in zip(rising, falling, strict=False)
    ]
    if not spans:
        raise DataError(
            f"the window channel is never {active} between two edges",
            field="window_channel",
            value=active,
            remedy="Name another channel, window_active=low, or windows=FILE.csv",
        )
    return Windows(tuple(spans), tick_ns=float(stamps[-1] - stamps[0]) / (len(stamps) - 1))


def _times(table: Columns, name: str, timezone: str | None) -> Indices:
    column, unit = table.cells(name), _plain(name)[1]
    texts = [str(x) for x in column if isinstance(x, str)]
    if texts and any("-" in t.strip()[1:] and ":" in t for t in texts):
        if len(texts) < len(column):
            raise DataError(
                f"{table.path.name}: {name} mixes stamps and numbers", field="windows", remedy="Write one kind"
            )
        return np.array([iso_ns(t, timezone) for t in texts], dtype=np.int64)
    return table.stamps_ns(name, unit)


def _bare(name: str) -> str:
    """The column's name without its unit, whatever that is."""
    bare = named_unit(name)[0].lower()
    head, _, tail = bare.rpartition("_")
    return head if head and tail in NS else bare


def _plain(name: str) -> tuple[str, str]:
    """``start_ms`` and ``start (ms)`` -> ("start", "ms"); seconds where nothing is said."""
    bare, unit = named_unit(name)
    head, _, tail = bare.rpartition("_")
    if not unit and tail in NS and head:
        bare, unit = head, tail
    unit = ALIASES.get(unit.lower(), unit)
    if unit and unit not in NS:
        raise UsageError(f"{name!r} is in {unit}", field="windows", value=name, remedy=f"Give times in {', '.join(NS)}")
    return bare.strip().lower(), unit or "s"


def _bad(path: Path, row: int, what: str, remedy: str) -> DataError:
    return DataError(f"{path.name}: window {row + 1} {what}", field="windows", value=row + 1, remedy=remedy)
