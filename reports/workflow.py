"""The six boxes of the workflow that a NeuroBench report must show, from what was recorded or declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reports.names import parts_of
from rig.analysis.figure_key import FigureKey
from rig.analysis.result import Result
from rig.terminal import clean

INITIALISATION, HOST, LOADING = "Data initialization", "Host pre-processing", "Data loading"
PREPROCESSING, INFERENCE, POSTPROCESSING = "On-device preprocessing", "Inference", "Post-processing"
BOXES: Mapping[str, str] = {
    INITIALISATION: "the workload is opened and decoded on the host",
    HOST: "none recorded or declared",
    LOADING: "samples are staged before their span begins",
    PREPROCESSING: "none recorded or declared",
    INFERENCE: "none recorded or declared",
    POSTPROCESSING: "none recorded or declared; answers are judged on the host, from the recording",
}
"""Each box, and what is said of it when no phase was recorded in it and the device declares nothing."""
_BEGINNINGS = {
    ("host",): HOST,
    ("pre", "enc", "feature", "front"): PREPROCESSING,
    ("post", "dec", "class"): POSTPROCESSING,
}


class Box(NamedTuple):
    """One box of the diagram; ``kind`` is timed or untimed, and the first of the lines says also if it is powered."""

    title: str
    kind: str
    lines: tuple[str, ...]


def workflow(result: Result) -> list[Box]:
    """Return the six boxes in order; what the device declares under ``workflow`` in its details stands in them."""
    said = result.start.device.details.get("workflow")
    told = {str(k).casefold(): clean(v) for k, v in said.items()} if isinstance(said, Mapping) else {}
    phases: dict[str, list[str]] = {}
    windows = {p: w for p, w in result.series.phase_windows_s.items() if len(w)}
    for phase in dict.fromkeys([*sorted(windows, key=lambda p: float(windows[p][0][0])), *result.start.device.phases]):
        phases.setdefault(box_of(phase), []).append(phase)
    return [_box(result, title, phases.get(title, []), told.get(title.casefold(), "")) for title in BOXES]


def box_of(phase: str) -> str:
    """Return the box of a phase by the beginning of its name: host, pre, encode, feature, post, decode, classify."""
    name = phase.casefold()
    return next((box for begin, box in _BEGINNINGS.items() if name.startswith(begin)), INFERENCE)


def _box(result: Result, title: str, phases: list[str], told: str) -> Box:
    recorded = [p for p in phases if len(result.series.phase_windows_s.get(p, ()))]
    powered = [p for p in phases if FigureKey("active_power_w", p) in result.quantities]
    state = "timed and powered" if powered else "timed, not powered" if recorded else "neither timed nor powered"
    lines = [*([told] if told else []), *(line for phase in phases for line in _of_phase(result, phase))]
    return Box(title, "timed" if recorded else "untimed", (state, *(lines or [BOXES[title]])))


def _of_phase(result: Result, phase: str) -> list[str]:
    """What was recorded of a phase: its spans, time and power."""
    count = len(result.series.phase_windows_s.get(phase, ()))
    name = clean(phase).replace("_", " ")
    if not count:
        return [f"{name}: declared, none recorded"]
    figures = (FigureKey("execution_time_s", phase), FigureKey("active_power_w", phase))
    return [f"{name}: {count} timed spans", *(text for key in figures if (text := _figure(result, key)))]


def _figure(result: Result, key: FigureKey) -> str:
    q = result.quantities.get(key)
    if q is None:
        return ""
    value, half, unit = parts_of(key, q)
    return f"{value}{' ± ' + half if half else ''} {unit}".strip()
