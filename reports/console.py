"""A result on the terminal: the verdict, one compact table by group, refusals with their remedies underneath."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from reports.format import NO_NUMBER, clean
from reports.names import Group, brief, groups, parts_of, title
from reports.verdict import Verdict, verdict_of
from rig.analysis.figure_key import FigureKey
from rig.analysis.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def table(result: Result) -> RenderableType:
    """The result as something rich can print: verdict, figures by group, then refusals and notes."""
    from rich.console import Group
    from rich.text import Text

    verdict = verdict_of(result.validity)
    parts: list[RenderableType] = [_heading(result), *(_verdict(verdict) if verdict is not None else ())]
    parts.append(_figures(result))
    if not result.complete:
        parts.append(Text("INCOMPLETE RECORDING: the run did not end as planned.", style="bold red"))
    parts += [_refusal(str(r.scope), r.reason, r.remedy) for r in result.refusals]
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

    figures = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    figures.add_column("", overflow="fold")
    figures.add_column("value", justify="right", no_wrap=True)
    figures.add_column("± 95 %", justify="right", no_wrap=True)
    figures.add_column("unit", no_wrap=True)
    figures.add_column("n", justify="right", no_wrap=True)
    scheduled = FigureKey("slip_max_s") in result.quantities
    for number, group in enumerate(_shown(groups(result.quantities))):
        if number:
            figures.add_section()
        figures.add_row(Text(group.heading, style="bold"))
        for key, q in brief(group, scheduled).entries:
            value, half, unit = parts_of(key, q)
            style = "red" if value == NO_NUMBER else ""
            row = (f"  {title(key)}", value, half or "—", clean(unit), str(q.n) if q.n else "")
            figures.add_row(*(Text(cell, style=style) for cell in row))
    return figures


def _shown(found: list[Group]) -> list[Group]:
    """What a person wants at a glance; the report has the rest. A single phase or rail says nothing new."""
    phases = [g for g in found if g.kind == "phase"]
    rails = [g for g in found if g.kind == "rail"]
    keep = [g for g in found if g.kind not in ("phase", "rail", "phase and rail", "cross-check")]
    return keep + (phases if len(phases) > 1 else []) + (rails if len(rails) > 1 else [])


def _heading(result: Result) -> Text:
    from rich.text import Text

    heading = Text(f"{'SIMULATED  ' if result.simulated else ''}{clean(result.run_id)}")
    if result.simulated:
        heading.stylize("bold white on magenta", 0, len("SIMULATED"))
    return heading


def _verdict(verdict: Verdict) -> list[Text]:
    """One line, then the rules that were broken, all of them."""
    from rich.text import Text

    broken, total = len(verdict.broken), verdict.total
    count = f"{broken} of {total} rules broken" if broken else f"{total} rules kept"
    caveat = f", {verdict.caveat}" if verdict.caveat else ""
    said = (f"{verdict.sign} {verdict.verdict}", "bold green" if verdict.valid else "bold red")
    return [
        Text.assemble(said, f" by {verdict.rules}{caveat}: {count}"),
        *(
            Text.assemble(("  ✗ ", "bold red"), f"{rule.rule}: {rule.found}, allowed: {rule.allowed}")
            for rule in verdict.broken
        ),
    ]


def _refusal(scope: str, reason: str, remedy: str) -> Text:
    from rich.text import Text

    return Text.assemble(
        (f"refused: {clean(scope)}", "bold yellow"),
        (f" - {clean(reason)}\n", "yellow"),
        (f"  remedy: {clean(remedy)}", "yellow"),
    )
