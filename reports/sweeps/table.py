"""The table of a sweep on the terminal: what varies, the verdict, and the figures most readers want."""

from collections.abc import Sequence

from reports.format import short_text, title
from reports.sweeps.axes import ENDS, Row
from reports.sweeps.picture import WANTED, Figures
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey, Quantity
from rig.terminal import clean, own, say, width, wrapped

COLUMNS, ROWS, HEAD, WIDEST = 5, 30, 22, 10_000
CORRECT = (FigureKey("accuracy"), FigureKey("r2"), FigureKey("smape_mean"))
"""Figures of the quality of answers, which come before those in ``WANTED``."""


def print_sweep(rows: Sequence[Row], varied: Sequence[str], figures: Figures) -> None:
    """Print rows of a sweep to standard output. The arguments are those of ``sweep_figure``."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=own(), highlight=False, width=width())
    known = {key: name for name, key in figures.items()}
    wanted = [(known[key], key) for key in dict.fromkeys((*CORRECT, *WANTED)) if key in known][:COLUMNS]
    for count in range(len(wanted), -1, -1):  # as many figures as fit
        shown, table = wanted[:count], Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in (*varied, "", *(title(key) for _, key in shown)):
            table.add_column("\n".join(wrapped(clean(name), HEAD, "")))
        for row in rows[:ROWS]:
            verdict = row.get("verdict") or row.get("state")
            cells = [*(row.get(key) for key in varied), verdict, *(_text(row, *pair) for pair in shown)]
            table.add_row(*(Text("" if cell is None else clean(cell)) for cell in cells))
        if console.measure(table, options=console.options.update(max_width=WIDEST)).maximum <= console.width:
            break
    console.print(table)
    left = [f"{len(rows) - ROWS} more rows"] * (len(rows) > ROWS)
    left += [f"{'; '.join(title(key) for _, key in wanted[count:])}"] * (count < len(wanted))
    say(*wrapped(f"table.csv also has: {'; '.join(left)}", console.width) if left else ())


def _text(row: Row, name: str, key: FigureKey) -> str:
    if row.get(name) is None:
        return ""
    return short_text(key, Quantity(row[name], entry_of(key).unit, limits=row.get(name + ENDS)))
