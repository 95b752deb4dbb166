"""Start lines for recordings that a test writes through the recorder."""

from typing import Any

from rig.recording.disk.decoding import declared_start
from rig.recording.events import SCHEMA, Start

HOST = {"name": "host", "tick_hz": 1e9, "tolerance": 0.0}
LEAST: dict[str, Any] = {
    "schema": SCHEMA, "run_id": "r", "t0_ns": 0, "clocks": [HOST], "device": {"clock": None}, "meters": [],
    "scenario": {}, "workload": {},
}  # fmt: skip


def start(**fields: Any) -> Start:
    """Return the least that a reader needs, with these fields replaced."""
    return declared_start(LEAST | fields)
