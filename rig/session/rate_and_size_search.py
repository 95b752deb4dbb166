"""Search for the highest rate of requests or for the largest problem that a device can handle.

Every value that a search tries is a probe, and each probe is recorded as a run.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rig.errors import MeasurementRefusedError, RigError, refused
from rig.factories import options_of, values_of
from rig.recording.session_json import SizeProbe
from rig.session.setup import BenchSetup
from rig.terminal import say
from rig.types import Workload

SIZE = "nodes"
MEMORY_SHARE = 0.85
"""A search may take this share of the memory that is free at its start."""
CLOSE, CLOSE_SIZE = 1.02, 1.05
"""A search ends when the lowest bad value is at most this many times the highest good value: of rates, of sizes."""
MOST_PROBES, MOST_NODES = 40, 2**24
LOWEST = 1.0 / 1024.0
"""The search gives up below this fraction of the first rate, because a lower rate would not help either."""


@dataclass(frozen=True)
class PlannedRun:
    """One run to record: its directory below the session's, its purpose, its workload and its options."""

    name: str
    purpose: str
    workload: Workload
    metered: bool
    options: dict[str, str] = field(default_factory=dict)


Play = Callable[[PlannedRun], Path]


def find_peak(holds: Callable[[float], bool], start_hz: float) -> float:
    """Return the highest good rate: double or halve until one rate is good and one fails, then bisect geometrically.

    Raises ``MeasurementRefusedError`` if no rate is good.
    """
    low, high, rate_hz = 0.0, math.inf, start_hz
    for _ in range(MOST_PROBES):
        low, high = (rate_hz, high) if holds(rate_hz) else (low, rate_hz)
        if low and high / low <= CLOSE:
            break
        if math.isinf(high):
            rate_hz = low * 2.0
        elif not low:
            rate_hz = high / 2.0
            if rate_hz < start_hz * LOWEST:
                break
        else:
            rate_hz = math.sqrt(low * high)
    if not low:
        what = f"no rate from {start_hz:g} down to {high:g} per second keeps every rule"
        remedy = "Give a longer latency_bound_s, or read the reports of the probes"
        raise MeasurementRefusedError(what, field="arrival_hz", value=high, remedy=remedy)
    return low


def find_largest(holds: Callable[[int], bool], start: int) -> int:
    """Return the largest good number, within a factor ``CLOSE_SIZE``; 0 if ``start`` and all its halvings are bad."""
    low, high, size = 0, 0, start
    for _ in range(MOST_PROBES):
        low, high = (size, high) if holds(size) else (low, size)
        if (low and high and high <= max(low * CLOSE_SIZE, low + 1)) or low >= MOST_NODES or high == 2:
            break
        if not high:
            size = min(2 * low, MOST_NODES)
        elif not low:
            size = max(high // 2, 2)
        else:
            size = (low + high) // 2
    return low


def peak_rate(setup: BenchSetup, play: Play, quiet: bool) -> dict[str, str]:
    """Search for the highest valid rate, and return it as a scenario option.

    Raises ``UsageError`` for a scenario without a rate, and ``MeasurementRefusedError`` if no rate is valid.
    """
    from rig.analysis.sessions.rate_probes import RATE, failed_rules

    if RATE not in options_of(setup.scenario):
        raise refused("find_peak", True, "Use --scenario server", "this scenario has no rate to search")
    from rig.analysis.evaluate import evaluate
    from rig.recording.reader import open_run

    count = iter(range(1, 1000))

    def holds(rate_hz: float) -> bool:
        planned = PlannedRun(f"probe-{next(count):02d}", "probe", setup.workload, False, {RATE: repr(rate_hz)})
        failed = failed_rules(evaluate(open_run(play(planned))))
        _say(quiet, f"{rate_hz:.6g} per second: {', '.join(failed) or 'valid'}")
        return not failed

    return {RATE: repr(find_peak(holds, float(values_of(setup.scenario, setup.scenario_options)[RATE])))}


def largest_size(setup: BenchSetup, play: Play, probes: list[SizeProbe], quiet: bool) -> int:
    """Search for the most nodes, to within 5 %, at which the device finds a cost below 0; add probes to ``probes``.

    A probe fails if the device refuses the problem, fails, finds no cost below 0 or has too little memory. Raises
    ``UsageError`` for a workload without a size, and ``MeasurementRefusedError`` if every probe fails.
    """
    nodes = len(setup.workload.samples) and (setup.workload.details or {}).get(SIZE)
    if not isinstance(nodes, int):
        what = f"workload {setup.workload.name} has no size to search"
        raise refused("find_size", setup.workload.name, "Use --scenario optimization --workload qubo-mis", what)
    from rig.analysis.evaluate import evaluate
    from rig.analysis.result.quantity import FigureKey
    from rig.recording.reader import open_run

    count = iter(range(1, 1000))

    def probe(size: int) -> bool:
        held = False
        try:
            workload = setup.other_workload({SIZE: str(size), "seeds": "0"})
            planned = PlannedRun(f"probe-{next(count):02d}", "probe", workload, False, {"solves": "1"})
            best = evaluate(open_run(play(planned))).quantities.get(FigureKey("cost_best"))
            held = best is not None and best.value < 0
            found = "no solution" if best is None else f"cost {best.value:g}"
        except (RigError, MemoryError) as error:
            found = str(error) or "needs more memory than is free"
        probes.append(SizeProbe(size, held, found))
        _say(quiet, f"{size} nodes: {found}")
        return held

    with memory_bound(MEMORY_SHARE):
        found = find_largest(probe, nodes)
    if not found:
        what = f"no problem of {nodes} nodes or fewer was solved"
        remedy = "Give the solver more time with --option timeout_s=SECONDS, or read the reports of the probes"
        raise MeasurementRefusedError(what, field=SIZE, value=nodes, remedy=remedy)
    _say(quiet, f"the largest is {found} nodes")
    return found


@contextmanager
def memory_bound(share: float) -> Iterator[None]:
    """Make the block raise ``MemoryError``, before the system kills it, if it takes over ``share`` of the free memory.

    This is a soft limit of the process's data (setrlimit(2), RLIMIT_DATA) on Linux; elsewhere there is no limit.
    """
    held = getattr(psutil.Process().memory_info(), "data", None)
    if held is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held + round(share * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft < 0 else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        say(f"probe   {text}", error=True)
