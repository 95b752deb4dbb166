"""The outcome of a case, and the counts of outcomes in one part of the campaign. Four outcomes are correct."""

from __future__ import annotations

import collections
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from enum import StrEnum

from drivers.meters.lpm01a.stream import StreamError
from drivers.meters.serial_text.lines import LineError
from rig.errors import RigError

SLOW_S, HEAVY_BYTES = 10.0, 300 << 20
"""A case is a defect if it takes more processor time (s), or adds more bytes to the peak memory."""
LONG = 500_000
"""A message with more characters than this is a defect."""
STRETCH = 500
"""The number of cases that a process gets at once."""
SHOWN = 20
"""The largest number of defects of a part that are kept with their messages."""
TYPED = (RigError, LineError, StreamError)


class Outcome(StrEnum):
    """The possible outcomes of a case; those in capitals are defects. "By type" means by an error in ``TYPED``."""

    WHOLE = "whole"
    PART = "kept in part, not VALID"
    REFUSED = "refused by type"
    NOTHING = "ended before anything was recorded"
    TRACEBACK = "TRACEBACK"
    """An error that is not in ``TYPED``, or a wrong exit code."""
    VALID_HALF = "VALID HALF"
    """A recording of which a part is missing is called VALID."""
    HUNG = "HUNG"
    OUTSIDE = "WRITTEN OUTSIDE"
    """A command wrote outside of its directory."""
    UNNOTICED = "UNNOTICED"
    """A fault was not refused, or a sound recording was."""
    SLOW = "SLOW"
    HEAVY = "TOO MUCH MEMORY"
    ENDLESS = "MESSAGE WITHOUT END"
    DIED = "PROCESS DIED"
    NOT_TRIED = "NOT TRIED"
    """The case could not be tried here."""


RIGHT = (Outcome.WHOLE, Outcome.PART, Outcome.REFUSED, Outcome.NOTHING)


@dataclass
class Tally:
    """The outcomes of one part of the campaign, and the first defects by case."""

    part: str
    counts: collections.Counter[Outcome] = field(default_factory=collections.Counter)
    defects: list[str] = field(default_factory=list)

    def add(self, case: str, outcome: Outcome, said: str = "") -> None:
        self.counts[outcome] += 1
        if outcome in RIGHT:
            return
        defect = f"{self.part}, {case}: {outcome}: {said[-600:]}"
        print(defect, file=sys.stderr, flush=True)  # so that it is kept if the campaign is interrupted
        if len(self.defects) < SHOWN:
            self.defects.append(defect)

    def join(self, other: Tally) -> None:
        """Add the cases of another tally of this part."""
        self.counts += other.counts
        self.defects += other.defects[: SHOWN - len(self.defects)]

    @property
    def defective(self) -> int:
        """Return the number of cases with a wrong outcome."""
        return self.counts.total() - sum(self.counts[outcome] for outcome in RIGHT)


def tried(read: Callable[[], object]) -> tuple[Outcome, str]:
    """Read hostile input. Return the outcome (read, refused with a typed error, or a defect) and its message."""
    began_s, before, outcome, said = time.process_time(), most_bytes(reset=True), Outcome.WHOLE, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except TYPED as error:
        said = str(error)
        outcome = Outcome.ENDLESS if len(said) > LONG else Outcome.REFUSED
    except Exception:
        outcome, said = Outcome.TRACEBACK, traceback.format_exc()
    took_s, more = time.process_time() - began_s, most_bytes() - before
    if took_s > SLOW_S:
        return Outcome.SLOW, f"{took_s:.0f} s, then {outcome}"
    return (Outcome.HEAVY, f"{more >> 20} MB, then {outcome}") if more > HEAVY_BYTES else (outcome, said)


def most_bytes(reset: bool = False) -> int:
    """Return the peak memory of this process since the last ``reset``; 0 if the system does not report it."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return 0
    if reset:
        with open("/proc/self/clear_refs", "wb") as peak:  # noqa: PTH123 (quicker than Path.open: once for each case)
            peak.write(b"5")
    with open("/proc/self/status", "rb") as told:  # noqa: PTH123
        return int((re.search(rb"VmHWM:\s+(\d+)", told.read()) or [b"", b"0"])[1]) << 10


def spread(part: str, cases: int, workers: int, work: Callable[[range], Tally]) -> Tally:
    """Run the cases of one part in worker processes, ``STRETCH`` consecutive cases at a time; count the outcomes."""
    tally = Tally(part)
    stretches = [range(k, min(k + STRETCH, cases)) for k in range(0, cases, STRETCH)]
    with ProcessPoolExecutor(workers) as pool:
        for numbers, counted in [(numbers, pool.submit(work, numbers)) for numbers in stretches]:
            try:
                tally.join(counted.result())
            except BrokenProcessPool:
                tally.add(f"cases from {numbers.start} to {numbers.stop - 1}", Outcome.DIED)
    return tally
