"""The columns of a recording's tables, by name, and their types.

A type is a name that NumPy and Arrow share, or ``list`` for a list of int64. Nothing here computes;
``rig.recording.columns.table_reading`` checks tables when they are read.
"""

SAMPLES = {
    "id": "string", "payload_sha256": "string", "label": "string", "target_cost": "float64", "duration_s": "float64",
    "rate_hz": "float64", "inferences": "int32", "seed": "int64", "label_age_s": "float64", "cut_from": "string",
}  # fmt: skip
REPLIES = {
    "issue": "int64", "sample_id": "string", "phase": "string", "due_ns": "int64", "issued_ns": "int64",
    "completed_ns": "int64", "on_tick": "int64", "off_tick": "int64", "executions": "int32", "output": "string",
    "warmup": "bool",
}  # fmt: skip
PROGRESS = {"issue": "int64", "sample_id": "string", "tick": "int64", "cost": "float64", "solution": "binary"}
ACTIVITY = {"issue": "int64", "sample_id": "string", "layer": "string", "counter": "string", "counts": "list"}
TABLES = {"samples": SAMPLES, "replies": REPLIES, "progress": PROGRESS, "activity": ACTIVITY}
ADDED = {"samples": ("label_age_s", "cut_from")}
"""Columns that the first recordings lack; a missing column is read as null."""
