"""Show networks on devices in both tracks: tables, on a page with pictures and on the terminal."""

from collections.abc import Iterator
from math import ceil
from typing import Any

from reports.format import short_text, title
from reports.page_templates import templates
from reports.sweeps.tracks_picture import front_figure, line_figure, short
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey, Quantity
from rig.sweep.tracks import ALGORITHM, SYSTEM, Track, Tracks
from rig.terminal import clean, own

HEADINGS = (("Algorithm track: what the network asks for", ALGORITHM), ("System track: what the device pays", SYSTEM))
FRONT = (
    "What accuracy costs in energy and time. A point is on the front if every other point is worse in accuracy, energy "
    "or time, or equal in all of them. Measured points are not compared with simulated ones. Points without energy are "
    "left out of the front"
)
LINE = (
    "The dynamic energy of an execution by its operations, and each line that fits. This energy is of the last phase, "
    "which executes the network, while the energies of the table are of all phases"
)
RAILS = "Rails in power and energy"
NO_METER, UNSTATED = "no meter", "—"
MOST = 5
ENERGIES = ("energy_per_effective_operation_j", "energy_per_inference_j")


def page(found: Tracks) -> bytes:
    """Return the page, which makes no request: its tables, the front, and energy per operation."""
    from reports.render import inline

    told = {"front": FRONT, "line": LINE}
    drawn = {"front": front_figure(found), "line": line_figure(found)}
    pictures = [(inline(svg, name, told[name]), told[name]) for name, svg in drawn.items() if svg is not None]
    none = [(f"{short(t.network)} on {short(t.device)}", t.error or t.state) for t in found.tracks if not t.figures]
    text = templates().get_template("tracks.html.j2").render(
        tables=list(_tables(found)), refused={short(d): clean(why) for d, why in found.refused.items()},
        pictures=pictures, energies=_energies(found), missing=[tuple(map(clean, pair)) for pair in none],
        simulated=all(t.simulated for t in found.tracks),
    )  # fmt: skip
    return (text.rstrip("\n") + "\n").encode()


def print_tracks(found: Tracks) -> None:
    """Print the tables to standard output, then energy per operation."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=own(), highlight=False, width=None if own().isatty() else 140)
    for table in _tables(found):
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=table["of"], title_justify="left")
        shown.add_column("")
        for head, simulated, verdict in table["heads"]:
            shown.add_column(f"{head}{' SIMULATED' if simulated else ''} {verdict}".strip(), overflow="fold")
        for heading, rows in table["parts"]:
            shown.add_row(Text(heading.partition(":")[0], style="bold"))
            for name, cells in rows:
                shown.add_row(Text(name), *map(Text, cells))
        console.print(shown)
    for device, sentence in _energies(found):
        console.print(Text(f"{device}: {sentence}"))
    for device, why in found.refused.items():
        console.print(Text(f"{short(device)} takes no network: {clean(why)}"))


def _tables(found: Tracks) -> Iterator[dict[str, Any]]:
    """Yield tables for each network with a column per device or, for one device, with a column per network.

    A network without figures has no column. More than ``MOST`` columns become several tables.
    """
    alone = len(found.devices) == 1
    names = found.devices if alone else found.networks
    all_of = {name: [t for t in found.tracks if t.figures and name in (t.device, t.network)] for name in names}
    all_of = {name: of for name, of in all_of.items() if of}
    width = {name: ceil(len(of) / ceil(len(of) / MOST)) for name, of in all_of.items()}
    split = [(name, of[k : k + width[name]]) for name, of in all_of.items() for k in range(0, len(of), width[name])]
    for name, tracks in split:
        of = [clean(short(track.network if alone else track.device)) for track in tracks]
        heads = [(head, t.simulated, clean(t.verdict or t.state)) for head, t in zip(of, tracks, strict=True)]
        rows = {key: (title(key), [_cell(track, key) for track in tracks]) for _, keys in HEADINGS for key in keys}
        parts = [(heading, [rows[key] for key in keys]) for heading, keys in HEADINGS]
        parts[1][1].append((RAILS, [clean(", ".join(t.rails)) or _absent(t) for t in tracks]))
        yield {"of": clean(short(name)), "heads": heads, "parts": parts}


def _cell(track: Track, key: FigureKey) -> str:
    q = track.figures.get(key)
    if q is not None:
        return short_text(key, q)
    return _absent(track) if entry_of(key).unit in ("W", "J") else UNSTATED


def _absent(track: Track) -> str:
    return UNSTATED if track.metered else NO_METER


def _energies(found: Tracks) -> list[tuple[str, str]]:
    """Return a sentence for each device with operations and energy: both energies, or why they are not stated."""
    sentences = []
    for device, line in found.lines.items():
        per_operation, per_execution = (_said(q) for q in (line.per_operation, line.per_execution))
        told = f"No energy per operation is stated: {line.refusal}."
        if not line.refusal:
            idle = [point.idle_j for point in found.points[device]]
            told = f"{per_operation} per effective operation and {per_execution} per execution, above idle. Idle "
            told += f"energy per execution is {_said(Quantity(min(idle), 'J'))} to {_said(Quantity(max(idle), 'J'))}. "
            told += f"The line fits: chi-squared is {line.misfit:.3g}, and {line.allowed:.3g} is allowed."
        sentences.append((clean(short(device)), clean(told)))
    return sentences


def _said(q: Quantity | None) -> str:
    return "" if q is None else short_text(FigureKey(ENERGIES[0]), q)
