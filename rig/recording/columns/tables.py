"""The columns of a recording's tables.

Nothing here computes; ``rig.recording.validation`` checks tables when they are read.
"""

import pyarrow as pa

SAMPLES = pa.schema({
    "id": pa.string(), "payload_sha256": pa.string(), "label": pa.string(), "target_cost": pa.float64(),
    "duration_s": pa.float64(), "rate_hz": pa.float64(), "inferences": pa.int32(), "seed": pa.int64(),
    "label_age_s": pa.float64(), "cut_from": pa.string(),
})  # fmt: skip
REPLIES = pa.schema({
    "issue": pa.int64(), "sample_id": pa.string(), "phase": pa.string(), "due_ns": pa.int64(),
    "issued_ns": pa.int64(), "completed_ns": pa.int64(), "on_tick": pa.int64(), "off_tick": pa.int64(),
    "executions": pa.int32(), "output": pa.string(), "warmup": pa.bool_(),
})  # fmt: skip
PROGRESS = pa.schema({
    "issue": pa.int64(), "sample_id": pa.string(), "tick": pa.int64(), "cost": pa.float64(), "solution": pa.binary(),
})  # fmt: skip
ACTIVITY = pa.schema({
    "issue": pa.int64(), "sample_id": pa.string(), "layer": pa.string(), "counter": pa.string(),
    "counts": pa.list_(pa.int64()),
})  # fmt: skip
TABLES = {"samples": SAMPLES, "replies": REPLIES, "progress": PROGRESS, "activity": ACTIVITY}
ADDED = {"samples": ("label_age_s", "cut_from")}
"""Columns that the first recordings lack; a missing column is read as null."""
