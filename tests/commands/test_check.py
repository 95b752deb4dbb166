"""`rig check` runs the rules of drivers over a whole bench, and says what was found and what is required."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.commands.main import main
from rig.errors import ConformanceError, SetupError


def test_a_bench_that_keeps_every_rule_is_told_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(("check", "--device", "mock", "--json"))

    rows = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["checked"] for row in rows] == ["workload asc", "meter mock", "device mock"]
    assert all(row["kept"] and not row["failed"] for row in rows)


def test_a_driver_that_breaks_a_rule_is_named_with_what_was_found_and_what_is_required(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "board.py"
    file.write_text("import rig\n\ndef open_board():\n    return rig.blocking(lambda sample: float('nan'))\n")

    code = main(("check", "--device", f"{file}:open_board", "--meter", "none"))
    said = capsys.readouterr().out

    assert code == ConformanceError.exit_code
    assert "✓ workload asc keeps" in said
    assert "reply.json: found an output that raises" in said
    assert "required is an output that JSON can hold, no NaN" in said


def test_a_function_that_returns_a_list_is_told_how_to_make_a_workload(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import rig\n\ndef open_workload():\n    return [rig.Sample('a', [1.0])]\n")

    code = main(("check", "--device", "mock", "--workload", f"{file}:open_workload"))

    assert code == SetupError.exit_code
    assert "is a list without name, task" in (said := capsys.readouterr().err)
    assert "Return rig.workload(samples, name=...)" in said
