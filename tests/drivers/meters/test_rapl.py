"""RAPL: joules that only grow, over wraps; zones inside each other are not added; doubts are reported."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.meters import rapl
from drivers.meters.polled import HOST, Polled, polled_meter
from drivers.meters.rapl import EnergyCounter, Zone, open_meter, zones_of
from fixtures.bench.live_plant import live_plant
from fixtures.bench.true_power import SimPlant
from fixtures.instruments.powercap_tree import PowercapTree, TreeZone
from rig.conformance.device import check_meter
from rig.errors import MeterError, SetupError, UsageError
from rig.types import Chunk, Conversion, MeterInfo, Rail
from tests.support.meters import computed, error_of, refusal, taken
from tests.support.powercap_zones import DESKTOP, SERVER

pytestmark = pytest.mark.real_time

CALM = settings(deadline=None, derandomize=True, database=None)
refused = partial(refusal, open_meter)


@contextmanager
def tree(folder: Path, zones: Mapping[str, TreeZone] = DESKTOP) -> Iterator[tuple[SimPlant, PowercapTree]]:
    plant = live_plant()
    plant.install({"core": 20.0}, {"inference": {"core": 60.0}})
    with PowercapTree(folder / "powercap", plant, zones) as running:
        yield plant, running


def joined(chunks: list[Chunk], name: str) -> Any:
    return np.concatenate([getattr(chunk, name) for chunk in chunks])


# ---- unwrapping ---------------------------------------------------------------------------


class Script(EnergyCounter):
    """A counter with given readings at given times: (seconds, microjoules)."""

    def __init__(self, rows: list[tuple[float, int]], range_j: float, most_w: float) -> None:
        self.rows = list(rows)
        zone = Zone("0", "package-0", "package-0", Path("/nowhere"), range_j)
        super().__init__(zone, most_w, lambda: self.rows[0][0])

    def _raw(self) -> int:
        return self.rows.pop(0)[1]


@CALM
@given(
    st.integers(0, 10**6 - 1), st.lists(st.tuples(st.floats(1e-3, 0.4), st.floats(0.0, 0.99)), min_size=1, max_size=30)
)
def test_joules_only_grow_over_any_number_of_wraps(begin_uj: int, steps: list[tuple[float, float]]) -> None:
    range_uj, most_w = 10**6, 2.0
    rows, now_s, used_uj = [(0.0, begin_uj)], 0.0, 0.0
    for gap_s, load in steps:
        now_s += gap_s
        used_uj += gap_s * load * most_w * 1e6
        rows.append((now_s, (begin_uj + int(used_uj)) % range_uj))
    counter = Script(rows, range_uj * 1e-6, most_w)
    found = [counter.look() for _ in rows]

    assert np.all(np.diff(found) >= 0.0)
    assert found[-1] - found[0] == pytest.approx(used_uj * 1e-6, abs=2e-6)


def test_a_gap_in_which_it_may_have_wrapped_unseen_is_told() -> None:
    counter = Script([(0.0, 0), (0.4, 1), (0.9, 2)], 1.0, 2.0)
    counter.look()
    counter.look()
    with pytest.raises(MeterError, match=r"was not read for 0\.5 s, but at 2 W it wraps every 0\.5 s"):
        counter.look()


def test_a_counter_that_was_reset_is_not_taken_for_one_that_wrapped() -> None:
    counter = Script([(0.0, 900_000), (0.01, 10)], 100.0, 2.0)
    counter.look()
    with pytest.raises(MeterError, match="it was reset, or most_w"):
        counter.look()


# ---- zones --------------------------------------------------------------------------------


def test_a_package_is_counted_once_and_what_is_inside_it_is_said(tmp_path: Path) -> None:
    with tree(tmp_path) as (_, running), closing(open_meter(root=str(running.root))) as meter:
        info = meter.info()

    assert [(r.name, r.kind, r.conversion.unit) for r in info.rails] == [("package-0", "cumulative", "J")]
    omitted = "\n".join(info.omitted)
    assert "package-0-core: counted in package-0 already" in omitted
    assert "package-0-uncore: counted in package-0 already" in omitted
    assert "psys: not chosen" in omitted and "intel-rapl-mmio:0: another way" in omitted
    assert info.mode == "simulator" and "SIMULATED" in info.description


def test_memory_is_counted_beside_its_package_and_two_sockets_have_names_of_their_own(tmp_path: Path) -> None:
    with tree(tmp_path, SERVER) as (_, running), closing(open_meter(root=str(running.root))) as meter:
        rails = [rail.name for rail in meter.info().rails]

    assert rails == ["package-0", "package-0-dram", "package-1", "package-1-dram"]


def test_the_platform_alone_can_be_chosen(tmp_path: Path) -> None:
    with tree(tmp_path) as (_, running), closing(open_meter(root=str(running.root), domains="psys")) as meter:
        assert [rail.name for rail in meter.info().rails] == ["psys"]
        assert "package-0: counted in psys already" in meter.info().omitted


@pytest.mark.parametrize("domains", ["package-0,package-0-core", "psys,package-0"])
def test_zones_that_contain_each_other_are_not_measured_together(tmp_path: Path, domains: str) -> None:
    with tree(tmp_path) as (_, running):
        error = refused(root=str(running.root), domains=domains)
    assert isinstance(error, UsageError) and "their sum would count" in error.message


def test_zones_are_in_the_order_of_their_numbers_and_no_name_stands_twice(tmp_path: Path) -> None:
    zones = {f"intel-rapl:{k}": TreeZone("package-0" if k > 9 else f"package-{k}") for k in (0, 2, 10)}
    plant = live_plant()
    plant.install({}, {})
    with PowercapTree(tmp_path / "p", plant, zones) as running:
        assert [z.rail for z in zones_of(running.root)] == ["package-0-0", "package-2", "package-0-10"]


# ---- readings -----------------------------------------------------------------------------


def test_it_keeps_every_rule(tmp_path: Path) -> None:
    with tree(tmp_path) as (plant, running):
        checked = check_meter(open_meter(plant.clock, root=str(running.root), rate_hz=200), seconds=0.1)
    assert {"chunk.grow", "rail.unit", "start.again"} <= set(checked)


def test_what_was_counted_is_what_was_used_over_a_wrap(tmp_path: Path) -> None:
    zones = {"intel-rapl:0": changed(DESKTOP["intel-rapl:0"], range_uj=40_000_000, begin_uj=39_000_000)}
    with tree(tmp_path, zones) as (_, running):
        with closing(open_meter(root=str(running.root), most_w=200.0)) as meter:
            chunks = taken(meter, 0.3)
        value, begin, end = (joined(chunks, name) for name in ("value", "start_tick", "end_tick"))
        used_j = running.energy_j("intel-rapl:0", int(end[-1])) - running.energy_j("intel-rapl:0", int(end[0]))

    assert value[-1] > 40.0 > value[0]  # it has wrapped
    assert value[-1] - value[0] == pytest.approx(used_j, abs=60.0 * 0.02)  # 20 W for the age of a counter
    assert np.all(end >= begin) and np.all(np.diff(begin) > 0)


def test_the_energy_of_a_computation_on_this_computer_is_what_it_used(tmp_path: Path) -> None:
    for attempt in range(2):  # a host that stops in the middle may spoil one of them
        with tree(tmp_path / str(attempt)) as (plant, running):
            meter = open_meter(plant.clock, root=str(running.root), rate_hz=200)
            found = computed(tmp_path / f"run{attempt}", plant, meter).quantities["dynamic_power_w"]
        low, high = found.interval(0.999)
        if low <= 40.0 <= high:
            break

    assert low <= 40.0 <= high and found.value == pytest.approx(40.0, rel=0.15)


# ---- doubt --------------------------------------------------------------------------------


def test_a_jump_ends_the_measurement(tmp_path: Path) -> None:
    with tree(tmp_path) as (_, running), closing(open_meter(root=str(running.root))) as meter:
        meter.start()
        running.add("intel-rapl:0", 1000.0)
        assert "it was reset" in error_of(meter).message


def test_a_counter_that_vanishes_ends_the_measurement(tmp_path: Path) -> None:
    with tree(tmp_path) as (_, running), closing(open_meter(root=str(running.root))) as meter:
        meter.start()
        (running.root / "intel-rapl:0" / "energy_uj").unlink()
        error = error_of(meter)

    assert "cannot be read" in error.message and "energy_uj" in str(error.value)
    assert error.remedy.endswith("`rig report` reads it")


def test_without_the_right_to_read_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Path, *a: Any, **k: Any) -> str:
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return original(self, *a, **k)

    original = Path.read_text
    with tree(tmp_path) as (_, running):
        monkeypatch.setattr(Path, "read_text", forbidden)
        error = refused(root=str(running.root))
    assert isinstance(error, SetupError) and "chmod a+r" in error.remedy


def test_a_computer_without_counters_says_so(tmp_path: Path) -> None:
    error = refused(root=str(tmp_path / "none"))
    assert isinstance(error, SetupError) and "intel_rapl_msr" in error.remedy


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("rate_hz", {"rate_hz": 1000.0}),
        ("rate_hz", {"rate_hz": 0.0}),
        ("most_w", {"most_w": float("inf")}),
        ("domains", {"domains": "gpu"}),
    ],
)
def test_an_option_that_cannot_be_meant_is_a_usage_error(tmp_path: Path, field: str, options: dict[str, Any]) -> None:
    with tree(tmp_path) as (_, running):
        error = refused(root=str(running.root), **options)
    assert isinstance(error, UsageError) and error.field == field


@pytest.mark.skipif(not any(Path(rapl.ROOT).glob("intel-rapl:*")), reason="this computer shows no RAPL counters")
def test_the_counters_of_this_computer_keep_every_rule() -> None:
    try:
        meter = open_meter()
    except SetupError as error:
        pytest.skip(error.message)
    assert meter.info().mode == "hardware"
    check_meter(meter)


# ---- the thread ---------------------------------------------------------------------------


class Steady:
    """A number with a set value."""

    def __init__(self) -> None:
        self.value, self.looks = 0.0, 0

    def begin(self) -> None:
        self.looks = 0

    def look(self) -> float:
        self.looks += 1
        return self.value


def test_a_value_that_did_not_change_is_no_reading_until_it_is_stale() -> None:
    number = Steady()
    info = MeterInfo("polled", "simulator", HOST, (Rail("x", "cumulative", Conversion("J"), 500.0),))
    meter = polled_meter(info, [Polled("x", number.look, number.begin, counts=True, stale_s=0.1)], 500.0)
    meter.start()
    time.sleep(0.05)
    number.value = 1.0
    time.sleep(0.2)
    value = joined(list(meter.stop()), "value")

    assert value[0] == 1.0 and 2 <= len(value) <= 4
    assert number.looks > 20
