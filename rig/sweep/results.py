"""Write the results of a sweep beside its cells: a table, and a figure of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.plugins import load
from rig.sweep.grid import Cell, cells_of
from rig.sweep.store import Frozen, keep
from rig.sweep.table import Table, table_of, write

FIGURE = "sweep.svg"


@dataclass(frozen=True)
class Columns:
    """Which quantities the table holds, and which of them the figure shows."""

    all_columns: bool = False
    plot: str | None = None
    against: str | None = None


def write_results(folder: Path, grids: Sequence[Frozen], columns: Columns) -> tuple[list[Cell], Table, list[Path]]:
    """Write the table and the figure; return the cells, the table and the files written."""
    cells = cells_of(entry.grid for entry in grids)
    table = table_of(folder, cells, [entry.grid for entry in grids], columns.all_columns)
    files = write(folder, table)
    figure = load("reports", "sweep")(table.rows, table.varied, table.figures, columns.plot, columns.against)
    if figure is not None:
        keep(folder, folder / FIGURE, figure)
        files.append(folder / FIGURE)
    return cells, table, files
