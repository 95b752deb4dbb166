"""Searches that record a run for every probe: the highest rate in time, the largest problem that is solved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rig.errors import MeasurementRefusedError, RigError, UsageError
from rig.plugins import options_of, values_of
from rig.recording.session import Tried
from rig.session.peak import Probe, find_largest, find_peak
from rig.session.setup import Opened
from rig.types import Workload

SIZE = "nodes"
RATE = "arrival_hz"
MEMORY_SHARE = 0.85
"""Of the memory that is free when a search begins."""


@dataclass(frozen=True)
class Planned:
    """One run to record: its directory below the session's, what it is for, what it is given."""

    name: str
    purpose: str
    workload: Workload
    metered: bool
    options: dict[str, str] = field(default_factory=dict)


Play = Callable[[Planned], Path]


def peak_rate(o: Opened, play: Play, quiet: bool) -> dict[str, str]:
    """The scenario's option for the highest rate that is valid. Raises ``UsageError`` where it has none."""
    if RATE not in options_of(o.scenario):
        raise UsageError(
            "this scenario has no rate to search", field="find_peak", value=True, remedy="Use --scenario server"
        )
    from rig.analysis.evaluate import evaluate
    from rig.recording.reader import open_run

    count = iter(range(1, 1000))

    def probe(rate_hz: float) -> Probe:
        planned = Planned(f"probe-{next(count):02d}", "probe", o.workload, False, {RATE: repr(rate_hz)})
        validity = evaluate(open_run(play(planned))).validity
        failed = [c.rule for c in (validity.checks if validity else ()) if not c.ok and c.rule != "device and meters"]
        _say(quiet, f"{rate_hz:.6g} per second: {', '.join(failed) or 'valid'}")
        return Probe(rate_hz, not failed)

    return {RATE: repr(find_peak(probe, float(values_of(o.scenario, o.scenario_options)[RATE])))}


def largest_size(o: Opened, play: Play, tried: list[Tried], quiet: bool) -> int:
    """The most nodes of which the device finds a solution better than cost 0, within 5 %; probes join ``tried``.

    A probe fails when the device refuses the problem, fails at it, finds nothing, or when memory does not hold it.
    """
    nodes = len(o.workload.samples) and (o.workload.details or {}).get(SIZE)
    if not isinstance(nodes, int):
        raise UsageError(
            f"workload {o.workload.name} has no size to search",
            field="find_size",
            value=o.workload.name,
            remedy="Use --scenario optimization --workload qubo-mis",
        )
    from rig.analysis.evaluate import evaluate
    from rig.analysis.figure_key import FigureKey
    from rig.recording.reader import open_run

    count = iter(range(1, 1000))

    def probe(size: int) -> bool:
        held = False
        try:
            workload = o.other_workload({SIZE: str(size), "seeds": "0"})
            planned = Planned(f"probe-{next(count):02d}", "probe", workload, False, {"solves": "1"})
            best = evaluate(open_run(play(planned))).quantities.get(FigureKey("cost_best"))
            held = best is not None and best.value < 0
            found = "no solution" if best is None else f"cost {best.value:g}"
        except (RigError, MemoryError) as error:
            found = str(error) or "more than memory holds"
        tried.append(Tried(size, held, found))
        _say(quiet, f"{size} nodes: {found}")
        return held

    with memory_bound(MEMORY_SHARE):
        found = find_largest(probe, nodes)
    if not found:
        raise MeasurementRefusedError(
            f"no problem of {nodes} nodes or fewer was solved",
            field=SIZE,
            value=nodes,
            remedy="Give the solver more time with --option timeout_s=SECONDS, or see what the probes' reports say",
        )
    _say(quiet, f"the largest is {found} nodes")
    return found


@contextmanager
def memory_bound(share: float) -> Iterator[None]:
    """Where more than ``share`` of the free memory is asked for, ``MemoryError``; without, the system ends the process.

    A soft limit of the process's data (setrlimit(2), RLIMIT_DATA), for Linux; elsewhere nothing is bound.
    """
    try:
        import resource

        free, held = _kibibytes("/proc/meminfo", "MemAvailable"), _kibibytes("/proc/self/status", "VmData")
    except (ImportError, OSError, KeyError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held + round(share * free)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft < 0 else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _kibibytes(file: str, name: str) -> int:
    """A line such as ``VmData:  1234 kB`` of a file under /proc, in bytes."""
    lines = dict(line.split(":", 1) for line in Path(file).read_text().splitlines() if ":" in line)
    return int(lines[name].split()[0]) * 1024


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        sys.stderr.write(f"probe   {text}\n")
