"""Stamps without a zone and with an undeclared order of day and month, as moments in UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from itertools import pairwise, product

import numpy as np

from drivers.importers.mlperf_power.session import Clocks, Phase
from drivers.units import utc_ns
from rig.errors import DataError, UsageError
from rig.types import Indices

ORDERS = {"mdy": (0, 1), "dmy": (1, 0)}
"""Where the month and where the day stands among the first two numbers of a date."""
MS = 1_000_000
_STAMP = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")

Stamp = tuple[int, ...]
"""Two numbers of which one is the month, year, hour, minute, second, microsecond."""
Found = tuple[Indices, tuple[int, int]]


@dataclass(frozen=True)
class Axis:
    """What was stated: the zones of the meter's log and of LoadGen, None for either that was not; the date's order."""

    meter: tzinfo | None
    loadgen: tzinfo | None
    assumed: tzinfo
    order: str | None


def stamp_of(text: str, where: str) -> Stamp:
    """The fields of one stamp. Raises ``DataError``."""
    found = _STAMP.fullmatch(text.strip())
    if not found:
        raise DataError(
            f"{where}: {text[:40]!r} is no time stamp", field="time", value=text[:40], remedy="Copy the log again"
        )
    return *(int(x) for x in found.groups()[:6]), int((found[7] or "0").ljust(6, "0"))


def on_one_axis(name: str, stamps: list[Stamp], window: list[Stamp], axis: Axis, clocks: Clocks) -> Found:
    """Meter stamps and LoadGen's window in UTC ms.

    Where the session's files say when its phases were, under the one order of dates and offset that puts both logs
    into their phase; else under the one order that lets them meet. Raises ``UsageError`` where that leaves a doubt.
    """
    found = _by_phase(stamps, window, axis, clocks) or _by_meeting(stamps, window, axis)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"the dates of {name}/spl.txt may be month-day-year or day-month-year",
            field="date_order",
            remedy="State it: date_order=mdy or date_order=dmy",
        )
    _refuse_backward(name, stamps, axis)
    first, begin = ("-".join(map(str, s[:3])) + " " + ":".join(map(str, s[3:6])) for s in (stamps[0], window[0]))
    raise UsageError(
        f"{name}: the meter's log, from {first} on, does not meet LoadGen's window, from {begin} on",
        field="timezone",
        value=first,
        remedy="State the zone of the meter's log: timezone=Europe/Berlin or +02:00; and date_order=, if it is another",
    )


def _by_phase(stamps: list[Stamp], window: list[Stamp], axis: Axis, clocks: Clocks) -> list[Found]:
    """Every placing under which both logs lie in the phase that the session's files tell."""
    server, client = clocks.server or clocks.client, clocks.client or clocks.server
    if server is None or client is None:
        return []
    logs = _shifted(stamps, axis.meter or axis.assumed, axis.meter is not None, axis.order, server)
    edges = _shifted(window, axis.loadgen or axis.assumed, axis.loadgen is not None, None, client)
    logs = [x for x in logs if server.spanned_by(int(x[0]), int(x[-1]))]
    edges = [x for x in edges if client.holds(int(x[0]), int(x[-1]))]
    pairs = {(int(x[0]), int(y[0])): (x, (int(y[0]), int(y[1]))) for x, y in product(logs, edges)}
    return [(x, y) for x, y in pairs.values() if x[0] < y[1] and x[-1] > y[0]]


def _shifted(stamps: list[Stamp], where: tzinfo, fixed: bool, order: str | None, phase: Phase) -> list[Indices]:
    shifts = (0,) if fixed else phase.shifts_s
    placed = [_placed(stamps, o, where) for o in ([order] if order else ORDERS)]
    return [x + 1000 * s for x, s in product([x for x in placed if x is not None], shifts)]


def _by_meeting(stamps: list[Stamp], window: list[Stamp], axis: Axis) -> list[Found]:
    """Every placing under which the meter's log and LoadGen's window overlap, none twice; LoadGen's own order first."""
    found: dict[tuple[int, int], Found] = {}
    loadgen_zone = axis.loadgen or axis.assumed
    for loadgen, meter in product(ORDERS, [axis.order] if axis.order else ORDERS):
        log, edges = _placed(stamps, meter, axis.meter or loadgen_zone), _placed(window, loadgen, loadgen_zone)
        if log is not None and edges is not None and log[0] < edges[1] and log[-1] > edges[0]:
            key = (int(log[0] - edges[0]), int(log[-1] - log[0]))
            found.setdefault(key, (log, (int(edges[0]), int(edges[1]))))
    return list(found.values())


def _placed(stamps: Sequence[Stamp], order: str, where: tzinfo) -> Indices | None:
    """UTC ms, shape (n,); None where the order makes dates that do not exist, or time go backwards."""
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


def _refuse_backward(name: str, stamps: list[Stamp], axis: Axis) -> None:
    """Say so where the meter's clock was set back within a day, which is no matter of zones. Raises ``DataError``."""
    for k, (a, b) in enumerate(pairwise(stamps), start=2):
        if a[:3] == b[:3] and b[3:] < a[3:]:
            raise DataError(
                f"{name}/spl.txt goes back in time at its reading {k}, at {b[3]:02}:{b[4]:02}:{b[5]:02}",
                field="time",
                value=k,
                remedy="The meter's clock was set back; remove the readings before or after",
            )
