"""How often does a gate answer "worse" when it should, and when it should not? Tested on pairs of simulated benches.

    python -m benchmarks.gates --pairs 200 [--noise 30] [--seed 1] [--rows gates.jsonl]

Each bench is drawn at random, as in ``benchmarks.truth``, and measured first. Then its device draws 0, 3, 5 or 10 %
more power everywhere, and the bench is measured again, with another instrument of the same data sheet. An undecided
gate asks for more samples. If these are at most ``MOST_TRIALS`` times as many, one bench in five is measured again with
them. ``--noise`` multiplies the noise of the readings; if it is not 1, no noise is clipped.

Prints a table and, last, one JSON line. Exits 1 if more than 5 % of the pairs are judged worse for any
change that the limit of a gate allows.
"""

import json
import math
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from benchmarks.command_line import concluded, parser_of
from fixtures.worlds.random_draw import Draw, draw, measured
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import Figures
from rig.analysis.result.result import Result
from rig.analysis.sessions.summary import over_trials
from rig.comparing.compare import Subject, compared
from rig.comparing.gate import judged, limit_of
from rig.errors import UsageError
from rig.recording.reader import open_run

CHANGES = (0.0, 0.03, 0.05, 0.10)
LIMITS = ("energy_per_inference_j > +0%", "energy_per_inference_j > +5%")
MOST_TRIALS = 4
EVERY = 5
"""One in this many benches is measured again with more samples."""
FALSE = 0.05


def changed(d: Draw, change: float, again: int) -> Draw:
    """Return the bench with a device whose power is higher by ``change``, and with new noise and a new instrument."""
    device = d.device | {key: d.device[key] * (1.0 + change) for key in ("idle_w", "inference_w")}
    seeds = d.plant["seed"] + 7919 * again
    return replace(d, device=device, plant=d.plant | {"seed": seeds}, meter=d.meter | {"meter_seed": seeds + 2})


def subject(d: Draw, trials: int, folder: Path) -> Subject:
    """Measure a bench ``trials`` times, and return the mean."""
    results: list[Result] = []
    for trial in range(trials):
        path = folder / str(len(list(folder.iterdir())))
        measured(replace(d, meter=d.meter | {"meter_seed": d.meter["meter_seed"] + 104729 * trial}), path)
        results.append(evaluate(open_run(path)))
    mean = Figures(over_trials([r.quantities for r in results]))
    return Subject(folder, "", structs.replace(results[0], quantities=mean), False, frozenset({path.name}), {})


def noisy(d: Draw, times: float) -> Draw:
    """Return the bench with the noise of its readings multiplied by ``times``."""
    louder = {key: d.meter[key] * times for key in ("noise", "flicker")}
    return d if times == 1.0 else replace(d, meter=d.meter | louder | {"clip": 0.0})


def one(seed: int, noise: float) -> dict[str, Any]:
    """Return the outcome of both gates for one bench at each change, and again with the samples that they ask for."""
    d, row = noisy(draw(seed), noise), dict[str, Any]({"seed": seed, "found": []})
    with tempfile.TemporaryDirectory() as folder:
        first = subject(changed(d, 0.0, 1), 1, Path(folder))
        for number, change in enumerate(CHANGES, 2):
            second = subject(changed(d, change, number), 1, Path(folder))
            for text in LIMITS:
                told: dict[str, Any] = {"change": change, "limit": text}
                try:
                    found = judged(compared(first, second), limit_of(text))
                except UsageError as error:
                    row["found"].append(told | {"outcome": "refused", "why": str(error)})
                    continue
                told |= {"outcome": found.outcome, "half": found.high - found.change, "more": found.samples_more}
                trials = 1 + math.ceil((found.samples_more or 0) / d.windows)
                if 1 < trials <= MOST_TRIALS and seed % EVERY == 0:
                    again = (
                        subject(changed(d, c, n + 10), trials, Path(folder)) for c, n in ((0.0, 1), (change, number))
                    )
                    told["again"] = judged(compared(*again), limit_of(text)).outcome
                row["found"].append(told)
    return row


def main() -> int:
    parser = parser_of(__doc__, pairs=200, seed=1, workers=2)
    parser.add_argument("--noise", type=float, default=1.0, help="times the noise that is drawn")
    parser.add_argument("--rows", type=Path, help="write one JSON line for each bench")
    args = parser.parse_args()
    table: list[dict[str, Any]] = []
    seeds = range(args.seed * 1_000_000, args.seed * 1_000_000 + args.pairs)
    with ProcessPoolExecutor(args.workers) as pool, (args.rows or Path(os.devnull)).open("w") as file:
        for row in pool.map(partial(one, noise=args.noise), seeds, chunksize=2):
            table.append(row)
            print(json.dumps(row), file=file, flush=True)
    every, false = [f for row in table for f in row["found"]], 0.0
    print(f"{'limit':32}{'change':>8}{'pairs':>7}{'worse':>8}{'not worse':>11}{'not decided':>13}{'refused':>9}")
    for limit in LIMITS:
        for change in CHANGES:
            some = [f for f in every if (f["limit"], f["change"]) == (limit, change)]
            share = {k: n / len(some) for k, n in Counter(f["outcome"] for f in some).items()}
            told = [share.get(k, 0.0) for k in ("worse", "not worse", "not decided", "refused")]
            print(
                f"{limit:32}{change:>8.0%}{len(some):>7}{told[0]:>8.1%}{told[1]:>11.1%}{told[2]:>13.1%}{told[3]:>9.1%}"
            )
            false = max(false, told[0] if change <= 0.01 * float(limit.rstrip("%").rpartition("+")[2]) else 0.0)
    asked = [f["again"] for f in every if f.get("again")]
    decided = sum(outcome != "not decided" for outcome in asked) / max(len(asked), 1)
    print(
        f"{len(asked)} were measured again with as many samples as they asked for: {decided:.1%} of them were decided"
    )
    found = {"false alarms at most": false, "asked": len(asked), "decided": decided, "pass": false <= FALSE}
    return concluded({"benchmark": "gates", "pairs": len(table)} | found, found["pass"])


if __name__ == "__main__":
    sys.exit(main())
