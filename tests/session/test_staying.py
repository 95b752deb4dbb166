"""A driver that changes the working directory does not move a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.session.measure import measure
from rig.session.setup import Request

DRIVER = """
import os
from fixtures.bench.mock_device import open_device as mock

class Wanders:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        if name == {at!r}:
            os.makedirs("elsewhere", exist_ok=True)
            os.chdir("elsewhere")
        return getattr(self.inner, name)

def open_device(bench):
    return Wanders(mock(bench))
"""


@pytest.mark.parametrize("at", ["info", "stage", "submit", "close"])
def test_paths_are_those_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wanders.py").write_text(DRIVER.format(at=at))
    options = ("workload.samples=2", "idle_s=0.1")
    request = Request("wanders.py:open_device", ("mock",), options=options, out=Path("run"), simulate=True)
    measure(request, quiet=True)
    assert Path.cwd() == tmp_path
    assert (tmp_path / "run" / "power" / "events.jsonl").is_file()
    assert not [*tmp_path.rglob("elsewhere/run")]
