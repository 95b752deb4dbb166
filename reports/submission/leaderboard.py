"""Put submissions on one page: a sortable table for each of measured, imported, estimated, simulated and published."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from reports.format import PER_SECOND, short_text, title
from reports.page_templates import hash_of, templates
from rig.analysis.result.quantity import Component, FigureKey, Quantity
from rig.errors import DataError, RigError, refused
from rig.recording.disk.files import write_whole
from rig.recording.disk.size_limits import read_bounded
from rig.recording.submission import Claim, Configuration, Opened, is_submission, missing, open_submission
from rig.terminal import answer, clean

CLASSES = {
    "measured": "Measured on hardware",
    "imported": "Measured by other programs, and imported",
    "estimated": "Estimated",
    "simulated": "SIMULATED",
    "published": "Published by others, not checked here",
}
"""Each class has its own table."""
TARGETS = ("official", "specified", "best_known")
COLUMNS = (
    *map(FigureKey, ("accuracy", "stream_accuracy")),
    *(FigureKey("gap_{target}_mean", target=target) for target in TARGETS),
    *map(FigureKey, ("execution_time_s", "latency_mean_s", "throughput_samples_hz", "onset_latency_mean_s",
                     "idle_power_w", "active_power_w", "dynamic_power_w", "average_power_w", "runtime_power_w",
                     "energy_per_inference_j", "dynamic_energy_per_inference_j")),
)  # fmt: skip
TIERS = (0.01, 0.05, 0.1)
"""Gaps to the target that the benchmark names (NeuroBench, QUBO); it defines no tiers of accuracy."""
LETTERS = 200
EQUAL = "pages made again and equal"


class _Audit(msgspec.Struct, frozen=True):
    root: str | None
    ok: bool
    anchored: bool = False
    quick: bool = False
    remade: str = ""
    """The result of comparing the pages with newly made pages."""


class _Audits(msgspec.Struct, frozen=True):
    audits: list[_Audit]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that others published about one system."""

    name: str
    organization: str
    scenario: str
    workload: str
    figures: dict[str, tuple[float, str]]
    """Value and unit; these publications state no intervals."""
    source: str
    doubts: str


@dataclass(frozen=True)
class Entry:
    """One row: its text columns, and its figures by key."""

    of: str
    words: tuple[str, ...]
    link: str
    figures: Mapping[str, Claim]


HEAD = ("System", "Organization", "Date", "Availability", "Scenario", "Workload", "Rules", "Rails", "Status", "Tier")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig leaderboard FOLDER --out PAGE``."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of submissions, or one submission")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE.html", help="the page to write")
    parser.add_argument(
        "--audit", type=Path, action="append", default=[], metavar="FILE", help="an audit.json of `rig audit --out`"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page. Raises a ``RigError`` for a folder without submissions or an audit that cannot be read."""
    found = [audit for path in args.audit for audit in _audits(path)]
    audits = {audit.root: audit for audit in sorted(found, key=lambda audit: not audit.ok)}  # a failed audit prevails
    entries = list[Entry]()
    inside = [] if is_submission(args.folder) else sorted(path for path in args.folder.glob("*") if path.is_dir())
    left = [f"{path.name}: it is a link" for path in inside if path.is_symlink()]
    for folder in [path for path in inside if not path.is_symlink()] or [args.folder]:
        try:
            opened = open_submission(folder) if is_submission(folder) else None
            if opened is not None and opened.root in audits and not audits[opened.root].ok:
                left.append(f"{folder.name}: its audit failed")
            elif opened is not None:
                entries += list(_entries(opened, audits, args.out))
        except RigError as error:
            left.append(f"{folder.name}: {error.message}")
    if not entries and not left:
        what = f"{args.folder} holds no submission"
        raise refused("folder", str(args.folder), "Name the folder that holds the folders of `rig submit`", what)
    write_whole(args.out, page([*entries, *_published()], left).encode())
    lines = [f"rows    {len(entries)}", *(f"left    {text}" for text in left), f"page    {args.out}"]
    return answer({"page": str(args.out), "rows": len(entries), "left_out": left}, *lines, as_json=args.json)


def page(entries: Sequence[Entry], left: Sequence[str] = ()) -> str:
    """Return the page: a table for each class with rows, and what was left out. The page makes no request."""
    script = files("reports").joinpath("templates", "sort.js").read_text(encoding="utf-8")
    tables = [_table(of, [entry for entry in entries if entry.of == of]) for of in CLASSES]
    return templates().get_template("leaderboard.html.j2").render(
        tables=[table for table in tables if table["rows"]], left=[clean(text) for text in left],
        script=Markup(script), digest=hash_of(script), simulated=False,
    )  # fmt: skip


def _table(of: str, entries: Sequence[Entry]) -> dict[str, Any]:
    keys = [key for key in COLUMNS if any(str(key) in entry.figures for entry in entries)]
    said = (*HEAD, *(("Source", "Doubts") if of == "published" else ()))
    kept = [k for k in range(len(said)) if any(entry.words[k] for entry in entries)]
    head = (*(said[k] for k in kept), *(title(key) for key in keys))
    rows = [
        {
            "link": entry.link,
            "words": [clean(entry.words[k])[:LETTERS] for k in kept],
            "figures": [_cell(key, entry.figures.get(str(key))) for key in keys],
        }
        for entry in entries
    ]
    return {"of": of, "caption": CLASSES[of], "head": head, "rows": rows}


def _cell(key: FigureKey, claim: Claim | None) -> tuple[str, str]:
    """Return a figure as text, and the number to sort by. The unit of a throughput does not depend on its size."""
    if claim is None:
        return "", ""
    limits = None if claim.low is None or claim.high is None else (claim.low, claim.high)
    parts = () if limits is None else (Component("", max(claim.value - limits[0], limits[1] - claim.value)),)
    unit = PER_SECOND.get(key.quantity, claim.unit)
    return short_text(key, Quantity(claim.value, unit, parts, limits=limits)), repr(claim.value)


# ---- rows ---------------------------------------------------------------------------------


def _entries(opened: Opened, audits: Mapping[str | None, _Audit], out: Path) -> Iterator[Entry]:
    about, audit = opened.document.about, audits.get(opened.root)
    # any other page may run scripts of strangers where the leaderboard is published
    link = _link(opened.path, out) if audit is not None and audit.remade == EQUAL else ""
    for row in opened.document.configurations:
        words = (
            row.name, about.organization, about.date, about.availability, row.scenario, row.workload, row.rules,
            _rails(row), _status(opened, row, audits), _tier(row),
        )  # fmt: skip
        yield Entry(row.class_, words, link, row.claims)


def _link(folder: Path, out: Path) -> str:
    """Return a link from the leaderboard to a submission's page; empty if it is not below the leaderboard's folder."""
    from urllib.parse import quote

    page, base = (folder / "report.html").resolve(), out.resolve().parent
    return "./" + quote(page.relative_to(base).as_posix()) if page.is_relative_to(base) else ""


def _status(opened: Opened, row: Configuration, audits: Mapping[str | None, _Audit]) -> str:
    """Return a row's status in words, such as "under audit". An audit matches by its root hash."""
    audit = audits.get(opened.root)
    wrong = {"invalid": row.verdict == "INVALID", "incomplete": bool(missing(opened.document.about))}
    if any(wrong.values()):
        return ", ".join(word for word, applies in wrong.items() if applies)
    if audit is None:
        return "under audit"
    pages = "" if audit.quick or audit.remade == EQUAL else ", pages not compared"
    done = " without arithmetic and pages" if audit.quick else pages
    return f"audited{done}" + ("" if audit.anchored else ", not anchored")


def _rails(row: Configuration) -> str:
    """Return the rails whose powers are claimed: powers of different rails cannot be compared."""
    names = {key.removeprefix("rail.").rpartition(".")[0] for key in row.claims if key.startswith("rail.")}
    return ", ".join(sorted(names))


def _tier(row: Configuration) -> str:
    """Return the smallest gap of the benchmark that the mean gap does not exceed; empty for tasks without gaps.

    The interval of the gap is not used: the benchmark's gap is that of the solutions found (eq. 24).
    """
    claims = (row.claims.get(str(FigureKey("gap_{target}_mean", target=target))) for target in TARGETS)
    gap = next((claim.value for claim in claims if claim is not None), None)
    return "" if gap is None else next((f"gap ≤ {tier:.0%}" for tier in TIERS if gap <= tier), f"gap > {TIERS[-1]:.0%}")


def published() -> list[Published]:
    """Return the figures that others published, unchecked."""
    return msgspec.json.decode(files("reports").joinpath("published.json").read_bytes(), type=list[Published])


def _published() -> Iterator[Entry]:
    for p in published():
        words = (p.name, p.organization, "", "", p.scenario, p.workload, "", "", "published", "", p.source, p.doubts)
        figures = {key: Claim(value=value, unit=unit, trials=[], runs=0) for key, (value, unit) in p.figures.items()}
        yield Entry("published", words, "", figures)


def _audits(path: Path) -> list[_Audit]:
    try:
        return msgspec.json.decode(read_bounded(path), type=_Audits).audits
    except (OSError, ValueError, RecursionError) as error:
        what, remedy = f"the audit {path} cannot be read: {error}", "Write it again: rig audit FOLDER --out DIR"
        raise DataError(what, field="audit", value=str(path), remedy=remedy) from error
