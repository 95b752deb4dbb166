"""A Joulescope by its driver package: numbered blocks from another thread become a grid without silent gaps.

``FakeDriver`` replaces the package, with its signatures, and streams in real time.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from drivers.meters.joulescope import meter as joulescope
from drivers.meters.joulescope.stream import Bits
from fixtures.bench.live_plant import LivePlant
from fixtures.bench.true_power import ORIGIN_NS
from rig.conformance.device import check_meter
from rig.errors import MeterError, MeterSilentError, SetupError, UsageError
from rig.types import Meter
from tests.support.joulescope_driver import PATH, FakeDriver, installed
from tests.support.meters import IDLE_W, RUN_W, ended

pytestmark = pytest.mark.real_time

JS110 = "u/js110/000007"


@pytest.fixture
def fake(plant: LivePlant, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeDriver]]:
    driver = installed(plant, monkeypatch)
    yield driver
    latest = vars(driver).get("latest")
    if latest is not None:
        latest.finalize()


def opened(**options: Any) -> Meter:
    return joulescope.open_meter(**({"rate_hz": 20_000.0} | options))


def test_the_fake_has_the_signatures_of_the_package() -> None:
    package = pytest.importorskip("pyjoulescope_driver")
    for name in ("open", "close", "finalize", "device_paths", "query", "publish", "subscribe", "unsubscribe"):
        true, ours = (inspect.signature(getattr(d, name)).parameters for d in (package.Driver, FakeDriver))
        assert [(p.name, p.default) for p in true.values()] == [(p.name, p.default) for p in ours.values()], name


def test_the_package_without_an_instrument_is_a_setup_error() -> None:
    pytest.importorskip("pyjoulescope_driver")
    with pytest.raises(SetupError, match=r"Name one"):
        joulescope.open_meter(instrument="no such instrument")


def test_it_keeps_the_rules_of_a_meter(fake: type[FakeDriver]) -> None:
    check_meter(opened(), seconds=0.4)


def test_its_readings_are_the_plants(plant: LivePlant, fake: type[FakeDriver]) -> None:
    meter = opened()
    bracket = meter.start()
    on_ns = plant.clock.now_ns() + 30_000_000
    plant.occupy("inference", on_ns, on_ns + 50_000_000)
    time.sleep(0.18)
    got = np.concatenate([chunk.value for chunk in [*meter.read(), *meter.stop()]])
    began_ns = fake.latest.front_end.true_ns(fake.latest.from_tick)
    meter.close()
    assert bracket.before_ns <= began_ns <= bracket.after_ns
    at_s = (began_ns - on_ns) * 1e-9 + np.arange(len(got)) / 20_000
    busy = (at_s > 1e-3) & (at_s < 0.049)
    idle = (at_s < -1e-3) | (at_s > 0.051)
    assert got[busy] == pytest.approx(RUN_W, rel=1e-6)
    assert got[idle] == pytest.approx(IDLE_W, rel=1e-6)


def test_readings_missing_by_their_numbers_are_nan(fake: type[FakeDriver]) -> None:
    meter = opened()
    meter.start()
    fake.latest.skip_s = 0.03
    time.sleep(0.15)
    got = np.concatenate([chunk.value for chunk in [*meter.read(), *meter.stop()]])
    meter.close()
    assert np.count_nonzero(np.isnan(got)) == 600


@pytest.mark.parametrize(("fault", "kind"), [("unplugged", MeterError), ("nothing", MeterSilentError)])
def test_unplugged_or_silent_it_gives_what_it_had_and_then_an_error(
    fake: type[FakeDriver], fault: str, kind: type[MeterError]
) -> None:
    meter = opened(timeout_s=0.2)
    meter.start()
    time.sleep(0.1)
    if fault == "unplugged":
        fake.latest.unplug()
    else:
        fake.latest.mute = True
    count, error = ended(meter, 1.5)
    assert isinstance(error, kind) and fault in error.message and count > 1000
    meter.close()


def test_closing_lets_go_of_instrument_and_driver(fake: type[FakeDriver]) -> None:
    opened().close()
    assert fake.latest.finalized
    assert not fake.latest.is_open


def test_a_rate_that_it_has_not_is_a_setup_error_and_the_driver_is_let_go(fake: type[FakeDriver]) -> None:
    with pytest.raises(SetupError, match="refuses its setting h/fs"):
        opened(rate_hz=30_000.0)
    assert fake.latest.finalized


def test_of_several_one_must_be_named(fake: type[FakeDriver]) -> None:
    fake.paths = (PATH, JS110)
    with pytest.raises(SetupError, match="Connected"):
        opened()
    opened(instrument="000123").close()


@pytest.mark.parametrize(
    ("path", "range_mode", "set_to"),
    [
        (PATH, "auto", {"s/i/range/mode": "auto"}),
        (PATH, "18 mA", {"s/i/range/select": "18 mA", "s/i/range/mode": "manual"}),
        (PATH, "180 uA", {"s/i/range/select": "180 \N{MICRO SIGN}A", "s/i/range/mode": "manual"}),
        (JS110, "auto", {"s/i/range/select": "auto"}),
        (JS110, "180 mA", {"s/i/range/select": "180 mA"}),
    ],
)
def test_each_model_is_told_its_range_in_its_own_words(
    fake: type[FakeDriver], path: str, range_mode: str, set_to: dict[str, str]
) -> None:
    fake.paths = (path,)
    opened(range_mode=range_mode).close()
    ranges = {topic.removeprefix(f"{path}/"): value for topic, value in fake.latest.state.items() if "range" in topic}
    assert ranges == set_to


def test_a_js110_streams_and_marks_like_any_other(plant: LivePlant, fake: type[FakeDriver]) -> None:
    fake.paths = (JS110,)
    meter = opened(mark_input=0, mark_vref="3v3")
    assert meter.info().details["rate_filter"] == "not stated"
    ticks, levels, _ = edges_of(meter, plant)
    meter.close()
    assert levels.tolist() == [1, 0]
    assert np.ptp(ticks) == pytest.approx(30e6, abs=100e3)  # its inputs have the rate of its readings
    assert fake.latest.state[f"{JS110}/s/extio/voltage"] == "3.3V"


@pytest.mark.parametrize(("path", "range_mode"), [(JS110, "interp"), (JS110, "manual"), (PATH, "2 A")])
def test_a_range_of_another_model_is_refused_with_those_it_may_have(
    fake: type[FakeDriver], path: str, range_mode: str
) -> None:
    fake.paths = (path,)
    with pytest.raises(SetupError, match="s/i/range/select") as caught:
        opened(range_mode=range_mode)
    assert "180 mA" in str(caught.value)
    assert caught.value.field == "range_mode"


def test_off_is_no_range_since_it_cuts_the_supply(fake: type[FakeDriver]) -> None:
    fake.paths = (JS110,)
    with pytest.raises(UsageError, match="supply"):
        opened(range_mode="off")


@pytest.mark.parametrize(
    "options", [{"rate_hz": 0.5}, {"timeout_s": 0.0}, {"mark_input": 5}, {"mark_input": 0, "pin": "high"}]
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(**options)


# ---- inputs -------------------------------------------------------------------------------


def edges_of(meter: Meter, plant: LivePlant, seconds: float = 0.2) -> tuple[np.ndarray, np.ndarray, int]:
    """Return recorded ticks and levels while the plant's pin is high from 20 to 50 ms, and the time of tick 0."""
    bracket = meter.start()
    assert bracket.tick == 0
    now_s = (plant.clock.now_ns() - ORIGIN_NS) * 1e-9
    plant.pin += [(now_s + 0.02, 1), (now_s + 0.05, 0)]
    time.sleep(seconds)
    chunks = [c for c in [*meter.read(), *meter.stop()] if c.start_tick is not None]
    ticks = np.concatenate([np.zeros(0, np.int64), *(c.start_tick for c in chunks if c.start_tick is not None)])
    return ticks, np.concatenate([np.zeros(0, np.uint8), *(c.value for c in chunks)]), round(1e9 * now_s)


def test_edges_of_an_input_stand_on_the_clock_of_the_readings(plant: LivePlant, fake: type[FakeDriver]) -> None:
    meter = opened(mark_input=0, pin="level", pin_lag_s=1e-6)
    rail = meter.info().rails[1]
    assert (rail.name, rail.kind, rail.rate_hz, rail.pin, rail.pin_lag_s) == (
        "joulescope in0",
        "edges",
        1e6,
        "level",
        1e-6,
    )
    ticks, levels, now_ns = edges_of(meter, plant)
    meter.close()
    began_ns = fake.latest.front_end.true_ns(fake.latest.from_tick) - ORIGIN_NS
    assert levels.tolist() == [1, 0]
    # the instrument runs 30 ppm fast, and sees an edge at its next sample, a microsecond later at most
    due = (np.array([now_ns + 20_000_000, now_ns + 50_000_000]) - began_ns) * (1 + 30e-6)
    assert np.all((ticks >= due - 200) & (ticks <= due + 1200))


def block(first: int, bits: list[int]) -> dict[str, Any]:
    data = np.packbits(np.array(bits, np.uint8), bitorder="little")
    return {"sample_id": first, "sample_rate": 2e6, "decimate_factor": 2, "data": data}


def test_bits_that_only_fill_the_last_byte_are_no_level() -> None:
    bits = Bits()
    bits.add(block(100, [1, 1, 1]))
    bits.add(block(106, [1, 0, 0]))
    bits.add(block(112, [0] * 9))
    at, level = bits.edges(ended=True)
    assert (at.tolist(), level.tolist()) == ([108], [0])


def test_an_edge_among_bits_that_were_lost_is_not_made_up() -> None:
    bits = Bits()
    for first, bit in ((100, 0), (116, 0), (148, 1), (164, 0)):
        bits.add(block(first, 8 * [bit]))
    at, level = bits.edges(ended=False)
    assert len(at) == 0
    bits.add(block(180, 8 * [1]))
    at, level = bits.edges(ended=False)
    assert (at.tolist(), level.tolist()) == ([164], [0])


def test_with_an_input_it_keeps_the_rules_of_a_meter(fake: type[FakeDriver]) -> None:
    assert "edges.order" in check_meter(opened(mark_input=0), seconds=0.4)


def test_an_input_that_streams_nothing_is_a_setup_error(fake: type[FakeDriver]) -> None:
    with pytest.raises(SetupError, match="cannot be streamed"):
        opened(mark_input=3, timeout_s=0.1)
    assert fake.latest.finalized
