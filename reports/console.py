"""A result on the terminal: one compact table by group, refusals with their remedies underneath."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from reports.format import NO_NUMBER, Group, clean, groups, quantity_parts, title
from rig.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def table(result: Result) -> RenderableType:
    """The result as something rich can print: figures by group, then refusals and notes."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_figures(result)]
    if not result.complete:
        parts.append(Text("INCOMPLETE RECORDING: the run did not end as planned.", style="bold red"))
    parts += [_refusal(r.scope, r.reason, r.remedy) for r in result.refusals]
    parts += [Text(f"note: {clean(note)}", style="dim") for note in result.notes]
    return Group(*parts)


def print_result(result: Result, file: IO[str] | None = None) -> None:
    """Print ``table(result)`` to ``file``, or to standard output."""
    from rich.console import Console

    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, highlight=False, width=100)
    console.print(table(result))


def _figures(result: Result) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(f"{'SIMULATED  ' if result.simulated else ''}{clean(result.run_id)}")
    if result.simulated:
        heading.stylize("bold white on magenta", 0, len("SIMULATED"))
    figures = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    figures.add_column("", overflow="fold")
    figures.add_column("value", justify="right", no_wrap=True)
    figures.add_column("± 95 %", justify="right", no_wrap=True)
    figures.add_column("unit", no_wrap=True)
    figures.add_column("n", justify="right", no_wrap=True)
    for number, group in enumerate(_shown(groups(result.quantities))):
        if number:
            figures.add_section()
        figures.add_row(Text(group.heading, style="bold"))
        for name, q in group.entries:
            value, half, unit = quantity_parts(q)
            style = "red" if value == NO_NUMBER else ""
            row = (f"  {title(name)}", value, half or "—", clean(unit), str(q.n) if q.n else "")
            figures.add_row(*(Text(cell, style=style) for cell in row))
    return figures


def _shown(found: list[Group]) -> list[Group]:
    """What a person wants at a glance; the report has the rest. A single phase or rail says nothing new."""
    phases = [g for g in found if g.kind == "phase"]
    rails = [g for g in found if g.kind == "rail"]
    keep = [g for g in found if g.kind in ("overall", "other")]
    return keep + (phases if len(phases) > 1 else []) + (rails if len(rails) > 1 else [])


def _refusal(scope: str, reason: str, remedy: str) -> Text:
    from rich.text import Text

    return Text.assemble(
        (f"refused: {clean(scope)}", "bold yellow"),
        (f" - {clean(reason)}\n", "yellow"),
        (f"  remedy: {clean(remedy)}", "yellow"),
    )
