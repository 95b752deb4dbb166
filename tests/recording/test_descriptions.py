"""A rail or clock with two descriptions is refused: no reader could know which one a figure used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from rig.errors import DataError
from rig.recording.reader import open_run
from tests.support.run_by_hand import rewritten

Json = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording whose start line lists its traces' rails."""
    folder = tmp_path_factory.mktemp("described")
    write(plain_lab(0, ""), folder / "plain")

    def listed(events: list[Json], tables: dict[str, pa.Table]) -> None:
        rails = [json.loads(t.schema.metadata[b"rail"]) for name, t in tables.items() if name.startswith("traces/")]
        events[0]["meters"] = [events[0]["meters"][0] | {"rails": rails}]

    return rewritten(folder / "plain", folder / "run", listed)


def changed(run: Path, folder: Path, change: Callable[[Json], None]) -> Path:
    """Return the recording after a change of its start line."""
    return rewritten(run, folder / "changed", lambda events, tables: change(events[0]))


@pytest.mark.parametrize(("field", "value"), [
    ("conversion", {"unit": "A", "supply_v": 0.1}),
    ("accuracy", {"of_reading": 1e-9, "offset": 0.0, "source": "a certificate"}),
    ("rate_hz", 12345.0), ("resolution", 0.5), ("range_max", 1e-3),
])  # fmt: skip
def test_a_rail_that_a_meter_describes_otherwise_is_refused(run: Path, tmp_path: Path, field: str, value: Any) -> None:
    def other(start: Json) -> None:
        start["meters"][0]["rails"][0][field] = value

    with pytest.raises(DataError, match=f"{field} of rail .* in its trace, and .* in the start line"):
        open_run(changed(run, tmp_path, other))


def test_where_limits_come_from_may_be_said_otherwise(run: Path, tmp_path: Path) -> None:
    """In earlier recordings, start lines omit home directories, but traces did not."""

    def elsewhere(start: Json) -> None:
        rail = start["meters"][0]["rails"][0]
        rail["accuracy"] = (rail["accuracy"] or {}) | {"source": "~/certificate.pdf"}

    def here(events: list[Json], tables: dict[str, pa.Table]) -> None:
        elsewhere(events[0])
        for name, table in tables.items():
            if name.startswith("traces/"):
                meta = dict(table.schema.metadata)
                rail = json.loads(meta[b"rail"])
                rail["accuracy"] = (rail["accuracy"] or {}) | {"source": "/home/anna/certificate.pdf"}
                tables[name] = table.replace_schema_metadata(meta | {b"rail": json.dumps(rail).encode()})

    assert open_run(rewritten(run, tmp_path / "changed", here)).traces


def test_a_clock_of_the_device_at_another_rate_than_in_the_list_is_refused(run: Path, tmp_path: Path) -> None:
    def other(start: Json) -> None:
        start["device"]["clock"]["tick_hz"] *= 10

    with pytest.raises(DataError, match=r"of the device has .* ticks a second, and .* in the list of clocks"):
        open_run(changed(run, tmp_path, other))
