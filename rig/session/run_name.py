"""The name of a new recording."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def run_name(device: str, scenario: str) -> str:
    """Return a directory name that sorts by time and does not collide."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    safe = ["".join(c if c.isalnum() else "-" for c in name).strip("-")[-24:] for name in (device, scenario)]
    return f"{now}-{'-'.join(safe)}-{secrets.token_hex(2)}"
