"""What is shown while a run is recorded: how far it is, and watts; nothing that is not known."""

from __future__ import annotations

import io
import sys

import pytest

from reports import live as module
from reports.live import live


class Terminal(io.StringIO):
    """A standard error that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.0)


def test_within_the_set_it_says_how_many_of_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    with live(20) as show:
        show(3, {"core": 1.5e-3})
        show(20, {})
    assert capsys.readouterr().err == "3/20 samples  core 1.5 mW\n20/20 samples  \n"


def test_beyond_the_set_it_counts_without_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    with live(20) as show:
        show(21, {"core": 1.0})
    assert capsys.readouterr().err == "21 samples  core 1 W\n"


@pytest.mark.parametrize(("done", "said", "unsaid"), [(7, "7/20 samples", "8/20"), (45, "45 samples", "/20")])
def test_a_terminal_says_the_same(monkeypatch: pytest.MonkeyPatch, done: int, said: str, unsaid: str) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with live(20) as show:
        show(done, {"core": 1e-3})
    last = out.getvalue().rsplit("\r", 2)[-2]
    assert said in last
    assert "core 1 mW" in last
    assert unsaid not in last
    assert "%" not in last
