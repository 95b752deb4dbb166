"""Do the stated intervals contain the truth as often as they claim? Random plants (simulated benches), compared.

    python -m benchmarks.truth --plants 1000 --seed 1
    python -m benchmarks.truth --every-kind --plants 200 [--kind gated_late ...]
    python -m benchmarks.truth --pairs 600

Half of the plants are simulated benches that pass all stages: engine, run directory, verified reading, estimators. The
other half are recordings written directly, of each kind of bench in turn (``benchmarks.kinds.KINDS``). With
``--every-kind``, ``--plants`` recordings of each kind are drawn, and a row is printed for each kind. ``--pairs`` draws
benches of two kinds at once (``benchmarks.pairs``). "Noise dominates" means that white noise makes up at least seven
tenths of the stated variance, and that the bias is at most a tenth of the half-width.

Sharpness is half-width divided by |error|. The plain ratio is the median half-width divided by the median |error|. It
is 2.9 (1.96 / 0.6745) for exact Gaussians of one width, but up to 5 here, since widths span two decades. The goal
therefore divides each plant's error by its own half-width, which gives 2.9 for all widths. The plain ratio is also
printed, with its value for exact Gaussians of these widths.

Prints a table and, last, one JSON line. Exits 1 if a goal is missed.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.command_line import concluded, parser_of
from benchmarks.kinds import KINDS, every_kind, second_draw
from benchmarks.pairs import every_pair
from fixtures.worlds.random_draw import FIGURES, draw, measured, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.proportion import clopper_pearson
from rig.analysis.result.quantity import TRIMMED, FigureKey, Quantity
from rig.recording.reader import open_run

DOMINATES = 0.7
Array = NDArray[np.float64]


def one(seed: int) -> dict[str, Any]:
    """Measure one plant; return truth, error, half-width, and whether noise dominates, by figure."""
    d = draw(seed)
    with tempfile.TemporaryDirectory() as folder:
        plant = measured(d, Path(folder) / "run")
        result = evaluate(open_run(Path(folder) / "run"))
    real = truth(plant, "inference", d.windows)
    row: dict[str, Any] = {
        "seed": seed,
        "rate_hz": d.meter["rate_hz"],
        "window_s": d.window_s,
        "windows": d.windows,
        "marks": d.device["marks"],
        "burst": d.plant["burst"],
        "refused": [r.reason for r in result.refusals],
        "method": result.clocks["meter"].method,
        "figures": {},
        "notes": list(result.notes),
    }
    for key in (FigureKey(quantity, method=method) for method in ("", TRIMMED) for quantity in FIGURES):
        if (q := result.quantities.get(key)) is not None:
            row["figures"][str(key)] = _compared(q, real[key.quantity])
    return row


def _compared(q: Quantity, real: float) -> dict[str, Any]:
    white = sum(c.u**2 for c in q.components if c.source == "white noise")
    return {
        "error": q.value - real,
        "truth": real,
        "half": q.half_width(),
        "noisy": bool(white >= DOMINATES * q.u**2 and q.bias <= 0.1 * q.half_width()),
        "parts": {c.source: c.u for c in q.components},
    }


def rows(first: int, count: int, workers: int) -> Iterator[dict[str, Any]]:
    """Yield every plant's row, in order of the seeds, from several processes."""
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(one, range(first, first + count), chunksize=4)


def summary(table: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return coverage and sharpness of one figure over the plants that were not refused."""
    found = [r["figures"][name] for r in table if name in r["figures"]]
    error = np.array([abs(f["error"] / f["truth"]) for f in found])
    half = np.array([f["half"] / abs(f["truth"]) for f in found])
    noisy = np.array([f["noisy"] for f in found], bool)
    held, of_noisy = error <= half, ratios(error[noisy], half[noisy])
    return {
        "n": len(found),
        "coverage": float(held.mean()),
        "n_noisy": int(noisy.sum()),
        "coverage_noisy": float(held[noisy].mean()) if noisy.any() else None,
        "ratio": float(np.median(half) / np.median(error)),
        "ratio_noisy": of_noisy["own"],
        "plain_ratio_noisy": of_noisy["ratio"],
        "plain_ratio_noisy_if_exact": of_noisy["exact"],
        "median_error": float(np.median(error)),
    }


def ratios(error: Array, half: Array) -> dict[str, float | None]:
    """Return half-width / |error| in three ways: by medians, for exact Gaussians, and by each error over its own width.

    The value for exact Gaussians of these half-widths is the median of 1,000 trials. Without plants, each is None.
    """
    if not len(half):
        return dict.fromkeys(("ratio", "exact", "own"))
    trials = np.abs(np.random.default_rng(0).normal(0.0, half / 1.96, (1000, len(half))))
    return {
        "ratio": float(np.median(half) / np.median(error)),
        "exact": float(np.median(np.median(half) / np.median(trials, axis=1))),
        "own": float(1.0 / np.median(error / half)),
    }


def verdict(table: list[dict[str, Any]], second: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return whether each goal is met, and what was found, over simulated benches and rows of the ``second`` draw."""
    every = table + (second or [])
    figures = {name: summary(table, name) for name in FIGURES}
    plain = [r for r in table if r["rate_hz"] >= 1000 and r["window_s"] >= 20e-3]
    accurate = [abs(f["error"] / f["truth"]) for r in plain if (f := r["figures"].get(FIGURES[0]))]
    refused = sum(FIGURES[0] not in r["figures"] for r in every) / len(every)
    never = sum(FIGURES[0] not in r["figures"] for r in plain if r["marks"])
    held = {name: _share([f["figures"][name] for f in every if name in f["figures"]], 1.0) for name in FIGURES}
    told = [r for r in every if not r.get("failed")]
    silent = sum(_share([f for n, f in r["figures"].items() if n in FIGURES], 2.0) < 1.0 for r in told) / len(every)
    goals = {
        "coverage": min(held.values()) >= (0.935 if len(every) >= 1000 else 0.92),
        "coverage_noisy": all(_held_at_least(f) <= 0.99 for f in figures.values()),
        "silent": silent <= 0.01,
        "ratio": all(f["ratio"] <= 6.0 for f in figures.values()),
        "ratio_noisy": all((f["ratio_noisy"] or 0.0) <= 4.0 for f in figures.values()),
        "median_error": float(np.median(accurate)) <= 0.005,
        "refused": refused <= 0.2,
        "refused_with_marks": never == 0,
    }
    return {
        "benchmark": "truth",
        "plants": len(every),
        "figures": figures,
        "held": held,
        "silent": silent,
        "median_error_1khz_20ms": float(np.median(accurate)),
        "refused": refused,
        "refused_with_marks_1khz_20ms": never,
        "goals": goals,
        "pass": all(goals.values()),
    }


def _held_at_least(f: dict[str, Any]) -> float:
    """Return a lower limit of the share of held figures, by the plants dominated by noise; few plants lower it."""
    return clopper_pearson((f["coverage_noisy"] or 0.0) * f["n_noisy"], f["n_noisy"])[0]


def _share(figures: Iterable[dict[str, Any]], halves: float) -> float:
    """Return the share of figures within ``halves`` half-widths of the truth; 1 if there are no figures."""
    held = [abs(f["error"]) <= halves * f["half"] for f in figures]
    return float(np.mean(held)) if held else 1.0


def _row(f: dict[str, Any]) -> str:
    cells = [f"{f['n']}", f"{f['coverage']:.1%}", f"{f['n_noisy']}", _cell(f["coverage_noisy"], ".1%")]
    ratios = ("ratio", "ratio_noisy", "plain_ratio_noisy", "plain_ratio_noisy_if_exact")
    cells += [_cell(f[key], ".2f") for key in ratios]
    return "".join(f"{c:>8}" for c in (*cells, f"{f['median_error']:.3%}"))


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def main() -> int:
    parser = parser_of(__doc__, seed=1, workers=2)
    parser.add_argument("--plants", type=int, default=300, help="plants in all, or of each kind with --every-kind")
    parser.add_argument("--rows", type=Path, help="also write every plant as a JSON line")
    parser.add_argument("--every-kind", action="store_true", help="the second draw alone, a row for each kind")
    parser.add_argument(
        "--kind", metavar="KIND", action="append", choices=list(KINDS), help="with --every-kind: this kind only"
    )
    parser.add_argument("--pairs", type=int, metavar="N", help="N benches of two kinds at once, and nothing else")
    args = parser.parse_args()
    if args.pairs:
        result = every_pair(args.pairs, args.seed, args.workers, args.rows)
    elif args.every_kind or args.kind:
        result = every_kind(args.kind or list(KINDS), args.plants, args.seed, args.workers)
    else:
        result = both_draws(args.plants, args.seed, args.workers, args.rows)
    return concluded(result, result["pass"])


def both_draws(plants: int, seed: int, workers: int, kept: Path | None) -> dict[str, Any]:
    """Measure half of the plants from each draw, print the table, and return the verdict."""
    began, first = time.monotonic(), seed * 1_000_000
    half = plants - plants // 2
    table: list[dict[str, Any]] = []
    second: list[dict[str, Any]] = []
    for done, row in enumerate(chain(rows(first, half, workers), second_draw(first, plants // 2, workers)), 1):
        (second if "kind" in row else table).append(row)
        if sys.stderr.isatty():
            print(f"\r{done}/{plants}", end="", file=sys.stderr)
    if kept:
        kept.write_text("".join(json.dumps(r) + "\n" for r in table + second))
    result = verdict(table, second)
    heads = ("n", "held", "noisy", "held", "ratio", "noisy", "plain", "exact", "|error|")
    print(f"\n{'simulated benches':36}" + "".join(f"{h:>8}" for h in heads))
    for name in (*FIGURES, *(f"trimmed.{n}" for n in FIGURES)):
        print(f"{name:36}" + _row(summary(table, name)))
    held = ", ".join(f"{name} {share:.1%}" for name, share in result["held"].items())
    print(f"with {len(second)} recordings of every kind, held: {held}")
    print(f"silent {result['silent']:.1%}, refused {result['refused']:.1%}; {time.monotonic() - began:.0f} s")
    return result


if __name__ == "__main__":
    sys.exit(main())
