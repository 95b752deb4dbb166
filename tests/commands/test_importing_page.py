"""The page on importing has every format, and each of its commands runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.import_cases import cases
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.plugins import names
from rig.recording.reader import open_run
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "importing.md").read_text(encoding="utf-8")
TEXT = PAGE.replace("\\\n", " ")
LINES = re.findall(r"^    (rig import --format [a-z].*)$", TEXT, re.M)
COMMANDS = {words[3]: words[1:] for words in map(shlex.split, LINES)}


def test_every_importer_is_in_the_table_and_has_its_command() -> None:
    assert set(COMMANDS) == set(names("importers")) == set(re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE, re.M))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_its_command_makes_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases().get(name)
    if case is None:
        pytest.skip("pyjls is not installed")
    monkeypatch.chdir(tmp_path)
    source = COMMANDS[name][3]
    for path, content in case.files.items():
        renamed = Path(re.sub(rf"^{re.escape(case.source)}\b", source, path))
        renamed = Path(source) / path if case.source == "." else renamed
        renamed.parent.mkdir(parents=True, exist_ok=True)
        renamed.write_bytes(content)
    assert main(COMMANDS[name]) == 0
    figures = evaluate(open_run(Path("runs") / name)).quantities
    assert "phase.inference.execution_time_s" in figures
    assert "active_power_w" in figures or name == "energyrunner"  # its small example ends without an idle tail
