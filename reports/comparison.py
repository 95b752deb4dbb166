"""Two results side by side on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from reports.format import quantity_parts
from reports.names import text_of, title
from reports.result_tables import COMPLEXITY, headline_keys
from rig.analysis.result.catalogue import entry_of
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Component, Quantity
from rig.submission.compare import Comparison, Difference, Subject
from rig.terminal import clean

if TYPE_CHECKING:
    from rich.table import Table

_SCORES = ("accuracy", "r2", "smape_mean")
KEPT = {True: "kept within 5 %", False: "worse by more than 5 %", None: ""}
SHOWN = {True: "differs", False: "no difference shown", None: "no interval stated"}


def print_comparisons(found: Sequence[Comparison], file: IO[str] | None = None, verbose: bool = False) -> None:
    """Print a table for each pair to ``file``, or to standard output.

    It has the main figures, and those of the network where the two differ.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, highlight=False, width=140)
    for c in found:
        console.print(Text(clean(f"first   {c.first.path}: {c.first.name}")))
        console.print(Text(clean(f"second  {c.second.path}: {c.second.name}")))
        console.print(_table(c, verbose))
        for line in _notes(c):
            console.print(Text(clean(line), style="dim"))


def beside(c: Comparison) -> dict[str, Any]:
    """Return a small table for the page of the second: how well both answered, and what their networks ask for.

    Of one device it has times, powers and energies too, also by phase, and says what a slow meter did not see.
    """
    devices = [clean(subject.result.start.device.name) for subject in (c.first, c.second)]
    headlines, heads, notes = list[FigureKey](), devices, list(_on_differences(c))
    if devices[0] == devices[1]:
        headlines = headline_keys(c.second.result)
        heads = [clean(subject.name) for subject in (c.first, c.second)]
        notes += [*_unseen(c.first), *_unseen(c.second)]
    rows = [
        (
            f"{title(d.key)}{f', {d.key.phase}' if d.key.phase else ''}",
            *(text_of(d.key, q) for q in (d.first, d.second)),
            _change(d),
            SHOWN[d.shown],
        )
        for d in c.differences
        if replace(d.key, phase="") in headlines or (d.key.of_whole and d.key.quantity in (*_SCORES, *COMPLEXITY))
    ]
    return {"head": ("", *heads, f"{heads[1]} - {heads[0]}", ""), "rows": rows, "note": " ".join(notes)}


def _unseen(subject: Subject) -> Iterator[str]:
    """What each meter that reads less than once in an execution cannot know."""
    start, quantities = subject.result.start, subject.result.quantities
    for rail in (rail for meter in start.meters for rail in meter.rails if rail.rate_hz > 0.0 and rail.kind != "edges"):
        executions = {p: quantities.get(FigureKey("execution_time_s", p)) for p in start.device.phases}
        short = [phase for phase, q in executions.items() if q is not None and q.value * rail.rate_hz < 1.0]
        if short:
            looked = "an unstated part" if rail.aperture_s is None else f"{100 * rail.aperture_s * rail.rate_hz:.3g} %"
            yield clean(
                f"{subject.name}: rail {rail.name} was read every {1.0 / rail.rate_hz:.3g} s, and looked at for "
                f"{looked} of the time. An execution of {' or '.join(short)} is shorter: what a single one draws, and "
                "when, was not seen."
            )


def _table(c: Comparison, verbose: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    judged = any(d.kept is not None for d in c.differences)
    for head in ("", "first", "second", "second - first", "%", "", *(["by the rules"] if judged else [])):
        table.add_column(head, overflow="fold", justify="right" if head in ("first", "second", "%") else "left")
    headlines = headline_keys(c.first.result)
    for d in c.differences:
        other_network = entry_of(d.key).family == "complexity" and d.key.of_whole and d.value != 0.0
        if verbose or d.key in headlines or other_network:
            cells = [
                _name(d) if verbose else title(d.key),
                text_of(d.key, d.first),
                text_of(d.key, d.second),
                _change(d),
            ]
            cells += ["—" if d.relative is None else f"{100 * d.relative:+.2f}", SHOWN[d.shown]]
            table.add_row(*(Text(cell) for cell in (*cells, *([KEPT[d.kept]] if judged else []))))
    return table


def _name(d: Difference) -> str:
    return clean(d.key)


def _change(d: Difference) -> str:
    half = 0.0 if d.low is None or d.high is None else max(d.high - d.value, d.value - d.low)
    scale = entry_of(d.key).scale
    whole = Quantity(d.value, d.first.unit, (Component("", half),), limits=(d.value - half, d.value + half))
    value, half_text, unit = quantity_parts(whole if half else Quantity(d.value, d.first.unit), scale)
    return f"{value} ± {half_text} {unit}" if half_text else f"{value} {unit}"


def _notes(c: Comparison) -> Iterator[str]:
    yield from (f"no repetition: {what}" for what in c.unlike)
    yield from _on_differences(c)
    if c.alone:
        yield f"in one of them only: {', '.join(map(str, c.alone[:6]))}{' ...' if len(c.alone) > 6 else ''}"


def _on_differences(c: Comparison) -> Iterator[str]:
    for lost, won in (d.paired for d in c.differences if d.paired is not None):
        yield (
            f"Accuracy is compared sample by sample: {lost} only the first has right, {won} only the second. "
            "The interval takes samples as independent."
        )
    if any(d.cancelled for d in c.differences):
        yield "Both were measured with one instrument and calibration; what they share of its error cancels."
