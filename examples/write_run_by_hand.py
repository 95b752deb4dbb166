"""Write a run directory without the rig: python examples/write_run_by_hand.py OUT, then rig report OUT.

The device's power is a square wave: 1 mW at idle, and 3 mW for 0.1 s in each of 20 inferences. 18 of the inferences
have the right answer. The program prints the true figures as JSON.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

IDLE_W, BUSY_W, SPAN_S, N, T0_NS = 1e-3, 3e-3, 0.1, 20, 1_000_000_000_000
METER_HZ, PERIOD = 1_000_040.0, 1000  # the meter's declared ticks are 1 MHz, and it reads every 1000 ticks


def write_arrow(path: Path, columns: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    table = pa.table(columns).replace_schema_metadata(metadata)
    with pa.ipc.new_stream(str(path), table.schema) as stream:
        stream.write_table(table, max_chunksize=1000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


out = Path(sys.argv[1])
(out / "traces").mkdir(parents=True)
on_s = 1.5 + 0.15 * np.arange(N)  # seconds of the host's clock after T0_NS
end_s = float(on_s[-1]) + SPAN_S + 1.5
on_ns, off_ns = (T0_NS + np.round(1e9 * t).astype(np.int64) for t in (on_s, on_s + SPAN_S))
ids = [f"sample-{k}" for k in range(N)]
labels = ["yes" if k % 2 else "no" for k in range(N)]
outputs = [json.dumps({"label": "no" if k in (3, 7) else label}) for k, label in enumerate(labels)]
reals, integers = pa.nulls(N, pa.float64()), pa.nulls(N, pa.int64())

# the issued samples, and the answers
samples = {"id": ids, "payload_sha256": [sha256(i.encode()) for i in ids], "label": labels, "inferences": [1] * N}
samples |= {"duration_s": [0.0] * N, "target_cost": reals, "rate_hz": reals, "seed": integers}
write_arrow(out / "samples.arrows", samples)
replies: dict[str, Any] = {"issue": range(N), "sample_id": ids, "phase": ["inference"] * N, "output": outputs}
replies |= {"warmup": [False] * N, "due_ns": integers, "issued_ns": on_ns, "completed_ns": off_ns}
replies |= {"on_tick": on_ns, "off_tick": off_ns, "executions": [1] * N}
write_arrow(out / "replies.arrows", replies)

# the meter's readings: means from one edge to the next, with the first edge at tick 500 of the meter's clock
edge_tick = 500 + PERIOD * np.arange(int(end_s * 1e6 / PERIOD))
edge_s = edge_tick / METER_HZ
energy_j = IDLE_W * edge_s + (BUSY_W - IDLE_W) * np.clip(edge_s[:, None] - on_s, 0.0, SPAN_S).sum(axis=1)
noise_w = np.random.default_rng(7).normal(0.0, 2e-5, len(edge_s) - 1)
rail = {"name": "core", "kind": "mean", "rate_hz": 1e6 / PERIOD, "accuracy": {"of_reading": 1e-3, "offset": 1e-7}}
grid = {"t0_tick": 500, "period_tick": PERIOD, "aperture_tick": PERIOD}
metadata = {"meter": "bench meter", "clock": "meter", "rail": json.dumps(rail), "grid": json.dumps(grid)}
write_arrow(out / "traces" / "core.arrows", {"value": np.diff(energy_j) / np.diff(edge_s) + noise_w}, metadata)

# the events: one JSON object per line, each with the hash of the line before
read_ns = [1_000_000, int(1e9 * end_s)]  # times at which the meter's clock was read; reading it took 0.1 ms
rows = [[T0_NS + ns, int((ns + 50_000) * 1e-9 * METER_HZ), T0_NS + ns + 100_000] for ns in read_ns]
events: list[dict[str, Any]] = [
    {
        "type": "start",
        "schema": "neurorig-run/1",
        "run_id": out.name,
        "t0_ns": T0_NS,
        "clocks": [{"name": "host", "tick_hz": 1e9}, {"name": "meter", "tick_hz": 1e6, "tolerance": 1e-3}],
        "device": {"name": "square wave", "mode": "simulator", "clock": None, "phases": ["inference"]},
        "meters": [{"name": "bench meter", "mode": "simulator"}],
        "scenario": {"name": "by hand"},
        "workload": {"name": "parity"},
    },
    {"type": "brackets", "clock": "meter", "rows": rows},
    {"type": "idle", "on_ns": T0_NS + 10_000_000, "off_ns": int(on_ns[0]) - 10_000_000},
    {"type": "idle", "on_ns": int(off_ns[-1]) + 10_000_000, "off_ns": T0_NS + int(1e9 * end_s)},
    {"type": "stop", "error": None, "files": {}},
]
files = ("samples.arrows", "replies.arrows", "traces/core.arrows")
events[-1]["files"] = {name: sha256((out / name).read_bytes()) for name in files}
prev, log = "0" * 64, b""
for seq, event in enumerate(events):
    line = json.dumps({"seq": seq, "prev": prev} | event).encode()
    prev, log = sha256(line), log + line + b"\n"
(out / "events.jsonl").write_bytes(log)
(out / "events.jsonl.sha256").write_bytes(f"{sha256(log)}  events.jsonl\n".encode())

truth = {"accuracy": 18 / N, "execution_time_s": SPAN_S, "idle_power_w": IDLE_W, "active_power_w": BUSY_W}
truth |= {"dynamic_power_w": BUSY_W - IDLE_W, "energy_per_inference_j": BUSY_W * SPAN_S}
print(json.dumps(truth))
