"""Faulty drivers: each call of a device and of a meter fails in each possible way."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from benchmarks.faults import faulty
from benchmarks.faults.outcome import Case, Ended, left_by, rig
from benchmarks.faults.tally import Outcome, Tally
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.recording.reader import Run

SAMPLES = 12
TRUE_W = 2e-3
"""Dynamic power of the mock device with its default options."""
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
    """Measure with one faulty driver. A complete run is correct only if the fault did no harm to dynamic power."""
    source, out = str(Path(faulty.__file__)), folder / f"{kind}-{call}-{way}-{after}"
    device, meter = (f"{source}:open_device" if kind == "device" else "mock"), "mock"
    meter = f"{source}:open_meter" if kind == "meter" else "mock"
    given = {"call": call, "way": way, "after": after}
    options = [w for key, value in given.items() for w in ("--option", f"{kind}_{key}={value}")]
    words = ["measure", "--device", device, "--meter", meter, "--simulate", "--mode", "together", *options]
    words += ["--option", f"workload.samples={SAMPLES}", "--option", "idle_s=0.2", "--out", str(out)]
    case = Case(f"{kind}.{call} {way} after {after}", tuple(words), SAMPLES, harm)
    ended = rig(words, timeout_s=PATIENCE_S, impatient=True)
    outcome, said = left_by(ended, out, case)
    if outcome is Outcome.NOTHING and not _typed(ended):
        return case.name, Outcome.TRACEBACK, f"exit code {ended.code}: {ended.err}"
    return case.name, outcome, f"exit code {ended.code}; {said}"


def harm(run: Run) -> str:
    """Return by how much the dynamic power of a run is wrong; "" if it is right or not stated."""
    power = evaluate(run).quantities.get(FigureKey("dynamic_power_w"))
    if power is None or abs(power.value - TRUE_W) <= 2.0 * power.half_width():
        return ""
    return f"dynamic power is {power.value:.6g} +- {power.half_width():.3g} W, truly {TRUE_W:.6g} W"


def _typed(ended: Ended) -> bool:
    return bool(ended.code) and ended.err.lstrip().startswith("rig")
