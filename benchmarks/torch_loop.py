"""Does ``rig measure --device torch`` time a module as a plain loop of torch does?


    python -m benchmarks.torch_loop [--rounds 30] [--samples 40]

All run on one thread and in turn: loops of torch without a pause and runs that loop each sample in one span, then loops
with the pause that the rig makes between samples and runs that execute each sample once. Runs are made without and with
counting. Prints the median execution time of all rounds for each of them and, last, one JSON line; exits 1 when a
median of the rig is not within 2 % or 20 us of that of its loop.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rig.recording.reader import open_run
from rig.session.measure import measure
from rig.session.setup import Request

GOAL_SHARE, GOAL_S, PAUSE_S = 0.02, 20e-6, 1e-3
CLASSES = "airport,bus,park,street_traffic"
RATE_HZ = 8000
NETWORK = f"""
import torch
def convolutions():
    torch.manual_seed(1)
    nn = torch.nn
    layers = [nn.Conv1d(1, 32, 64, stride=4), nn.ReLU(), nn.Conv1d(32, 32, 8, stride=4), nn.ReLU()]
    layers += [nn.Conv1d(32, 4, 8), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, {RATE_HZ})), *layers), torch.zeros({RATE_HZ})
"""


def main() -> int:
    """Run the rounds, print the medians, and return whether the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--samples", type=int, default=40)
    args = parser.parse_args()
    each: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "network.py").write_text(NETWORK)
        for k in range(args.rounds):
            for how, repeat, pause_s in (("looped", args.samples, 0.0), ("once", 1, PAUSE_S)):
                each.setdefault(how, []).extend(plain(folder, args.samples, repeat, pause_s))
                for count in (False, True):
                    name = f"{how}, rig{', counting' if count else ''}"
                    samples = 4 if repeat > 1 else args.samples
                    out = folder / f"{how}{count}{k}"
                    each.setdefault(name, []).extend(measured(folder, out, samples, repeat, count))
    medians_s = {name: statistics.median(times) for name, times in each.items()}
    ok = True
    for name, median_s in medians_s.items():
        loop_s = medians_s[name.partition(",")[0]]
        ok = ok and abs(median_s - loop_s) <= max(GOAL_S, GOAL_SHARE * loop_s)
        print(
            f"{name:<22} {1e6 * median_s:9.2f} us  {1e6 * (median_s - loop_s):+8.2f} us ({median_s / loop_s - 1:+.2%})"
        )
    print(json.dumps({"benchmark": "torch_loop", "rounds": args.rounds, "medians_s": medians_s, "ok": ok}))
    return 0 if ok else 1


def plain(folder: Path, samples: int, repeat: int, pause_s: float) -> list[float]:
    """Time executions of the module in a loop of torch alone: ``repeat`` of them together, with a pause between."""
    import torch

    from rig.factories import build
    from rig.plugins import load

    torch.set_num_threads(1)
    options = {"samples": str(samples), "audio_hz": str(RATE_HZ)}
    module, example = load("network", f"{folder}/network.py:convolutions")()
    payloads = [sample.payload for sample in build(load("workloads", "asc"), {}, options).samples]
    inputs: list[Any] = [torch.as_tensor(payload).to(example.dtype)[None] for payload in payloads]
    times = []
    with torch.inference_mode():
        for values in inputs[:3] + (inputs[:4] if repeat > 1 else inputs):
            time.sleep(pause_s)
            began_ns = time.monotonic_ns()
            for _ in range(repeat):
                module(values)
            times.append(1e-9 * (time.monotonic_ns() - began_ns) / repeat)
    return times[3:]


def measured(folder: Path, out: Path, samples: int, repeat: int, count: bool) -> list[float]:
    """Return the spans of a run of the rig, which the recording holds."""
    options = [f"network={folder}/network.py:convolutions", f"classes={CLASSES}", f"count={count}", "threads=1"]
    options += [f"samples={samples}", f"repeat={repeat}", f"audio_hz={RATE_HZ}", "idle_s=0.1"]
    measure(Request(device="torch", meters=("none",), mode="together", options=tuple(options), out=out), quiet=True)
    run = open_run(out)
    rows = run.replies.select(["on_tick", "off_tick", "executions", "warmup"]).to_pylist()
    return [1e-9 * (row["off_tick"] - row["on_tick"]) / row["executions"] for row in rows if not row["warmup"]]


if __name__ == "__main__":
    sys.exit(main())
