"""The table of a sweep: a row for each cell in the order of the grid. The same recordings give the same bytes."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.analysis.result.quantity import FigureKey
from rig.sweep.grid import Cell, Grid
from rig.sweep.row_of_cell import Row, verified_row
from rig.sweep.sweep_folder import CELLS, State, error_of, keep, state_of
from rig.terminal import as_cell

HALF, ENDS = ".half_width_95", ".interval_95"
TABLE, RUNS = "table.csv", "runs.csv"
OF_ROW = ("verdict", "simulated", "refusals", "content_sha256", "error")
"""The fields of a ``Row`` that are columns of the table."""
Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """The table in memory: each row maps columns to values or None.

    ``varied`` are the columns that differ by design: the varied keys, and ``device`` if there are several devices. Rows
    also have the two ends of each interval, which the file lacks.
    """

    columns: tuple[str, ...]
    varied: tuple[str, ...]
    figures: Mapping[str, FigureKey]
    """Keys of figures, by the name of the column that holds the value."""
    rows: tuple[Mapping[str, Any], ...]
    ties: tuple[tuple[str, ...], ...]
    """Cell, run directory, time of recording, and digest of the events, for each run."""


def table_of(folder: Path, cells: Sequence[Cell], grids: Sequence[Grid], all_columns: bool = False) -> Table:
    """Return the table of a sweep: done cells have figures, failed cells have an error, open cells have neither."""
    keys = list(dict.fromkeys(key for grid in grids for key in grid.vary))
    parse = {key: _parser([cell.options[key] for cell in cells if key in cell.options]) for key in keys}
    figures: dict[str, FigureKey] = {}
    rows: list[dict[str, Any]] = []
    ties: list[tuple[str, ...]] = []
    for cell in cells:
        state = state_of(folder, cell)
        head: dict[str, Plain] = {"cell": cell.key, "state": state, "device": cell.device}
        head |= {key: parse[key](cell.options[key]) if key in cell.options else None for key in keys}
        row = verified_row(folder, cell) if state == "done" else None
        rows.append(head | {"repetition": cell.repetition} | _said(folder, cell, state, row))
        if row is None:
            continue
        place = Path(CELLS) / cell.key
        ties += [(cell.key, (place / run).as_posix(), row.created_utc, sha) for run, sha in row.runs.items()]
        for figure in row.figures:
            if all_columns or figure.key.of_whole:
                name = str(figure.key)
                figures[name] = figure.key
                ends = None if figure.whole is None else figure.whole["interval_95"]
                rows[-1] |= {name: figure.value, name + HALF: figure.half_width, name + ENDS: ends}
    columns = ("cell", "state", "device", *keys, "repetition", *OF_ROW, *(c for n in figures for c in (n, n + HALF)))
    varied = ("device", *keys) if len({cell.device for cell in cells}) > 1 else tuple(keys)
    return Table(columns, varied, figures, tuple(rows), tuple(ties))


def _said(folder: Path, cell: Cell, state: State, row: Row | None) -> dict[str, Plain]:
    if row is not None:
        return {name: getattr(row, name) for name in OF_ROW}
    if state == "failed":
        error = error_of(folder, cell)
        return {"error": f"{error.get('error')}: {error.get('message')}"}
    return {}


def _parser(texts: Sequence[str]) -> Any:
    for kind in (int, float):
        try:
            for text in texts:
                kind(text)
        except ValueError:
            continue
        return kind
    return str


def write(folder: Path, table: Table) -> list[Path]:
    """Write ``table.csv`` and ``runs.csv``, each whole or not at all, and return their paths.

    ``runs.csv`` links each row to its recording. If a simulated cell is recorded again, only this file differs.
    """
    rows = [[row.get(column) for column in table.columns] for row in table.rows]
    files = {TABLE: _csv(table.columns, rows), RUNS: _csv(("cell", "run", "created_utc", "events_sha256"), table.ties)}
    for name, content in files.items():
        keep(folder, folder / name, content)
    return [folder / name for name in files]


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Plain]]) -> bytes:
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(columns)
    out.writerows([as_cell(str(v).lower() if isinstance(v, bool) else v) for v in row] for row in rows)
    return text.getvalue().encode()
