"""Faulty drivers: each call of a device and of a meter fails in each possible way."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from benchmarks.faults import faulty
from benchmarks.faults.outcome import Case, Ended, left_by, rig
from benchmarks.faults.tally import Outcome, Tally

SAMPLES = 12
DEVICE_CALLS = ("open", "info", "stage", "submit", "poll", "timer", "close")
METER_CALLS = ("open", "info", "start", "timer", "read", "stop", "close")
PATIENCE_S = 180.0


def campaign(drivers: int, workers: int) -> Tally:
    """Measure with up to ``drivers`` faulty drivers, spread evenly over calls, ways of failing, and moments."""
    tally = Tally("faulty drivers")
    cases = [
        (kind, call, way, after)
        for (kind, calls), way, after in product(
            (("device", DEVICE_CALLS), ("meter", METER_CALLS)), faulty.WAYS, (0, 3)
        )
        for call in calls
        if not (call in ("open", "info", "close") and after)
    ]
    count = min(drivers, len(cases))
    chosen = [cases[k * len(cases) // count] for k in range(count)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for case, outcome, said in pool.map(lambda c: one(Path(folder), *c), chosen):
            tally.add(case, outcome, said)
    return tally


def one(folder: Path, kind: str, call: str, way: str, after: int) -> tuple[str, Outcome, str]:
    """Measure with one faulty driver. A complete run is correct only if the fault did no harm."""
    source, out = str(Path(faulty.__file__)), folder / f"{kind}-{call}-{way}-{after}"
    device, meter = (f"{source}:open_device" if kind == "device" else "mock"), "mock"
    meter = f"{source}:open_meter" if kind == "meter" else "mock"
    given = {"call": call, "way": way, "after": after}
    options = [w for key, value in given.items() for w in ("--option", f"{kind}_{key}={value}")]
    words = ["measure", "--device", device, "--meter", meter, "--simulate", "--mode", "together", *options]
    words += ["--option", f"workload.samples={SAMPLES}", "--option", "idle_s=0.2", "--out", str(out)]
    case = Case(f"{kind}.{call} {way} after {after}", tuple(words), SAMPLES)
    ended = rig(words, timeout_s=PATIENCE_S, impatient=True)
    outcome, said = left_by(ended, out, case)
    if outcome is Outcome.NOTHING and not _typed(ended):
        return case.name, Outcome.TRACEBACK, f"exit code {ended.code}: {ended.err}"
    return case.name, outcome, f"exit code {ended.code}; {said}"


def _typed(ended: Ended) -> bool:
    return bool(ended.code) and ended.err.lstrip().startswith("rig")
