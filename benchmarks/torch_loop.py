"""Does ``rig measure --device torch`` measure the same time for a module as a plain loop of torch?

    python -m benchmarks.torch_loop [--samples 600] [--rounds 3]

The rig and the loop take turns, sample by sample: a scenario in this file executes the module once before it issues
each sample. Both run on one thread, first without and then with counting of operations. Prints the median execution
times and, last, one JSON line. Exits 1 if a median of the rig differs from the loop's by more than both 2 % and 20 us.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command_line import concluded, parser_of
from rig.bench.request import Request
from rig.plugins import load
from rig.recording.reader import open_run
from rig.session.measure import measure
from rig.types import Issue, Step, Workload

GOAL_SHARE, GOAL_S = 0.02, 20e-6
CLASSES = "airport,bus,park,street_traffic"
RATE_HZ = 8000
WARMUP = 10
NETWORK = f"""
import torch
def convolutions():
    torch.manual_seed(1)
    nn = torch.nn
    layers = [nn.Conv1d(1, 8, 64, stride=16), nn.ReLU(), nn.Conv1d(8, 8, 8, stride=4), nn.ReLU()]
    layers += [nn.Conv1d(8, 4, 8), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, {RATE_HZ})), *layers), torch.zeros({RATE_HZ})
"""


def main() -> int:
    """Measure without and with counting, print the medians, and return whether a goal was missed."""
    args = parser_of(__doc__, samples=600, rounds=3).parse_args()
    each: dict[bool, tuple[list[float], list[float]]] = {False: ([], []), True: ([], [])}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "network.py").write_text(NETWORK)
        for k in range(args.rounds):
            for count, found in each.items():
                for kept, new in zip(found, both(Path(name), f"{k}{count}", args.samples, count), strict=True):
                    kept.extend(new)
    rows = {}
    for count, found in each.items():
        loop_s, rig_s = map(statistics.median, found)
        ok = abs(rig_s - loop_s) <= max(GOAL_S, GOAL_SHARE * loop_s)
        rows["counting" if count else "plain"] = {"loop_s": loop_s, "rig_s": rig_s, "n": len(found[0]), "ok": ok}
        apart = f"{1e6 * (rig_s - loop_s):+.2f} us, {rig_s / loop_s - 1:+.2%}"
        print(f"counting {count!s:<5}  loop {1e6 * loop_s:8.2f} us  rig {1e6 * rig_s:8.2f} us  ({apart})")
    ok = all(row["ok"] for row in rows.values())
    return concluded({"benchmark": "torch_loop", **rows, "ok": ok}, ok)


def both(folder: Path, name: str, samples: int, count: bool) -> tuple[list[float], list[float]]:
    """Return the execution times of the plain loop, and the recorded spans, measured in turn."""
    times, network = folder / f"{name}.json", f"{folder}/network.py:convolutions"
    options = [f"device.network={network}", f"scenario.network={network}", f"classes={CLASSES}", f"count={count}"]
    options += [f"samples={samples}", f"audio_hz={RATE_HZ}", "threads=1", f"times={times}"]
    scenario = f"{__file__}:interleaved"
    request = Request(
        device="torch", meters=("none",), scenario=scenario, mode="together", options=tuple(options), out=folder / name
    )
    run = open_run(measure(request, quiet=True))
    rows = run.replies.select(["on_tick", "off_tick", "warmup"]).to_pylist()
    spans = [1e-9 * (row["off_tick"] - row["on_tick"]) for row in rows if not row["warmup"]]
    return json.loads(times.read_text()), spans


def interleaved(workload: Workload, *, network: str, times: str) -> Iterator[Step]:
    """Execute the module of ``network`` directly before each sample; write its times to the file ``times``."""
    import torch

    module, example = load("network", network)()
    found = []
    for k, sample in enumerate([*workload.samples[:WARMUP], *workload.samples]):
        values = torch.as_tensor(sample.payload).to(example.dtype)[None]
        with torch.inference_mode():
            began_ns = time.monotonic_ns()
            module(values)
            found.append(1e-9 * (time.monotonic_ns() - began_ns))
        yield Issue([sample], warmup=k < WARMUP)
    Path(times).write_text(json.dumps(found[WARMUP:]))


if __name__ == "__main__":
    sys.exit(main())
