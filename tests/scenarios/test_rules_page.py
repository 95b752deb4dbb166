"""The page of NeuroBench's rules quotes the texts, and names checks of the code.

The page on coverage agrees with the code, and has a row for each part of the sources."""

import csv
import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rig.analysis.result.figure_catalogue import CATALOGUE
from rig.types import Benchmark
from scenarios.rules import SETS, rules
from scenarios.workloads.asc.workload import open_workload as open_asc
from scenarios.workloads.qubo_mis.workload import open_workload as open_qubo
from tests.scenarios.test_neurobench import CHANGES, QUOTE, texts
from tests.support.paths import DOCS, ROOT, SHARED

NO_TEXTS = pytest.mark.skipif(not (SHARED / "seeds").is_dir(), reason="the texts of the benchmark are not at hand")


class Row(NamedTuple):
    """One sentence of a source, what the rig does, and where this is checked."""

    number: str
    quotes: tuple[str, ...]
    done: str
    where: str


def rows() -> list[Row]:
    with (DOCS / "reference" / "rules.csv").open(encoding="utf-8", newline="") as file:
        return [
            Row(row["number"], tuple(re.findall(r'"([^"]+)"', row["text"])), row["rig"], row["checked"])
            for row in csv.DictReader(file)
        ]


def test_every_row_has_a_quotation_and_a_check() -> None:
    found = rows()
    assert len(found) > 100
    assert {number[0] for number, *_ in found} == set("NPR")
    for letter in "NPR":
        own = [int(row.number[1:]) for row in found if row.number[0] == letter]
        assert own == sorted(set(own))
    assert [row.number for row in found if not row.quotes or not row.done.strip()] == []
    assert [row.number for row in found if not re.match(r"`|None: \S.{10}", row.where)] == []


@NO_TEXTS
def test_every_quotation_is_in_its_text() -> None:
    held = texts()
    assert [(r.number, q) for r in rows() if r.number[0] in held for q in r.quotes if q not in held[r.number[0]]] == []


def checks() -> set[str]:
    """Return the names of checks: rules that one change to a session breaks, rules of benchmarks, figures to report."""
    broken = {rule for *_, failing in CHANGES.values() for rule in failing}
    broken |= {f"benchmark: {name}" for benchmark in benchmarks() for name in benchmark.parameters}
    broken |= {f"benchmark: option {name}" for benchmark in benchmarks() for name in benchmark.options}
    words = {"target": "target's", "threshold": "threshold", "percentile": "percentile"}
    return broken | {f"{entry.title.format(**words)} reported" for entry in CATALOGUE.values()}


def test_every_check_and_file_that_the_page_names_exists() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "rig" / "analysis").rglob("*.py"))
    named = {name for row in rows() for name in re.findall(r"`([^`]+)`", row.where)}
    files = {name for name in named if "/" in name}
    assert len(named) > 60
    assert [name for name in files if not (ROOT / name).is_file()] == []
    known = checks()
    assert [n for n in named - files if f'"{n}' not in code and not any(n in rule for rule in known)] == []


def benchmarks() -> list[Benchmark]:
    return [w.benchmark for w in (open_asc(), open_qubo(nodes=10), open_qubo(nodes=50)) if w.benchmark is not None]


def sources() -> Iterator[str]:
    """Yield the sources of every rule of neurobench-1.0, and of every parameter that a benchmark declares."""
    for scenario in SETS["neurobench-1.0"][2]:
        yield from rules("neurobench-1.0", scenario).sources.values()
    for benchmark in benchmarks():
        yield benchmark.scenarios.source
        yield from (p.source for p in (*benchmark.parameters.values(), *benchmark.options.values()))


def places(text: str, quotes: set[str]) -> list[tuple[int, int]]:
    return [(text.index(quote), text.index(quote) + len(quote)) for quote in quotes]


@NO_TEXTS
def test_every_quoted_rule_has_its_row() -> None:
    for name, text in texts().items():
        parts = {part for source in sources() for part in source.split("; ") if part[:2] in (f"{name},", f"{name}:")}
        asked = {quote for part in parts for quote in QUOTE.findall(part)}
        shown = places(text, {quote for row in rows() if row.number[0] == name for quote in row.quotes})
        assert len(asked) > 5
        missing = [q for q in asked for a, b in places(text, {q}) if not any(a < end and on < b for on, end in shown)]
        assert missing == []


# ---- the page on coverage ----------------------------------------------------------------------

PAGE = (DOCS / "reference" / "benchmark-coverage.md").read_text(encoding="utf-8")
COVERED = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| of the sources"))
]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
KNOWN = {name for group in POINTS.values() for name in group} | set(CATALOGUE)


def test_every_name_on_the_page_exists() -> None:
    names = [name for row in COVERED for name in re.findall(r"`([^`]+)`", row[3])]
    assert len(names) > 60
    assert not [name for name in names if name not in KNOWN and not (ROOT / name).is_file()]


def test_every_row_states_its_status_and_evidence() -> None:
    assert {len(row) for row in COVERED} == {4}
    assert not [row for row in COVERED if not row[1].startswith(("built", "not built")) or not row[2]]
    assert not [row for row in COVERED if row[1].startswith("built") and "`" not in row[3]]


def test_each_workload_is_named() -> None:
    assert not [name for name in POINTS["rig.workloads"] if f"`{name}`" not in PAGE]
