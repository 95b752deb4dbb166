"""Print a result on the terminal: verdict and figures of the scenario, or with ``verbose`` all figures by group."""

import re
from collections.abc import Iterator
from typing import IO

from rich import box
from rich.console import Console, Group as Lines, RenderableType
from rich.table import Table
from rich.text import Text

from reports.format import NO_NUMBER, Group, brief, groups, parts_of, title, within
from reports.headlines_and_tables import cards, headline_keys
from reports.verdict_by_rule import Rule, Verdict, verdict_of
from rig.analysis.power.notes_and_refusals import ON_FIGURE
from rig.analysis.result.quantity import LITERAL, FigureKey
from rig.analysis.result.result import Result
from rig.terminal import clean, own, width

NOTES = 3
"""The first screen shows at most this many notes and failed rules; the report has all of them."""
_STYLES = {"valid": "bold green", "partial": "bold yellow", "invalid": "bold red"}
ROUTINE = ("A session of", "Warm-up: ")
"""The first words of notes that say nothing about the figures."""


def lines(result: Result, verbose: bool = False) -> RenderableType:
    """Return the result in a form that rich can print: verdict, figures, then refusals and notes."""
    verdict = verdict_of(result)
    mark: list[str | tuple[str, str]] = [("SIMULATED", "bold white on magenta"), "  "] if result.simulated else []
    parts: list[RenderableType] = [Text.assemble(*mark, clean(result.run_id))]
    parts += _verdict(verdict, verbose) if verdict is not None else ()
    parts.append(_figures(result) if verbose else _headlines(result))
    if not result.complete:
        parts.append(Text("INCOMPLETE RECORDING: the run did not end as planned.", style="bold red"))
    for r in result.refusals:
        why = f" - {clean(r.reason)}\n  remedy: {clean(r.remedy)}"
        parts.append(Text.assemble((f"refused: {clean(r.scope)}", "bold yellow"), (why, "yellow")))
    failed = [_told(rule) for rule in (verdict.failed[:NOTES] if verdict is not None else ())]
    notes = [n for n in result.notes if verbose or not (n.startswith(ROUTINE) or any(x.endswith(n) for x in failed))]
    notes.sort(key=lambda note: not note.startswith(ON_FIGURE))
    shown = notes if verbose else notes[:NOTES]
    parts += [Text(f"note: {clean(note)}", style="dim") for note in shown]
    if len(shown) < len(notes):
        more = len(notes) - len(shown)
        are = "s are" if more > 1 else " is"
        parts.append(Text(f"{more} more note{are} in the report (or --verbose)", style="dim"))
    return Lines(*parts)


def print_result(result: Result, file: IO[str] | None = None, verbose: bool = False) -> None:
    """Print ``lines(result)`` without spaces at the ends of lines to ``file``, or to standard output."""
    console = Console(file=file or own(), highlight=False, width=width())
    with console.capture() as printed:
        console.print(lines(result, verbose))
    console.file.write(re.sub(r" +$", "", printed.get(), flags=re.MULTILINE))
    console.file.flush()  # before pictures are drawn, which takes time


def _headlines(result: Result) -> Table:
    """Return the figures that a reader of this scenario wants first, one line each."""
    figures = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    figures.add_column(overflow="fold")
    figures.add_column(justify="right", no_wrap=True)
    figures.add_column(no_wrap=True)
    for card in cards(result, headline_keys(result)):
        if card["state"] == "given":
            value = f"{card['value']}{within(card['half'])}"
            figures.add_row(Text(card["title"]), Text(value), Text(clean(card["unit"])))
        elif card["state"] == "refused":
            figures.add_row(Text(card["title"]), Text("refused", style="yellow"), Text(""))
    return figures


def _figures(result: Result) -> Table:
    figures = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    figures.add_column("", overflow="fold")
    for head in ("value", "± 95 %", "unit", "n"):
        figures.add_column(head, justify="left" if head == "unit" else "right", no_wrap=True)
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
    """Return the groups that a reader needs first; the report has all of them.

    A single phase or rail is left out, because it repeats the overall figures.
    """
    phases = [g for g in found if g.kind == "phase"]
    rails = [g for g in found if g.kind == "rail"]
    keep = [g for g in found if g.kind not in ("phase", "rail", "phase and rail", "cross-check", LITERAL)]
    return keep + (phases if len(phases) > 1 else []) + (rails if len(rails) > 1 else [])


def _verdict(verdict: Verdict, verbose: bool) -> list[Text]:
    """Return one line with the verdict, and then a line for each rule that failed.

    Without ``verbose``, only the first ``NOTES`` of these rules follow.
    """
    shown = verdict.failed if verbose else verdict.failed[:NOTES]
    left = len(verdict.failed) - len(shown)
    more = [Text(f"  {left} more {'is' if left == 1 else 'are'} in the report (or --verbose)")] if left else []
    caveat = f", {verdict.caveat}" if verdict.caveat else ""
    said = (f"{verdict.sign} {verdict.verdict}", _STYLES[verdict.state])
    return [
        Text.assemble(said, f" by {verdict.rules}{caveat}: {verdict.counted}"),
        *(line for rule in shown for line in _failed(rule)),
        *more,
    ]


def _failed(rule: Rule) -> Iterator[Text]:
    yield Text.assemble(("  ✗ ", "bold red"), _told(rule))
    if rule.remedy:
        yield Text(f"    remedy: {rule.remedy}", style="yellow")


def _told(rule: Rule) -> str:
    return f"{rule.rule}: {rule.found}, allowed: {rule.allowed}"
