"""A recording by hand whose gaps between spans draw another power than its idle windows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SPANS, SPAN_S, EVERY_S, RATE_HZ, BUSY_W = 20, 0.1, 0.2, 1000.0, 3e-3


def recording(out: Path, idle_w: float, gap_w: float) -> Path:
    """Write a run of square spans: ``idle_w`` for 2 s before and after, ``gap_w`` between the spans."""
    (out / "traces").mkdir(parents=True)
    on_s = 2.1 + EVERY_S * np.arange(SPANS)
    end_s = float(on_s[-1]) + SPAN_S + 2.2
    middle = (np.arange(round(end_s * RATE_HZ)) + 0.5) / RATE_HZ
    inside = ((middle[:, None] > on_s) & (middle[:, None] < on_s + SPAN_S)).any(axis=1)
    between = (middle > on_s[0]) & (middle < on_s[-1] + SPAN_S)
    watt = np.where(inside, BUSY_W, np.where(between, gap_w, idle_w))
    watt = watt + np.random.default_rng(3).normal(0.0, 1e-5, len(watt))
    on_ns, off_ns = (np.round(1e9 * t).astype(np.int64) for t in (on_s, on_s + SPAN_S))
    ids, n = [f"s{k}" for k in range(SPANS)], SPANS
    none, real = pa.nulls(n, pa.int64()), pa.nulls(n, pa.float64())
    text = pa.nulls(n, pa.string())
    samples = {"id": ids, "payload_sha256": text, "label": text, "target_cost": real, "duration_s": real}
    samples |= {"rate_hz": real, "inferences": pa.nulls(n, pa.int32()), "seed": none}
    replies = {"issue": range(n), "sample_id": ids, "phase": ["inference"] * n, "due_ns": none, "issued_ns": on_ns}
    replies |= {"completed_ns": off_ns, "on_tick": on_ns, "off_tick": off_ns, "executions": [1] * n}
    replies |= {"output": ['"x"'] * n, "warmup": [False] * n}
    grid = {"t0_tick": 0, "period_tick": 1e9 / RATE_HZ, "aperture_tick": 1e9 / RATE_HZ}
    rail = {"name": "core", "rate_hz": RATE_HZ}
    about = {"clock": "host", "rail": json.dumps(rail), "grid": json.dumps(grid)}
    for name, columns in (("samples", samples), ("replies", replies), ("traces/core", {"value": watt})):
        table = pa.table(columns).replace_schema_metadata(about if "core" in name else None)
        with pa.ipc.new_stream(str(out / f"{name}.arrows"), table.schema) as stream:
            stream.write_table(table)
    files = {
        f"{n}.arrows": hashlib.sha256((out / f"{n}.arrows").read_bytes()).hexdigest()
        for n in ("samples", "replies", "traces/core")
    }
    clocks = [{"name": "host", "tick_hz": 1e9}]
    device = {"name": "square", "mode": "simulator", "clock": None, "phases": ["inference"], "description": "a wave"}
    start = {"type": "start", "schema": "neurorig-run/1", "run_id": out.name, "t0_ns": 0, "clocks": clocks}
    start |= {"device": device, "meters": [{"name": "m", "mode": "simulator", "description": "a meter"}]}
    start |= {"scenario": {"name": "by hand"}, "workload": {"name": "none"}}
    windows = [(0.05, 2.05), (end_s - 2.1, end_s - 0.05)]
    idle = [{"type": "idle", "on_ns": int(1e9 * a), "off_ns": int(1e9 * b)} for a, b in windows]
    whole, previous = b"", "0" * 64
    stop = {"type": "stop", "error": None, "files": files}
    events: list[dict[str, Any]] = [start, *idle, stop]
    for seq, event in enumerate(events):
        line = json.dumps({"seq": seq, "prev": previous} | event).encode()
        whole, previous = whole + line + b"\n", hashlib.sha256(line).hexdigest()
    (out / "events.jsonl").write_bytes(whole)
    return out
