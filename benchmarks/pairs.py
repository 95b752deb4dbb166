"""Do stated intervals contain the truth on benches with two troubles at once?

    python -m benchmarks.truth --pairs 600 [--seed 1] [--rows pairs.jsonl]

Two kinds of ``benchmarks.kinds.KINDS`` are drawn for each recording, and applied one after the other to a plain lab: in
the drawn order or, if this makes no sense, in reverse. A pair that makes no sense in either order is left out and
counted.
"""

import json
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kinds import FIGURES, KINDS, compared, summary
from fixtures.worlds.lab_recording import Lab, plain_lab

SHARED = {"spans_s", "label", "span_w", "idle_w", "end_s", "noise_w", "rate_hz", "meter_rate", "device_rate", "sense"}
"""Properties of a lab that both kinds may change."""


class SenselessError(Exception):
    """The two kinds do not make sense in this order."""


def composed(first: str, second: str, seed: int) -> Lab:
    """Return a plain lab with the trouble ``first``, and then the trouble ``second``.

    Raises ``SenselessError`` if the second undoes part of the first, or no such bench exists.
    """
    lab = plain_lab(seed, f"{first}+{second}")
    plain = _properties(lab)
    KINDS[first](lab)
    once, placed, raw, deliver = _properties(lab), len(lab.pieces), lab.raw, lab.deliver
    lab.raw, lab.deliver = plain["raw"], plain["deliver"]
    KINDS[second](lab)
    twice, raw_last, deliver_last = _properties(lab), lab.raw, lab.deliver

    def delivered(n: int) -> NDArray[np.int64]:
        kept = deliver(n)
        return kept[deliver_last(len(kept))]

    lab.raw, lab.deliver = lambda w: raw_last(raw(w)), delivered
    begun = _changed(plain, once) | ({"raw"} if raw is not plain["raw"] else set())
    ended = _changed(once | {"raw": plain["raw"], "deliver": plain["deliver"]}, twice)
    _sensible(lab, begun, ended, placed)
    return lab


def _properties(lab: Lab) -> dict[str, Any]:
    return vars(lab) | {f"declared {key}": value for key, value in lab.declared.items()} | {"declared": None}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {key for key in before | after if before.get(key) is not after.get(key)}


def _sensible(lab: Lab, begun: set[str], ended: set[str], placed: int) -> None:
    """Refuse a second kind that undoes the first, and benches that cannot exist."""
    if twice := (begun & ended) - SHARED - {"raw", "deliver"}:
        raise SenselessError(f"both set {', '.join(sorted(twice))}")
    if "spans_s" in ended and (placed or "deliver" in begun):
        raise SenselessError("the second moves spans away from work that the first placed")
    if "sense" in begun and "declared accuracy" in ended:
        raise SenselessError("the transfer curve is set twice")
    if not len(lab.counted_s):
        raise SenselessError("all spans are warm-ups")
    if lab.starts_on_tick and lab.pieces:
        raise SenselessError("spans begin at a tick, but other pieces of work do not")
    if lab.late_s is not None and lab.aperture < 1.0:
        raise SenselessError("readings that are stamped on arrival must cover their whole period")
    if lab.supply is not None and (lab.drift_w or lab.steps_w or lab.filter_tau_s or "swing_j" in begun | ended):
        raise SenselessError("a lab with a supply has a steady idle level and no filter")
    if lab.idle_w + lab._levels()[1].min() < -1e-9 * lab.idle_w:
        raise SenselessError("power falls below zero")


def one(seed: int) -> dict[str, Any]:
    """Return the row of the pair that the seed draws; ``senseless`` says why a pair is left out."""
    kinds = np.random.default_rng(seed).choice([k for k in KINDS if k != "plain"], 2, replace=False).tolist()
    row: dict[str, Any] = {"seed": seed, "kinds": kinds}
    for order in (kinds, kinds[::-1]):
        try:
            lab = composed(order[0], order[1], seed)
        except (SenselessError, ValueError, IndexError) as error:
            row["senseless"] = f"{type(error).__name__}: {error}"
        else:
            try:
                return {"seed": seed, "kinds": order} | compared(lab)
            except Exception as error:  # an unexpected error is a finding too
                return {"seed": seed, "kinds": order, "figures": {}, "refused": "", "raised": repr(error)}
    return row


def every_pair(count: int, seed: int, workers: int, kept: Path | None) -> dict[str, Any]:
    """Print the outcomes of ``count`` pairs, each silent miss, and the number of silent misses of each kind.

    A silent miss is a stated figure whose error is more than two half-widths of its interval. In the line ``silent in a
    figure``, and in the result, it counts only if no check fails.
    """
    table: list[dict[str, Any]] = []
    with ProcessPoolExecutor(workers) as pool, (kept or Path(os.devnull)).open("w") as file:
        for row in pool.map(one, range(seed * 1_000_000, seed * 1_000_000 + count), chunksize=4):
            table.append(row)
            print(json.dumps(row), file=file, flush=True)
    found = summary(rows := [r for r in table if "senseless" not in r], 1)
    print(f"{len(rows)} pairs, and {len(table) - len(rows)} that make no sense")
    print(f"{'':24}{'stated':>8}{'held':>8}{'silent':>8}{'half-width':>12}")
    for name in FIGURES:
        stated = [f for r in rows if (f := r["figures"].get(name))]
        silent = np.mean([abs(f["error"]) > 2.0 * f["half"] for f in stated])
        half = np.median([f["half"] for f in stated])
        print(f"{name:24}{len(stated):>8}{found['held'][name]:>8.1%}{silent:>8.1%}{half:>12.2%}")
    print(f"silent in a figure {found['silent']:.1%}, refused {found['refused']:.1%}")
    missed = sorted(((_halves(r), r) for r in rows if _halves(r) > 2.0), key=lambda pair: -pair[0])
    for halves, r in missed:
        figures = ", ".join(f"{n.split('_')[0]} {f['error']:+.2%} +/- {f['half']:.2%}" for n, f in r["figures"].items())
        print(f"{halves:>8.1f} halves  {r['seed']}  {' + '.join(r['kinds'])}: {figures}")
    every, silent_of = (Counter(k for r in some for k in r["kinds"]) for some in (rows, [r for _, r in missed]))
    for kind, silent in silent_of.most_common():
        print(f"{kind:32}{silent} of {every[kind]} pairs silent")
    return {"benchmark": "pairs", "senseless": len(table) - len(rows), "pass": found["silent"] <= 0.01} | found


def _halves(row: dict[str, Any]) -> float:
    """Return the largest error, in half-widths."""
    return max((abs(f["error"]) / f["half"] for f in row["figures"].values()), default=0.0)
