"""Recordings of earlier versions are read, and their figures have not changed.

Figures of a real H200 agree with what its own counter says, by arithmetic that shares no code."""

import csv
import gzip
import json
import math
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rig.analysis.result.quantity import coverage_factor
from rig.analysis.sessions.summary import summarise
from rig.commands.shell.main import main
from rig.errors import RigError
from rig.recording.reader import Run, open_run
from rig.recording.session_json import is_session, open_session
from rig.session.report import parts_of
from rig.submission.make_again import OF_HALF_WIDTH, margin

HERE = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz"))
TIGHT = 1e-6
"""How far a number that belongs to no figure may move, relative to itself."""
WORDING = {"method", "notes", "reason", "remedy", "message", "found", "allowed", "text", "source"}
"""Sentences may be reworded. Everything else stays."""
SENTENCES = {"notes", "error", "message", "remedy"}
"""Columns of a sweep's table that hold sentences."""
HALF = ".half_width_95"


def unpacked(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the recording, and what was computed from it when it was made."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name, json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))


def computed(path: Path) -> dict[str, Any]:
    """Return the results of each run; those of a session are under ``.``."""
    session = open_session(path) if is_session(path) else None
    parts = tuple(parts_of(path, session))
    whole = parts[0].result if session is None else summarise(path.name, parts, session.probes)
    return {part.name: part.result.to_json() for part in parts} | ({} if whole is None else {".": whole.to_json()})


def differences(was: Any, now: Any, at: str = "", within: float = 0.0) -> list[str]:
    """Return where two documents differ beyond wording, and beyond a hundredth of a figure's half-width."""
    if isinstance(was, dict) and isinstance(now, dict):
        if (was.keys() ^ now.keys()) - {"remedy"}:  # older results have no remedy for a failed rule
            return [f"{at}: {sorted(set(was) ^ set(now))}"]
        if "interval_95" in was:
            within = margin(was["value"], *(was["interval_95"] or (None, None)))
        return [d for key in was if key not in WORDING for d in differences(was[key], now[key], f"{at}/{key}", within)]
    if at.endswith("/components"):  # their order has no meaning, nor have those far too small to move a figure
        large = [[c for c in parts if abs(c["u"]) > 1e-3 * within] for parts in (was, now)]
        if len(large[0]) == len(large[1]):
            was, now = (sorted(parts, key=lambda c: (c["source"], c["shared"] or "")) for parts in large)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [d for k, pair in enumerate(zip(was, now, strict=True)) for d in differences(*pair, f"{at}/{k}", within)]
    if at.endswith("/dof"):  # degrees of freedom are compared by the width that they give an interval
        was, now = (coverage_factor(math.inf if dof is None else dof) for dof in (was, now))
        within = OF_HALF_WIDTH * was
    if isinstance(was, float) and isinstance(now, (int, float)):
        return [] if math.isclose(was, now, rel_tol=TIGHT, abs_tol=within) else [f"{at}: {was!r} is now {now!r}"]
    return [] if was == now else [f"{at}: {was!r} is now {now!r}"]


def table(text: str) -> list[dict[str, Any]]:
    """Return the rows of a sweep's table without sentences; a figure has its interval, as in a result."""
    rows = []
    for row in csv.DictReader(text.splitlines()):
        cells = {k: number(v) for k, v in row.items() if k not in SENTENCES}
        for key in [k for k in cells if cells[k] != "" and cells.get(k + HALF, "") != ""]:
            half = cells.pop(key + HALF)
            cells[key] = {"value": cells[key], "interval_95": [cells[key] - half, cells[key] + half]}
        rows.append(cells)
    return rows


def number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_unchanged(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, expected = unpacked(name, tmp_path)

    if expected["kind"] == "sweep":
        code = main(["sweep", str(path), "--table", "--all-columns", "--json", "--jobs", "0"])
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


FIGURE = {
    "value": 2.0, "interval_95": [1.9, 2.1], "standard_uncertainty": 0.05, "dof": 5.0, "n": 30,
    "components": [{"source": "white noise", "u": 1e-26, "dof": None}],
}  # fmt: skip


MOVED: dict[str, Callable[[float], dict[str, Any]]] = {
    "value": lambda by: {"value": 2.0 + by},
    "end": lambda by: {"interval_95": [1.9, 2.1 + by]},
    "part": lambda by: {"components": [{"source": "white noise", "u": by, "dof": None}]},
}


@pytest.mark.parametrize("part", MOVED)
@pytest.mark.parametrize(("share", "same"), [(0.0, True), (1e-12, True), (0.005, True), (0.02, False), (-0.02, False)])
def test_small_changes_of_a_figure_are_tolerated(part: str, share: float, same: bool) -> None:
    assert (not differences(FIGURE, FIGURE | MOVED[part](0.1 * share))) is same


@pytest.mark.parametrize(("value", "same"), [(2.0 + 1e-9, True), (2.0 + 1e-5, False)])
def test_figures_without_an_interval_change_by_millionths(value: float, same: bool) -> None:
    bare = FIGURE | {"interval_95": None}
    assert (not differences(bare, bare | {"value": value})) is same


@pytest.mark.parametrize(
    "now", [FIGURE | {"n": 31}, FIGURE | {"dof": 4.0}, FIGURE | {"dof": None}, dict(list(FIGURE.items())[1:])]
)
def test_a_changed_count_or_key_is_a_difference(now: dict[str, Any]) -> None:
    assert differences(FIGURE, now)


# ---- recordings of a real H200 -----------------------------------------------------------------


def spans_s(run: Run) -> NDArray[np.float64]:
    """Return begins and ends of spans without the warm-up, shape (n, 2), in seconds."""
    return np.asarray(1e-9 * run.replies.to_pandas().query("not warmup")[["on_tick", "off_tick"]].to_numpy())


def test_energy_matches_the_counter_less_idle(tmp_path: Path) -> None:
    path, _ = unpacked("h200-counter", tmp_path)
    run, figures = open_run(path / "power"), computed(path)["power"]["quantities"]
    trace, spans = run.traces["gpu0"], spans_s(run)
    at_s, joules = 1e-9 * np.asarray(trace.end_tick), np.asarray(trace.value)
    first, last = np.searchsorted(at_s, spans[0, 0]) - 1, np.searchsorted(at_s, spans[-1, 1] + 0.15)
    before = (joules[first] - joules[0]) / (at_s[first] - at_s[0])
    rest_s = at_s[last] - at_s[first] - np.sum(spans[:, 1] - spans[:, 0])
    spent_j = (joules[last] - joules[first] - before * rest_s) / 20_000

    low, high = figures["energy_per_inference_integrated_j"]["interval_95"]
    assert figures["energy_per_inference_integrated_j"]["value"] == pytest.approx(spent_j, rel=0.005)
    assert low < spent_j < high
    assert figures["idle_power_w"]["value"] == pytest.approx(before, rel=0.02)


def test_energy_covers_another_operating_point(tmp_path: Path) -> None:
    path, _ = unpacked("h200-sensor", tmp_path)
    figures = computed(path)
    drawn_j = figures["power"]["quantities"]["energy_per_inference_integrated_j"]["value"]
    own_s, said_s = (figures[run]["quantities"]["execution_time_s"]["value"] for run in ("power", "performance"))
    low, high = figures["."]["quantities"]["energy_per_inference_j"]["interval_95"]

    assert own_s > 1.2 * said_s  # the host was slower
    assert low < drawn_j < high
