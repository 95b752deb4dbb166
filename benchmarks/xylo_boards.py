"""Do the Xylo driver's intervals contain the truth? Random simulated boards are measured in real time, and compared.

python -m benchmarks.xylo_boards --boards 100 --seed 1 [--jobs 4]

Each board has its own chip, noise, converter step, and rate of its power monitor from 5 to 1280 Hz. Its link has its
own latency, bunches, and lost or late readings. All stages take part: driver, engine, run directory, estimators. Prints
a table and, last, one JSON line. Exits 1 if more than one in ten intervals of any figure misses the truth.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of
from drivers.meters.xylo_monitor import open_meter
from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.xylo.bench import events, on_board
from fixtures.instruments.xylo.board import CHANNELS, PHASE, SimBoard, Traits
from fixtures.worlds.random_draw import BlankWorkload, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.errors import RigError
from rig.recording.reader import open_run
from rig.types import Idle, Issue, Step
from scenarios.idle_and_warmup import framed

FIGURES = ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")


@dataclass(frozen=True)
class Draw:
    """One random board: its true power by rail, and the settings of its measurement."""

    traits: Traits
    idle_w: dict[str, float]
    busy_w: dict[str, float]
    rate_hz: float
    spans: int
    repeat: int
    idle_s: float


def draw(seed: int, spans: int = 6) -> Draw:
    """Draw a board; each fault of its link occurs with probability 1/2."""
    rng = np.random.default_rng([seed, 0xB0A])

    def log(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def maybe(value: float) -> float:
        return value if rng.random() < 0.5 else 0.0

    chip = "audio2" if rng.random() < 0.6 else "audio3"
    rate_hz = log(5.0, 1280.0 if chip == "audio2" else 900.0)
    idle_w = {rail: log(1e-5, 3e-3) for rail in CHANNELS[chip]}
    core = "Logic" if chip == "audio2" else "DigitalLogic"
    busy_w = idle_w | {core: idle_w[core] * (1.0 + rng.uniform(0.2, 1.5)), "Io": idle_w["Io"] * rng.uniform(1.0, 1.3)}
    traits = Traits(
        chip, seed, log(2e-3, 8e-3), log(1e-4, 2e-3), log(1e-4, 2e-3), log(1e-5, 5e-4), log(1e-4, 4e-3),
        log(1e-3, 0.05), log(2e-8, 1e-6), lost=maybe(log(1e-3, 0.05)), late=maybe(log(1e-3, 0.05)),
        late_s=log(0.01, 0.5), drift_ppm=rng.uniform(-100.0, 100.0), noise_w=max(idle_w.values()) * log(3e-3, 3e-2),
        resolution_w=maybe(max(idle_w.values()) * log(1e-4, 1e-2)),
    )  # fmt: skip
    repeat = max(1, round(max(0.8, 6.0 / rate_hz) / (100 * traits.step_s)))
    return Draw(traits, idle_w, busy_w, rate_hz, spans, repeat, max(1.5, 12.0 / rate_hz))


def steps(d: Draw, workload: BlankWorkload) -> Iterator[Step]:
    """Yield the spans, with idle time after each span."""
    for sample in workload.samples:
        yield Issue([sample], repeat=d.repeat)
        yield Idle(0.2)


def measured(d: Draw, path: Path) -> tuple[SimBoard, Any]:
    """Measure one board into ``path``; return the board and the result."""
    plant = LivePlant(d.traits.board_seed)
    plant.install(d.idle_w, {PHASE: d.busy_w})
    board = SimBoard(d.traits, plant)
    workload = BlankWorkload(tuple(events(k) for k in range(d.spans)))
    device = on_board(board)
    try:
        meter = open_meter(device, rate_hz=d.rate_hz)
        bench, played = Bench(device, (meter,), HostClock()), framed(steps(d, workload), workload, d.idle_s, 0)
        record(path, bench, workload, played, scenario={"name": "single-stream"}, argv=["xylo_boards"])
    finally:
        device.close()
    return board, evaluate(open_run(path))


def one(seed: int) -> dict[str, Any]:
    """Measure one board and compare it with its truth."""
    d = draw(seed)
    row: dict[str, Any] = {"seed": seed, "chip": d.traits.chip, "rate_hz": d.rate_hz, "error": "", "figures": {}}
    with tempfile.TemporaryDirectory() as folder:
        try:
            board, result = measured(d, Path(folder) / "run")
        except RigError as error:
            return row | {"error": str(error)}
    real = truth(board.plant, PHASE, d.spans)
    for name in ("energy_per_inference_j", "execution_time_s"):
        real[name] /= d.repeat
    row["refused"] = [r.reason for r in result.refusals]
    row["method"] = result.clocks["board"].method
    for name in FIGURES:
        if (q := result.quantities.get(FigureKey(name))) is not None:
            row["figures"][name] = {"error": q.value - real[name], "truth": real[name], "half": q.half_width()}
    return row


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print how often the intervals held the truth, their widths and the errors; return the same."""
    found: dict[str, Any] = {"boards": len(rows), "failed": sum(bool(r["error"]) for r in rows)}
    for name in FIGURES:
        own = [r["figures"][name] for r in rows if name in r["figures"]]
        held = [abs(f["error"]) <= f["half"] for f in own]
        half = [f["half"] / f["truth"] for f in own]
        off = [abs(f["error"]) / f["truth"] for f in own]
        found[name] = {
            "n": len(own), "held": float(np.mean(held)) if own else 0.0,
            "half_width": float(np.median(half)) if own else 0.0, "off": float(np.median(off)) if own else 0.0,
            "worst": float(np.max(off)) if own else 0.0,
        }  # fmt: skip
        print("{:<26} n {n:4d}  held {held:6.1%}  half-width {half_width:7.3%}  off {off:7.3%}  worst {worst:7.2%}"
              .format(name, **found[name]))  # fmt: skip
    return found


def main() -> int:
    parser = parser_of(__doc__, boards=100, seed=1, jobs=2)
    parser.add_argument("--rows", type=Path, help="write one JSON line for each board")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(one, range(args.seed, args.seed + args.boards)))
    if args.rows:
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for row in rows:
        if row["error"]:
            print(f"board {row['seed']}: {row['error']}")
    found = table(rows)
    print(json.dumps(found))
    return int(any(found[name]["held"] < 0.9 for name in FIGURES if found[name]["n"]))


if __name__ == "__main__":
    sys.exit(main())
