"""The commands of the pages on importing and on submitting run, and have the results that these describe."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.import_cases import cases
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.plugins import names
from rig.recording.reader import open_run
from rig.recording.submission import open_submission
from tests.support.paths import DOCS

IMPORTING = (DOCS / "how-to" / "importing.md").read_text(encoding="utf-8")
TEXT = IMPORTING.replace("\\\n", " ")
LINES = re.findall(r"^    (rig import --format [a-z].*)$", TEXT, re.M)
COMMANDS = {words[3]: words[1:] for words in map(shlex.split, LINES)}


def test_every_importer_is_in_the_table_and_has_its_command() -> None:
    assert set(COMMANDS) == set(names("importers")) == set(re.findall(r"^\| `([a-z0-9-]+)` \|", IMPORTING, re.M))


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


# ---- submitting

SUBMITTING = (DOCS / "how-to" / "submit.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", SUBMITTING, re.DOTALL)
STEPS = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_its_commands_run_in_their_order(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for program, *words in STEPS:
        if program == "rig":
            assert main(words) == 0, words
        else:
            subprocess.run([program, *words], check=True)
    printed = capsys.readouterr().out

    assert len(STEPS) == 10
    assert re.search(r"kept\s+within", printed)
    files = {path.relative_to("submission").parts[0] for path in Path("submission").iterdir()}
    assert files <= set(re.findall(r"^  ([\w.-]+)|(?<=html )report\.md", SUBMITTING, re.MULTILINE)) | {"report.md"}
    assert len(open_submission(Path("submission")).document.configurations[0].sessions) == 2
    assert Path("signed/MANIFEST.sha256.sig").is_file()
    assert Path("leaderboard.html").read_text().count("mock, asc, single-stream") == 3
