"""A second writer of run directories, for tests, written only from docs/reference/run-directory.md."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fixtures.bench.faults import WrongClock
from fixtures.bench.true_power import ORIGIN_NS, SimPlant, open_plant

Document = dict[str, Any]
SAMPLES = {
    "id": pa.string(), "payload_sha256": pa.string(), "label": pa.string(), "target_cost": pa.float64(),
    "duration_s": pa.float64(), "rate_hz": pa.float64(), "inferences": pa.int32(), "seed": pa.int64(),
}  # fmt: skip
REPLIES = {
    "issue": pa.int64(), "sample_id": pa.string(), "phase": pa.string(), "due_ns": pa.int64(), "issued_ns": pa.int64(),
    "completed_ns": pa.int64(), "on_tick": pa.int64(), "off_tick": pa.int64(), "executions": pa.int32(),
    "output": pa.string(), "warmup": pa.bool_(),
}  # fmt: skip


def table(types: Mapping[str, pa.DataType], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table; absent values are null."""
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()})


def trace(rail: Mapping[str, Any], columns: Mapping[str, Any], clock: str = "meter", **more: Any) -> pa.Table:
    """Return readings of one rail with their metadata; ``more`` holds metadata as JSON."""
    meta = {"meter": "hand", "clock": clock, "rail": json.dumps(rail)} | {k: json.dumps(v) for k, v in more.items()}
    return pa.table(dict(columns)).replace_schema_metadata(meta)


def reply(issue: int, sample_id: str, on_tick: int, off_tick: int, **more: Any) -> Document:
    """Return a row of replies: one execution, whose ticks are those of the host unless ``more`` says otherwise."""
    host = {"issued_ns": on_tick, "completed_ns": off_tick}
    device = {"on_tick": on_tick, "off_tick": off_tick, "executions": 1}
    row = {"issue": issue, "sample_id": sample_id, "phase": "inference", "output": "null", "warmup": False}
    return row | host | device | more


def asked(rows: Sequence[Document], **of_each: Any) -> dict[str, pa.Table]:
    """Return replies and their samples as tables, by file name; ``of_each`` are fields of each sample."""
    samples = [{"id": row["sample_id"], **of_each} for row in rows]
    return {"samples.arrows": table(SAMPLES, samples), "replies.arrows": table(REPLIES, rows)}


def write_lines(path: Path, events: Sequence[Document], seal: bool = True) -> None:
    """Write ``events.jsonl``, chained, and its seal."""
    prev, data = "0" * 64, b""
    for seq, event in enumerate(events):
        line = json.dumps({"seq": seq, "prev": prev, **event}, separators=(",", ":")).encode()
        prev = hashlib.sha256(line).hexdigest()
        data += line + b"\n"
    (path / "events.jsonl").write_bytes(data)
    (path / "events.jsonl.sha256").unlink(missing_ok=True)
    if seal:
        (path / "events.jsonl.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  events.jsonl\n")


def write(path: Path, events: Sequence[Document], tables: Mapping[str, pa.Table], batch: int = 64) -> Path:
    """Write a whole directory: ``tables`` by file name; the stop line is added if there is none."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in tables.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        with pa.ipc.new_stream(str(path / name), content.schema) as stream:
            stream.write_table(content, max_chunksize=batch)
    files = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in tables}
    ended = any(event["type"] == "stop" for event in events)
    write_lines(path, [*events, *([] if ended else [{"type": "stop", "error": None, "files": files}])])
    return path


def read_plainly(path: Path) -> tuple[list[Document], dict[str, pa.Table]]:
    """Return the lines without their chain, and every Arrow file, as another program would read them."""
    events = [json.loads(line) for line in (path / "events.jsonl").read_bytes().splitlines()]
    for event in events:
        del event["seq"], event["prev"]
    tables = {}
    for file in sorted(path.rglob("*.arrows")):
        with pa.ipc.open_stream(str(file)) as stream:
            tables[file.relative_to(path).as_posix()] = stream.read_all()
    return events, tables


def rewritten(path: Path, to: Path, edit: Callable[[list[Document], dict[str, pa.Table]], object]) -> Path:
    """Copy a directory, let ``edit`` change its lines and tables, and seal it again; files of other kinds are kept."""
    events, tables = read_plainly(path)
    before = dict(tables)
    edit(events, tables)
    shutil.copytree(path, to)
    changed = {name: content for name, content in tables.items() if content is not before[name]}
    for name, content in changed.items():
        with pa.ipc.new_stream(str(to / name), content.schema) as stream:
            stream.write_table(content, max_chunksize=64)
        events[-1].setdefault("files", {})[name] = hashlib.sha256((to / name).read_bytes()).hexdigest()
    write_lines(to, events)
    return to


def with_ticks(table: pa.Table) -> pa.Table:
    """Return a trace on a grid as one with a stamp per reading."""
    meta = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
    grid = json.loads(meta.pop("grid"))
    if "start_tick" not in table.column_names:
        start = grid["t0_tick"] + grid["period_tick"] * np.arange(table.num_rows)
        assert start.tolist() == np.round(start).tolist()
        table = table.append_column("start_tick", pa.array(start.astype(np.int64)))
        table = table.append_column("end_tick", pa.array((start + grid["aperture_tick"]).astype(np.int64)))
    return table.replace_schema_metadata(meta)


def start_line(**more: Any) -> Document:
    """Return the minimum that a reader needs, with a device clock and a meter clock."""
    rates_hz = {"host": 1e9, "device": 12.5e6, "meter": 1e7}
    clocks = [{"name": name, "tick_hz": tick_hz} for name, tick_hz in rates_hz.items()]
    return {
        "type": "start", "schema": "neurorig-run/1", "run_id": "hand", "t0_ns": ORIGIN_NS, "clocks": clocks,
        "device": {"name": "plant", "mode": "simulator", "clock": clocks[1], "phases": ["inference"]},
        "meters": [{"name": "hand", "mode": "simulator"}], "scenario": {"name": "by hand"},
        "workload": {"name": "none"}, **more,
    }  # fmt: skip


def observed(path: Path, seed: int) -> tuple[SimPlant, int]:
    """Measure a plant without engine, mock device or mock meter; return the plant and its number of spans."""
    rng = np.random.default_rng([seed, 0xA11D])
    plant = open_plant(seed=seed, idle_drift_per_s=rng.uniform(-1e-3, 1e-3))
    idle_w, busy_w = 1e-3, rng.uniform(1.5e-3, 5e-3)
    plant.install({"core": idle_w}, {"inference": {"core": busy_w}})
    count, span_s, lead_s = int(rng.integers(20, 60)), rng.uniform(0.02, 0.1), rng.uniform(1.0, 2.0)
    on_s = lead_s + np.cumsum(span_s + rng.uniform(0.005, 0.03, count))
    off_s = on_s + span_s
    end_s = float(off_s[-1]) + lead_s
    for on, off in zip(on_s, off_s, strict=True):
        plant.occupy("inference", _ns(on), _ns(off))
    device = WrongClock(12.5e6, rng.uniform(0, 100), rng.uniform(-1e-4, 1e-4), 0.0, seed)
    meter = WrongClock(1e7, rng.uniform(0, 100), rng.uniform(-1e-4, 1e-4), 0.0, seed + 1)
    rows = [
        reply(k, f"s{k}", *map(device.tick_at, span), issued_ns=_ns(span[0] - 1e-3), completed_ns=_ns(span[1] + 1e-3))
        for k, span in enumerate(zip(on_s, off_s, strict=True))
    ]
    start = meter.tick_at(0.002) + 10_000 * np.arange(int((end_s - 0.01) * 1000), dtype=np.int64)
    lo, hi = meter.time_of(start.astype(float)), meter.time_of(start + 10_000.0)
    watts = plant.idle_mean_w("core", lo, hi) + plant.dynamic("core").mean_over(lo, hi)
    watts = watts * (1 + rng.uniform(-1e-3, 1e-3)) + rng.uniform(-1e-6, 1e-6) + rng.normal(0, 2e-5, len(lo))
    rail = {"name": "core", "rate_hz": 1000.0, "accuracy": {"of_reading": 1e-3, "offset": 1e-6}}
    readings = {"value": watts, "start_tick": start, "end_tick": start + 10_000}
    events = [start_line(), *(_read_clock(c, n, end_s, rng) for c, n in ((device, "device"), (meter, "meter")))]
    idle_s = (0.01, end_s - lead_s + 0.01)
    events += [{"type": "idle", "on_ns": _ns(at_s), "off_ns": _ns(at_s + lead_s - 0.02)} for at_s in idle_s]
    tables = asked(rows, inferences=1) | {"traces/core.arrows": trace(rail, readings)}
    write(path, events, tables, batch=int(rng.integers(1, 500)))
    return plant, count


def short_recording(folder: Path) -> Path:
    """Return a sealed run of a few thousand readings with every kind of file, and a derived one beside them."""
    observed(folder / "long", 2)
    events, tables = read_plainly(folder / "long")
    tables["traces/core.arrows"] = tables["traces/core.arrows"].slice(0, 2500)
    solved = {"issue": [0, 0], "sample_id": ["s0", "s0"], "tick": [1, 2], "cost": [3.0, 2.0], "solution": [b"a", b"b"]}
    tables["progress.arrows"] = pa.table(solved)
    counted = {"issue": [0], "sample_id": ["s0"], "layer": ["hidden"], "counter": ["spikes"], "counts": [[1, 2, 3]]}
    tables["activity.arrows"] = pa.table(counted)
    path = write(folder / "run", events[:-1], tables, batch=20)
    (path / "derived").mkdir()
    (path / "derived" / "results.json").write_text("{}")
    return path


def _ns(t_s: float) -> int:
    return ORIGIN_NS + round(t_s * 1e9)


def _read_clock(clock: WrongClock, name: str, end_s: float, rng: np.random.Generator) -> Document:
    """Return sixteen readings at each end, over a link with different delays each way."""
    rows = []
    forth, back = rng.uniform(1e-5, 1e-3, 2)
    for t in (*np.linspace(0.0, 0.01, 16), *np.linspace(end_s, end_s + 0.01, 16)):
        at, after = t + forth + rng.exponential(1e-4), back + rng.exponential(1e-4)
        rows.append([_ns(t), clock.tick_at(at), _ns(at + after)])
    return {"type": "brackets", "clock": name, "rows": rows}
