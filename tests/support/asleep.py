"""A hand-made recording whose gaps between spans have another power than its idle windows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SPANS, SPAN_S, RATE_HZ, BUSY_W = 20, 0.1, 1000.0, 3e-3


def _joules(
    at_s: NDArray[np.floating[Any]],
    on_s: NDArray[np.floating[Any]],
    off_s: NDArray[np.floating[Any]],
    level_w: tuple[float, float, float],
    host_s: float,
) -> NDArray[np.floating[Any]]:
    """Return the energy since the begin, in joules, at each time."""
    idle_w, gap_w, first_w = level_w
    step_s = np.concatenate([[0.0], on_s, on_s + SPAN_S / 10, off_s, off_s + host_s, on_s - host_s])
    levels = np.repeat([idle_w, first_w, BUSY_W, gap_w, idle_w, gap_w], [1, *[len(on_s)] * 5])
    levels[3 * len(on_s)] = idle_w  # after the last span
    if not host_s:
        step_s, levels = step_s[: 3 * len(on_s) + 1], levels[: 3 * len(on_s) + 1]
    order = np.argsort(step_s, kind="stable")
    step_s, levels = np.append(step_s[order], at_s[-1] + 1.0), levels[order]
    counted = np.concatenate([[0.0], np.cumsum(levels * np.diff(step_s))])
    found: NDArray[np.floating[Any]] = np.interp(at_s, step_s, counted)
    return found


def recording(
    out: Path,
    idle_w: float,
    gap_w: float,
    gap_s: float = 0.1,
    host_s: float = 0.0,
    counter: bool = False,
    first_w: float = BUSY_W,
) -> Path:
    """Write a run of square spans: ``idle_w`` for 2 s before and after, ``gap_w`` between the spans.

    Spans have ``first_w`` in their first tenth. With ``host_s``, gaps have ``gap_w`` only for this long next to each
    span, and ``idle_w`` between. A ``counter`` counts joules without noise and is read when there is time; otherwise a
    meter states the mean of each millisecond.
    """
    (out / "traces").mkdir(parents=True)
    chance = np.random.default_rng(3)
    every = (SPAN_S + gap_s) * np.arange(SPANS)
    on_s = 2.1 + every + (0.0 if gap_s == 0.1 else gap_s * chance.uniform(0, 0.5, SPANS))
    off_s = on_s + SPAN_S
    end_s = float(off_s[-1]) + 2.2
    edge = np.arange(round(end_s * RATE_HZ) + 1) / RATE_HZ
    if counter:
        edge = np.cumsum((1.0 + chance.exponential(0.3, len(edge))) / RATE_HZ)
        edge = edge[edge < end_s]
    joules = _joules(edge, on_s, off_s, (idle_w, gap_w, first_w), host_s)
    watt = np.diff(joules) * RATE_HZ + chance.normal(0.0, 1e-5, len(edge) - 1)
    on_ns, off_ns = (np.round(1e9 * t).astype(np.int64) for t in (on_s, off_s))
    ids, n = [f"s{k}" for k in range(SPANS)], SPANS
    none, real = pa.nulls(n, pa.int64()), pa.nulls(n, pa.float64())
    text = pa.nulls(n, pa.string())
    samples = {"id": ids, "payload_sha256": text, "label": text, "target_cost": real, "duration_s": real}
    samples |= {"rate_hz": real, "inferences": pa.nulls(n, pa.int32()), "seed": none}
    replies = {"issue": range(n), "sample_id": ids, "phase": ["inference"] * n, "due_ns": none, "issued_ns": on_ns}
    replies |= {"completed_ns": off_ns, "on_tick": on_ns, "off_tick": off_ns, "executions": [1] * n}
    replies |= {"output": ['"x"'] * n, "warmup": [False] * n}
    grid = {"t0_tick": 0, "period_tick": 1e9 / RATE_HZ, "aperture_tick": 1e9 / RATE_HZ}
    rail: dict[str, Any] = {"name": "core", "rate_hz": RATE_HZ}
    trace: dict[str, Any] = {"value": watt}
    if counter:
        rail |= {"kind": "cumulative", "conversion": {"unit": "J"}, "resolution": 1e-9}
        ticks = np.round(1e9 * edge).astype(np.int64)
        trace = {"value": joules[1:], "start_tick": ticks[:-1], "end_tick": ticks[1:]}
    about = {"clock": "host", "rail": json.dumps(rail)} | ({} if counter else {"grid": json.dumps(grid)})
    for name, columns in (("samples", samples), ("replies", replies), ("traces/core", trace)):
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
