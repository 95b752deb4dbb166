"""Print two results side by side on the terminal."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from reports import format as report_format
from reports.format import cut, short_text, signed, text_of, title
from reports.headlines_and_tables import COMPLEXITY, headline_keys
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey, Quantity
from rig.comparing.compare import ACCURACY, Comparison, Difference, Subject
from rig.comparing.gate import Judged
from rig.terminal import clean, say, width, wrapped

_SCORES = ("accuracy", "map", "r2", "smape_mean")
KEPT = {True: "kept within 5 %", False: "worse by more than 5 %", None: ""}
GAP = "  "
MOST_DIFFERING = 8
"""Without ``--verbose``, at most this many differences between two recordings are shown."""
MOST_TEXT = 32
"""The longest text of a differing value, in characters."""


def print_comparisons(found: Sequence[Comparison], gates: Sequence[Sequence[Judged]], verbose: bool = False) -> None:
    """Print a table for each pair to standard output, and the result of each pair's gates.

    The table has the main figures, and the figures of the network that differ. Rows and notes wrap at the terminal's
    width.
    """
    wide = width()
    for c, judged in zip(found, gates, strict=True):
        say(f"first   {_named(c.first)}", f"second  {_named(c.second)}", "")
        rows = (wrapped(line, wide) if len(line) > wide else [line] for line in _table(c, verbose, wide))
        say(*chain.from_iterable(rows), "")
        lines = [*_notes(c, verbose), *(_gate(one, c) for one in judged)]
        say(*(part for line in lines for part in wrapped(clean(line), wide)))


def _named(subject: Subject) -> str:
    return ", ".join([f"{subject.path}: {cut(subject.name)}", *_wrong(subject)])


def _wrong(subject: Subject) -> list[str]:
    """Return the words after a subject's name that say whether its figures are simulated or INVALID."""
    result = subject.result
    wrong = {"SIMULATED": result.simulated, "INVALID": result.validity is not None and not result.validity.valid}
    return [word for word, applies in wrong.items() if applies]


def beside(c: Comparison) -> dict[str, Any]:
    """Return a small table for the page of the second result: quality of the answers, and complexity of the networks.

    If both are of one device, it also has times, powers and energies (of phases too), and notes on slow meters.
    """
    sides = c.first, c.second
    devices = [clean(subject.result.start.device.name) for subject in sides]
    headlines, heads, notes = list[FigureKey](), devices, list(_on_differences(c))
    notes += [f"{clean(side.name)} is {' and '.join(wrong)}." for side in sides if (wrong := _wrong(side))]
    if devices[0] == devices[1]:
        headlines = headline_keys(c.second.result)
        heads = [clean(subject.name) for subject in (c.first, c.second)]
        notes += [*_unseen(c.first), *_unseen(c.second)]
    rows = []
    for d in c.differences:
        if replace(d.key, phase="") in headlines or (d.key.of_whole and d.key.quantity in (*_SCORES, *COMPLEXITY)):
            name = f"{title(d.key)}{f', {d.key.phase}' if d.key.phase else ''}"
            rows.append((name, text_of(d.key, d.first), text_of(d.key, d.second), _change(d), d.said))
    return {"head": ("", *heads, f"{heads[1]} - {heads[0]}", ""), "rows": rows, "note": " ".join(notes)}


def _unseen(subject: Subject) -> Iterator[str]:
    """Yield a sentence for each rail that was read less than once per execution of some phase."""
    start, quantities = subject.result.start, subject.result.quantities
    for rail in (rail for meter in start.meters for rail in meter.rails if rail.rate_hz > 0.0 and rail.kind != "edges"):
        executions = {p: quantities.get(FigureKey("execution_time_s", p)) for p in start.device.phases}
        short = [phase for phase, q in executions.items() if q is not None and q.value * rail.rate_hz < 1.0]
        if short:
            share = "an unstated part" if rail.aperture_s is None else f"{100 * rail.aperture_s * rail.rate_hz:.3g} %"
            yield clean(
                f"{subject.name}: rail {rail.name} was read every {1.0 / rail.rate_hz:.3g} s, and measured during "
                f"{share} of the time. An execution of {' or '.join(short)} is shorter, so the power of a single "
                "execution was not seen."
            )


def _table(c: Comparison, verbose: bool, wide: int) -> Iterator[str]:
    """Yield the rows in the widest form that fits; a title that leaves no room for numbers is a line of its own."""
    judged = any(d.kept is not None for d in c.differences)
    headlines = headline_keys(c.first.result)
    changed = [d.key for d in c.differences if d.value and d.key.of_whole and entry_of(d.key).family == "complexity"]
    shown = [d for d in c.differences if verbose or d.key in (*headlines, *changed)]
    rows = [(clean(d.key) if verbose else title(d.key), d) for d in shown]
    heads = ("first", "second", "second - first", "change", "", *(["by the rules"] if judged else []))
    full = [heads]
    for _, d in rows:
        words = (d.said, *([KEPT[d.kept]] if judged else []))
        full.append((short_text(d.key, d.first), short_text(d.key, d.second), _change(d), _percent(d), *words))
    short = [row[:2] + row[3:] for row in full]
    longest = max((len(name) for name, _ in rows), default=0)
    for form in (full, short, [(_bare(row[0]), _bare(row[1]), *row[2:]) for row in short]):
        widths = [max(map(len, column)) for column in zip(*form, strict=True)]
        room = wide - sum(widths) - len(GAP) * len(widths)
        if longest <= room:
            break
    pad, words_from = max(min(longest, room), 0), len(widths) - 1 - judged
    for name, row in zip(["", *(name for name, _ in rows)], form, strict=True):
        if len(name) > pad:
            yield name
        cells = [cell.rjust(w) if k < words_from else cell for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        yield GAP.join([f"{name if len(name) <= pad else '':{pad}}", *cells]).rstrip()


def _bare(text: str) -> str:
    return re.sub(r" (± \S+|\(.*\))", "", text)


def _percent(d: Difference) -> str:
    """Return the difference relative to the first figure, with its interval; a dash if the first is zero."""
    if d.relative is None:
        return "—"
    one = abs(d.first.value)
    limits = None if d.low is None or d.high is None else (d.low / one, d.high / one)
    return signed(Quantity(d.relative, "1", limits=limits), "percent")


def _gate(one: Judged, c: Comparison) -> str:
    """Return one line: the decision, the limit, the change, and how many more samples would decide.

    If a gate passes but accuracy is worse, the line says so, because the device may have left out work.
    """
    unit = "1" if one.limit.relative else next(d.first.unit for d in c.differences if str(d.key) == one.limit.figure)
    change = Quantity(one.change, unit, limits=(one.low, one.high))
    limit = one.limit.text if one.limit.relative else f"{one.limit.text} {unit}".removesuffix(" 1")
    said = f"{one.outcome.upper():11}  {limit}: {signed(change, 'percent')}"
    if one.outcome != "not decided":
        less = any(d.key == ACCURACY and d.said == "worse" for d in c.differences if str(d.key) != one.limit.figure)
        return f"{said}; but accuracy is worse" if less and one.outcome == "not worse" else said
    if one.samples_more is None:
        return f"{said}; more samples would hardly decide: the change is near the limit, or the calibration is wide"
    n = c.first.result.quantities[one.limit.figure].n
    trials = f", as with --trials {1 + math.ceil(one.samples_more / n)}" if n and not one.of_counts else ""
    return f"{said}; about {one.samples_more} samples more of each would decide{trials}"


def _change(d: Difference) -> str:
    limits = None if d.low is None or d.high is None else (d.low, d.high)
    return short_text(d.key, Quantity(d.value, d.first.unit, limits=limits))


def _notes(c: Comparison, verbose: bool) -> Iterator[str]:
    yield from (f"the second does not repeat the first: {what}" for what in c.unlike)
    places = [p for p in c.differs if not p.startswith("scenario.options.") and p != "workload.digest_sha256"]
    for place in places if verbose else places[:MOST_DIFFERING]:
        one, other = (_shortened(value) for value in c.differs[place])
        yield f"differs: {place}: {one} and {other}"
    if len(places) > MOST_DIFFERING and not verbose:
        yield f"{len(places) - MOST_DIFFERING} more places differ; --verbose names them"
    yield from _on_differences(c)
    if c.alone:
        yield f"in one of them only: {', '.join(map(str, c.alone[:6]))}{' ...' if len(c.alone) > 6 else ''}"


def _on_differences(c: Comparison) -> Iterator[str]:
    for lost, won in (d.paired for d in c.differences if d.paired is not None):
        yield (
            f"Accuracy is compared by sample: {lost} right only in the first, {won} only in the second. "
            "The interval takes samples as independent."
        )
    if any(d.cancelled for d in c.differences):
        yield "Both were measured with one instrument and calibration; the errors that they share cancel."
    rails = [rail for side in (c.first, c.second) for meter in side.result.start.meters for rail in meter.rails]
    if unstated := sorted({clean(rail.name) for rail in rails if rail.accuracy is None and rail.kind != "edges"}):
        yield f"No calibration is stated for {', '.join(unstated)}, so intervals leave the instruments' errors out."


def _shortened(value: Any) -> str:
    """Return a declared value; a dash for one that is not declared."""
    return cut("—" if value is None else report_format.say(value), MOST_TEXT)
