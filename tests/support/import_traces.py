"""A trace with known power, which the tests of importers write in their formats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.importers import plain_csv
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.importing.imported import ImportedRun
from rig.importing.write import write
from rig.recording.reader import Run, open_run

SUPPLY_V, IDLE_W, BUSY_W = 3.0, 1e-3, 4e-3
ON_S = (0.6, 0.9, 1.2, 1.5)
SPAN_S, END_S, RATE_HZ = 0.2, 2.4, 2000.0
IDLE = "0:0.55,1.75:2.35"


def trace(rate_hz: float = RATE_HZ, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return begin of each reading (s), watts, and whether the device is busy."""
    t = np.arange(round(END_S * rate_hz)) / rate_hz
    busy = np.any([(t > a - 1e-9) & (t < a + SPAN_S - 1e-9) for a in ON_S], axis=0)
    return t, np.where(busy, BUSY_W, IDLE_W) + np.random.default_rng(seed).normal(0.0, 1e-5, len(t)), busy


T_S, WATTS, BUSY = trace()
"""``trace()`` at the usual rate."""
for _column in (T_S, WATTS, BUSY):
    _column.setflags(write=False)


def table(path: Path, header: str, *columns: Any, end: str = "\n", separator: str = ",", decimal: str = ".") -> Path:
    lines = [separator.join(f"{x:.9g}".replace(".", decimal) for x in row) for row in zip(*columns, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(end.join([header, *lines]).encode())
    return path


def plain(
    folder: Path, *columns: Any, header: str = "t,p", text: str | None = None, zero_s: float = 0.0, **options: Any
) -> ImportedRun:
    """Import a file of columns (else ``trace``) below ``header``, or of ``text``; ``options`` replace the defaults."""
    path = folder / "a.csv"
    if text is None:
        table(path, header, *(columns or (T_S, WATTS)))
    else:
        path.write_text(text)
    given = {"time": "t:s", "power": "p:W", "stamp": "start", "windows": windows(folder, zero_s=zero_s)} | options
    return plain_csv.open_import(path, **{name: value for name, value in given.items() if value is not None})


def windows(folder: Path, unit: str = "", scale: float = 1.0, inferences: int = 5, zero_s: float = 0.0) -> str:
    rows = [(a, a + SPAN_S, "inference") for a in ON_S] + [(0.0, 0.55, "idle"), (1.75, 2.35, "idle")]
    lines = [f"start{unit},end{unit},phase,inferences"]
    lines += [f"{(a + zero_s) * scale!r},{(b + zero_s) * scale!r},{p},{inferences}" for a, b, p in sorted(rows)]
    (folder / "windows.csv").write_text("\n".join(lines))
    return str(folder / "windows.csv")


def recorded(run: ImportedRun, out: Path) -> tuple[Run, Result]:
    opened = open_run(write(run, out))
    return opened, evaluate(opened)


def check(run: ImportedRun, out: Path, inferences: int = 20) -> Result:
    """Check active power and energy to a thousandth of the truth, and idle power to two thousandths."""
    _, result = recorded(run, out)
    q = result.quantities
    assert not result.refusals
    assert q["active_power_w"].value == pytest.approx(BUSY_W, rel=1e-3)
    assert q["idle_power_w"].value == pytest.approx(IDLE_W, rel=2e-3)
    assert q["energy_per_inference_j"].value == pytest.approx(BUSY_W * SPAN_S / 5, rel=1e-3)
    assert q["energy_per_inference_j"].n == inferences
    assert any("uncertainty not stated" in note for note in result.notes)
    return result
