"""Describe each trace, and check that a recording describes each rail and each clock in one way.

A rail is described in the start line and in its trace, a clock in two places of the start line.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from rig.errors import DataError
from rig.recording.anonymise import without_homes
from rig.recording.events import Start
from rig.recording.traces.trace_validation import described_rail, grid_of
from rig.types import Accuracy, MeterInfo, Rail

COMPARED = ("conversion", "rate_hz", "accuracy", "resolution", "range_max", "filter_tau_s")
"""The fields of a rail that affect its watts or their uncertainty."""
_REMEDY = "Restore the original recording; no figure is computed from one with two descriptions"


def described(info: MeterInfo, rail: Rail, trigger_tick: int, keep_identity: bool) -> dict[str, str]:
    """Return the description of a trace, for its file. Raises the reader's error if the reader would refuse it."""
    period = info.clock.tick_hz / rail.rate_hz if rail.rate_hz > 0 else 0.0
    aperture = period if rail.aperture_s is None else rail.aperture_s * info.clock.tick_hz
    told = json.dumps(asdict(rail))
    meta = {"meter": info.name, "clock": info.clock.name, "rail": told if keep_identity else without_homes(told)}
    meta["grid"] = json.dumps({"t0_tick": trigger_tick, "period_tick": period, "aperture_tick": aperture})
    described_rail(meta, "its description")
    grid_of(meta)
    return meta


def check_descriptions(start: Start, rails: Mapping[str, Rail]) -> None:
    """Raise ``DataError`` for a rail or a clock with two different descriptions.

    ``rails`` are the rails as the traces describe them. A rail that the start line does not list has one description.
    """
    listed_hz = {clock.name: clock.tick_hz for clock in start.clocks}
    for user, clock in (("device", start.device.clock), *((f"meter {m.name}", m.clock) for m in start.meters)):
        if clock is not None and listed_hz.get(clock.name, clock.tick_hz) != clock.tick_hz:
            rate, other = f"{clock.tick_hz:g} ticks a second", f"{listed_hz[clock.name]:g} in the list of clocks"
            what = f"the clock {clock.name} of the {user} has {rate}, and {other}"
            raise DataError(what, field="clock", value=clock.name, remedy=_REMEDY)
    declared = {rail.name: rail for meter in start.meters for rail in meter.rails}
    for name, rail in rails.items():
        for field in COMPARED:
            said, own = (_told(one, field) for one in (declared.get(name, rail), rail))
            if said != own:
                what = f"{field} of rail {name} is {own} in its trace, and {said} in the start line"
                raise DataError(what, field=field, value=name, remedy=_REMEDY)


def _told(rail: Rail, field: str) -> object:
    """Return the value of a rail's field; an accuracy without its ``source``, because that may contain a path."""
    told = getattr(rail, field)
    return replace(told, source="") if isinstance(told, Accuracy) else told
