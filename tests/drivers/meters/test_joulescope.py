"""A Joulescope by its driver package: numbered blocks from another thread become a grid without silent gaps.

``FakeDriver`` replaces the package, with its signatures, and streams in real time.
"""

import inspect
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from drivers.meters.joulescope import meter as joulescope
from drivers.meters.joulescope.stream import Bits
from fixtures.bench.live_plant import LivePlant
from fixtures.bench.true_power import ORIGIN_NS
from rig.errors import SetupError
from rig.types import Meter, Rail
from tests.support.instruments import StandIn
from tests.support.joulescope_driver import PATH, FakeDriver
from tests.support.meters import column, taken, values
from tests.support.raised import raised

pytestmark = pytest.mark.real_time

INSTRUMENT = "joulescope"
JS110 = "u/js110/000007"


def test_the_fake_driver_has_the_signatures_of_the_package() -> None:
    package = pytest.importorskip("pyjoulescope_driver")
    for name in ("open", "close", "finalize", "device_paths", "query", "publish", "subscribe", "unsubscribe"):
        true, ours = (inspect.signature(getattr(d, name)).parameters for d in (package.Driver, FakeDriver))
        known = [p for p in true.values() if p.name in ours or p.default is p.empty]
        assert [(p.name, p.default) for p in known] == [(p.name, p.default) for p in ours.values()], name


def test_a_missing_instrument_is_a_setup_error() -> None:
    pytest.importorskip("pyjoulescope_driver")
    raised(SetupError, joulescope.open_meter, says=r"connected", instrument="no such instrument")


def test_missing_sample_numbers_become_nan(it: StandIn) -> None:
    with closing(it.open()) as meter:
        chunks = taken(meter, 0.2, lambda: setattr(it.sim.latest, "skip_s", 0.03))
    assert np.count_nonzero(np.isnan(values(chunks))) == 600


def test_a_refused_rate_is_a_setup_error(it: StandIn) -> None:
    raised(SetupError, it.open, says="refuses its setting h/fs", rate_hz=30_000.0)
    assert it.sim.latest.finalized


def test_one_of_several_instruments_must_be_named(it: StandIn) -> None:
    it.sim.paths = (PATH, JS110)
    raised(SetupError, it.open, says="Connected")
    it.open(instrument="000123").close()
    assert it.sim.latest.finalized and not it.sim.latest.is_open


@pytest.mark.parametrize(("path", "range_mode", "set_to"), [
    (PATH, "auto", {"s/i/range/mode": "auto"}),
    (PATH, "18 mA", {"s/i/range/select": "18 mA", "s/i/range/mode": "manual"}),
    (PATH, "180 uA", {"s/i/range/select": "180 \N{MICRO SIGN}A", "s/i/range/mode": "manual"}),
    (JS110, "auto", {"s/i/range/select": "auto"}),
    (JS110, "180 mA", {"s/i/range/select": "180 mA"}),
])  # fmt: skip
def test_each_model_gets_its_range_setting(it: StandIn, path: str, range_mode: str, set_to: dict[str, str]) -> None:
    it.sim.paths = (path,)
    it.open(range_mode=range_mode).close()
    ranges = {topic.removeprefix(f"{path}/"): value for topic, value in it.sim.latest.state.items() if "range" in topic}
    assert ranges == set_to


def test_a_js110_streams_and_has_marks(it: StandIn) -> None:
    it.sim.paths = (JS110,)
    meter = it.open(mark_input=0, mark_vref="3v3")
    assert meter.info().details["rate_filter"] == "not stated"
    ticks, levels, _ = edges_of(meter, it.plant)
    assert levels.tolist() == [1, 0]
    assert np.ptp(ticks) == pytest.approx(30e6, abs=100e3)  # its inputs have the rate of its readings
    assert it.sim.latest.state[f"{JS110}/s/extio/voltage"] == "3.3V"


@pytest.mark.parametrize(("path", "range_mode"), [(JS110, "interp"), (JS110, "manual"), (PATH, "2 A")])
def test_a_range_of_another_model_is_refused(it: StandIn, path: str, range_mode: str) -> None:
    it.sim.paths = (path,)
    error = raised(SetupError, it.open, range_mode=range_mode, says="s/i/range/select")
    assert "180 mA" in str(error)
    assert error.field == "range_mode"


# ---- inputs -------------------------------------------------------------------------------


def edges_of(meter: Meter, plant: LivePlant, seconds: float = 0.2) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ticks and levels while the plant's pin is high from 20 to 50 ms, and the moment (ns) of 0 ms."""
    with closing(meter):
        assert meter.start().tick == 0
        now_s = (plant.clock.now_ns() - ORIGIN_NS) * 1e-9
        plant.pin += [(now_s + 0.02, 1), (now_s + 0.05, 0)]
        time.sleep(seconds)
        chunks, rail = [*meter.read(), *meter.stop()], meter.info().rails[1].name
    return column(chunks, "start_tick", rail), column(chunks, "value", rail), round(1e9 * now_s)


def test_input_edges_are_on_the_clock_of_readings(it: StandIn) -> None:
    meter = it.open(mark_input=0, pin="level", pin_lag_s=1e-6)
    assert meter.info().rails[1] == Rail("joulescope in0", "edges", rate_hz=1e6, pin="level", pin_lag_s=1e-6)
    ticks, levels, now_ns = edges_of(meter, it.plant)
    began_ns = it.sim.latest.front_end.true_ns(it.sim.latest.from_tick) - ORIGIN_NS
    assert levels.tolist() == [1, 0]
    # the instrument runs 30 ppm fast, and sees an edge at its next sample, a microsecond later at most
    due = (np.array([now_ns + 20_000_000, now_ns + 50_000_000]) - began_ns) * (1 + 30e-6)
    assert np.all((ticks >= due - 200) & (ticks <= due + 1200))


def block(first: int, bits: list[int]) -> dict[str, Any]:
    data = np.packbits(np.array(bits, np.uint8), bitorder="little")
    return {"sample_id": first, "sample_rate": 2e6, "decimate_factor": 2, "data": data}


def test_bits_that_only_fill_the_last_byte_are_no_level_and_edges_among_lost_bits_are_not_made_up() -> None:
    bits = Bits()
    bits.add(block(100, [1, 1, 1]))
    bits.add(block(106, [1, 0, 0]))
    bits.add(block(112, [0] * 9))
    at, level = bits.edges(ended=True)
    assert (at.tolist(), level.tolist()) == ([108], [0])
    bits = Bits()
    for first, bit in ((100, 0), (116, 0), (148, 1), (164, 0)):
        bits.add(block(first, 8 * [bit]))
    at, level = bits.edges(ended=False)
    assert len(at) == 0
    bits.add(block(180, 8 * [1]))
    at, level = bits.edges(ended=False)
    assert (at.tolist(), level.tolist()) == ([164], [0])


def test_a_silent_input_is_a_setup_error(it: StandIn) -> None:
    raised(SetupError, it.open, says="cannot be streamed", mark_input=3, timeout_s=0.1)
    assert it.sim.latest.finalized
