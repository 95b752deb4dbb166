"""The default of ``--out``: the folder of recordings, and the name of a new one in it."""

import os
from datetime import UTC, datetime
from pathlib import Path

RUNS = Path("runs")


def default_out(device: str, scenario: str) -> Path:
    """Return a new directory in ``runs``; its name begins with the time, and ends with random hex digits."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    safe = ["".join(c if c.isalnum() else "-" for c in name).strip("-")[-24:] for name in (device, scenario)]
    return RUNS / f"{now}-{'-'.join(safe)}-{os.urandom(2).hex()}"
