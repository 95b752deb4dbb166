"""Change one thing in a recording: a field in its lines, a trace's metadata or ``session.json``, or a column."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.faults.forge import bind_again, hash_again, lines_of, read, store
from benchmarks.faults.hostile import HOSTILE, MARK, RAW, change, hostile, with_raw
from rig.recording.session_json import FILE

OUTPUTS = (
    "{}", "[]", "null", "1", '"x"', '{"label": {}}', '{"label": [1]}', '{"label": null}', '{"cost": 1}',
    '{"cost": "x", "solution": 1}', '{"cost": NaN, "solution": ""}', '{"cost": 1, "solution": "zz"}',
    '{"cost": -1e308, "solution": "ff"}', '{"cost": 1, "solution": null}', '{"scores": [[]]}',
    '{"cost": -5, "solution": "00", "budget_s": "x", "overrun_s": []}', '{"probabilities": {"x": "y"}}',
    '{"label": "park", "probabilities": [1, "x"]}', '{"label": "park", "probabilities": {"park": 1e999}}',
)  # fmt: skip
"""Answers that Python reads as JSON, without a meaning."""


def change_lines(run: Path, draw: random.Random) -> str:
    """Change a field of one line; rarely, also repeat or remove a line.

    In one of ten cases, the field becomes one of ``RAW``, which readers may refuse.
    """
    lines: list[Any] = lines_of(run)
    number = draw.choice([0, 0, len(lines) - 1, draw.randrange(len(lines))])
    raw = draw.random() < 0.1
    what = change(lines[number], draw, MARK if raw else hostile(draw))
    if draw.random() < 0.05:
        lines.insert(number, lines[draw.randrange(len(lines))])
    if draw.random() < 0.05:
        del lines[draw.randrange(len(lines))]
    if raw:
        number = min(number, len(lines) - 1)
        body = {k: v for k, v in lines[number].items() if k not in ("seq", "prev")} if lines else {}
        lines[number] = with_raw(body, draw)
    hash_again(run, lines)
    return f"{'raw ' if raw else ''}line {number} {what}"


def change_metadata(run: Path, draw: random.Random) -> str:
    files = sorted((run / "traces").glob("*.arrows"))
    if not files:
        return change_lines(run, draw)
    file = draw.choice(files)
    table = read(file)
    meta = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    key = draw.choice([*meta, "rail", "grid", "clock"])
    what = key
    if key in ("rail", "grid") and draw.random() < 0.8:
        document = json.loads(meta.get(key, "{}"))
        what = f"{key}.{change(document, draw, hostile(draw))}"
        meta[key] = json.dumps(document)
    else:
        meta[key] = (
            draw.choice([str(v) for v in HOSTILE] + [r.decode() for r in RAW]).encode("utf-8", "replace").decode()
        )
    store(file, table.replace_schema_metadata(meta))
    hash_again(run)
    return f"{file.name} {what}"


def change_column(run: Path, draw: random.Random) -> str:
    """Change values, type, name or presence of a column of a table or trace."""
    files = [f for f in sorted(run.rglob("*.arrows")) if f.stat().st_size]
    if not files:
        return change_lines(run, draw)
    file = draw.choice(files)
    table = read(file)
    name = draw.choice(table.column_names)
    index, how = table.column_names.index(name), draw.randrange(6)
    values = table[name].to_pylist()
    if how == 0:
        table = table.remove_column(index)
    elif how == 1:
        table = table.rename_columns([f"{n}x" if n == name else n for n in table.column_names])
    elif how == 2:
        table = table.set_column(index, name, pa.array([str(v) for v in values]))
    elif how == 3:
        table = pa.concat_tables([table, table]) if draw.random() < 0.5 else table.slice(0, 0)
    elif name == "output" and how == 4:
        values = [draw.choice(OUTPUTS) for _ in values]
        table = table.set_column(index, name, pa.array(values))
    elif values:
        for _ in range(draw.choice([1, 1, 3, len(values)])):
            values[draw.randrange(len(values))] = draw.choice(HOSTILE[:33])
        try:
            column = pa.array(values, table.schema.field(name).type, from_pandas=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError):
            column = pa.array([json.dumps(v, default=str)[:100] for v in values])
        table = table.set_column(index, name, column)
    store(file, table)
    hash_again(run)
    return f"{file.name} {name} {how}"


def change_session(session: Path, draw: random.Random) -> str:
    """Change ``session.json``, and recompute its own hashes."""
    said = ""

    def once(document: dict[str, Any]) -> None:
        nonlocal said
        said = change(document, draw, hostile(draw))

    try:
        bind_again(session, once)
    except (TypeError, KeyError, ValueError, AttributeError, OSError):  # the session can no longer be sealed
        document = json.loads((session / FILE).read_text())
        said = change(document, draw, hostile(draw))
        (session / FILE).write_text(json.dumps(document))
        (session / f"{FILE}.sha256").unlink(missing_ok=True)
    return f"{FILE} {said}"


CHANGES: tuple[tuple[float, Callable[[Path, random.Random], str]], ...] = (
    (0.55, change_lines), (0.2, change_metadata), (0.25, change_column),
)  # fmt: skip
