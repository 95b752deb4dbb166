"""Convert stamps without a zone, and with an unknown order of day and month, to moments in UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from itertools import pairwise, product

import numpy as np

from drivers.importers.files import unstated
from drivers.importers.mlperf_power.phases import Phase, SessionFiles
from drivers.units import utc_ns
from rig.errors import DataError
from rig.types import Indices

ORDERS = {"mdy": (0, 1), "dmy": (1, 0)}
"""The positions of the month and of the day among the first two numbers of a date."""
MS = 1_000_000
_STAMP = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")

Stamp = tuple[int, ...]
"""Month and day in either order, then year, hour, minute, second, microsecond."""
Found = tuple[Indices, tuple[int, int]]


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
