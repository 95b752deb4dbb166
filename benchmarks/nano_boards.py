"""Do the intervals of both ways to measure the microcontroller baseline contain the truth? Measures random boards.

    python -m benchmarks.nano_boards --boards 60 --seed 1

Each board is measured both ways. The first is the published one: one slice is looped for 60 s per phase, at 3 readings
a second of 0.2 s each. The second has 50 kS/s, and loops of 1 s. Both are in virtual time. Times and powers of a
board's phases are random. Two parts of an execution add or lack random power. Prints a table and, last, one JSON line.
Exits 1 if more than one in ten intervals misses the truth, or if fewer than nine in ten of the figures are stated.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.command_line import parser_of
from drivers.devices.arduino.emulator import RAIL, SimulatedBoard
from drivers.devices.mlperf_tiny.queries import TinyDevice
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, Traits, open_plant, seconds_of
from fixtures.worlds.random_draw import BlankWorkload, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Budget, ClockInfo, DeviceInfo, Idle, Issue, Preprocessing, Reply, Sample, Span, Step

PHASES = ("preprocessing", "inference")
FIGURES = ("energy_per_inference_j", "active_power_w", "dynamic_power_w")
WAYS = {"as published, 3 Hz": (3.0, 0.6, 60.0), "50 kS/s": (50_000.0, 1.0, 1.0)}
"""Rate of the readings (Hz), share of the time that they cover, and length of a loop (s)."""
LEAST_STATED = 0.9


@dataclass(frozen=True)
class Draw:
    """Time and power of each phase, and added watts in parts of an execution, with begin and end as shares of it."""

    seconds: dict[str, float]
    idle_w: float
    phases_w: dict[str, float]
    uneven: tuple[tuple[float, float, float], ...]
    noise: float


def draw(seed: int) -> Draw:
    """Draw a board. On one board in three, a phase is in step with 3 readings a second, or nearly so."""
    rng = np.random.default_rng([seed, 0x4A40])
    seconds = {phase: float(np.exp(rng.uniform(np.log(0.01), np.log(0.5)))) for phase in PHASES}
    if rng.random() < 1 / 3:
        off = float(rng.choice([0.0, 1.0])) * 10.0 ** rng.uniform(-5, -2)
        seconds[str(rng.choice(PHASES))] = float(rng.integers(1, 13) / rng.integers(1, 7) / 3.0 * (1.0 + off))
    idle_w = float(rng.uniform(0.004, 0.05))
    phases_w = {phase: idle_w + float(rng.uniform(0.01, 0.04)) for phase in PHASES}
    cuts = np.sort(rng.uniform(0.0, 1.0, 4)).tolist()
    uneven = tuple(
        (a, b, float(w)) for a, b, w in zip(cuts[::2], cuts[1::2], rng.uniform(-0.008, 0.015, 2), strict=True)
    )
    return Draw(seconds, idle_w, phases_w, uneven, float(10.0 ** rng.uniform(-4, -2)))


class StatedBoard:
    """A board that takes the drawn time for each execution, and returns no answer."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._replies = seconds, list[Reply]()

    def info(self) -> DeviceInfo:
        return DeviceInfo(
            "arduino", "simulator", clock=ClockInfo("arduino", 1e6), phases=PHASES, timeout_s=1e4,
            preprocessing=Preprocessing(phases=PHASES[:1]),
        )  # fmt: skip

    def stage(self, samples: Sequence[Sample]) -> None:
        """Nothing is loaded."""

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        phases = PHASES if phase is None else (phase,)
        spans = tuple(Span(p, 0, round(self._seconds[p] * times * 1e6), times) for p in phases)
        self._replies += [Reply(sample.id, None, spans) for sample in samples]

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        replies, self._replies = self._replies, []
        return replies

    def close(self) -> None:
        """Nothing is open."""


class UnevenPlant(SimPlant):
    """A bench that changes the power in parts of each execution."""

    def shape(self, d: Draw) -> None:
        self.install({RAIL: d.idle_w}, {phase: {RAIL: watts} for phase, watts in d.phases_w.items()})
        self._own, self._parts = d.seconds, d.uneven
        self.phase_w |= {f"part {k}": {RAIL: d.idle_w + watts} for k, (_, _, watts) in enumerate(d.uneven)}

    def occupy(self, phase: str, on_ns: int, off_ns: int) -> None:
        """Simulate the power of a phase and of the parts of its executions."""
        super().occupy(phase, on_ns, off_ns)
        count = max(1, round((off_ns - on_ns) * 1e-9 / self._own[phase]))
        each_s = (off_ns - on_ns) * 1e-9 / count
        for k, (begin, end, _) in enumerate(self._parts):
            at_s = seconds_of(on_ns) + np.arange(count) * each_s
            self._pieces += [(f"part {k}", s + begin * each_s, s + end * each_s, 1.0) for s in at_s.tolist()]


def steps(d: Draw, sample: Sample, loop_s: float) -> Iterator[Step]:
    """Yield idle, pre-processing, idle, inference, idle, as ``--per-phase`` does."""
    yield Idle(loop_s)
    for phase in PHASES:
        yield Issue([sample], repeat=max(1, round(loop_s / d.seconds[phase])), phase=phase)
        yield Idle(loop_s)


def compared(seed: int, way: str, folder: Path) -> list[dict[str, Any]]:
    """Measure one board one way; compare each figure of each phase with the truth."""
    d, (rate_hz, aperture, loop_s) = draw(seed), WAYS[way]
    plant = UnevenPlant(open_plant().clock, Traits(seed=seed))
    device = SimulatedBoard(cast(TinyDevice, StatedBoard(d.seconds)), plant, lambda: None)
    plant.shape(d)
    rng = np.random.default_rng([seed, 0x3446])
    meter = open_meter(
        plant, rate_hz=rate_hz, aperture=aperture, meter_seed=seed, noise=d.noise, resolution=3e-6, gain_limit=5e-4,
        meter_drift_ppm=float(rng.uniform(-50, 50)),
    )  # fmt: skip
    work = BlankWorkload((Sample("s0", np.zeros(1, np.float32)),))
    path = folder / f"{seed}-{loop_s:g}"
    played = steps(d, work.samples[0], loop_s)
    record(path, Bench(device, (meter,), plant.clock), work, played, scenario={"name": "single-stream"}, argv=[])
    result = evaluate(open_run(path))
    rows = []
    for phase in PHASES:
        real = truth(plant, phase, 1)
        real["energy_per_inference_j"] /= max(1, round(loop_s / d.seconds[phase]))
        for name in FIGURES:
            if (q := result.quantities.get(FigureKey(name, phase))) is not None:
                low, high = q.interval()
                held, size = low <= real[name] <= high, abs(real[name])
                rows.append(
                    {"name": name, "held": held, "half": (high - low) / 2 / size, "off": abs(q.value / real[name] - 1)}
                )
    return rows


def main() -> int:
    args = parser_of(__doc__, boards=60, seed=1).parse_args()
    found: dict[str, Any] = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            rows = [row for k in range(args.boards) for row in compared(args.seed + k, way, Path(folder))]
        for name in FIGURES:
            own = [row for row in rows if row["name"] == name]
            half, off = (np.array([row[key] for row in own] or [np.nan]) for key in ("half", "off"))
            found[f"{way}: {name}"] = {
                "n": len(own), "of": 2 * args.boards, "held": sum(bool(row["held"]) for row in own),
                "half": float(np.median(half)), "off": float(np.median(off)),
                "widest": float(half.max()), "worst": float(off.max()),
            }  # fmt: skip
            print("{:<44} held {held} of {n} ({of} asked)  half-width {half:.3%}, widest {widest:.2%}  off {off:.3%}, "
                  "worst {worst:.2%}".format(f"{way}: {name}", **found[f"{way}: {name}"]))  # fmt: skip
    print(json.dumps(found))
    return int(any(failed(**one) for one in found.values()))


def failed(n: int, of: int, held: int, **_: float) -> bool:
    """Return whether too few figures are stated, or too few intervals contain the truth."""
    return n < max(1, LEAST_STATED * of) or held < 0.9 * n


if __name__ == "__main__":
    sys.exit(main())
