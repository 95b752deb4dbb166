"""Notes beside dynamic power, where a reader could conclude more than the readings show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from fixtures.worlds.labs.lab_kinds import KINDS
from rig.analysis.evaluate import evaluate
from rig.analysis.power.findings import NO_STEP, ON_FIGURE
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run
from tests.support.run_by_hand import rewritten


def measured(folder: Path, seed: int = 0, kind: str = "") -> Path:
    """Return a recording of a plain device on a lab bench, or of one of a kind."""
    lab = plain_lab(seed, kind)
    if kind:
        KINDS[kind](lab)
    write(lab, folder / "run")
    return folder / "run"


def with_readings(path: Path, change: Any) -> Result:
    """Return the result for other readings at the same times."""

    def edit(events: list[dict[str, Any]], tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            if name.startswith("traces/"):
                value = pa.array(change(table["value"].to_numpy()), table["value"].type)
                tables[name] = table.set_column(table.schema.get_field_index("value"), "value", value)

    return evaluate(open_run(rewritten(path, path.parent / "changed", edit)))


def on_figure(result: Result) -> list[str]:
    return [note for note in result.notes if note.startswith(ON_FIGURE)]


def test_a_device_that_rests_between_its_spans_has_no_note(tmp_path: Path) -> None:
    assert on_figure(evaluate(open_run(measured(tmp_path)))) == []


def test_readings_that_show_no_step_at_the_spans_are_named(tmp_path: Path) -> None:
    """A meter on another rail, which shows only noise."""

    def flat(watts: Any) -> Any:
        return 1e-3 + np.random.default_rng(1).normal(0.0, 3e-5, len(watts))

    result = with_readings(measured(tmp_path), flat)
    (said,) = on_figure(result)
    assert NO_STEP in said and "Dynamic power above idle" in [
        f.rule for f in result.findings if f.effect == "check" and not f.ok
    ]


def test_dynamic_power_is_told_for_both_levels_of_idle_where_they_differ(tmp_path: Path) -> None:
    result = evaluate(open_run(measured(tmp_path, 1_000_000, "gated_deep")))
    above_idle_w = result.quantities[FigureKey("dynamic_power_w")].value
    (note,) = (note for note in on_figure(result) if "depends on what idle is" in note)
    told = [float(words.split()[-1]) for words in note.split(" W above")[:2]]
    assert told[0] == pytest.approx(above_idle_w, rel=1e-3)
    assert told[1] > told[0]
    assert note.endswith("or it was not at rest in the idle windows")


def test_power_below_zero_is_a_reversed_clamp(tmp_path: Path) -> None:
    notes = with_readings(measured(tmp_path), np.negative).notes
    assert any(note.startswith("sign of power and energy: rail.core.idle_power_w is -") for note in notes)
