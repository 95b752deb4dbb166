"""RAPL: joules that only grow, over wraps; zones inside each other are not added; doubts are reported."""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.meters import rapl
from drivers.meters.polled import HOST, Polled, polled_meter
from drivers.meters.rapl import EnergyCounter, Zone, open_meter
from fixtures.instruments.powercap_tree import TreeZone
from rig.conformance.device import check_meter
from rig.errors import MeterError, SetupError
from rig.types import Conversion, MeterInfo, Rail
from tests.support.instruments import live
from tests.support.meters import column
from tests.support.powercap_zones import DESKTOP, SERVER
from tests.support.raised import raised
from tests.support.waiting import until

pytestmark = pytest.mark.real_time


# ---- unwrapping ---------------------------------------------------------------------------


class Script(EnergyCounter):
    """A counter with given readings at given times: (seconds, microjoules)."""

    def __init__(self, rows: list[tuple[float, int]], range_j: float, most_w: float) -> None:
        self.rows = list(rows)
        zone = Zone("0", "package-0", "package-0", Path("/nowhere"), range_j)
        super().__init__(zone, most_w, lambda: self.rows[0][0])

    def _raw(self) -> int:
        return self.rows.pop(0)[1]


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


def test_a_gap_with_a_possible_wrap_is_reported() -> None:
    counter = Script([(0.0, 0), (0.4, 1), (0.9, 2)], 1.0, 2.0)
    counter.look()
    counter.look()
    raised(MeterError, counter.look, says=r"was not read for 0\.5 s, but at 2 W it wraps every 0\.5 s")


# ---- zones --------------------------------------------------------------------------------


def test_a_package_is_counted_once() -> None:
    with live("rapl") as it, closing(it.open()) as meter:
        info = meter.info()

    assert [(r.name, r.kind, r.conversion.unit) for r in info.rails] == [("package-0", "cumulative", "J")]
    omitted = "\n".join(info.omitted)
    assert "package-0-core: counted in package-0 already" in omitted
    assert "package-0-uncore: counted in package-0 already" in omitted
    assert "psys: not chosen" in omitted and "intel-rapl-mmio:0: another way" in omitted
    assert info.mode == "simulator" and "SIMULATED" in info.description


TEN = {f"intel-rapl:{k}": TreeZone("package-0" if k > 9 else f"package-{k}") for k in (0, 2, 10)}


@pytest.mark.parametrize(("zones", "domains", "rails"), [
    (SERVER, "", ["package-0", "package-0-dram", "package-1", "package-1-dram"]),
    (DESKTOP, "psys", ["psys"]),
    (TEN, "", ["package-0-0", "package-2", "package-0-10"]),
], ids=["memory beside its package", "the platform alone", "in the order of their numbers"])  # fmt: skip
def test_rails_are_zones_outside_other_zones(zones: Mapping[str, TreeZone], domains: str, rails: list[str]) -> None:
    with live("rapl", zones=zones) as it, closing(it.open(domains=domains)) as meter:
        assert [rail.name for rail in meter.info().rails] == rails


# ---- doubt --------------------------------------------------------------------------------


def test_a_missing_permission_names_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Path, *a: Any, **k: Any) -> str:
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return original(self, *a, **k)

    original = Path.read_text
    with live("rapl") as it:
        monkeypatch.setattr(Path, "read_text", forbidden)
        assert "chmod a+r" in raised(SetupError, it.open).remedy


def test_a_missing_counter_is_refused(tmp_path: Path) -> None:
    assert "intel_rapl_msr" in raised(SetupError, open_meter, root=str(tmp_path / "none")).remedy


@pytest.mark.skipif(not any(Path(rapl.ROOT).glob("intel-rapl:*")), reason="this computer shows no RAPL counters")
def test_the_counters_of_this_computer_keep_every_rule() -> None:
    try:
        meter = open_meter()
    except SetupError as error:
        pytest.skip(error.message)
    assert meter.info().mode == "hardware"
    check_meter(meter)


# ---- the thread ---------------------------------------------------------------------------


def test_an_unchanged_value_is_no_reading_until_stale() -> None:
    values, looks = [0.0], list[float]()

    def look() -> float:
        looks.append(values[-1])
        return values[-1]

    info = MeterInfo("polled", "simulator", HOST, (Rail("x", "cumulative", Conversion("J"), 500.0),))
    meter = polled_meter(info, [Polled("x", look, counts=True, renewed=True, stale_s=0.5)], 500.0)
    meter.start()
    until(lambda: len(looks) > 10)
    values.append(1.0)
    time.sleep(0.8)
    value = column(list(meter.stop()), "value")

    assert value[0] == 1.0 and 2 <= len(value) < 0.2 * len(looks)
