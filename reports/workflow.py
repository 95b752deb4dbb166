"""Make the boxes of a NeuroBench report's workflow from what was recorded or declared; empty boxes are left out."""

from collections.abc import Mapping
from typing import NamedTuple

from reports.format import short_text
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.terminal import clean

INITIALISATION, HOST, LOADING = "Data initialization", "Host pre-processing", "Data loading"
PREPROCESSING, INFERENCE, POSTPROCESSING = "On-device preprocessing", "Inference", "Post-processing"
BOXES = (INITIALISATION, HOST, LOADING, PREPROCESSING, INFERENCE, POSTPROCESSING)
_ON_HOST = (INITIALISATION, HOST)
_BEGINNINGS = {
    ("host",): HOST,
    ("pre", "enc", "feature", "front"): PREPROCESSING,
    ("post", "dec", "class"): POSTPROCESSING,
}


class Box(NamedTuple):
    """One box of the diagram: where it runs, if known, and what was recorded or declared about it."""

    title: str
    where: str
    timed: bool
    powered: bool
    lines: tuple[str, ...]


def workflow(result: Result) -> list[Box]:
    """Return the boxes with anything recorded or declared, in order.

    A device declares texts of boxes under ``workflow`` in its details.
    """
    said = result.start.device.details.get("workflow")
    told = {str(k).casefold(): clean(v) for k, v in said.items()} if isinstance(said, Mapping) else {}
    phases: dict[str, list[str]] = {}
    windows = {p: w for p, w in result.series.phase_windows_s.items() if len(w)}
    for phase in dict.fromkeys([*sorted(windows, key=lambda p: float(windows[p][0][0])), *result.start.device.phases]):
        phases.setdefault(box_of(phase), []).append(phase)
    if (name := clean(result.start.workload.name)) and result.start.imported is None:
        told.setdefault(INITIALISATION.casefold(), f"workload {name}")
    boxes = [_box(result, title, phases.get(title, []), told.get(title.casefold(), "")) for title in BOXES]
    return [box for box in boxes if box.lines]


def box_of(phase: str) -> str:
    """Return the box of a phase by the beginning of its name, as in ``_BEGINNINGS``; inference for any other name."""
    name = phase.casefold()
    return next((box for begin, box in _BEGINNINGS.items() if name.startswith(begin)), INFERENCE)


def _box(result: Result, title: str, phases: list[str], told: str) -> Box:
    recorded = [p for p in phases if len(result.series.phase_windows_s.get(p, ()))]
    powered = any(FigureKey("active_power_w", p) in result.quantities for p in recorded)
    where = "host" if title in _ON_HOST else "device" if phases else ""
    lines = [*([told] if told else []), *(line for phase in phases for line in _of_phase(result, phase))]
    return Box(title, where, bool(recorded), powered, tuple(lines))


def _of_phase(result: Result, phase: str) -> list[str]:
    """Return what was recorded of a phase: the number of its spans, their time and their power."""
    count = len(result.series.phase_windows_s.get(phase, ()))
    name, found = clean(phase).replace("_", " "), result.quantities
    if not count:
        return [f"{name}: declared, none recorded"]
    figures = (FigureKey("execution_time_s", phase), FigureKey("active_power_w", phase))
    return [f"{name}: {count} timed spans", *(short_text(key, found[key]) for key in figures if key in found)]
