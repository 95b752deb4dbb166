"""Recordings of earlier versions are read, and their figures are what they were."""

from __future__ import annotations

import csv
import gzip
import json
import math
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.evaluate import evaluate
from rig.analysis.session_part import Part
from rig.analysis.summary import summarise
from rig.commands.main import main
from rig.errors import RigError
from rig.recording.reader import open_run
from rig.recording.session import is_session, open_session, runs_in

HERE = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz"))
RELATIVE = 1e-9
"""What another processor's or library's order of summation may change."""
WORDING = {"method", "notes", "reason", "remedy", "message", "found", "allowed", "text", "source"}
"""Sentences: they may be written better. Everything else stays."""
SENTENCES = {"notes", "error", "message", "remedy"}
"""The same, as columns of a sweep's table."""


def unpacked(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The recording, and what was computed from it when it was made."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name, json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))


def computed(path: Path) -> dict[str, Any]:
    """Results by run; those of a session stand under ``.``."""
    parts = []
    for folder, purpose in runs_in(path):
        run = open_run(folder)
        parts.append(Part(folder.name, purpose, run, evaluate(run)))
    if not is_session(path):
        return {".": parts[0].result.to_json()}
    whole = summarise(path.name, parts, open_session(path).probes)
    return {part.name: part.result.to_json() for part in parts} | ({} if whole is None else {".": whole.to_json()})


def differences(was: Any, now: Any, at: str = "") -> list[str]:
    """Where two documents differ beyond rounding and wording."""
    if isinstance(was, dict) and isinstance(now, dict):
        if was.keys() != now.keys():
            return [f"{at}: {sorted(set(was) ^ set(now))}"]
        return [d for key in was if key not in WORDING for d in differences(was[key], now[key], f"{at}/{key}")]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [d for k, pair in enumerate(zip(was, now, strict=True)) for d in differences(*pair, f"{at}/{k}")]
    if isinstance(was, float) and isinstance(now, (int, float)):
        return [] if math.isclose(was, now, rel_tol=RELATIVE, abs_tol=1e-300) else [f"{at}: {was!r} is now {now!r}"]
    return [] if was == now else [f"{at}: {was!r} is now {now!r}"]


def table(text: str) -> list[dict[str, Any]]:
    """The rows of a sweep's table, numbers as numbers; sentences left out."""
    return [{k: number(v) for k, v in row.items() if k not in SENTENCES} for row in csv.DictReader(text.splitlines())]


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_what_they_were(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, expected = unpacked(name, tmp_path)

    if expected["kind"] == "sweep":
        code = main(["sweep", str(path), "--table", "--fresh", "--all-columns", "--json"])
        assert code == expected["exit_code"]
        assert not differences(table(expected["said"]["table.csv"]), table((path / "table.csv").read_text()))
    elif expected["kind"] == "error":
        with pytest.raises(RigError) as caught:
            computed(path)
        assert caught.value.exit_code == expected["exit_code"]
        assert type(caught.value).__name__ == expected["said"]["."]["error"]
        assert caught.value.field == expected["said"]["."]["field"]
    else:
        found = json.loads(json.dumps(computed(path)))
        assert not differences(expected["said"], {name: found[name] for name in expected["said"]})
