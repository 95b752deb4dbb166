"""The live line is only for terminals."""

from __future__ import annotations

import pytest

from rig.session.live_line import LiveLine

Capture = pytest.CaptureFixture[str]


def test_without_a_terminal_nothing_is_shown(capsys: Capture) -> None:
    line = LiveLine()
    line.show("reading its clock")
    line.clear()
    assert not line.shown
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_progress_is_told_now_and_then(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    line, at = LiveLine(), [0.0]
    monkeypatch.setattr("rig.session.live_line.time.monotonic", lambda: at[0])
    for at[0] in (0.0, 1.0, 4.9, 5.1):
        line.pace(f"{at[0]} s")
    assert capsys.readouterr().err == "0.0 s\n5.1 s\n"
