"""Sessions: runs that belong together, bound by their hashes in ``session.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rig.errors import IntegrityError, StoreError
from rig.recording.atomic_write import not_stored, write_whole
from rig.recording.layout import EVENTS, sha256_of

SCHEMA = "neurorig-session/1"
FILE = "session.json"


@dataclass(frozen=True)
class SizeProbe:
    """One size that a search tried: whether it was solved, and what was found or went wrong."""

    nodes: int
    held: bool
    found: str


def bind(folder: Path, runs: Sequence[tuple[str, str]], probes: Sequence[SizeProbe] = ()) -> None:
    """Write ``session.json`` for pairs of directory name and purpose inside ``folder``, as a whole or not at all."""
    document = {
        "schema": SCHEMA,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": [{"path": n, "purpose": p, "events_sha256": sha256_of(folder / n / EVENTS)} for n, p in runs],
    } | ({"tried": [asdict(t) for t in probes]} if probes else {})
    write_whole(folder / FILE, json.dumps(document, indent=1).encode() + b"\n", refuse=not_stored)


def is_session(path: Path) -> bool:
    """Return whether a directory holds runs that are bound."""
    return (path / FILE).is_file()


def size_probes_in(path: Path) -> list[SizeProbe]:
    """Return the sizes that a search for the largest size tried, in order.

    Raises ``StoreError`` if they cannot be read.
    """
    try:
        rows = json.loads((path / FILE).read_text()).get("tried") or []
        return [SizeProbe(int(r["nodes"]), bool(r["held"]), str(r["found"])) for r in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path / FILE} cannot be read: {error}",
        field="session",
        value=str(path),
        remedy="Restore this file, or report each run by itself",
    )


def runs_in(path: Path) -> list[tuple[Path, str]]:
    """Return the run directories in ``path``, each with its purpose: itself, or the runs that its session binds.

    Raises ``StoreError`` if it is neither a run nor a session, and ``IntegrityError`` if a run has another hash than
    the bound one.
    """
    if not (path / FILE).is_file():
        return [(path, "")]
    try:
        document = json.loads((path / FILE).read_text())
        rows = [(path / r["path"], str(r["purpose"]), r["events_sha256"]) for r in document["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error
    for run, _, digest in rows:
        if not (run / EVENTS).is_file() or sha256_of(run / EVENTS) != digest:
            raise IntegrityError(
                f"{run} is not the run whose hash is in {path / FILE}",
                field="session",
                value=str(run),
                remedy="Restore the original recording, or report the run by itself",
            )
    return [(run, purpose) for run, purpose, _ in rows]
