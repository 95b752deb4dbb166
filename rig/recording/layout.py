"""The paths of the files of a run directory, and their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

GENESIS = "0" * 64
EVENTS = "events.jsonl"
SEAL = "events.jsonl.sha256"
DERIVED = "derived"


def trace_path(rail: str) -> str:
    """Return the path of a rail's readings, relative to the run directory."""
    return f"traces/{_safe(rail)}.arrows"


def payload_path(sample_id: str) -> str:
    """Return the path of a stored payload, relative to the run directory."""
    return f"artifacts/payloads/{_safe(sample_id)}.npy"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def recorded_files(path: Path) -> list[Path]:
    """Return every file of a run that the stop line must list, sorted."""
    own = {path / EVENTS, path / SEAL}
    derived = path / DERIVED
    return sorted(p for p in path.rglob("*") if p.is_file() and p not in own and derived not in p.parents)


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file, which is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
