"""Write a result as files: JSON for programs, Markdown and HTML for readers, figures as SVG."""

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from markupsafe import Markup

from reports import headlines_and_tables as results, system_timing_instruments as sections
from reports.format import say
from reports.page_templates import as_json, policy, script, templates
from reports.pictures.captions import CAPTIONS, MAIN
from reports.pictures.colour_sheet import THEME
from reports.pictures.stream import stream_csv
from reports.session import members, session_of
from reports.verdict_by_rule import verdict_of
from reports.viewing.trace_in_report import embedded
from reports.workflow import workflow
from rig.analysis.power.notes_and_refusals import ON_FIGURE
from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import RESULTS, Result
from rig.recording.disk.files import Folder
from rig.recording.reader import Run
from rig.terminal import clean

STREAM_TABLE = "figures/stream.csv"


def render(
    run: Run | None,
    result: Result,
    out: Path | None = None,
    submission: Mapping[str, Any] | None = None,
    beside: Mapping[str, Any] | None = None,
    pictures: bool = True,
) -> dict[str, bytes]:
    """Return every file of a report by its name below the output directory ``out``.

    This function neither reads nor writes ``out``. ``submission`` is the input of the first part of a submission's
    page. ``beside`` is a table that compares this result with another. Without ``pictures``, the page states the
    command that draws them.
    """
    from reports.pictures.draw import draw

    figures = draw(result) if pictures else {}
    content = context(run, result, out) | {"submission": submission, "beside": beside, "drawn": pictures}
    env = templates()
    vectors = {name: inline(svg, name, CAPTIONS[name]) for name, svg in figures.items()}
    model = embedded(result.series, result.simulated, run) if pictures else None
    trace = None if model is None else {"model": as_json(model), "script": script()}
    policy_ = policy(scripts=trace is not None)
    page = env.get_template("report.html.j2").render(**content, vectors=vectors, trace=trace, policy=policy_)
    stored = dict.fromkeys(figures) if submission is None else {}  # a submission stores no separate pictures
    text = env.get_template("report.md.j2").render(**content, vectors=stored)
    files = {RESULTS: result.text(), "report.md": re.sub(r"\n{3,}", "\n\n", text), "report.html": page}
    encoded = {name: _encoded(text) for name, text in files.items()}
    stream = result.series.stream
    tables = {} if stream is None else {STREAM_TABLE: stream_csv(stream)}
    return encoded | {f"figures/{name}.svg": svg for name, svg in figures.items()} | tables


def write(
    result: Result,
    out: Path | Folder,
    run: Run | None = None,
    beside: Mapping[str, Any] | None = None,
    pictures: bool = True,
) -> list[Path]:
    """Write the report below ``out``, each file completely or not at all, and return the paths of the files.

    Links below ``out`` are not followed.
    """
    folder = Folder.at(out, make=True)
    files = render(run, result, folder.path, beside=beside, pictures=pictures)
    for name, content in files.items():
        folder.write(name, content)
    for name in (STREAM_TABLE, *(f"figures/{name}.svg" for name in CAPTIONS)):
        if name not in files:  # a file of an earlier rendering must not remain without its data
            folder.remove(name)
    return [folder.path / name for name in files]


def _encoded(text: str) -> bytes:
    return (text.rstrip("\n") + "\n").encode()


def context(run: Run | None, result: Result, out: Path | None = None) -> dict[str, Any]:
    """Return the input of the templates: text, pairs and rows, so that templates compute nothing."""
    start = result.start
    session = session_of(run, result)
    keys = results.key_figures(result)
    directory = session or (run.path if run is not None else Path())
    return {
        "run_id": clean(result.run_id),
        "digest": clean(result.session_digest or result.run_digest),
        "directory": quote(clean(directory.resolve().name if run is not None else result.run_id)),
        "kind": _kind(result, session is not None),
        "verdict": verdict_of(result),
        "members": members(session, out) if session is not None else [],
        "simulated": result.simulated,
        "simulators": sections.simulated_parts(start),
        "complete": result.complete,
        "error": _error_text(run, result),
        "device": say(start.device.name),
        "occasion": sections.occasion(start),
        "headlines": results.cards(result, keys),
        "architecture": sections.led(sections.architecture(start.device), sections.OF_SYSTEM),
        "algorithm": sections.led(sections.algorithm(start), sections.OF_ALGORITHM),
        "workflow": workflow(result),
        "timing": sections.led(sections.timing(result), sections.OF_TIMING),
        "clocks": [sections.clock_row(c) for c in result.clocks.values()],
        "meters": sections.meters(start),
        "tables": results.result_tables(result.quantities),
        "components": results.component_tables(result.quantities, keys),
        "complexity": results.beside_cost(result),
        "refusals": _refusals(result.refusals),
        "notes": [clean(note) for note in result.notes],
        "on_figure": [clean(note) for note in result.notes if note.startswith(ON_FIGURE)],
        "environment": sections.environment(start),
        "captions": CAPTIONS,
        "main": MAIN.get(start.scenario.name, "latency"),
        "service_power": FigureKey("average_power_w") in result.quantities,
        "stream_table": STREAM_TABLE if result.series.stream is not None else "",
        "unstated": sections.UNSTATED_ACCURACY,
    }


def _refusals(refusals: Iterable[Finding]) -> list[dict[str, str]]:
    """Return the refused figures; figures with the same reason and remedy are joined."""
    alike: dict[tuple[str, str], list[str]] = {}
    for r in refusals:
        alike.setdefault((clean(r.reason), clean(r.remedy)), []).append(clean(r.scope))
    return [{"scope": ", ".join(of), "reason": why, "remedy": then} for (why, then), of in alike.items()]


def _kind(result: Result, session: bool) -> str:
    """Return the kind of report: a submission only if hardware was measured by rules that allow submissions."""
    submittable = result.validity is not None and result.validity.submittable and not result.simulated
    return "submission" if submittable else "session" if session else "run"


def _error_text(run: Run | None, result: Result) -> str:
    if result.complete:
        return ""
    if run is None:
        return "The recording did not end as planned; its last event says why."
    if run.stop is None:
        return "The recording has no stop line: it was cut short, and ends at the last whole batch."
    if run.error is None:
        return "The recording is incomplete: " + (", ".join(map(clean, run.truncated)) or "no error was recorded")
    parts = (run.error.error, run.error.message, run.error.remedy)
    return ". ".join(clean(part).rstrip(".") for part in parts if part)


def inline(svg: bytes, name: str, label: str) -> Any:
    """Return the picture in the page's colours, with ids that are unique in the page.

    ``label`` describes the picture where it cannot be seen; the texts in the picture are escaped already.
    """
    text = re.sub(r'(<[a-zA-Z][^<>]*? id=")', rf"\g<1>{name}-", svg.decode())
    text = re.sub(r"(?<=(?:fill|roke): )(#?\w+)", lambda found: THEME.get(found[0], found[0]), text)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1))
