"""Edits of recorded sessions, by which submitters would claim more than was measured, for the tests of the auditor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reports.audit.audit import Audit, audit
from tests.support.submission_folder import forged

Lines = list[dict[str, Any]]
Tables = dict[str, pa.Table]
Edit = Callable[[str, Lines, Tables], None]
CORE = "traces/core.arrows"


def of(session: Path, folder: Path, edit: Edit) -> Audit:
    return audit(forged(session, folder / "session", edit))


def faults(found: Audit) -> dict[str, str]:
    """Return the broken rules and the checks that failed or warn, with their findings."""
    broken = {f"{r.run}: {r.rule}".removeprefix(": "): r.found for r in found.rules if not r.ok}
    return broken | {str(c.number): c.found for c in found.checks if c.outcome in ("failed", "warned")}


def both(*edits: Edit) -> Edit:
    def edit(run: str, lines: Lines, tables: Tables) -> None:
        for one in edits:
            one(run, lines, tables)

    return edit


def only(runs: tuple[str, ...], edit: Edit) -> Edit:
    return lambda run, lines, tables: edit(run, lines, tables) if run in runs else None


def start(change: Callable[[str, dict[str, Any]], object]) -> Edit:
    def edit(run: str, lines: Lines, tables: Tables) -> None:
        change(run, lines[0])

    return edit


def table(file: str, change: Callable[[pa.Table], pa.Table]) -> Edit:
    """Change a file in every run that has it."""

    def edit(run: str, lines: Lines, tables: Tables) -> None:
        if file in tables:
            tables[file] = change(tables[file])

    return edit


def column(file: str, name: str, change: Callable[[list[Any]], list[Any]]) -> Edit:
    return table(file, lambda held: replaced(held, name, change(held[name].to_pylist())))


def rail(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Edit:
    """Change what the trace states about its rail, and not what the start line states."""

    def told(core: pa.Table) -> pa.Table:
        meta = core.schema.metadata
        return core.replace_schema_metadata(meta | {b"rail": json.dumps(change(json.loads(meta[b"rail"]))).encode()})

    return table(CORE, told)


def read_as(change: Callable[[Any], Any]) -> Edit:
    """Change the watts of the readings of every power run."""
    return column(CORE, "value", lambda watt: change(np.array(watt)).tolist())


def replaced(held: pa.Table, name: str, values: list[Any]) -> pa.Table:
    field = held.schema.field(name)
    content = pa.array(values, None if any(values) else field.type).cast(field.type)
    return held.set_column(held.schema.get_field_index(name), field, content)


def shorter(replies: pa.Table, share: list[float]) -> pa.Table:
    """Shorten the span of each reply by its share."""
    on, off = (replies[key].to_pylist() for key in ("on_tick", "off_tick"))
    ends = [b if a is None else b - round(s * (b - a)) for a, b, s in zip(on, off, share, strict=True)]
    return replaced(replies, "off_tick", ends)
