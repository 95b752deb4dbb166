"""A trace whose meter or driver left something wrong in it, without that, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

from rig.analysis.verdict import Check
from rig.recording.traces import Trace


@dataclass(frozen=True)
class Mended:
    """A trace, notes on what was changed in it, and what stays in doubt.

    ``late_ticks`` is the standard uncertainty of a delay that all readings share, and each of ``checks`` fails.
    """

    trace: Trace
    notes: tuple[str, ...] = ()
    late_ticks: float = 0.0
    checks: tuple[Check, ...] = ()
