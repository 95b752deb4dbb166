"""The output of ``rig reduce``: figures by window as a JSON document, a table and a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.streaming.sums import Sums
from rig.errors import DataError
from rig.recording.atomic_write import not_stored, replacing
from rig.types import Bools, Floats

SCHEMA = "neurorig-reduce/1"
IDLE, NOT_SUMMED = "idle", ("idle", "warmup", "mark")
"""Names of windows that enter no sum."""
NO_BUDGET = (
    "These are plain sums of readings: no uncertainty budget (noise, calibration, resolution, clocks) stands behind "
    "them, unlike the figures of `rig report`"
)
SHOWN = 20
COLUMNS = ("start", "end", "phase", "energy_j", "mean_w", "readings", "missing", "above_idle_j")


@dataclass(frozen=True)
class Reduced:
    """Figures by window, shapes (k,): joules and watts (NaN if too much is missing), and joules above idle."""

    names: Sequence[str]
    windows_s: Floats
    sums: Sums
    energy_j: Floats
    mean_w: Floats
    above_idle_j: Floats
    idle_w: float
    holed: Bools
    """Windows in which readings are missing."""

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield one row for each window, with values in the order of ``COLUMNS``."""
        by_window = (self.energy_j, self.mean_w, self.sums.readings, self.sums.missing, self.above_idle_j)
        for k, name in enumerate(self.names):
            energy, mean, readings, missing, above = (column[k].item() for column in by_window)
            start, end = self.windows_s[k].tolist()
            yield start, end, name, *(_or_none(x) for x in (energy, mean)), readings, missing, _or_none(above)


def reduced(names: Sequence[str], windows_s: Floats, sums: Sums, duty: float, fill: bool) -> Reduced:
    """Return figures of sums.

    ``duty`` is the share of time that the meter measures. With ``fill``, missing readings count as the mean of the
    window's other readings. Otherwise the energy of a window with missing readings is unknown. The mean of idle is the
    energy of all windows named ``idle`` over the time of their readings.
    """
    length = windows_s[:, 1] - windows_s[:, 0]
    per_reading = sums.covered_s / np.maximum(sums.readings - sums.missing, 1)
    due = length * duty
    lost = (sums.covered_s < 0.999 * due) & (due - sums.covered_s > 1.01 * per_reading)
    holed = (sums.missing > 0) | lost
    mean = np.divide(sums.energy_j, sums.covered_s, out=np.full(len(length), np.nan), where=sums.covered_s > 0)
    whole = np.abs(sums.covered_s - length) <= 1e-9 * length
    energy = np.where(whole, sums.energy_j, mean * length)
    if not fill:
        energy, mean = (np.where(holed, np.nan, x) for x in (energy, mean))
    idle = np.array([name == IDLE for name in names], bool) & ~(holed & (not fill)) & (sums.covered_s > 0)
    idle_w = float(sums.energy_j[idle].sum() / sums.covered_s[idle].sum()) if np.any(idle) else float("nan")
    return Reduced(names, windows_s, sums, energy, mean, energy - idle_w * length, idle_w, holed)


def refusal(found: Reduced, fill: bool) -> DataError | None:
    """Return the error for windows in which readings are missing, unless ``fill`` allows them."""
    if fill or not np.any(found.holed):
        return None
    first = int(np.argmax(found.holed))
    return DataError(
        f"{int(found.holed.sum())} of {len(found.names)} windows lack readings, the first of them window {first + 1} "
        f"({int(found.sums.missing.sum())} readings are not numbers); their energy is not stated",
        field="trace",
        value=first + 1,
        remedy="Choose other windows, or --missing mean to take the mean of a window's other readings for them",
    )


def document(
    found: Reduced, about: Mapping[str, Any], notes: Sequence[str], refused: DataError | None, rows: bool = True
) -> dict[str, Any]:
    """Return the whole result as JSON.

    With ``rows`` it includes each window, which takes about a kilobyte per window.
    """
    names = np.array(found.names)
    by_name = {name: _total(found, names == name) for name in dict.fromkeys(found.names)}
    counted = ~np.isin(names, NOT_SUMMED)
    said = [*notes, *_overlaps(found, counted), NO_BUDGET]
    if np.isfinite(found.idle_w):
        said.insert(0, "Idle is the plain mean of the windows named idle; a drift between them is not followed")
    return {
        "schema": SCHEMA,
        **about,
        "idle_w": _or_none(found.idle_w),
        "windows": [dict(zip(COLUMNS, row, strict=True)) for row in found.rows()] if rows else [],
        "by_name": by_name,
        "sum": _total(found, counted) if np.any(counted) else None,
        "notes": said,
        "refused": None if refused is None else refused.to_json(),
    }


def _total(found: Reduced, which: Bools) -> dict[str, Any]:
    length = float((found.windows_s[which, 1] - found.windows_s[which, 0]).sum())
    energy = float(found.energy_j[which].sum())
    return {
        "windows": int(np.count_nonzero(which)),
        "seconds": length,
        "energy_j": _or_none(energy),
        "mean_w": _or_none(energy / length) if length > 0 else None,
        "readings": int(found.sums.readings[which].sum()),
        "missing": int(found.sums.missing[which].sum()),
        "above_idle_j": _or_none(float(found.above_idle_j[which].sum())),
    }


def _overlaps(found: Reduced, which: Bools) -> list[str]:
    windows = found.windows_s[which]
    windows = windows[np.argsort(windows[:, 0], kind="stable")]
    over = windows[1:, 0] < np.maximum.accumulate(windows[:, 1])[:-1] - 1e-9
    return ["Windows overlap: the sum counts the energy in their overlap more than once"] if np.any(over) else []


def table(found: Reduced, whole: Mapping[str, Any]) -> str:
    """Return the first windows, sums by name, and notes."""
    lines = [f"{'phase':<16}{'start s':>14}{'end s':>14}{'energy J':>14}{'mean W':>12}{'readings':>12}{'missing':>9}"]
    lines[0] += f"{'above idle J':>14}"
    for k, (start, end, name, *rest) in enumerate(found.rows()):
        if k == SHOWN:
            lines.append(f"... and {len(found.names) - SHOWN} more; --out FILE.csv holds all")
            break
        lines.append(f"{name[:15]:<16}{start:>14.9g}{end:>14.9g}{_figures(rest)}")
    totals = {**whole["by_name"]} | ({"sum": whole["sum"]} if whole["sum"] else {})
    lines.append("")
    for name, t in totals.items():
        cells = [t[c] for c in COLUMNS[3:]]
        lines.append(f"{name[:15]:<16}{t['windows']:>8} windows{t['seconds']:>10.6g} s{_figures(cells)}")
    if whole["idle_w"] is not None:
        lines.append(f"idle            {whole['idle_w']:.6g} W")
    return "\n".join([*lines, *(f"note    {note}" for note in whole["notes"])]) + "\n"


def _figures(cells: Sequence[Any]) -> str:
    energy, mean, readings, missing, above = ("-" if x is None else x for x in cells)
    texts = [f"{x:.6g}" if isinstance(x, float) else x for x in (energy, mean, above)]
    return f"{texts[0]:>14}{texts[1]:>12}{readings:>12}{missing:>9}{texts[2]:>14}"


def write_csv(path: Path, found: Reduced) -> None:
    """Write all windows to a file, which is replaced as a whole.

    Raises ``StoreError``.
    """
    with replacing(path, refuse=not_stored) as file:
        text = TextIOWrapper(file, newline="", encoding="utf-8")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(found.rows())
        text.detach()


def _or_none(x: float) -> float | None:
    return x if np.isfinite(x) else None
