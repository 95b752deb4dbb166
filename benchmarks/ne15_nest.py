"""NE15-MNIST on NEST, compared with the chapter's figures for NEST and SpiNNaker. One sweep measures all networks.

    python -m benchmarks.ne15_nest --data mnist --networks ne15-1.npz ne15-10.npz [--samples 200] [--out DIR]
        [--option encoding=dvs]

Power comes from the RAPL meter, on counters that are SIMULATED: they follow the processor time that the sweep and its
NEST really use, at fixed watts per core. The power above idle in the report is compared with the true power of this
simulation.

Prints the chapter's table beside our figures, the contradictions in the table and, last, one JSON line.
DIR/energies.svg is the chapter's figure of energies. DIR must be new. Needs RIG_NEST_PYTHON. Exits 1 if a cell of the
sweep failed, or if an interval of power does not contain the truth.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.busy_cores import BusyCores, swept
from benchmarks.command_line import concluded, parser_of
from reports.submission.leaderboard import Published, published
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey, Figures, Quantity
from rig.recording.reader import Run, open_run
from rig.sweep.sweep_folder import CELLS

SYSTEMS = ("NEST", "SpiNNaker")
FOLD = ("fold=0", "folds=5")
PHASE = "inference"
ENERGY = "dynamic_energy_per_inference_j"
ROWS = {
    "accuracy": "",
    "response_latency_mean_s": "",
    "synaptic_operations_ne15_hz": "",
    "execution_time_s": PHASE,
    "dynamic_power_w": PHASE,
    ENERGY: PHASE,
}
"""The published figures, and the phase of our figure that is compared with each of them."""


def measured(networks: Sequence[Path], given: argparse.Namespace) -> BusyCores:
    """Sweep the networks with counters that follow the processor time; return the model with the true power."""
    vary = ",".join(str(path.resolve()) for path in networks)
    options = [*FOLD, f"samples={given.samples}", "idle_s=5", *given.option]
    chosen = dict(option.split("=", 1) for option in options)  # the user's options override these
    told = [part for name, value in chosen.items() for part in ("--option", f"{name}={value}")]
    case = ["--device", "nest", "--workload", "ne15-mnist", "--data", given.data, "--vary", f"network={vary}"]
    cores, code = swept([*case, *told, "--jobs", "0"], given.out)
    if code:
        sys.exit(code)
    return cores


def true_power(run: Run, cores: BusyCores) -> float:
    """Return watts above idle while NEST simulated: from processor time in these spans and in the idle windows."""
    replies = run.replies.to_pandas()
    shown = replies[(replies["phase"] == "inference") & ~replies["warmup"]]
    return cores.mean_w(shown[["on_tick", "off_tick"]].to_numpy(float)) - cores.mean_w(run.idle_windows_ns() * 1.0)


def beside(subclasses: int, ours: Figures) -> Iterator[str]:
    """Yield the chapter's rows of one size beside ours, and contradictions within the published rows."""
    theirs = {name: of for name in SYSTEMS if (of := found(name, subclasses))}
    yield (
        f"{f'subclasses: {subclasses}':32}"
        + "".join(f"{name + ', published':>22}" for name in theirs)
        + f"{'ours':>38}"
    )
    for key, phase in ROWS.items():
        said = ours.get(FigureKey(key, phase))
        cell = "refused" if said is None else f"{said.value:.6g} [{', '.join(f'{x:.5g}' for x in said.interval())}]"
        yield f"{key:32}" + "".join(f"{of.figures[key][0]:22g}" for of in theirs.values()) + f"{cell:>38}"
    yield from (f"  {name}: {of.doubts}" for name, of in theirs.items())


def found(system: str, subclasses: int) -> Published | None:
    """Return the chapter's figures of a system at one size."""
    return next((p for p in published() if p.name == f"{system}, NE15-MNIST, subclasses: {subclasses}"), None)


def picture(path: Path, ours: Mapping[int, Quantity]) -> None:
    """Draw the chapter's figure: energy against subclasses, ours with another mark because it is simulated."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    sizes = sorted(int(p.name.rpartition(" ")[2]) for p in published() if p.name.startswith(f"{SYSTEMS[0]}, NE15"))
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name, colour in zip(SYSTEMS, ("tab:blue", "black"), strict=True):
        energies = [p.figures[ENERGY][0] for n in sizes if (p := found(name, n))]
        axes.plot(sizes, energies, "o-", color=colour, label=f"{name}, published")
    low, high = zip(*(energy.interval() for energy in ours.values()), strict=True)
    axes.vlines(list(ours), low, high, color="tab:red")
    axes.plot(list(ours), [energy.value for energy in ours.values()], "rx", label="NEST, SIMULATED power")
    axes.set(xscale="log", yscale="log", xlabel="subclasses per digit", ylabel="energy above idle per image (J)")
    axes.legend()
    figure.savefig(path)


def main() -> int:
    """Sweep, compare power with its truth, print and draw."""
    parser = parser_of(__doc__, out=Path("runs/ne15-nest"))
    parser.add_argument("--data", required=True, help="folder with MNIST's idx files")
    parser.add_argument("--networks", type=Path, nargs="+", required=True, help="trained outside fold 0 of 5")
    parser.add_argument("--samples", type=int, default=200, help="images of each cell")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the workload")
    given = parser.parse_args()
    cores = measured(given.networks, given)
    held, energies = 0, {}
    runs = [open_run(path) for path in sorted((given.out / CELLS).iterdir())]
    for run in sorted(runs, key=subclasses_of):
        ours, true_w = evaluate(run).quantities, true_power(run, cores)
        print("\n".join(beside(subclasses_of(run), ours)), f"\n  power above idle, truly {true_w:.4f} W, SIMULATED")
        if (power := ours.get(FigureKey("dynamic_power_w", PHASE))) is not None:
            held += power.interval()[0] <= true_w <= power.interval()[1]
            energies[subclasses_of(run)] = ours[FigureKey(ENERGY, PHASE)]
    if energies:
        picture(given.out / "energies.svg", energies)
    passed = held == len(runs) == len(given.networks)
    return concluded({"benchmark": "ne15_nest", "cells": len(runs), "held": held, "pass": passed}, passed)


def subclasses_of(run: Run) -> int:
    """Return the number of subclasses of each digit with which a run's network was trained."""
    return int(run.start.device.algorithm.training["subclasses"])


if __name__ == "__main__":
    sys.exit(main())
