"""Hand-made results and streams for the tests of reports."""

import io
import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from reports.console import print_result
from rig.analysis.result.finding import Finding, note, refusal
from rig.analysis.result.quantity import TRIMMED, Component, FigureKey, Figures, Quantity
from rig.analysis.result.result import ClockSummary, Result
from rig.analysis.result.series import RailSeries, Series, Stream
from rig.analysis.result.verdict import Ruling
from rig.recording.events import Start
from tests.support.start_lines import start

HOSTILE = "</svg><script>alert('x')</script>|`*_$\\frac{\x1b[31m\u202e"


def q(value: float, unit: str, u: float = 0.0, dof: float = math.inf, **more: Any) -> Quantity:
    parts = (Component("noise", 0.8 * u, dof), Component("gain", 0.6 * u, math.inf, "meter.gain")) if u else ()
    return Quantity(value, unit, parts, **{"n": 20, "method": "made up", **more})


def made_up_series(name: str, readings: int, spans: int) -> Series:
    times = np.linspace(0.0, 40.0, readings + 1)
    step = 30.0 / spans
    on = 5.0 + np.arange(spans) * step
    inference = np.column_stack([on, on + 0.6 * step])
    rng = np.random.default_rng(3)
    busy = np.searchsorted(inference.ravel(), times[:-1]) % 2
    watts = 3e-4 + 1e-4 * busy + 2e-6 * rng.standard_normal(readings)
    watts[readings // 2] = np.nan
    return Series(
        rails=(RailSeries(name, times[:-1], times[1:], watts), RailSeries("io", times[:-1], times[1:], watts / 3)),
        phase_windows_s={"inference": inference, "preprocess": np.column_stack([on + 0.65 * step, on + 0.9 * step])},
        warmup_windows_s=np.empty((0, 2)),
        idle_windows_s=np.array([[0.5, 4.5], [36.0, 39.5]]),
        mark_windows_s=np.array([[4.6, 4.7]]),
        execution_times_s=0.9 + 0.01 * rng.standard_normal(spans),
        requested_s=on - 0.01,
        latency_s=0.92 + 0.01 * rng.standard_normal(spans),
        stream=None,
        solves=(),
    )


def printed(result: Result, verbose: bool = False) -> str:
    """Return what a terminal shows of a result."""
    out = io.StringIO()
    print_result(result, out, verbose=verbose)
    return out.getvalue()


SLOWEST = FigureKey("execution_time_p{percentile}_s", percentile=99)


def made_up_quantities(name: str) -> Figures:
    return Figures({
        FigureKey("accuracy"): q(0.875, "1", 0.006),
        FigureKey("execution_time_s"): q(0.9, "s", 0.002, 19),
        FigureKey("execution_time_p{percentile}_s", percentile=90): q(0.912, "s", 0.004),
        FigureKey("active_power_w"): q(4.0e-4, "W", 2e-6, 19),
        FigureKey("dynamic_power_w"): q(1.0e-4, "W", 1.5e-6, 19, bias=1e-7),
        FigureKey("energy_per_inference_j"): q(3.6e-4, "J", 3e-6),
        FigureKey("active_power_w", phase=name): q(4.1e-4, "W", 2e-6),
        FigureKey("idle_power_w", rail=name): q(3.0e-4, "W", 2e-6),
        FigureKey("idle_power_w", "inference", name): q(3.0e-4, "W", 2e-6),
        FigureKey("dynamic_power_w", method=TRIMMED): q(1.01e-4, "W", 1e-6),
    })  # fmt: skip


def made_up_start(name: str, mode: str) -> Start:
    clock = {"name": "meter", "tick_hz": 1e6, "tolerance": 1e-3}
    rail = {"name": name, "kind": "mean", "rate_hz": 100.0, "aperture_s": 0.01, "accuracy": None}
    details = {"power_profile": {"idle_w": 3e-4, "source": name}, "encoder": "delta"}
    phases = ["inference", "preprocess", "postprocess"]
    return start(
        run_id=f"run-{name}",
        clocks=[{"name": "host", "tick_hz": 1e9, "tolerance": 1e-3}, clock],
        created_utc="2026-08-21T10:22:07Z",
        argv=["rig", "measure", "--note", name],
        device={"name": f"board {name}", "mode": mode, "phases": phases, "details": details},
        meters=[{"name": f"smu {name}", "mode": "hardware", "clock": clock, "rails": [rail], "omitted": ["fan", name]}],
        scenario={"name": "single-stream"},
        workload={"name": "asc", "task": "scenes", "version": "1", "digest_sha256": "ab" * 32},
        rules={"name": "hand", "scenario": "single-stream", "source": "", "submittable": False, "idle_s": 5.0},
        environment={"python": "3.11", "platform": name},
    )


def made_up(
    *, simulated: bool = True, complete: bool = True, name: str = "core", readings: int = 4000, spans: int = 20
) -> Result:
    """Return the result of a small run: idle, spans of two phases, idle; the rails are ``name`` and "io"."""
    considered = {"brackets": 8e-5, "marks": math.inf}
    return Result(
        run_id=f"run-{name}",
        run_digest="c0ffee" * 11,
        complete=complete,
        simulated=simulated,
        start=made_up_start(name, "simulator" if simulated else "hardware"),
        quantities=made_up_quantities(name),
        findings=(refusal(SLOWEST, f"too few inferences {name}", "Measure at least 662"), note(f"a note {name}")),
        clocks={"meter": ClockSummary("meter", f"brackets {name}", 8e-5, 1e-6, 2e-7, 40, considered)},
        series=made_up_series(name, readings, spans),
        ruling=None,
    )


def without_pictures(result: Result) -> Result:
    """Return the same without anything to draw, for tests that need no pictures."""
    none = np.empty((0, 2))
    series = Series((), {}, none, none, none, np.empty(0), np.empty(0), np.empty(0), None, ())
    given = {key: q(x.value, x.unit) for key, x in result.quantities.items()}
    return replace(result, quantities=Figures(given), series=series)


def made_up_stream(*, classes: int = 4, scenes: int = 12, answers: int = 120, total_s: float = 30.0) -> Stream:
    """Return a stream with scenes of equal length from second 5; most answers are right."""
    rng = np.random.default_rng(5)
    known = ("airport", "street_traffic", "bus", "park", "shopping_mall", "metro", "tram", "public_square")
    names = tuple(known[k] if k < len(known) else f"class {k}" for k in range(classes))
    onset = 5.0 + np.arange(scenes) * total_s / scenes
    which = (np.cumsum(rng.integers(1, max(classes, 2), size=scenes))) % classes
    at = 5.0 + total_s * (np.arange(answers) + rng.uniform(0.6, 0.9, answers)) / answers
    heard = np.searchsorted(onset, at - 0.1 * total_s / scenes, side="right").clip(1) - 1
    odds = rng.normal(0.0, 0.7, (answers, classes))
    odds[np.arange(answers), which[heard]] += 3.0 * (rng.random(answers) < 0.85)
    probability = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    said = tuple(names[k] for k in probability.argmax(axis=1))
    return Stream(at, said, names, probability, onset, tuple(names[k] for k in which), 5.0, 5.0 + total_s + 0.3)


def with_checks(result: Result, *checks: Finding, submittable: bool = False) -> Result:
    """Return the result with a verdict by the bench's rules: one kept rule and the given ones."""
    kept = Finding("the run", "to the end", "to the end", True)
    ruling = Ruling("quick", "none: for the bench, never for submission", submittable)
    return replace(result, findings=(*result.findings, kept, *checks), ruling=ruling)
