"""Are energies per operation and per execution right if a simulated device has them, and refused if it has none?

    python -m benchmarks.energy_line [--draws 100] [--jobs 2]

In each draw, six networks are measured on a device with random energies, idle power, and gain and noise of its meter.
The energy of a second device is no line over its operations: it is a curve, is constant, or scatters. Prints in how
many draws the first is right and the second refused and, last, one JSON line. Exits 1 if the first device's two
energies are in their intervals in fewer than 93 of 100 draws, or if the second device is refused in fewer than 95 of
100 draws.
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import counting_device
from benchmarks.command_line import concluded, parser_of
from benchmarks.counting_device import INPUTS, LAWS
from rig.analysis.complexity.energy_line import EnergyLine, line_of, point_of
from rig.analysis.evaluate import evaluate
from rig.bench.request import Request
from rig.recording.reader import open_run
from rig.session.measure import measure

NETWORKS, HELD, REFUSED = 6, 0.93, 0.95
OTHERS = tuple(law for law in LAWS if law != "line")


def main() -> int:
    """Measure all draws, print the counts, and return whether a goal was missed."""
    args = parser_of(__doc__, draws=100, jobs=2).parse_args()
    laws = [law for k in range(args.draws) for law in ("line", OTHERS[k % len(OTHERS)])]
    draws = [k for k in range(args.draws) for _ in range(2)]
    found = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for draw, one in zip(draws, pool.map(drawn, laws, draws), strict=True):
            found.append(one)
            print(f"draw {draw}, {one['law']}: {one['refusal'] or one['held']} {one['relative']}", flush=True)
    lines, others = found[::2], found[1::2]
    held = [sum(line["held"] == [True, True] for line in lines), sum(line["held"][:1] == [True] for line in lines)]
    held.append(sum(line["held"][1:] == [True] for line in lines))
    refused = sum(bool(line["refusal"]) for line in others)
    print(f"on a line: both held in {held[0]} of {args.draws}, per operation {held[1]}, per execution {held[2]}")
    print(f"  half-widths, median: {np.median([line['relative'] for line in lines if line['relative']], axis=0)}")
    print(f"on no line: refused in {refused} of {args.draws}")
    ok = held[0] >= HELD * args.draws and refused >= REFUSED * args.draws
    return concluded({"benchmark": "energy_line", "draws": args.draws, "held": held, "refused": refused, "ok": ok}, ok)


def drawn(law: str, draw: int) -> dict[str, Any]:
    """Measure the networks of one draw; return the outcome of fitting a line to their energies."""
    rng = np.random.default_rng([draw, 0xE9])
    slope_j, base_j = 10.0 ** rng.uniform(-9.5, -8.0), 10.0 ** rng.uniform(-6.0, -4.5)
    idle_w = 10.0 ** rng.uniform(-4.0, -2.0)
    noise, gain_limit = 10.0 ** rng.uniform(-3.0, -1.5), 10.0 ** rng.uniform(-4.0, -2.0)
    active = np.rint(np.linspace(rng.uniform(0.02, 0.2), rng.uniform(0.6, 1.0), NETWORKS) * INPUTS).astype(int)
    options = [f"law={law}", f"slope_j={slope_j}", f"base_j={base_j}", f"device.idle_w={idle_w}", f"noise={noise}"]
    options += [f"gain_limit={gain_limit}", f"meter_seed={draw}", f"device_seed={draw}", "samples=20"]
    options += ["audio_hz=1000", "idle_s=1"]
    points, file = [], counting_device.__file__
    with tempfile.TemporaryDirectory() as name:
        for k, inputs in enumerate(active):
            network = Path(name) / f"{k}.txt"
            network.write_text(str(inputs))
            request = Request(
                device=f"{file}:open_device", meters=(f"{file}:open_meter",), simulate=True, mode="together",
                options=(*options, f"network={network}"), out=Path(name) / f"run{k}",
            )  # fmt: skip
            points.append(point_of(evaluate(open_run(measure(request, quiet=True))).quantities))
    found = line_of([point for point in points if point is not None])
    return {"law": law, "refusal": found.refusal, **_held(found, slope_j, base_j)}


def _held(found: EnergyLine, slope_j: float, base_j: float) -> dict[str, Any]:
    pairs = [(q, true_j) for q, true_j in ((found.per_operation, slope_j), (found.per_execution, base_j)) if q]
    held = [bool(q.interval()[0] <= true_j <= q.interval()[1]) for q, true_j in pairs]
    return {"held": held, "relative": [q.half_width() / true_j for q, true_j in pairs]}


if __name__ == "__main__":
    sys.exit(main())
