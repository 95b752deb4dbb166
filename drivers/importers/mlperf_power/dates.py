"""Convert stamps without a zone, and with an unknown order of day and month, to moments in UTC.

Two JSON files of a session show when its phases were, and how the machines set their clocks: ``server.json`` is of the
machine with the meter, ``client.json`` of the system under test. Both stamp a phase's start command, its reply, the
stop command and its reply in seconds since 1970, and state a ``timezone``: the seconds from local standard time to UTC.
Up to MLPerf Inference 1.0 the logs were stamped in local time with daylight saving, and from 1.1 on in UTC; the phases
show which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from drivers.importers.files import bad_file, read_json, unstated
from drivers.units import utc_ns
from rig.errors import DataError
from rig.types import Indices

SERVER, CLIENT = "server.json", "client.json"
SLACK_MS = 120_000
"""A log may reach this far beyond its phase: PTDaemon begins and ends within seconds of the commands."""
SUMMER_S = 3600
_FARTHEST_S = 1e11
_REMEDY = "Copy it again, or remove it"
ORDERS = {"mdy": (0, 1), "dmy": (1, 0)}
"""The positions of the month and of the day among the first two numbers of a date."""
MS = 1_000_000
_STAMP = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")

Stamp = tuple[int, ...]
"""Month and day in either order, then year, hour, minute, second, microsecond."""
Found = tuple[Indices, tuple[int, int]]


@dataclass(frozen=True)
class Phase:
    """The start command of a phase, its reply, the stop command and its reply, in UTC ms.

    ``shifts_s`` are possible offsets; one of them, added to a stamp of the logs, gives UTC.
    """

    edges_ms: tuple[int, int, int, int]
    shifts_s: tuple[int, ...]

    def spanned_by(self, first_ms: int, last_ms: int) -> bool:
        """Return whether a meter's log between these times begins and ends with this phase."""
        start, started, stop, stopped = self.edges_ms
        begins = start - SLACK_MS <= first_ms <= started + SLACK_MS
        return begins and stop - SLACK_MS <= last_ms <= stopped + SLACK_MS

    def holds(self, first_ms: int, last_ms: int) -> bool:
        """Return whether a window lies inside this phase."""
        return self.edges_ms[0] - SLACK_MS <= first_ms and last_ms <= self.edges_ms[3] + SLACK_MS


@dataclass(frozen=True)
class SessionFiles:
    """The phase as either machine stamped it, None where its file is absent; the name of the meter, and the files."""

    server: Phase | None
    client: Phase | None
    meter: str
    files: Mapping[str, Path]


def read_session_files(folder: Path, ranging: bool) -> SessionFiles:
    """Read the files in ``../power``, or beside or above a run's folder. Raises ``DataError`` for damaged files."""
    found: dict[str, Path] = {}
    for name in (SERVER, CLIENT):
        for place in (folder.parent / "power", folder / "power", folder.parent, folder):
            if name not in found and (place / name).is_file():
                found[name] = place / name
    values = {name: _read(path) for name, path in found.items()}
    kind = "ranging" if ranging else "testing"
    server, client = (_phase(values.get(name), kind) for name in (SERVER, CLIENT))
    messages = values.get(SERVER, {}).get("ptd_messages")
    replies = [m.get("reply") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    models = [m[1] for r in replies if isinstance(r, str) and (m := re.match(r"(\w+),\d+,.*version=", r))]
    return SessionFiles(server, client, models[0][:80] if models else "", {f"power/{n}": p for n, p in found.items()})


def _read(path: Path) -> Mapping[str, Any]:
    found = read_json(path, _REMEDY)
    if not isinstance(found, dict):
        raise bad_file(path, "is not a session of the power client and server", _REMEDY, field=path.name)
    return found


def _phase(values: Mapping[str, Any] | None, kind: str) -> Phase | None:
    """Return the phase of this kind; None where the file lacks it, as older ones do."""
    phases = values.get("phases") if values else None
    marks = phases.get(kind) if isinstance(phases, dict) else None
    if not (isinstance(marks, list) and len(marks) == 4 and all(isinstance(m, list) and m for m in marks)):
        return None
    if not all(isinstance(m[0], (int, float)) and 0 <= m[0] < _FARTHEST_S for m in marks):
        return None
    begin, begun, end, ended = (round(1e3 * m[0]) for m in marks)
    west = values.get("timezone") if values else None
    local = (int(west), int(west) - SUMMER_S) if isinstance(west, (int, float)) and abs(west) <= 86_400 else ()
    return Phase((begin, begun, end, ended), tuple(dict.fromkeys((0, *local))))


@dataclass(frozen=True)
class DateOptions:
    """The stated zones of the meter's log and of LoadGen, and the stated order of dates; None where not stated."""

    meter: tzinfo | None
    loadgen: tzinfo | None
    order: str | None


def stamp_of(text: str, where: str) -> Stamp:
    """Return the fields of one stamp. Raises ``DataError``."""
    found = _STAMP.fullmatch(text.strip())
    if not found:
        what = f"{where}: {text[:40]!r} is not a time stamp"
        raise DataError(what, field="time", value=text[:40], remedy="Copy the log again")
    return *(int(x) for x in found.groups()[:6]), int((found[7] or "0").ljust(6, "0"))


def on_one_axis(name: str, stamps: list[Stamp], window: list[Stamp], given: DateOptions, files: SessionFiles) -> Found:
    """Return the meter's stamps and LoadGen's window in UTC ms.

    If the session's files state its phases, the order of dates and the offset are chosen so that both logs are in
    their phase; else the order is chosen so that the two logs overlap. Raises ``UsageError`` if several choices fit,
    or none.
    """
    found = _by_phase(stamps, window, given, files) or _by_meeting(stamps, window, given)
    if len(found) == 1:
        return found[0]
    if found:
        what = f"the dates of {name}/spl.txt may be month-day-year or day-month-year"
        raise unstated("date_order", what, "date_order=mdy or date_order=dmy")
    _refuse_backward(name, stamps, given)
    first, begin = ("-".join(map(str, s[:3])) + " " + ":".join(map(str, s[3:6])) for s in (stamps[0], window[0]))
    what = (
        f"{name}: the meter's log, which begins at {first}, does not overlap LoadGen's window, which begins at {begin}"
    )
    how = "timezone=Europe/Berlin or +02:00, the zone of the log. If its dates have another order, state date_order="
    raise unstated("timezone", what, how, first)


def _by_phase(stamps: list[Stamp], window: list[Stamp], given: DateOptions, files: SessionFiles) -> list[Found]:
    """Return each interpretation of the stamps that puts both logs into the phase that the session's files state."""
    server, client = files.server or files.client, files.client or files.server
    if server is None or client is None:
        return []
    logs = _shifted(stamps, given.meter or UTC, given.meter is not None, given.order, server)
    edges = _shifted(window, given.loadgen or UTC, given.loadgen is not None, None, client)
    logs = [x for x in logs if server.spanned_by(int(x[0]), int(x[-1]))]
    edges = [x for x in edges if client.holds(int(x[0]), int(x[-1]))]
    pairs = {(int(x[0]), int(y[0])): (x, (int(y[0]), int(y[1]))) for x, y in product(logs, edges)}
    return [(x, y) for x, y in pairs.values() if x[0] < y[1] and x[-1] > y[0]]


def _shifted(stamps: list[Stamp], where: tzinfo, fixed: bool, order: str | None, phase: Phase) -> list[Indices]:
    shifts = (0,) if fixed else phase.shifts_s
    placed = [_in_utc(stamps, o, where) for o in ([order] if order else ORDERS)]
    return [x + 1000 * s for x, s in product([x for x in placed if x is not None], shifts)]


def _by_meeting(stamps: list[Stamp], window: list[Stamp], given: DateOptions) -> list[Found]:
    """Return each distinct interpretation in which both logs overlap in time; LoadGen's order of dates comes first."""
    found: dict[tuple[int, int], Found] = {}
    loadgen_zone = given.loadgen or UTC
    for loadgen, meter in product(ORDERS, [given.order] if given.order else ORDERS):
        log, edges = _in_utc(stamps, meter, given.meter or loadgen_zone), _in_utc(window, loadgen, loadgen_zone)
        if log is not None and edges is not None and log[0] < edges[1] and log[-1] > edges[0]:
            key = (int(log[0] - edges[0]), int(log[-1] - log[0]))
            found.setdefault(key, (log, (int(edges[0]), int(edges[1]))))
    return list(found.values())


def _in_utc(stamps: Sequence[Stamp], order: str, where: tzinfo) -> Indices | None:
    """Return UTC ms, shape (n,); None if the order gives dates that do not exist, or time that goes backwards."""
    month, day = ORDERS[order]
    days: dict[tuple[int, int, int], date] = {}
    out = []
    try:
        for s in stamps:
            key = (s[2], s[month], s[day])
            midnight = days.setdefault(key, date(*key))
            moment = datetime(midnight.year, midnight.month, midnight.day, s[3], s[4], s[5], s[6], where)
            out.append(utc_ns(moment) // MS)
    except (ValueError, OverflowError, DataError):
        return None
    return None if any(b < a for a, b in pairwise(out)) else np.array(out, dtype=np.int64)


def _refuse_backward(name: str, stamps: list[Stamp], given: DateOptions) -> None:
    """Refuse a meter's log that goes back in time within a day: no zone explains that. Raises ``DataError``."""
    for k, (a, b) in enumerate(pairwise(stamps), start=2):
        if a[:3] == b[:3] and b[3:] < a[3:]:
            what = f"{name}/spl.txt goes back in time at its reading {k}, at {b[3]:02}:{b[4]:02}:{b[5]:02}"
            remedy = "The meter's clock was set back; remove the readings before or after this point"
            raise DataError(what, field="time", value=k, remedy=remedy)
