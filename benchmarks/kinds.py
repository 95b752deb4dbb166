"""Do stated intervals contain the truth on benches of every kind that labs have?

The kinds are those of ``lab_kinds``, ``more_lab_kinds``, ``field_kinds``, ``outside_kinds``, ``bench_kinds``,
``meter_kinds``, ``edge_kinds``, ``device_kinds``, ``reading_kinds``, ``manual_kinds``, ``forum_kinds``,
``work_kinds``, ``readout_kinds``, ``session_kinds``, ``unusual_kinds``, ``log_kinds``, ``habit_kinds``,
``activity_kinds``, ``aftermath_kinds``, ``acquisition_kinds``, ``mistake_kinds``, ``warming_kinds``, ``pace_kinds``,
``spoilt_kinds``, ``schedule_kinds``, ``nuisance_kinds``, ``experiment_kinds``, ``fault_kinds``, ``board_kinds``,
``course_kinds``, ``unsaid_kinds``, ``harness_kinds``, ``node_kinds``, ``slip_kinds``, ``governor_kinds``,
``demand_kinds``, ``quirk_kinds``, ``everyday_kinds``, ``mild_kinds``, ``blunder_kinds``, ``ordinary_kinds``,
``tolerable_kinds``, ``botched_kinds``, ``paired_kinds``, ``slight_kinds`` and ``flawed_kinds`` in ``fixtures.worlds``.

    python -m benchmarks.truth --every-kind --plants 200 [--kind gated_late ...]

Each recording is written directly in the documented format and evaluated. A figure is held if its interval, bias
included, contains the truth. A miss beyond two half-widths is silent if no check fails. A refused recording or figure
counts as refused.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from fixtures.worlds.devices.activity_kinds import KINDS as ACTIVITY_KINDS
from fixtures.worlds.devices.aftermath_kinds import KINDS as AFTERMATH_KINDS
from fixtures.worlds.devices.bench_kinds import KINDS as BENCH_KINDS
from fixtures.worlds.devices.course_kinds import KINDS as COURSE_KINDS
from fixtures.worlds.devices.device_kinds import KINDS as DEVICE_KINDS
from fixtures.worlds.devices.governor_kinds import KINDS as GOVERNOR_KINDS
from fixtures.worlds.devices.habit_kinds import KINDS as HABIT_KINDS
from fixtures.worlds.devices.mild_kinds import KINDS as MILD_KINDS
from fixtures.worlds.devices.node_kinds import KINDS as NODE_KINDS
from fixtures.worlds.devices.pace_kinds import KINDS as PACE_KINDS
from fixtures.worlds.devices.unusual_kinds import KINDS as UNUSUAL_KINDS
from fixtures.worlds.devices.warming_kinds import KINDS as WARMING_KINDS
from fixtures.worlds.devices.work_kinds import KINDS as WORK_KINDS
from fixtures.worlds.faults.blunder_kinds import KINDS as BLUNDER_KINDS
from fixtures.worlds.faults.botched_kinds import KINDS as BOTCHED_KINDS
from fixtures.worlds.faults.fault_kinds import KINDS as FAULT_KINDS
from fixtures.worlds.faults.flawed_kinds import KINDS as FLAWED_KINDS
from fixtures.worlds.faults.mistake_kinds import KINDS as MISTAKE_KINDS
from fixtures.worlds.faults.quirk_kinds import KINDS as QUIRK_KINDS
from fixtures.worlds.faults.slip_kinds import KINDS as SLIP_KINDS
from fixtures.worlds.faults.spoilt_kinds import KINDS as SPOILT_KINDS
from fixtures.worlds.faults.unsaid_kinds import KINDS as UNSAID_KINDS
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from fixtures.worlds.labs.board_kinds import KINDS as BOARD_KINDS
from fixtures.worlds.labs.demand_kinds import KINDS as DEMAND_KINDS
from fixtures.worlds.labs.everyday_kinds import KINDS as EVERYDAY_KINDS
from fixtures.worlds.labs.experiment_kinds import KINDS as EXPERIMENT_KINDS
from fixtures.worlds.labs.field_kinds import KINDS as FIELD_KINDS
from fixtures.worlds.labs.forum_kinds import KINDS as FORUM_KINDS
from fixtures.worlds.labs.harness_kinds import KINDS as HARNESS_KINDS
from fixtures.worlds.labs.lab_kinds import KINDS as FIRST_KINDS
from fixtures.worlds.labs.more_lab_kinds import KINDS as MORE_KINDS
from fixtures.worlds.labs.nuisance_kinds import KINDS as NUISANCE_KINDS
from fixtures.worlds.labs.ordinary_kinds import KINDS as ORDINARY_KINDS
from fixtures.worlds.labs.outside_kinds import KINDS as OUTSIDE_KINDS
from fixtures.worlds.labs.paired_kinds import KINDS as PAIRED_KINDS
from fixtures.worlds.labs.schedule_kinds import KINDS as SCHEDULE_KINDS
from fixtures.worlds.labs.session_kinds import KINDS as SESSION_KINDS
from fixtures.worlds.meters.acquisition_kinds import KINDS as ACQUISITION_KINDS
from fixtures.worlds.meters.edge_kinds import KINDS as EDGE_KINDS
from fixtures.worlds.meters.log_kinds import KINDS as LOG_KINDS
from fixtures.worlds.meters.manual_kinds import KINDS as MANUAL_KINDS
from fixtures.worlds.meters.meter_kinds import KINDS as METER_KINDS
from fixtures.worlds.meters.reading_kinds import KINDS as READING_KINDS
from fixtures.worlds.meters.readout_kinds import KINDS as READOUT_KINDS
from fixtures.worlds.meters.slight_kinds import KINDS as SLIGHT_KINDS
from fixtures.worlds.meters.tolerable_kinds import KINDS as TOLERABLE_KINDS
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.errors import RigError
from rig.recording.reader import open_run

FIGURES = ("dynamic_power_w", "active_power_w", "energy_per_inference_j")
THIRD_KINDS = BENCH_KINDS | METER_KINDS | EDGE_KINDS
FOURTH_KINDS = DEVICE_KINDS | READING_KINDS
FIFTH_KINDS = MANUAL_KINDS | FORUM_KINDS
SIXTH_KINDS = WORK_KINDS | READOUT_KINDS | SESSION_KINDS
SEVENTH_KINDS = UNUSUAL_KINDS | LOG_KINDS | HABIT_KINDS
EIGHTH_KINDS = ACTIVITY_KINDS | AFTERMATH_KINDS | ACQUISITION_KINDS | MISTAKE_KINDS
NINTH_KINDS = WARMING_KINDS | PACE_KINDS | SPOILT_KINDS
TENTH_KINDS = SCHEDULE_KINDS | NUISANCE_KINDS
ELEVENTH_KINDS = EXPERIMENT_KINDS | FAULT_KINDS
TWELFTH_KINDS = BOARD_KINDS | COURSE_KINDS | UNSAID_KINDS
THIRTEENTH_KINDS = HARNESS_KINDS | NODE_KINDS | SLIP_KINDS
FOURTEENTH_KINDS = GOVERNOR_KINDS | DEMAND_KINDS | QUIRK_KINDS
FIFTEENTH_KINDS = EVERYDAY_KINDS | MILD_KINDS | BLUNDER_KINDS
SIXTEENTH_KINDS = ORDINARY_KINDS | TOLERABLE_KINDS | BOTCHED_KINDS
SEVENTEENTH_KINDS = PAIRED_KINDS | SLIGHT_KINDS | FLAWED_KINDS
KINDS = FIRST_KINDS | MORE_KINDS | FIELD_KINDS | OUTSIDE_KINDS
KINDS |= THIRD_KINDS | FOURTH_KINDS | FIFTH_KINDS | SIXTH_KINDS | SEVENTH_KINDS | EIGHTH_KINDS | NINTH_KINDS
KINDS |= TENTH_KINDS | ELEVENTH_KINDS | TWELFTH_KINDS | THIRTEENTH_KINDS | FOURTEENTH_KINDS | FIFTEENTH_KINDS
KINDS |= SIXTEENTH_KINDS | SEVENTEENTH_KINDS
ASKED, LEAST = 0.935, 0.90
WIDEST = 10.0
"""Half-width over median error of dynamic power."""


def one(task: tuple[str, int]) -> dict[str, Any]:
    """Evaluate one recording of a kind: relative error and half-width of each figure, or why there is none."""
    kind, seed = task
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    return {"kind": kind, "seed": seed} | compared(lab)


def compared(lab: Lab) -> dict[str, Any]:
    """Return ``judged`` of a lab's recording."""
    with tempfile.TemporaryDirectory() as folder:
        write(lab, Path(folder) / "run")
        return judged(Path(folder) / "run", lab.truth())


def judged(path: Path, real: Mapping[str, float]) -> dict[str, Any]:
    """Return errors and half-widths of a recording's figures relative to the truth, and what was refused."""
    try:
        result = evaluate(open_run(path))
    except RigError as error:
        return {"figures": {}, "refused": f"{type(error).__name__}: {error.message}"}
    failed = [f.rule for f in result.findings if f.effect == "check" and not f.ok]
    row: dict[str, Any] = {"figures": {}, "refused": "; ".join(r.reason for r in result.refusals), "failed": failed}
    for name in FIGURES:
        q = result.quantities.get(FigureKey(name))
        if q is not None:
            scale = abs(real[name])
            row["figures"][name] = {"error": (q.value - real[name]) / scale, "half": q.half_width() / scale}
    return row


def summary(rows: list[dict[str, Any]], kinds: int) -> dict[str, Any]:
    """Return for each figure the share held and its corrected upper bound, and the shares refused and silent."""
    found: dict[str, Any] = {"n": len(rows), "held": {}, "upper": {}}
    misses = 0
    for name in FIGURES:
        stated = [r["figures"][name] for r in rows if name in r["figures"]]
        held = sum(abs(f["error"]) <= f["half"] for f in stated)
        found["held"][name] = held / len(stated) if stated else None
        found["upper"][name] = (
            1.0 if held == len(stated) else float(beta.ppf(1.0 - 0.05 / kinds, held + 1, len(stated) - held))
        )
    for r in rows:
        misses += not r.get("failed") and any(abs(f["error"]) > 2.0 * f["half"] for f in r["figures"].values())
    stated = [f for r in rows for f in [r["figures"].get(FIGURES[0])] if f]
    found["silent"] = misses / len(rows)
    found["refused"] = 1.0 - len(stated) / len(rows)
    error = float(np.median([abs(f["error"]) for f in stated])) if stated else 0.0
    found["sharpness"] = float(np.median([f["half"] for f in stated])) / error if error else None
    return found


def missed(found: dict[str, Any]) -> bool:
    """Return whether a kind is held too rarely (below 90 %, bound below 93.5 %), refused too often, or too wide."""
    low = [
        found["upper"][n] < ASKED and (found["held"][n] or 0.0) < LEAST for n in FIGURES if found["held"][n] is not None
    ]
    return any(low) or found["refused"] > 0.5 or (found["sharpness"] or 0.0) > WIDEST


def second_draw(first: int, count: int, workers: int) -> Iterator[dict[str, Any]]:
    """Record ``count`` benches, all kinds in turn."""
    names = list(KINDS)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(one, [(names[k % len(names)], first + k) for k in range(count)], chunksize=4)


def every_kind(kinds: Sequence[str], plants: int, seed: int, workers: int) -> dict[str, Any]:
    """Print a row for each kind with ``plants`` recordings of it, and return the verdict."""
    began, first = time.monotonic(), seed * 1_000_000
    table: dict[str, dict[str, Any]] = {}
    print(f"{'kind':30}{'dynamic':>9}{'active':>8}{'energy':>8}{'silent':>8}{'refused':>9}{'sharp':>7}")
    with ProcessPoolExecutor(workers) as pool:
        for kind in kinds:
            rows = list(pool.map(one, [(kind, first + k) for k in range(plants)], chunksize=4))
            found = table[kind] = summary(rows, len(kinds))
            held = "".join(f"{'-' if h is None else f'{h:.0%}':>8}" for h in found["held"].values())
            sharp = "-" if found["sharpness"] is None else f"{found['sharpness']:.1f}"
            tail = "  MISSED" if missed(found) else ""
            print(f"{kind:31}{held}{found['silent']:>8.0%}{found['refused']:>9.0%}{sharp:>7}{tail}", flush=True)
    silent = float(np.mean([f["silent"] for f in table.values()]))
    refused = float(np.mean([f["refused"] for f in table.values()]))
    below = [kind for kind, found in table.items() if missed(found)]
    goals = {"kinds": not below, "silent": silent <= 0.01, "refused": refused <= 0.2}
    print(f"silent {silent:.1%}, refused {refused:.1%}, {len(below)} kinds missed; {time.monotonic() - began:.0f} s")
    said = {"benchmark": "kinds", "plants": plants, "kinds": table, "missed": below, "goals": goals}
    return said | {"pass": all(goals.values())}
