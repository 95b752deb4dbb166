"""A program checks what it can of the pages: files, commands, codes, targets and links."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from rig import errors
from rig.commands.shell.main import parser
from tests.support import terminal_picture
from tests.support.paths import DOCS, EXAMPLES, ROOT

README = ROOT / "README.md"
GUIDES = DOCS / "how-to"
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
        names = [name.partition(":")[0] for name in (asked.device, asked.scenario or "", asked.workload or "")]
        assert all((ROOT / name).is_file() for name in names if name.endswith(".py"))


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
