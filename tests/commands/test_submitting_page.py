"""The page on submitting: its commands run in order, and have the results that it describes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rig.commands.shell.main import main
from rig.recording.submission import open_submission
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "submit.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_its_commands_run_in_their_order(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for program, *words in COMMANDS:
        if program == "rig":
            assert main(words) == 0, words
        else:
            subprocess.run([program, *words], check=True)
    printed = capsys.readouterr().out

    assert len(COMMANDS) == 10
    assert re.search(r"kept\s+within", printed)
    files = {path.relative_to("submission").parts[0] for path in Path("submission").iterdir()}
    assert files <= set(re.findall(r"^  ([\w.-]+)|(?<=html )report\.md", PAGE, re.MULTILINE)) | {"report.md"}
    assert len(open_submission(Path("submission")).document.configurations[0].sessions) == 2
    assert Path("signed/MANIFEST.sha256.sig").is_file()
    assert Path("leaderboard.html").read_text().count("mock, asc, single-stream") == 3
