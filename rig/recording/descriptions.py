"""Checks that one recording describes its rails and clocks once: the start line and the traces say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rig.errors import DataError
from rig.recording.events import Start
from rig.recording.traces import Trace
from rig.types import Accuracy, Rail

COMPARED = ("conversion", "rate_hz", "accuracy", "resolution", "range_max", "filter_tau_s")
"""What of a rail decides on its watts and on their uncertainty."""
_REMEDY = "Restore the original recording; no figure is computed from one with two descriptions"


def check_descriptions(start: Start, traces: Mapping[str, Trace]) -> None:
    """Refuse a rail or a clock that is described twice, in two ways. Raises ``DataError``.

    A rail that its meter does not list in the start line is described by its trace alone.
    """
    listed_hz = {clock.name: clock.tick_hz for clock in start.clocks}
    for user, clock in (("device", start.device.clock), *((f"meter {m.name}", m.clock) for m in start.meters)):
        if clock is not None and listed_hz.get(clock.name, clock.tick_hz) != clock.tick_hz:
            raise DataError(
                f"the clock {clock.name} of the {user} has {clock.tick_hz:g} ticks a second, and "
                f"{listed_hz[clock.name]:g} in the list of clocks",
                field="clock",
                value=clock.name,
                remedy=_REMEDY,
            )
    declared = {rail.name: rail for meter in start.meters for rail in meter.rails}
    for name, trace in traces.items():
        for field in COMPARED:
            said, own = (_told(rail, field) for rail in (declared.get(name, trace.rail), trace.rail))
            if said != own:
                raise DataError(
                    f"{field} of rail {name} is {own} in its trace, and {said} in the start line",
                    field=field,
                    value=name,
                    remedy=_REMEDY,
                )


def _told(rail: Rail, field: str) -> object:
    """What a rail says of a field, without the words about where its limits come from: these may hold a path."""
    told = getattr(rail, field)
    return replace(told, source="") if isinstance(told, Accuracy) else told
