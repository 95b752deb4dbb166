"""Which losses of 64 readings or a multiple does the PPK2's driver miss, and how often does it end a sound run?

    python -m benchmarks.ppk2_losses --logs 200

Logs of arrivals are made up, 20 s each: clocks that drift, delays that scatter, and stalls in which nothing arrives.
``calm`` is a machine without other load, ``busy`` has processes on every core, and on ``hog`` the driver also waits for
the interpreter. Logs with and without a loss at a random time are cut into slots of 10 ms, as in the driver, and pass
through the driver's ``Proof``. ``missed`` counts logs in which readings after the loss were released; it must be 0.
``refused`` counts errors that end the run; every loss must cause one. No real time is waited for.

Prints a table and, last, one JSON line; exits 1 if a log with a loss was missed or not refused.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from benchmarks.command_line import parser_of
from drivers.meters.ppk2.losses_by_arrival_time import UNSEEN, Proof
from drivers.meters.ppk2.words import RATE_HZ
from rig.errors import MeterError
from rig.types import Floats, Indices

SECONDS, SLOT_S = 20.0, 0.01
DRIFT = 6e-5
TOLERANCE = 1e-4
VERDICTS = ("whole", "refused", "missed")


@dataclass(frozen=True)
class Machine:
    """Mean delay of an arrival (s), stalls per second, and mean length of a stall (s); both times are exponential."""

    delay_s: float
    stalls_hz: float
    stall_s: float


MACHINES = {"calm": Machine(2e-4, 0.05, 0.02), "busy": Machine(5e-4, 2.0, 0.06), "hog": Machine(2e-3, 8.0, 0.05)}


@dataclass(frozen=True)
class Log:
    """What the host sees: ``count`` readings in all by ``at_s``, shapes (n,); ``lost_at`` is the place of a loss."""

    count: Indices
    at_s: Floats
    lost_at: int


def arrivals(machine: Machine, seed: int, missing: int = 0, lost_s: float = 0.0, seconds: float = SECONDS) -> Log:
    """Return one log; from ``lost_s`` on, ``missing`` readings in a row are lost."""
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


def verdict(log: Log, missing: int) -> tuple[str, float]:
    """Return the outcome of one log, and the time of the refusal if it was refused (s)."""
    proof, at_s = Proof("ppk2", RATE_HZ, TOLERANCE), 0.0
    try:
        for count, at_s in slots(log):
            proof.add(count, at_s)
            if missing and proof.proved > log.lost_at + 2:
                return "missed", at_s
    except MeterError:
        return "refused", at_s
    return "whole", at_s


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--logs", type=int, default=200, help="logs of each machine and loss")
    logs = parser.parse_args().logs
    rows = []
    print("machine  lost " + "".join(f"{k:>8}" for k in VERDICTS) + "   refused after s (median, 95 %)")
    for name, machine in MACHINES.items():
        for missing in (0, UNSEEN, 2 * UNSEEN, 11 * UNSEEN):
            counts: Counter[str] = Counter()
            after = []
            for seed in range(logs):
                lost_s = float(np.random.default_rng(seed).uniform(0.5, 0.4 * SECONDS))
                how, at_s = verdict(arrivals(machine, seed, missing, lost_s), missing)
                counts[how] += 1
                after += [at_s - lost_s] if how == "refused" and missing else []
            found = np.quantile(after or [0.0], [0.5, 0.95]).round(3).tolist()
            rows.append({"machine": name, "lost": missing, **counts, "after_s": found})
            columns = "".join(f"{counts[k]:8}" for k in VERDICTS)
            print(f"{name:7} {missing:5} {columns} {found[0]:14.2f} {found[1]:6.2f}")
    print(json.dumps({"logs": logs, "seconds": SECONDS, "rows": rows}))
    return int(any(row.get("missed") or (row["lost"] and row.get("whole")) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
