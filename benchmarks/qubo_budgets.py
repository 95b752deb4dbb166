"""Solvers against the wall clock: gap, overrun and power by time budget. One sweep measures all solvers and budgets.

    python -m benchmarks.qubo_budgets [--out DIR]                 cpu-mis, cpu-sa, cpu-tabu, and Lava's CPU backend
    python -m benchmarks.qubo_budgets --powered [--out DIR]       the three on this computer, with a meter

``--powered`` measures with the RAPL meter, on counters that are SIMULATED: they follow the processor time that the
solvers really use, at fixed watts per core. The report's power is compared with the true power of this simulation.

Prints a line for each cell of the sweep that was measured and, last, one JSON line; the pictures are in DIR. Cells that
already exist there are not measured again; with ``--powered``, DIR must be new. Exits 1 if a cell failed, or if fewer
than nine in ten intervals of power contain the truth.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.busy_cores import RIG, BusyCores, swept
from benchmarks.command_line import concluded, parser_of
from rig.recording.reader import open_run
from rig.sweep.sweep_folder import CELLS

DEVICES = ("cpu-mis", "cpu-sa", "cpu-tabu")
LAVA = "loihi2"
GAP = "gap_best_known_mean"


def words_of(devices: Sequence[str], given: argparse.Namespace) -> list[str]:
    """Return the words of a sweep over the budgets."""
    budgets = ",".join(f"{b:g}" for b in given.budgets)
    options = {"nodes": given.nodes, "density": given.density, "seeds": given.seeds, "solves": given.solves}
    told = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    problem = ["--scenario", "optimization", "--workload", "qubo-mis", *told, "--vary", f"timeout_s={budgets}"]
    return ["--device", *devices, *problem, "--jobs", "0"]


def solved(out: Path, given: argparse.Namespace) -> None:
    """Sweep the solvers of this computer and, if an interpreter with Lava is found, Lava."""
    for devices, more in ((DEVICES, ()), ((LAVA,), ("--simulate",))):
        words = [*words_of(devices, given), *more, "--meter", "none", "--extend", "--out", str(out)]
        subprocess.run([*RIG, "sweep", *words], check=False)


def picture(out: Path, quantity: str, against: str) -> None:
    """Draw one quantity of a sweep, and save the picture under the quantity's name."""
    asked = ["--plot", quantity, "--against", against]
    subprocess.run([*RIG, "sweep", str(out), "--table", *asked], check=True, stdout=subprocess.DEVNULL)
    (out / "sweep.svg").replace(out / f"{quantity}.svg")


def told(table: pd.DataFrame) -> Iterator[str]:
    for _, row in table.sort_values(["device", "timeout_s"]).iterrows():
        yield (
            f"{row['device']:9} {row['timeout_s']:8g} s given, {row['execution_time_s']:10.6f} s taken"
            f" (over by {row['overrun_mean_s']:9.6f}, at most {row['overrun_max_s']:9.6f}); gap to best known"
            f" {row[GAP]:8.4f}, to official {row['gap_official_mean']:8.4f}"
            f", between problems {row.get('gap_best_known_spread_problems', float('nan')):.4f}"
            f", between solves {row.get('gap_best_known_spread_solves', float('nan')):.4f}"
        )


def against_truth(out: Path, table: pd.DataFrame, cores: BusyCores) -> dict[str, Any]:
    """Compare each cell's stated active power with the power from processor time; print a line for each cell."""
    held, errors = 0, []
    for _, row in table.sort_values(["device", "timeout_s"]).iterrows():
        if pd.isna(row.get("active_power_w")):
            print(f"{row['device']:9} {row['timeout_s']:8g} s: power refused")
            continue
        replies = open_run(out / CELLS / str(row["cell"])).replies
        windows = np.column_stack([replies[name].to_numpy() for name in ("on_tick", "off_tick")])
        truth_w, half_w = cores.mean_w(windows), float(row["active_power_w.half_width_95"])
        errors.append(float(row["active_power_w"]) - truth_w)
        held += abs(errors[-1]) <= half_w
        print(
            f"{row['device']:9} {row['timeout_s']:8g} s: {row['active_power_w']:.4f} +- {half_w:.4f} W"
            f", truly {truth_w:.4f} W; energy {row['energy_per_inference_j']:.6g} J"
        )
    median = float(np.median(np.abs(errors))) if errors else float("nan")
    return {"powered": len(errors), "held": held, "median_error_w": median}


def main() -> int:
    parser = parser_of(__doc__, out=Path("runs/qubo-budgets"), nodes=1000, density=0.05)
    parser.add_argument("--seeds", default="0-4", help="problem seeds")
    parser.add_argument("--solves", type=int, default=5, help="of each problem, each with a seed of its own")
    parser.add_argument("--budgets", type=float, nargs="+", default=[1e-3, 1e-2, 1e-1, 1.0, 10.0])
    parser.add_argument("--powered", action="store_true")
    given = parser.parse_args()
    if given.powered and given.out.exists():
        parser.error(f"{given.out} exists, and --powered needs a new --out: the true power of earlier cells is unknown")
    cores: BusyCores | None = None
    if given.powered:
        cores, _ = swept([*words_of(DEVICES, given), "--option", "idle_s=2"], given.out)
    else:
        solved(given.out, given)
    table = pd.read_csv(given.out / "table.csv")
    done = table[table["state"] == "done"]
    print("\n".join(told(done)))
    figures: dict[str, Any] = {"cells": len(table), "done": len(done)}
    picture(given.out, GAP, "execution_time_s")
    if cores is not None:
        figures |= against_truth(given.out, done, cores)
        picture(given.out, "active_power_w", "timeout_s")
    passed = len(done) == len(table) and figures.get("held", 0) >= 0.9 * figures.get("powered", 0)
    return concluded({"benchmark": "qubo_budgets", **figures, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
