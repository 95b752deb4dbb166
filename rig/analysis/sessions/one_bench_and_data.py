"""Check the recordings of a session: no two are the same, and all are of one data set and were made with one bench."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rig.analysis.result.finding import Finding, note
from rig.analysis.sessions.part import Part
from rig.recording.layout import EVENTS
from rig.recording.reader import Run
from rig.types import Floats, Indices

READINGS = 1 << 18
"""At most this many readings of a trace are compared with other traces."""
OF_THE_SET = ("performance", "accuracy", "power")
"""The purposes of runs that play the samples of the session's data set."""
DECLARED = ("name", "description", "versions", "artifacts", "network", "algorithm", "options")
"""Declared fields of a device that change only with the system; ``details`` may change at each opening."""
STAMPS_LEAST, VALUES_LEAST = 8, 64
"""With fewer distinct times or readings, a coarse clock or meter may repeat them by chance."""


def recording_checks(parts: Sequence[Part]) -> Iterator[Finding]:
    """Yield failed checks: two runs with one recording, runs of several data sets, power runs of several meters.

    Yield a note if the device of a run is declared otherwise than in the first run.
    """
    if shared := shared_recording((part.name, part.run) for part in parts):
        one, other, file = shared
        allowed = "none; every trial is a measurement of its own: measure again"
        yield Finding("runs that share a recording", f"{one} and {other} hold the same {file}", allowed, False)

    sets: dict[str, str] = {}
    for part in parts:
        if part.purpose in OF_THE_SET and not part.run.start.scenario.amortise_s:
            sets.setdefault(part.run.start.workload.digest_sha256, part.name)
    if len(sets) > 1:
        found = "; ".join(f"{digest[:12]} in {run}" for digest, run in sets.items())
        yield Finding("data sets of the runs", found, "the same in each; measure again with one data set", False)

    first, *others = ((part.name, part.run.start.as_recorded.get("device") or {}) for part in parts)
    for name, device in others:
        if changed := [field for field in DECLARED if device.get(field) != first[1].get(field)]:
            yield note(
                f"The device is declared otherwise in {name} than in {first[0]} ({', '.join(changed)}): their figures "
                "are of two systems. Measure anew if the change concerns the measured work"
            )
            break

    meters: dict[str, str] = {}
    for part in parts:
        if part.purpose == "power":
            named = (f"{m.name} {m.serial_number or ''}".strip() for m in part.run.start.meters)
            meters.setdefault(", ".join(sorted(named)), part.name)
    if len(meters) > 1:
        found = "; ".join(f"{names or 'none'} in {run}" for names, run in meters.items())
        yield Finding("meters of the power runs", found, "the same in each; measure again with one bench", False)


def shared_recording(runs: Iterable[tuple[str, Run]]) -> tuple[str, str, str] | None:
    """Return the first two runs with the same recording, and what they share; None if each has its own."""
    seen: dict[str | bytes, str] = {}
    for name, run in runs:
        for what, own in _own(run):
            if seen.setdefault(own, name) != name:
                return seen[own], name, what
    return None


def _own(run: Run) -> Iterator[tuple[str, str | bytes]]:
    """Yield data that two measurements never share: the log of events, stamps of the host, and noise of readings.

    A simulation repeats its answers and readings exactly, so only its log, which has a date, is compared. Host stamps
    of an import are not compared, because imports may share one plan of windows.
    """
    yield EVENTS, run.digest
    if run.start.simulated:
        return
    if run.start.imported is None and (stamps := _stamps_ns(run)).size:
        between = np.diff(stamps)
        yield "stamps", _digest(between if len(np.unique(between)) >= STAMPS_LEAST else stamps)
    for rail, trace in run.traces.items():
        value = np.asarray(trace.value[:READINGS], dtype=np.float64)
        if trace.rail.kind != "edges" and len(np.unique(value)) >= VALUES_LEAST:
            yield f"readings of {rail}", _digest(value)


def _digest(numbers: Floats | Indices) -> bytes:
    return hashlib.sha256(numbers.tobytes()).digest()


def _stamps_ns(run: Run) -> Indices:
    """Return every stamp that the host took for a sample, in order, shape (n,)."""
    told = (run.replies[name].drop_null().to_numpy() for name in ("issued_ns", "completed_ns"))
    return np.sort(np.concatenate(list(told)))
