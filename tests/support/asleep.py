"""A hand-made recording whose gaps between spans have another power than its idle windows."""

from pathlib import Path
from typing import Any

import numpy as np

from rig.types import Floats
from tests.support.run_by_hand import asked, reply, start_line, trace, write

SPANS, SPAN_S, RATE_HZ, BUSY_W = 20, 0.1, 1000.0, 3e-3


def _joules(
    at_s: Floats, on_s: Floats, off_s: Floats, level_w: tuple[float, float, float], host_s: float, each: int
) -> Floats:
    """Return the energy since the beginning, in joules, at each time."""
    idle_w, gap_w, first_w = level_w
    step_s = np.concatenate([[0.0], on_s, on_s + SPAN_S / 10, off_s, off_s + host_s, on_s - host_s])
    levels = np.repeat([idle_w, first_w, BUSY_W, gap_w, idle_w, gap_w], [1, *[len(on_s)] * 5])
    levels[3 * len(on_s)] = idle_w  # after the last span
    levels[[k for k in range(2 * len(on_s) + 1, 3 * len(on_s) + 1) if k % each]] = idle_w
    if not host_s:
        step_s, levels = step_s[: 3 * len(on_s) + 1], levels[: 3 * len(on_s) + 1]
    order = np.argsort(step_s, kind="stable")
    step_s, levels = np.append(step_s[order], at_s[-1] + 1.0), levels[order]
    counted = np.concatenate([[0.0], np.cumsum(levels * np.diff(step_s))])
    return np.asarray(np.interp(at_s, step_s, counted))


def recording(
    out: Path, idle_w: float, gap_w: float, gap_s: float = 0.1, host_s: float = 0.0, counter: bool = False,
    first_w: float = BUSY_W, each: int = 1, loose_s: float = 0.0,
) -> Path:  # fmt: skip
    """Write a run of square spans: ``idle_w`` for over 2 s before and after, and ``gap_w`` between the spans.

    Spans have ``first_w`` in their first tenth. Only every ``each``-th gap has ``gap_w``; the others have ``idle_w``.
    Spans are stamped ``loose_s`` before they begin and after they end. With ``host_s``, gaps have ``gap_w`` only for
    this long next to each span, and ``idle_w`` between. A ``counter`` counts joules without noise and is read at
    irregular times; otherwise a meter states the mean of each millisecond, with noise.
    """
    chance = np.random.default_rng(3)
    every = (SPAN_S + gap_s) * np.arange(SPANS)
    on_s = 2.1 + every + (0.0 if gap_s == 0.1 else gap_s * chance.uniform(0, 0.5, SPANS))
    off_s = on_s + SPAN_S
    end_s = float(off_s[-1]) + 2.2
    edge = np.arange(round(end_s * RATE_HZ) + 1) / RATE_HZ
    if counter:
        edge = np.cumsum((1.0 + chance.exponential(0.3, len(edge))) / RATE_HZ)
        edge = edge[edge < end_s]
    joules = _joules(edge, on_s, off_s, (idle_w, gap_w, first_w), host_s, each)
    watt = np.diff(joules) * RATE_HZ + chance.normal(0.0, 1e-5, len(edge) - 1)
    on_ns, off_ns = (np.round(1e9 * t).astype(np.int64) for t in (on_s - loose_s, off_s + loose_s))
    spans = enumerate(zip(on_ns.tolist(), off_ns.tolist(), strict=True))
    rows = [reply(k, f"s{k}", on, off, output='"x"') for k, (on, off) in spans]
    rail: dict[str, Any] = {"name": "core", "rate_hz": RATE_HZ}
    if counter:
        rail |= {"kind": "cumulative", "conversion": {"unit": "J"}, "resolution": 1e-9}
        ticks = np.round(1e9 * edge).astype(np.int64)
        readings = trace(rail, {"value": joules[1:], "start_tick": ticks[:-1], "end_tick": ticks[1:]}, "host")
    else:
        grid = {"t0_tick": 0, "period_tick": 1e9 / RATE_HZ, "aperture_tick": 1e9 / RATE_HZ}
        readings = trace(rail, {"value": watt}, "host", grid=grid)
    device = {"name": "square", "mode": "simulator", "clock": None, "phases": ["inference"], "description": "a wave"}
    meter = {"name": "hand", "mode": "simulator", "description": "a meter"}
    clock = {"name": "host", "tick_hz": 1e9}
    start = start_line(run_id=out.name, t0_ns=0, clocks=[clock], device=device, meters=[meter])
    windows = [(0.05, 2.05), (end_s - 2.1, end_s - 0.05)]
    idle = [{"type": "idle", "on_ns": int(1e9 * a), "off_ns": int(1e9 * b)} for a, b in windows]
    return write(out, [start, *idle], asked(rows) | {"traces/core.arrows": readings})
