"""Do stated intervals contain the truth on benches of every kind that occurs in labs?

    python -m benchmarks.truth --every-kind --plants 200 [--kind gated_late ...]

Each recording is written directly in the documented format and evaluated. A figure is *held* if its interval, bias
included, contains the truth. A miss by more than two half-widths is *silent* if no check fails. A recording whose
dynamic power is not stated counts as refused.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from fixtures.worlds.labs.lab_kinds import Kind
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.errors import RigError
from rig.recording.reader import open_run

FIGURES = ("dynamic_power_w", "active_power_w", "energy_per_inference_j")
DRAWS = (
    ("labs.lab", "labs.filters_and_idle_loads", "labs.instruments_and_hosts", "labs.work_without_spans"),
    ("devices.gap", "meters.noise", "meters.edges_and_rail_loads"),
    ("devices.power_management", "meters.converters_and_timers"),
    ("meters.filters_and_ranges", "labs.supplies_and_exports"),
    ("devices.memory_and_radio", "meters.monitors_and_drivers", "labs.power_supplies_and_people"),
    ("labs.extreme_lengths_and_levels", "meters.registers_and_scripts", "devices.chores_and_stamps"),
    (
        "devices.power_within_spans",
        "devices.power_outside_spans",
        "meters.wiring_and_loggers",
        "faults.wrong_column_or_wiring",
    ),
    ("devices.moving_idle", "meters.counters_and_slow_meters", "faults.lost_readings_and_files"),
    ("labs.schedule", "labs.disturbances"),
    ("labs.experiment_designs", "faults.clocks_and_gains"),
    ("labs.board", "devices.courses_of_work", "faults.undeclared_meters"),
    ("labs.harness", "devices.nodes_and_surroundings", "faults.stamps_by_hand_and_scripts"),
    ("devices.timers_and_heat", "labs.requests_and_trainings", "faults.ranges_and_counters"),
    ("labs.chips_and_surroundings", "meters.aperture_and_noise", "faults.queue_stamps_and_frozen_meters"),
    ("labs.other_loads", "meters.clicks_and_resampling", "faults.wrong_stamps_and_rates"),
    ("labs.two_things_at_once", "meters.zeros_and_missed_polls", "faults.lost_packets_and_swapped_columns"),
    (
        "devices.caches_and_preempted_work",
        "meters.settings_of_the_header",
        "labs.naps_and_gated_recorders",
        "faults.upstream_meters_and_shared_relays",
    ),
    (
        "devices.guesses_queues_and_stores",
        "meters.points_marks_and_archives",
        "faults.cleaned_traces_and_buffers",
    ),
    (
        "devices.experts_drafts_and_volts",
        "meters.pulses_triggers_and_reports",
        "faults.models_and_sleeping_clocks",
    ),
    (
        "devices.clients_compilers_and_keep_alives",
        "meters.gauges_low_passes_and_shared_means",
        "faults.chosen_spans_and_summed_times",
    ),
    (
        "devices.bursty_requests_and_shared_timers",
        "labs.joined_runs_and_single_windows",
        "meters.controllers_counters_and_short_windows",
        "faults.inferred_stamps_and_script_edges",
    ),
    (
        "devices.answers_in_flight_and_shared_awake_times",
        "labs.networks_in_a_row_and_two_spans",
        "meters.poles_registers_and_polls",
        "faults.medians_gates_and_double_carries",
    ),
    (
        "devices.neighbours_locks_and_resumes",
        "meters.coarse_meters_tails_and_wandering_clocks",
        "faults.shares_templates_and_equal_gaps",
    ),
    (
        "devices.speeds_failovers_and_verified_writes",
        "labs.pauses_holes_and_jumps",
        "meters.archives_zeros_and_few_unlike_spans",
        "faults.sorted_rows_and_held_peaks",
    ),
    (
        "devices.modes_margins_and_full_caches",
        "labs.null_tests_short_windows_and_closed_loops",
        "meters.random_counts_spurs_and_scanners",
        "faults.names_of_files_hunting_clocks_and_late_triggers",
    ),
    (
        "devices.saccades_species_and_lamps",
        "labs.motors_contracts_and_neighbours",
        "meters.loops_cables_and_zeros",
        "faults.lost_zeros_lost_ends_and_allotted_power",
    ),
)
"""The modules of each draw of kinds; each name lacks its ending ``_kinds``."""
KINDS: dict[str, Kind] = {}
for name in chain.from_iterable(DRAWS):
    KINDS |= import_module(f"fixtures.worlds.{name}_kinds").KINDS
ASKED, LEAST = 0.935, 0.90
WIDEST = 10.0
"""The largest allowed ratio of half-width to median error, for dynamic power."""


def one(task: tuple[str, int]) -> dict[str, Any]:
    """Evaluate one recording of a kind: relative error and half-width of each figure, or why there is no figure."""
    kind, seed = task
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    return {"kind": kind, "seed": seed} | compared(lab)


def compared(lab: Lab) -> dict[str, Any]:
    """Write a lab's recording, and return ``judged`` of it."""
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
    """Return for each figure the share held, and the shares refused and silent.

    Each share held has an upper bound of 95 % confidence, which holds for ``kinds`` comparisons together (Bonferroni).
    """
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
    """Yield the rows of ``count`` benches, of all kinds in turn."""
    names = list(KINDS)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(one, [(names[k % len(names)], first + k) for k in range(count)], chunksize=4)


def every_kind(kinds: Sequence[str], plants: int, seed: int, workers: int) -> dict[str, Any]:
    """Evaluate ``plants`` recordings of each kind; print a row for each kind, and return the verdict."""
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
