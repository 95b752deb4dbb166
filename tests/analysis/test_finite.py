"""For any recording, each figure is a number with a finite interval, or is refused in words."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from rig.analysis.evaluate import check_memory, evaluate
from rig.analysis.result.result import Result
from rig.errors import MeasurementRefusedError, RigError
from rig.recording.reader import open_run
from tests.support.figures import POWER
from tests.support.run_by_hand import asked, reply, start_line, trace, write

WHATEVER = settings(max_examples=40, suppress_health_check=list(HealthCheck))
T0_NS = start_line()["t0_ns"]
DEVICE_HZ, METER_HZ = 12.5e6, 1e7
END_S, RATE_HZ = 3.0, 200.0


@dataclass(frozen=True)
class World:
    """A hand-made recording: true times in seconds; each field is something missing or wrong."""

    spans_s: tuple[tuple[float, float], ...] = tuple((1.0 + 0.15 * k, 1.1 + 0.15 * k) for k in range(6))
    idle_s: tuple[tuple[float, float], ...] = ((0.05, 0.9), (2.1, 2.9))
    values: str = "plain"
    stamps: str = "grid"
    rail: dict[str, Any] = field(default_factory=dict)
    brackets: int = 8
    width_s: float = 1e-4
    marks: bool = False
    warmup: int = 0
    answers: str = "right"
    due: bool = False


def _plain(busy: Any) -> Any:
    return 1e-3 + 2e-3 * busy + 1e-5 * np.random.default_rng(1).normal(size=len(busy))


def _some(value: float) -> Callable[[Any], Any]:
    return lambda busy: np.where(np.arange(len(busy)) % 7 == 3, value, _plain(busy))


VALUES: dict[str, Callable[[Any], Any]] = {
    "plain": _plain,
    "all nan": lambda busy: np.full(len(busy), np.nan),
    "some nan": _some(np.nan),
    "some inf": _some(np.inf),
    "some -inf": _some(-np.inf),
    "some -1": _some(-1.0),
    "some huge": _some(1e300),
    "all huge": lambda busy: 1e200 * (1.0 + busy),
    "all tiny": lambda busy: 1e-320 * (1.0 + busy),
    "nan while busy": lambda busy: np.where(busy > 0, np.nan, _plain(busy)),
    "nan while idle": lambda busy: np.where(busy > 0, _plain(busy), np.nan),
    "one number": lambda busy: np.where(np.arange(len(busy)) == len(busy) // 2, 1e-3, np.nan),
    "constant": lambda busy: np.full(len(busy), 1e-3),
    "zero": lambda busy: np.zeros(len(busy)),
    "no noise": lambda busy: 1e-3 + 2e-3 * busy,
    "two levels": lambda busy: 1e-3 * (busy > 0.5),
    "below idle": lambda busy: 3e-3 - _plain(busy),
    "overload": lambda busy: np.full(len(busy), 1e3),
}
PERIOD = int(METER_HZ / RATE_HZ)
COUNTS = {"few": 5, "two": 2, "one": 1, "none": 0}
GRIDS = {"grid": (PERIOD, PERIOD), "grid of no length": (PERIOD, 0), "grid without period": (0, PERIOD)}
"""Period and aperture in ticks."""
STAMPS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "own": lambda start, busy: (start, start + PERIOD),
    "no length": lambda start, busy: (start, start),
    "no length at idle": lambda start, busy: (start, start + PERIOD * (busy > 0)),
    "no length at work": lambda start, busy: (start, start + PERIOD * (busy == 0)),
    "same stamp twice": lambda start, busy: (start - start % (2 * PERIOD), start - start % (2 * PERIOD) + PERIOD),
    "backward": lambda start, busy: (start[::-1], start[::-1] + PERIOD),
    "one stamp": lambda start, busy: (0 * start, 0 * start + PERIOD),
    "far later": lambda start, busy: (start + 10**10, start + 10**10 + PERIOD),
    "very long": lambda start, busy: (start, start + PERIOD + 10**12),
    "lengths vary": lambda start, busy: (start, start + np.random.default_rng(2).integers(0, PERIOD, len(start))),
    "ends on one tick": lambda start, busy: (start, 0 * start + round(END_S * METER_HZ)),
}
RAILS: tuple[dict[str, Any], ...] = (
    {}, {"accuracy": {"of_reading": 1e-3, "offset": 1e-6}}, {"accuracy": {"of_reading": 1e300, "offset": 1e300}},
    {"rate_hz": 0.0}, {"rate_hz": 1e300}, {"rate_hz": 1e-300}, {"resolution": 1e-3}, {"resolution": 1e300},
    {"range_max": 2e-3}, {"range_max": 0.0}, {"range_max": -1e300}, {"aperture_s": 0.0}, {"aperture_s": 1e300},
    {"filter_tau_s": 0.05}, {"filter_tau_s": 1e6}, {"filter_tau_s": 1e-300}, {"kind": "point"},
    {"kind": "cumulative", "conversion": {"unit": "J"}},
    {"kind": "cumulative", "conversion": {"unit": "J"}, "resolution": 1e-4},
    {"conversion": {"unit": "A", "supply_v": 1.8}}, {"conversion": {"unit": "A", "supply_v": 1e-300}},
    {"conversion": {"unit": "A", "supply_v": 1.8, "burden_ohm": 100.0}},
    {"conversion": {"unit": "A", "supply_v": 1.8, "burden_ohm": 1e300}},
)  # fmt: skip
SPANS: tuple[tuple[tuple[float, float], ...], ...] = (
    World.spans_s, (), ((1.0, 1.0),), ((1.0, 2.0),), tuple((1.0 + 0.15 * k, 1.0 + 0.15 * k) for k in range(6)),
    ((1.0, 1.5), (1.0, 1.5)), ((1.0, 1.5), (1.4, 1.9)), ((5.0, 6.0),), ((1.0, 1.00000008), (1.1, 1.2)),
    tuple((1.0 + 0.02 * k, 1.012 + 0.02 * k) for k in range(40)),
)  # fmt: skip
IDLE: tuple[tuple[tuple[float, float], ...], ...] = (
    World.idle_s, (), World.idle_s[:1], ((0.5, 0.5),), ((0.5, 0.506),), ((0.1, 2.9),),
    ((0.1, 0.2), (0.3, 0.4), (2.5, 2.6)), ((10.0, 11.0),),
)  # fmt: skip

WORLDS = st.builds(
    World, spans_s=st.sampled_from(SPANS), idle_s=st.sampled_from(IDLE), values=st.sampled_from(sorted(VALUES)),
    stamps=st.sampled_from([*GRIDS, *STAMPS, *COUNTS, "gaps"]), rail=st.sampled_from(RAILS),
    brackets=st.sampled_from([8, 1, 2, 0]), width_s=st.sampled_from([1e-4, 0.0, 10.0]), marks=st.booleans(),
    warmup=st.integers(0, 3), answers=st.sampled_from(["right", "wrong", "none", "one", "odd"]), due=st.booleans(),
)  # fmt: skip


def recorded(world: World, folder: Path) -> Path:
    """Write the world as a run directory."""
    clocks = (("device", DEVICE_HZ), ("meter", METER_HZ))
    events = [start_line(rules={"name": "quick", "scenario": "single-stream", "source": "", "submittable": False})]
    events[0]["meters"] = [{"name": "hand", "mode": "simulator"}]
    events += [_read(name, hz, world) for name, hz in clocks if world.brackets]
    events += [{"type": "idle", "on_ns": _ns(a), "off_ns": _ns(b)} for a, b in world.idle_s]
    if world.marks:
        pulses = [[_tick(t, DEVICE_HZ), _tick(t + 0.01, DEVICE_HZ)] for t in (0.95, 0.97, 2.02)]
        events.append({"type": "marks", "spans": pulses})
    rows = [_reply(k, a, b, world) for k, (a, b) in enumerate(world.spans_s)]
    tables = asked(rows, inferences=1, label="yes") | {"traces/core.arrows": _trace(world)}
    return write(folder / "run", events, tables)


def _reply(k: int, on_s: float, off_s: float, world: World) -> dict[str, Any]:
    said = {"right": "yes", "wrong": "no", "none": None, "one": "yes" if k == 0 else None, "odd": ["yes", 3]}
    host = {"issued_ns": _ns(on_s), "completed_ns": _ns(off_s), "due_ns": _ns(1.0 + 0.15 * k) if world.due else None}
    more = {"output": json.dumps(said[world.answers]), "warmup": k < world.warmup}
    return reply(k, f"s{k}", _tick(on_s, DEVICE_HZ), _tick(off_s, DEVICE_HZ), **host, **more)


def _trace(world: World) -> pa.Table:
    at_s = np.arange(COUNTS.get(world.stamps, int(END_S * RATE_HZ))) / RATE_HZ
    if world.stamps == "gaps":
        at_s = at_s[np.arange(len(at_s)) % 50 < 25]
    busy = sum(((at_s >= a) & (at_s < b)).astype(float) for a, b in world.spans_s) + 0.0 * at_s
    rail = {"name": "core", "rate_hz": RATE_HZ} | world.rail
    with np.errstate(all="ignore"):
        value = VALUES[world.values](busy)
        if rail.get("kind") == "cumulative":
            value = np.cumsum(value) / RATE_HZ
    if world.stamps in GRIDS:
        every, aperture = map(float, GRIDS[world.stamps])
        return trace(rail, {"value": value}, grid={"t0_tick": 0, "period_tick": every, "aperture_tick": aperture})
    start, end = STAMPS.get(world.stamps, STAMPS["own"])(np.round(at_s * METER_HZ).astype(np.int64), busy)
    return trace(rail, {"value": value, "start_tick": start, "end_tick": end})


def _read(name: str, hz: float, world: World) -> dict[str, Any]:
    at_s = np.linspace(0.0, END_S, world.brackets)
    half = 0.5 * world.width_s
    rows = [[_ns(t - half), _tick(t, hz), _ns(t + half)] for t in at_s.tolist()]
    return {"type": "brackets", "clock": name, "rows": rows}


def _ns(t_s: float) -> int:
    return int(T0_NS) + round(t_s * 1e9)


def _tick(t_s: float, hz: float) -> int:
    return round(t_s * hz)


def evaluated(world: World) -> Result | None:
    """Return the result, or None if the whole recording is refused."""
    with TemporaryDirectory() as folder:
        try:
            return evaluate(open_run(recorded(world, Path(folder))))
        except RigError as error:
            assert error.remedy
            return None


@WHATEVER
@given(WORLDS)
@example(World(values="all nan"))
@example(World(values="zero"))
@example(World(values="constant"))
@example(World(values="two levels", rail={"resolution": 1e-3}))
@example(World(stamps="two"))
@example(World(stamps="no length at idle", values="all tiny", marks=True))  # means over no time are no numbers
@example(World(stamps="no length at work", values="all tiny", marks=True))
@example(World(spans_s=((1.0, 2.0),)))
def test_every_figure_of_any_recording_is_a_finite_number(world: World) -> None:
    result = evaluated(world)
    if result is not None:
        json.dumps(result.to_json(), allow_nan=False)
        assert POWER in result.quantities or not world.spans_s or any(r.remedy for r in result.refusals)
        assert all(r.remedy for r in result.refusals)


@pytest.mark.parametrize("values", ["all nan", "all huge"])
def test_readings_without_numbers_make_a_run_invalid(values: str) -> None:
    result = evaluated(World(values=values))
    assert result is not None and result.validity is not None
    assert "readings of rail core that are numbers" in [c.rule for c in result.validity.checks if not c.ok]
    assert any("no reading is a number" in r.reason and "range and the wires" in r.remedy for r in result.refusals)


def test_a_process_without_memory_for_libraries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this check, OpenBLAS would retry endlessly."""
    monkeypatch.setattr("rig.analysis.evaluate.LIBRARY_BYTES", 1 << 60)
    with pytest.raises(MeasurementRefusedError, match="which is refused"):
        check_memory()
