"""`rig check` runs the rules of drivers over a whole bench, and states what was found and what is required."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.commands.shell.main import main
from rig.errors import ConformanceError, SetupError
from rig.session.locks import device_lock

Capture = pytest.CaptureFixture[str]


def test_a_bench_that_keeps_every_rule_is_told_part_by_part(capsys: Capture) -> None:
    code = main(("check", "--device", "mock", "--json"))

    rows = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["checked"] for row in rows] == ["workload asc", "meter mock", "scenario single-stream", "device mock"]
    assert all(row["kept"] and not row["failed"] for row in rows)


def test_a_driver_that_breaks_a_rule_is_named_with_what_was_found_and_asked(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "board.py"
    file.write_text("import rig\n\ndef open_board():\n    return rig.blocking(lambda sample: float('nan'))\n")

    code = main(("check", "--device", f"{file}:open_board", "--meter", "none"))
    said = capsys.readouterr().out

    assert code == ConformanceError.exit_code
    assert "✓ workload asc keeps" in said
    assert "✓ scenario single-stream keeps 1 rule\n" in said
    assert "reply.json: found an output that raises" in said
    assert "required is an output that JSON can hold, no NaN" in said


def test_a_device_that_another_process_measures_is_left_alone(capsys: Capture, tmp_path: Path) -> None:
    device = f"{tmp_path / 'board.py'}:open_board"
    (tmp_path / "board.py").write_text("import rig\n\ndef open_board():\n    return rig.blocking(lambda sample: 0)\n")
    with device_lock(device):
        assert main(("check", "--device", device, "--meter", "none")) == SetupError.exit_code
    assert "in use by process" in capsys.readouterr().err
