"""How long does a report of a long trace take, relative to reading and hashing its bytes, and how much memory?

    python -m benchmarks.long_trace_time_and_memory [--readings 1e7 ...] [--folder /tmp] [--spans 50000] [--rounds 1]

Makes a recording of a simulated bench whose power is known exactly: a float32 trace at 1 MS/s, one span for every
``--spans`` readings, idle before and after. Reads and hashes the bytes of the trace. Then, with the same state of the
cache, evaluates the recording in a separate process, as ``rig report`` does before it draws. Prints both times and
their ratio, as wall time and as processor time (which other programs affect less). Also prints the separate process's
peak memory, each figure against the truth, and last, one JSON line for each size. The time for a tiny recording is the
part of the time that does not grow with the trace. Between two sizes, prints the processor time of the
additional readings, relative to reading and hashing them.

Exits 1 if a goal is missed: at most six times the time of reading and hashing at the last size; a cost of additional
readings that is equal within 20 % at every size; at most 1 GiB; every truth inside its interval.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of
from benchmarks.harness.load import status_b
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.commands.shell.main import BLAS_THREADS

GOAL_RATIO, GOAL_MIB, GOAL_ALIKE = 6.0, 1024.0, 1.2
RATE_HZ, BLOCK = 1e6, 1 << 20
NEXT_TO_NOTHING = 20_000
ASKED = ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")


def main() -> int:
    """Make, time and compare; return the exit code: 1 if a goal is missed."""
    parser = parser_of(__doc__, folder=Path(tempfile.gettempdir()), rounds=1)
    parser.add_argument("--readings", type=float, nargs="+", default=[1e7])
    parser.add_argument("--spans", type=int, default=50_000, help="readings to one span and the gap after it")
    parser.add_argument("--evaluate", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.evaluate is not None:
        return evaluate_alone(args.evaluate)
    missed, sizes = False, list[dict[str, Any]]()
    for readings in map(int, args.readings):
        free = shutil.disk_usage(args.folder).free
        if free < 6 * readings:
            print(f"{args.folder} has {free / 1e9:.1f} GB free; {6 * readings / 1e9:.1f} GB are asked for")
            return 1
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            found, met = measure(Path(folder), readings, args.spans, args.rounds)
        sizes.append(found)
        missed |= not met
    alike = grows_evenly(sizes)
    return int(missed or not alike or sizes[-1]["ratio"] > GOAL_RATIO)


def grows_evenly(sizes: list[dict[str, Any]]) -> bool:
    """Print the cost of additional readings from size to size; return whether it stays equal."""
    costs = []
    for less, more in itertools.pairwise(sizes):
        report_s, bytes_s = (more[name] - less[name] for name in ("processor_s", "bytes_processor_s"))
        costs.append(report_s / bytes_s)
        print(f"{less['readings']:,} to {more['readings']:,}: a further reading costs {costs[-1]:.2f} times its bytes")
    return not costs or max(costs) <= GOAL_ALIKE * min(costs)


def long_lab(readings: int, cycle: int) -> Lab:
    """Return a plain bench at ``RATE_HZ`` with a span every ``cycle`` readings and a tenth of the time at idle."""
    lab = plain_lab(7, "long report")
    end_s = readings / RATE_HZ + 0.01
    lead_s, cycle_s = 0.05 * end_s, cycle / RATE_HZ
    count = max(int((end_s - 2.0 * lead_s) / cycle_s), 8)
    on = lead_s + cycle_s * (np.arange(count) + 0.1 * lab.rng.uniform(-1.0, 1.0, count))
    lab.spans_s = np.column_stack([on, on + 0.6 * cycle_s])
    lab.span_w, lab.label = np.full(count, lab.span_w[0]), lab.rng.integers(0, 4, count)
    lab.idle_s = [(0.1 * lead_s, 0.9 * lead_s), (end_s - 0.9 * lead_s, end_s - 0.1 * lead_s)]
    lab.end_s, lab.rate_hz, lab.noise_w = end_s, RATE_HZ, 0.02 * float(lab.span_w[0])
    lab.sense = lambda w: w * 1.0003  # within the declared limit of 1e-3
    return lab


def measure(folder: Path, readings: int, cycle: int, rounds: int) -> tuple[dict[str, Any], bool]:
    """Make one recording, time it and print. Return the results, and whether memory and figures meet the goals."""
    lab, tiny = long_lab(readings, cycle), long_lab(NEXT_TO_NOTHING, NEXT_TO_NOTHING // 20)
    for one, name in ((lab, "run"), (tiny, "tiny")):
        write(one, folder / name, BLOCK)
    trace = folder / "run" / "traces" / "core.arrows"
    read_and_hashed_s(trace)
    hashing = -time.process_time()
    read_and_hashed_s(trace)
    hashing += time.process_time()
    bytes_s, report_s, fixed_s, alone = [], [], [], dict[str, Any]()
    for _ in range(rounds):
        bytes_s.append(read_and_hashed_s(trace))
        report_s.append(alone_s(folder / "run", alone))
        fixed_s.append(alone_s(folder / "tiny", {}))
    raw, whole, fixed = min(bytes_s), min(report_s), min(fixed_s)
    truth = lab.truth()
    print(f"{readings:,} readings, {trace.stat().st_size / 1e9:.2f} GB, {len(lab.spans_s)} spans")
    print(f"  read and hash the bytes      {raw:8.2f} s   {1e9 * raw / readings:6.2f} ns a reading")
    print(f"  evaluate in its own process  {whole:8.2f} s   {whole / raw:.1f} times (goal {GOAL_RATIO:g})")
    print(f"  minus that of a tiny recording {whole - fixed:6.2f} s   {(whole - fixed) / raw:.1f} times")
    busy = alone["processor_s"]
    print(f"  time of the processor        {busy:8.2f} s   {busy / hashing:.1f} times that of hashing the bytes")
    print(f"  most memory                  {alone['peak_mib']:8.0f} MiB (goal {GOAL_MIB:.0f})")
    inside = True
    for name in ASKED:
        value, low, high = alone["figures"].get(name, (None, np.inf, -np.inf))
        inside &= low <= truth[name] <= high
        if value is None:
            print(f"  {name:<24} is not stated: {alone['refused']}")
            continue
        off, half = value / truth[name] - 1.0, 0.5 * (high - low) / truth[name]
        print(f"  {name:<24} {value:.9g}, true {truth[name]:.9g}: off by {off:+.1e}, half-width {half:.1e}")
    found = {
        "readings": readings,
        "bytes_s": raw,
        "bytes_processor_s": hashing,
        "report_s": whole,
        "fixed_s": fixed,
        "ratio": whole / raw,
    }
    found |= {"truth": truth} | alone
    print(json.dumps(found))
    return found, alone["peak_mib"] <= GOAL_MIB and inside


def read_and_hashed_s(path: Path) -> float:
    """Return the seconds to read the bytes of a file once and hash them."""
    began = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    return time.perf_counter() - began


def alone_s(run: Path, found: dict[str, Any]) -> float:
    """Return the seconds of a process that evaluates a recording; its results are added to ``found``."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.long_trace_time_and_memory", "--evaluate", str(run)]
    one_thread = os.environ | dict.fromkeys(BLAS_THREADS, "1")  # as in `rig report`
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread)
    found |= json.loads(done.stdout.splitlines()[-1])
    return time.perf_counter() - began


def evaluate_alone(run: Path) -> int:
    """Evaluate a recording; print its figures and the peak memory of this process as one JSON line."""
    from rig.analysis.evaluate import evaluate
    from rig.commands.shell.main import keep_memory
    from rig.recording.reader import open_run

    keep_memory()  # as in `rig report`
    result = evaluate(open_run(run))
    figures = {str(k): (q.value, *q.interval()) for k, q in result.quantities.items() if str(k) in ASKED}
    peak_mib = status_b("VmHWM") / 2**20
    refused = [f"{r.scope}: {r.reason}" for r in result.refusals]
    found = {"figures": figures, "peak_mib": peak_mib, "refused": refused, "notes": list(result.notes)}
    print(json.dumps(found | {"processor_s": time.process_time()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
