"""The live line is only for terminals."""

from __future__ import annotations

import pytest

from rig.session.live_line import LiveLine


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine()
    line.show("reading its clock")
    line.clear()
    assert not line.shown
    assert capsys.readouterr() == ("", "")
