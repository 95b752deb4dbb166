"""Remedies are possible: every option in one is an option of the importer or of the command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import drivers.importers
import rig.importing
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import parser
from rig.factories import values_of
from rig.importing.write import run_import
from rig.plugins import load
from rig.recording.reader import open_run

FOLDERS = [Path(str(package.__file__)).parent for package in (drivers.importers, rig.importing)]
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
OPTIONS = {e.name: set(values_of(load("importers", e.name), {})) for e in entry_points(group="rig.importers")}


def texts(path: Path) -> Iterator[str]:
    """Return every text in a file, including docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.=-])([a-z][a-z0-9_]*)=(?=[A-Za-z0-9.,;#])", text))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_remedies_name_options_that_exist(path: Path) -> None:
    own = [names for name, names in OPTIONS.items() if name.replace("-", "_") in (path.stem, path.parent.name)]
    known = own[0] if own else set().union(*OPTIONS.values())
    found = set().union(*(named(text) for text in texts(path)))
    assert found - {"key"} <= known


@pytest.mark.parametrize("asked", [[], ["idle=0:0.001"]])
def test_a_report_of_an_import_names_no_option_of_a_measurement(asked: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{k * 0.01},{2.0 if 100 <= k < 200 else 1.0}\n" for k in range(300))
    (tmp_path / "trace.csv").write_text(f"t,p\n{rows}")
    (tmp_path / "windows.csv").write_text("start,end\n1.0,2.0\n")
    options = [f"windows={tmp_path / 'windows.csv'}", "time=t:s", "power=p:W", "stamp=start", *asked]
    (folder,) = run_import("plain-csv", tmp_path / "trace.csv", tmp_path / "run", options)
    (refusal,) = evaluate(open_run(folder)).refusals
    assert "--option idle=START:END" in refusal.remedy
    assert "idle_s" not in refusal.remedy


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_remedies_name_arguments_of_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser("import").parse_args(["import", "--help"])
    help_text = capsys.readouterr().out
    found = set().union(*(set(re.findall(r"--[a-z][a-z-]+", text)) for text in texts(path)))
    assert {name for name in found if name not in help_text} <= {"--max-detail"}, "an option of SoC Watch itself"
