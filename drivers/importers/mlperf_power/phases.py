"""The two JSON files of an MLPerf power session: when its phases were, and how the machines set their clocks.

``server.json`` is of the machine with the meter, ``client.json`` of the system under test. Both stamp a phase's start
command, its reply, the stop command and its reply in seconds since 1970, and state a ``timezone``: the seconds from
local standard time to UTC. Up to MLPerf Inference 1.0 the logs were stamped in local time with daylight saving, and
from 1.1 on in UTC; the phases show which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.importers.files import bad_file, read_json

SERVER, CLIENT = "server.json", "client.json"
SLACK_MS = 120_000
"""A log may reach this far beyond its phase: PTDaemon begins and ends within seconds of the commands."""
SUMMER_S = 3600
_FARTHEST_S = 1e11
_REMEDY = "Copy it again, or remove it"


@dataclass(frozen=True)
class Phase:
    """The start command of a phase, its reply, the stop command and its reply, in UTC ms.

    ``shifts_s`` are possible offsets; one of them, added to a stamp of the logs, gives UTC.
    """

    edges_ms: tuple[int, int, int, int]
    shifts_s: tuple[int, ...]

    def spanned_by(self, first_ms: int, last_ms: int) -> bool:
        """Return whether a meter's log between these times begins and ends with this phase."""
        start, started, stop, stopped = self.edges_ms
        begins = start - SLACK_MS <= first_ms <= started + SLACK_MS
        return begins and stop - SLACK_MS <= last_ms <= stopped + SLACK_MS

    def holds(self, first_ms: int, last_ms: int) -> bool:
        """Return whether a window lies inside this phase."""
        return self.edges_ms[0] - SLACK_MS <= first_ms and last_ms <= self.edges_ms[3] + SLACK_MS


@dataclass(frozen=True)
class SessionFiles:
    """The phase as either machine stamped it, None where its file is absent; the name of the meter, and the files."""

    server: Phase | None
    client: Phase | None
    meter: str
    files: Mapping[str, Path]


def read_session_files(folder: Path, ranging: bool) -> SessionFiles:
    """Read the files in ``../power``, or beside or above a run's folder. Raises ``DataError`` for damaged files."""
    found: dict[str, Path] = {}
    for name in (SERVER, CLIENT):
        for place in (folder.parent / "power", folder / "power", folder.parent, folder):
            if name not in found and (place / name).is_file():
                found[name] = place / name
    values = {name: _read(path) for name, path in found.items()}
    kind = "ranging" if ranging else "testing"
    server, client = (_phase(values.get(name), kind) for name in (SERVER, CLIENT))
    messages = values.get(SERVER, {}).get("ptd_messages")
    replies = [m.get("reply") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    models = [m[1] for r in replies if isinstance(r, str) and (m := re.match(r"(\w+),\d+,.*version=", r))]
    return SessionFiles(server, client, models[0][:80] if models else "", {f"power/{n}": p for n, p in found.items()})


def _read(path: Path) -> Mapping[str, Any]:
    found = read_json(path, _REMEDY)
    if not isinstance(found, dict):
        raise bad_file(path, "is not a session of the power client and server", _REMEDY, field=path.name)
    return found


def _phase(values: Mapping[str, Any] | None, kind: str) -> Phase | None:
    """Return the phase of this kind; None where the file lacks it, as older ones do."""
    phases = values.get("phases") if values else None
    marks = phases.get(kind) if isinstance(phases, dict) else None
    if not (isinstance(marks, list) and len(marks) == 4 and all(isinstance(m, list) and m for m in marks)):
        return None
    if not all(isinstance(m[0], (int, float)) and 0 <= m[0] < _FARTHEST_S for m in marks):
        return None
    begin, begun, end, ended = (round(1e3 * m[0]) for m in marks)
    west = values.get("timezone") if values else None
    local = (int(west), int(west) - SUMMER_S) if isinstance(west, (int, float)) and abs(west) <= 86_400 else ()
    return Phase((begin, begun, end, ended), tuple(dict.fromkeys((0, *local))))
