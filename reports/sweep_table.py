"""The table of a sweep on the terminal: what varies, the verdict, and the figures that readers look for first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from reports.figures.sweep import WANTED, Figures, Row
from reports.figures.sweep_axes import HALF
from reports.names import parts_of, title
from rig.analysis.result.catalogue import entry_of
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.terminal import clean, own

COLUMNS, ROWS = 4, 30


def print_sweep(rows: Sequence[Row], varied: Sequence[str], figures: Figures, file: IO[str] | None = None) -> None:
    """Print rows of a sweep to ``file``, or to standard output. The arguments are as of ``sweep_figure``."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    file = file or own()
    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, highlight=False, width=140)
    known = {key: name for name, key in figures.items()}
    shown = [(known[key], key) for key in WANTED if key in known][:COLUMNS]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (*varied, "", *(title(key) for _, key in shown)):
        table.add_column(clean(name), overflow="fold")
    for row in rows[:ROWS]:
        verdict = row.get("verdict") or row.get("state")
        cells = [*(row.get(key) for key in varied), verdict, *(_text(row, *pair) for pair in shown)]
        table.add_row(*(Text("" if cell is None else clean(cell)) for cell in cells))
    console.print(table)
    if len(rows) > ROWS:
        console.print(Text(f"{len(rows) - ROWS} more rows are in table.csv", style="dim"))


def _text(row: Row, name: str, key: FigureKey) -> str:
    if row.get(name) is None:
        return ""
    value, half, unit = parts_of(key, Quantity(row[name], entry_of(key).unit, bias=row.get(name + HALF) or 0.0))
    return f"{value} ± {half} {unit}" if half else f"{value} {unit}"
