"""Do the intervals of cumulative rails (energy counters) contain the truth, and are they no wider than necessary?

    python -m benchmarks.counters --runs 200

The counters are like RAPL's (renewed every millisecond, steps of 61 uJ, 100 or 200 looks a second), like NVML's
(renewed every 20 to 100 ms, steps of 1 mJ, a reading at each change) and like a joule meter's (renewed every
millisecond, steps of 1 uJ, 1000 looks a second). Windows, levels and jitter are random. Every run passes all stages:
engine, run directory, verified reading, estimators.

Two in five of the sensors have noise. ``ratio`` is the median half-width divided by the median error, and ``exact`` is
this ratio for exact Gaussians of the same half-widths. ``own`` is 1 divided by the median of error / half-width (2.9
for a Gaussian).

With only a few dozen idle readings, as from NVML, a counter whose readings drift in age cannot be distinguished from a
noisy one. Intervals are then about twice as wide as an exact Gaussian's.

Prints a table and, last, one JSON line; exits 1 when coverage or sharpness misses its goal.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.command_line import concluded, parser_of
from benchmarks.counter_meter import Counter, CounterMeter
from benchmarks.truth import ratios
from fixtures.bench.true_power import SimPlant, open_plant
from fixtures.worlds.random_draw import FIGURES, blank, steps, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import TRIMMED, FigureKey
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Budget, DeviceInfo, Reply, Sample, Span

KINDS = {
    "rapl-200": Counter(looks_hz=200.0),
    "rapl-100": Counter(looks_hz=100.0),
    "nvml-20ms": Counter(looks_hz=100.0, renew_s=0.02, renew_jitter=0.02, step_j=1e-3, on_change=True),
    "nvml-100ms": Counter(looks_hz=100.0, renew_s=0.1, renew_jitter=0.02, step_j=1e-3, on_change=True),
    "nvml-steady": Counter(looks_hz=100.0, renew_s=0.1, renew_jitter=0.0, step_j=1e-3, on_change=True),
    "joule-meter": Counter(looks_hz=1000.0, renew_s=1e-3, renew_jitter=0.0, step_j=1e-6),
}
LEVELS_W = {"rapl": (5.0, 150.0), "nvml": (20.0, 300.0), "joul": (1e-3, 0.1)}
HEADS = ("n", "held", "ratio", "exact", "own", "|error|", "half")
LEAST, MOST, SHARP = 0.90, 0.995, 3.0
Array = NDArray[np.float64]


@dataclass
class HostDevice:
    """A simulated host as a device: spans in host nanoseconds, with about half of ``gap_s`` of idle on each side."""

    plant: SimPlant
    window_s: float
    gap_s: float
    rng: np.random.Generator

    def info(self) -> DeviceInfo:
        """Return an info like a CPU's."""
        return DeviceInfo("cpu", "simulator", timeout_s=1e4)

    def stage(self, samples: Sequence[Sample]) -> None:
        """Do nothing: the samples need no preparation."""

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Wait a little, work, and wait a little."""
        clock = self.plant.clock
        lead_s, tail_s = self.rng.uniform(0.7, 1.3, 2) * 0.5 * self.gap_s
        on_ns = clock.now_ns() + round(lead_s * 1e9)
        off_ns = on_ns + round(self.window_s * 1e9)
        self.plant.occupy("inference", on_ns, off_ns)
        clock.sleep_until(off_ns + round(tail_s * 1e9))
        self._reply = Reply(samples[0].id, None, (Span("inference", on_ns, off_ns),))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        return [self._reply]

    def close(self) -> None:
        """Release nothing."""


def one(kind: str, seed: int) -> dict[str, Any]:
    """Make one run; return error, half-width and components of each figure."""
    rng = np.random.default_rng([seed, len(kind), 0xC0])
    low, high = LEVELS_W[kind[:4]]
    busy_w = float(np.exp(rng.uniform(np.log(2.0 * low), np.log(high))))
    idle_w = busy_w * float(rng.uniform(0.1, 0.8))
    counter = KINDS[kind]
    least_s = max(0.05, 2.5 * counter.renew_s + 0.02 * counter.on_change)
    window_s = float(np.exp(rng.uniform(np.log(least_s), np.log(3.0))))
    windows = int(rng.integers(5, 31))
    drift = rng.uniform(-2e-3, 2e-3) if rng.random() < 0.3 else 0.0
    counter = replace(counter, renew_s=counter.renew_s * float(rng.uniform(0.95, 1.05)))
    if counter.renew_jitter:
        counter = replace(counter, renew_jitter=float(rng.uniform(0.01, 1.0)) * counter.renew_jitter)
    if rng.random() < 0.3:
        counter = replace(counter, noise=float(np.exp(rng.uniform(np.log(1e-3), np.log(3e-2)))))
    if rng.random() < 0.15:
        counter = replace(counter, flicker=float(np.exp(rng.uniform(np.log(1e-5), np.log(3e-3)))))
    plant = open_plant(seed=seed, idle_drift_per_s=drift)
    plant.install({"core": idle_w}, {"inference": {"core": busy_w}})
    device = HostDevice(plant, window_s, max(0.06, 5.0 * counter.renew_s), rng)
    meter = CounterMeter(plant, counter, seed=seed)
    work = blank(windows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        play = steps(work, float(rng.uniform(0.5, 3.0)))
        record(path, Bench(device, (meter,), plant.clock), work, play, scenario={"name": "x"}, argv=["counters"])
        result = evaluate(open_run(path))
    real = truth(plant, "inference", windows)
    row: dict[str, Any] = {
        "kind": kind,
        "seed": seed,
        "window_s": window_s,
        "noise": counter.noise + counter.flicker,
        "idle": idle_w / busy_w,
        "refused": [r.reason for r in result.refusals],
        "figures": {},
    }
    keys = [FigureKey(quantity, method=method) for method in ("", TRIMMED) for quantity in FIGURES]
    for key in (*keys, FigureKey("idle_power_w")):
        if (q := result.quantities.get(key)) is not None:
            actual = real[key.quantity]
            parts = {c.source: c.u / actual for c in q.components}
            row["figures"][str(key)] = {
                "error": q.value / actual - 1.0,
                "half": q.half_width() / actual,
                "parts": parts,
            }
    return row


def summary(table: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = [row["figures"][name] for row in table if name in row["figures"]]
    error, half = (np.abs([f[key] for f in found]) for key in ("error", "half"))
    return {
        "n": len(found),
        "coverage": float(np.mean(error <= half)),
        **ratios(error, half),
        "median_error": float(np.median(error)),
        "median_half": float(np.median(half)),
    }


def _cells(s: dict[str, Any]) -> list[str]:
    shares = [f"{s[key]:.3%}" for key in ("median_error", "median_half")]
    return [f"{s['n']}", f"{s['coverage']:.1%}", *(f"{s[key]:.2f}" for key in ("ratio", "exact", "own")), *shares]


def main() -> int:
    parser = parser_of(__doc__, seed=1, workers=2, kinds=",".join(KINDS))
    parser.add_argument("--runs", type=int, default=200, help="of each kind")
    parser.add_argument("--rows", type=Path, help="also write every run as a JSON line")
    args = parser.parse_args()
    out: dict[str, Any] = {"benchmark": "counters", "runs": args.runs, "kinds": {}}
    good = True
    print(f"{'counter':12} {'figure':34}" + "".join(f"{h:>9}" for h in HEADS))
    with ProcessPoolExecutor(args.workers) as pool:
        for kind in args.kinds.split(","):
            seeds = range(args.seed * 1000, args.seed * 1000 + args.runs)
            table = list(pool.map(partial(one, kind), seeds, chunksize=4))
            if args.rows:
                with args.rows.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in table)
            out["kinds"][kind] = {}
            for name in (*FIGURES, "trimmed.dynamic_power_w", "idle_power_w"):
                s = out["kinds"][kind][name] = summary(table, name)
                if name in FIGURES:
                    good = good and LEAST <= s["coverage"] <= MOST and s["ratio"] <= SHARP * s["exact"]
                print(f"{kind:12} {name:34}" + "".join(f"{c:>9}" for c in _cells(s)))
    out["pass"] = good
    return concluded(out, good)


if __name__ == "__main__":
    sys.exit(main())
