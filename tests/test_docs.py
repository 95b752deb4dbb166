"""A program checks what it can of the pages: files, commands, codes, targets and links."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.import_cases import cases
from rig import errors
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main, parser
from rig.plugins import names
from rig.recording.reader import open_run
from rig.recording.submission import open_submission
from tests.support import terminal_picture
from tests.support.paths import DOCS, EXAMPLES, ROOT

README = ROOT / "README.md"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


FOLDERS = "rig|drivers|scenarios|reports|fixtures|benchmarks|examples|docs|tests"
TOPS = ("rig", "drivers", "scenarios", "reports", "fixtures", "examples")
CODE = [file for top in TOPS for kind in ("*.py", "*.ipynb") for file in (ROOT / top).rglob(kind)]


@pytest.mark.parametrize(
    ("files", "pattern", "place", "least"),
    [
        (PAGES, r"\{literalinclude\} (\S+)", None, 6),
        (PAGES, r"\]\(([^)#:]+)(?:#[^)]*)?\)", None, 40),
        ([p for p in PAGES if p.name != "CHANGELOG.md"], rf"`((?:{FOLDERS})/[\w/.-]*[\w/])`", ROOT, 40),
        (CODE, r"docs/[\w/-]+\.md", ROOT, 5),
    ],
    ids=["includes", "links between pages", "files that pages name", "pages that code names"],
)  # fmt: skip
def test_what_is_named_exists(files: list[Path], pattern: str, place: Path | None, least: int) -> None:
    named = {(f, name) for f in files for name in re.findall(pattern, f.read_text(encoding="utf-8"))}
    assert len(named) >= least
    assert sorted(f"{f.name}: {name}" for f, name in named if not ((place or f.parent) / name).exists()) == []


def test_commands_of_the_readme_and_the_examples_parse() -> None:
    texts = [file.read_text(encoding="utf-8").replace("\\\n", " ") for file in (README, *EXAMPLES.glob("my_*.py"))]
    lines = re.findall(r"(?:^ *|`)(rig measure --[^`\n]+)", "\n".join(texts), flags=re.MULTILINE)

    assert len(lines) >= 10
    for line in lines:
        asked = parser("measure").parse_args(line.split()[1:])
        files = [name.partition(":")[0] for name in (asked.device, asked.scenario or "", asked.workload or "")]
        assert all((ROOT / name).is_file() for name in files if name.endswith(".py"))


def test_no_two_errors_have_an_exit_code_of_their_own_in_common() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.Ended)]
    codes = [kind.exit_code for kind in kinds if "exit_code" in vars(kind) and kind is not errors.Ended]

    assert len(codes) > 15
    assert len(codes) == len(set(codes))
    assert set(codes).isdisjoint({0, 1, 2, errors.Ended.exit_code})


def test_the_picture_of_the_terminal_is_what_its_commands_print() -> None:
    """This measures on the simulated bench, which takes seconds."""
    known = terminal_picture.PICTURE.read_text(encoding="utf-8")

    now = terminal_picture.picture()
    assert terminal_picture.told(known) == terminal_picture.told(now), "python -m tests.support.terminal_picture"


# ---- the commands of the pages on importing and on submitting run, and have the results that these describe

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
