"""Rules over the recordings of a session: each run is a recording of its own, and all were made with one bench."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rig.analysis.session_part import Part
from rig.analysis.verdict import Check
from rig.recording.layout import EVENTS, trace_path
from rig.recording.reader import Run


def recording_checks(parts: Sequence[Part]) -> Iterator[Check]:
    """Yield a failed check if two runs hold one recording, and if other meters watched some of the power runs."""
    if shared := shared_recording((part.name, part.run) for part in parts):
        one, other, file = shared
        allowed = "none; every trial is a measurement of its own: measure again"
        yield Check("runs that share a recording", f"{one} and {other} hold the same {file}", allowed, False)

    meters: dict[str, str] = {}
    for part in parts:
        if part.purpose == "power":
            named = (f"{m.name} {m.serial_number or ''}".strip() for m in part.run.start.meters)
            meters.setdefault(", ".join(sorted(named)), part.name)
    if len(meters) > 1:
        found = "; ".join(f"{names or 'none'} in {run}" for names, run in meters.items())
        yield Check("meters of the power runs", found, "the same in each; measure again with one bench", False)


def shared_recording(runs: Iterable[tuple[str, Run]]) -> tuple[str, str, str] | None:
    """Return the first two of the named runs that hold the same bytes, and in which file; None if each has its own."""
    seen: dict[str, str] = {}
    for name, run in runs:
        for file, digest in _own_files(run):
            if seen.setdefault(digest, name) != name:
                return seen[digest], name, file
    return None


def _own_files(run: Run) -> Iterator[tuple[str, str]]:
    """Each file that no other measurement can give byte by byte, with its digest: it holds stamps or noise.

    A simulation gives the same answers and readings whenever it is repeated; its log has a date.
    """
    yield EVENTS, run.digest
    if run.start.simulated or run.stop is None:
        return
    own = ["replies.arrows"] if len(run.replies) else []
    own += [trace_path(rail) for rail, trace in run.traces.items() if len(trace.value) and trace.rail.kind != "edges"]
    yield from ((file, run.stop.files[file]) for file in own if file in run.stop.files)
