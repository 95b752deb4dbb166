"""A hand-made recording of predictions: the payloads of its samples, and the answers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rig.recording.layout import payload_path
from tests.support.run_by_hand import REPLIES, SAMPLES, read_plainly, start_line, table, write, write_lines


def recorded(path: Path, answers: Sequence[tuple[str, Any]], kept: Any, details: Mapping[str, Any], key: str) -> Path:
    """Write a run with these answers under ``key``; ``kept`` is the payload of every sample."""
    t0_ns = start_line()["t0_ns"]
    rows = [
        {"issue": k, "sample_id": name, "issued_ns": t0_ns + k, "completed_ns": t0_ns + k + 1, "warmup": False,
         "output": json.dumps({key: points})}
        for k, (name, points) in enumerate(answers)
    ]  # fmt: skip
    line = start_line()
    line["device"]["clock"] = None
    line["workload"]["details"] = details
    asked = [{"id": name, "inferences": 5 if key == "prediction" else 1} for name in dict(answers)]
    tables = {"samples.arrows": table(SAMPLES, asked), "replies.arrows": table(REPLIES, rows)}
    run = write(path / "run", [line], tables)
    events, _ = read_plainly(run)
    (run / payload_path("a")).parent.mkdir(parents=True)
    for name in dict(answers):
        np.save(run / payload_path(name), kept)
        events[-1]["files"][payload_path(name)] = hashlib.sha256((run / payload_path(name)).read_bytes()).hexdigest()
    write_lines(run, events)
    return run
