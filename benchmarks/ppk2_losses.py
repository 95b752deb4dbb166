"""Which losses of 64 readings or a multiple does the PPK2's driver find, how soon, and how often is it wrong?

    python -m benchmarks.ppk2_losses --logs 200

Arrival logs are made up, 20 s each: clocks that drift, delays that scatter, and stalls in which nothing arrives.
``calm`` is a machine without other load, ``busy`` one with processes on every core, ``hog`` one on which the driver
also waits for the interpreter. Logs with and without a loss at a random moment pass through slots of 10 ms, as in the
driver, and its ``LossDetector``. ``missed``, ``false`` (a reported loss without a real one) and ``wrong`` (another
count, or a stretch without the place) must be 0; ``refused`` is an error that ends the run. It waits for no clock.

Prints a table and, last, one JSON line; exits 1 when one of the three is not 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from drivers.meters.ppk2.loss_detection import UNSEEN, Loss, LossDetector
from drivers.meters.ppk2.words import RATE_HZ
from rig.errors import MeterError
from rig.types import Floats, Indices

SECONDS, SLOT_S = 20.0, 0.01
DRIFT = 6e-5
TOLERANCE = 1e-4
VERDICTS = ("right", "refused", "missed", "false", "wrong")


@dataclass(frozen=True)
class Machine:
    """Mean delay of an arrival, stalls per second, and mean length of a stall; all are exponential."""

    delay_s: float
    stalls_hz: float
    stall_s: float


MACHINES = {"calm": Machine(2e-4, 0.05, 0.02), "busy": Machine(5e-4, 2.0, 0.06), "hog": Machine(2e-3, 8.0, 0.05)}


@dataclass(frozen=True)
class Log:
    """The host's view: ``count`` readings in all by ``at_s``, shapes (n,); ``lost_at`` is the place of a loss."""

    count: Indices
    at_s: Floats
    lost_at: int


def arrivals(machine: Machine, seed: int, missing: int = 0, lost_s: float = 0.0, seconds: float = SECONDS) -> Log:
    """One log: ``missing`` readings in a row are lost from ``lost_s`` on."""
    rng = np.random.default_rng([seed, 0x9922])
    taken_s = np.cumsum(rng.uniform(0.8e-3, 1.4e-3, round(seconds / 1.1e-3)))
    at_s = taken_s + 5e-5 + rng.exponential(machine.delay_s, len(taken_s))
    n = int(rng.poisson(machine.stalls_hz * seconds))
    for begin_s, length_s in zip(rng.uniform(0, seconds, n), rng.exponential(machine.stall_s, n), strict=True):
        at_s = np.where((at_s > begin_s) & (at_s < begin_s + length_s), begin_s + length_s, at_s)
    rate_hz = RATE_HZ * (1.0 - rng.uniform(-DRIFT, DRIFT))
    gone = np.clip(np.floor((taken_s - lost_s) * rate_hz), 0, missing)
    count = np.floor(taken_s * rate_hz - gone).astype(np.int64)
    return Log(count, np.maximum.accumulate(at_s), int(lost_s * rate_hz))


def slots(log: Log) -> list[tuple[int, float]]:
    """Return the arrival with the least lag of each slot, as the driver keeps it."""
    lag_s = log.at_s - log.count / RATE_HZ
    kept, k = [], 0
    while k < len(lag_s):
        end = int(np.searchsorted(log.at_s, log.at_s[k] + SLOT_S, side="right"))
        best = k + int(np.argmin(lag_s[k:end]))
        kept.append((int(log.count[best]), float(log.at_s[best])))
        k = best + 1
    return kept


def followed(log: Log) -> tuple[list[tuple[Loss, float]], bool]:
    """Return the reported losses, each with its time, and whether the run was refused."""
    follower, told = LossDetector("ppk2", RATE_HZ, TOLERANCE), []
    try:
        for count, at_s in slots(log):
            if (loss := follower.add(count, at_s)) is not None:
                told.append((loss, at_s))
    except MeterError:
        return told, True
    return told, False


def verdict(log: Log, missing: int, told: list[tuple[Loss, float]], refused: bool) -> str:
    """Return the outcome of one log."""
    if refused:
        return "refused"
    if not missing or not told:
        return "false" if told else "missed" if missing else "right"
    loss = told[0][0]
    placed = loss.first - 2 <= log.lost_at <= loss.end + 2
    return "right" if len(told) == 1 and loss.missing == missing and placed else "wrong"


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=200, help="logs of each machine and loss")
    logs = parser.parse_args().logs
    rows = []
    print("machine  lost " + "".join(f"{k:>8}" for k in VERDICTS) + "   found after s (median, 95 %)  NaN s (same)")
    for name, machine in MACHINES.items():
        for missing in (0, UNSEEN, 2 * UNSEEN, 11 * UNSEEN):
            counts: Counter[str] = Counter()
            after, nan = [0.0], [0.0]
            for seed in range(logs):
                lost_s = float(np.random.default_rng(seed).uniform(0.5, 0.8 * SECONDS))
                log = arrivals(machine, seed, missing, lost_s)
                told, refused = followed(log)
                counts[verdict(log, missing, told, refused)] += 1
                if told and missing:
                    after.append(told[0][1] - lost_s)
                    nan.append((told[0][0].end - told[0][0].first + missing) / RATE_HZ)
            found, width = (np.quantile(v[1:] or [0.0], [0.5, 0.95]).round(3).tolist() for v in (after, nan))
            rows.append({"machine": name, "lost": missing, **counts, "found_s": found, "nan_s": width})
            tail = f"{found[0]:14.2f} {found[1]:6.2f} {width[0]:22.3f} {width[1]:6.3f}" if missing else ""
            columns = "".join(f"{counts[k]:8}" for k in VERDICTS)
            print(f"{name:7} {missing:5} {columns} {tail}")
    print(json.dumps({"logs": logs, "seconds": SECONDS, "rows": rows}))
    return int(any(row.get(bad) for row in rows for bad in ("missed", "false", "wrong")))


if __name__ == "__main__":
    sys.exit(main())
