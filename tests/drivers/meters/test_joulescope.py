"""A Joulescope by its driver package: numbered blocks from another thread become a grid without silent gaps.

``FakeDriver`` stands for the package, with its signatures, and streams in time.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from drivers.meters.joulescope import meter as joulescope
from drivers.meters.joulescope.inputs import Bits
from fixtures.bench.live_plant import LivePlant, live_plant
from fixtures.bench.plant import ORIGIN_NS
from fixtures.instruments.front_end import TICK_HZ, FrontEnd, Wiring
from rig.conformance.device import check_meter
from rig.errors import MeterError, MeterSilentError, MissingExtraError, SetupError, UsageError
from rig.types import Meter

IDLE_W, RUN_W, SUPPLY_V = 0.0018, 0.09, 1.8
BASE_HZ, PATH, BLOCK_S = 2_000_000, "u/js220/000123", 0.01
BENCH = Wiring(noise=0.0, gain_limit=0.0, offset_limit=0.0, resolution=0.0, supply_v=SUPPLY_V)


class FakeDriver:
    """One instrument, streaming a plant's rail in blocks of 10 ms from a thread of its own."""

    plant: LivePlant
    paths: tuple[str, ...] = (PATH,)
    latest: FakeDriver

    def __init__(self, timeout: Any = None) -> None:
        type(self).latest = self
        self.state: dict[str, Any] = {f"{PATH}/h/filter": 1}
        self.listeners: dict[str, list[Callable[[str, Any], None]]] = {}
        self.skip_s, self.mute, self.from_tick, self.finalized = 0.0, False, 0.0, False
        self.probe = FrontEnd(self.plant, BENCH)
        self.origin: float | None = None
        self._live: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def device_paths(self, timeout: Any = None) -> list[str]:
        return list(self.paths)

    def open(self, device_prefix: str, mode: Any = None, timeout: Any = None) -> None:
        self.state["open"] = device_prefix

    def close(self, device_prefix: str, timeout: Any = None) -> None:
        self.state["open"] = None

    def finalize(self, timeout: Any = None) -> None:
        self._stop()
        self.finalized = True

    def query(self, topic: str, timeout: Any = None) -> Any:
        if topic not in self.state:
            raise RuntimeError("jsdrv_query failed 16 NOT_FOUND")
        return self.state[topic]

    def subscribe(self, topic: str, flags: Any, fn: Any, timeout: Any = None) -> None:
        self.listeners.setdefault(topic, []).append(fn)

    def unsubscribe(self, topic: str, fn: Any, timeout: Any = None) -> None:
        self.listeners[topic].remove(fn)

    def publish(self, topic: str, value: Any, timeout: Any = None) -> None:
        if topic.endswith("h/fs") and BASE_HZ % value:
            raise RuntimeError("jsdrv_publish failed 5 PARAMETER_INVALID")
        self.state[topic] = value
        if topic.endswith("/ctrl"):
            signal = topic.removeprefix(f"{PATH}/s/").removesuffix("/ctrl")
            self._stop(signal)
            if value and signal != "gpi/3":
                halt = threading.Event()
                target = self._bits if signal.startswith("gpi") else self._values
                self._live[signal] = threading.Thread(target=target, args=(signal, halt), daemon=True), halt
                self._live[signal][0].start()

    def unplug(self) -> None:
        self._stop()
        for fn in self.listeners.get("@/!remove", []):
            fn("@/!remove", PATH)

    def _stop(self, signal: str | None = None) -> None:
        for name in [signal] if signal is not None else list(self._live):
            thread, halt = self._live.pop(name, (None, None))
            if thread is not None and halt is not None:
                halt.set()
                thread.join(2.0)

    def _begun(self, hz: float) -> int:
        """The number, at a rate, of the first sample from now on; the instrument's own count goes on by itself."""
        now = self.probe.tick()
        self.origin = now if self.origin is None else self.origin
        return math.ceil((now - self.origin) / TICK_HZ * hz)

    def _send(self, signal: str, k: int, factor: int, data: np.ndarray) -> None:
        block = {"sample_id": 4_000_000 + k * factor, "sample_rate": BASE_HZ, "decimate_factor": factor, "utc": 0}
        for fn in list(self.listeners.get(f"{PATH}/s/{signal}/!data", [])):
            fn(f"{PATH}/s/{signal}/!data", block | {"data": data})

    def _values(self, signal: str, halt: threading.Event) -> None:
        hz = self.state[f"{PATH}/h/fs"]
        factor, n, k = BASE_HZ // hz, max(1, round(hz * BLOCK_S)), self._begun(hz)
        assert self.origin is not None
        self.from_tick = self.origin + k * TICK_HZ / hz
        while True:
            ended = halt.wait(BLOCK_S / 2)
            until_s = (self.probe.tick(0.02) - self.origin) / TICK_HZ
            while not self.mute and (k + n) / hz <= until_s:
                tick = self.origin + (k + np.arange(n)) * TICK_HZ / hz
                value = self.probe.read("CURR", 1.0, tick, 1.0 / hz) * (SUPPLY_V if signal == "p" else 1.0)
                self._send(signal, k, factor, value.astype(np.float32))
                skipped = round(self.skip_s * hz)
                self.skip_s = 0.0
                k += n + skipped
            if ended:
                return

    def _bits(self, signal: str, halt: threading.Event) -> None:
        """An input at half the instrument's rate; blocks that are no whole number of bytes."""
        hz, n = BASE_HZ // 2, 9_997
        k = self._begun(hz)
        assert self.origin is not None
        while True:
            ended = halt.wait(BLOCK_S / 2)
            until_s = (self.probe.tick(0.05) - self.origin) / TICK_HZ
            while (k + n) / hz <= until_s:
                pin = list(self.plant.pin)
                began, over = (self.probe.true_ns(self.origin + at * TICK_HZ / hz) for at in (k, k + n))
                at_s = (began - ORIGIN_NS) * 1e-9 + np.arange(n) * ((over - began) * 1e-9 / n)
                level = np.array([self.plant.pin_rest, *(after for _, after in pin)], np.uint8)
                seen = level[np.searchsorted([at for at, _ in pin], at_s, side="right")]
                self._send(signal, k, 2, np.packbits(seen, bitorder="little"))
                k += n
            if ended:
                return


@pytest.fixture
def plant() -> LivePlant:
    plant = live_plant()
    plant.install({"core": IDLE_W}, {"inference": {"core": RUN_W}})
    return plant


@pytest.fixture
def fake(plant: LivePlant, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeDriver]]:
    driver: type[FakeDriver] = type("Driver", (FakeDriver,), {"plant": plant})
    module = ModuleType("pyjoulescope_driver")
    module.Driver, module.__version__ = driver, "2.2.12"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", module)
    yield driver
    latest = vars(driver).get("latest")
    if latest is not None:
        latest.finalize()


def opened(**options: Any) -> Meter:
    return joulescope.open_meter(**({"rate_hz": 20_000.0} | options))


def recorded(meter: Meter, seconds: float) -> np.ndarray:
    meter.start()
    time.sleep(seconds)
    got = [*meter.read(), *meter.stop()]
    meter.close()
    return np.concatenate([chunk.value for chunk in got])


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


@pytest.mark.parametrize(("signal", "volts"), [("power", 1.0), ("current", SUPPLY_V)])
def test_its_readings_are_the_plants(plant: LivePlant, fake: type[FakeDriver], signal: str, volts: float) -> None:
    meter = opened(signal=signal, supply_v=SUPPLY_V)
    bracket = meter.start()
    on_ns = plant.clock.now_ns() + 30_000_000
    plant.occupy("inference", on_ns, on_ns + 50_000_000)
    time.sleep(0.18)
    got = np.concatenate([chunk.value for chunk in [*meter.read(), *meter.stop()]])
    began_ns = fake.latest.probe.true_ns(fake.latest.from_tick)
    meter.close()
    assert bracket.before_ns <= began_ns <= bracket.after_ns
    at_s = (began_ns - on_ns) * 1e-9 + np.arange(len(got)) / 20_000
    busy = (at_s > 1e-3) & (at_s < 0.049)
    idle = (at_s < -1e-3) | (at_s > 0.051)
    assert got[busy] == pytest.approx(RUN_W / volts, rel=1e-6)
    assert got[idle] == pytest.approx(IDLE_W / volts, rel=1e-6)


def test_readings_missing_by_their_numbers_are_nan(fake: type[FakeDriver]) -> None:
    meter = opened()
    meter.start()
    fake.latest.skip_s = 0.03
    time.sleep(0.15)
    got = np.concatenate([chunk.value for chunk in [*meter.read(), *meter.stop()]])
    meter.close()
    assert np.count_nonzero(np.isnan(got)) == 600


def test_unplugged_in_the_middle_it_gives_what_it_had_and_then_an_error(fake: type[FakeDriver]) -> None:
    meter = opened()
    meter.start()
    time.sleep(0.1)
    fake.latest.unplug()
    count, began_s = 0, time.monotonic()
    with pytest.raises(MeterError, match="unplugged"):
        while time.monotonic() - began_s < 2.0:
            count += sum(len(chunk.value) for chunk in meter.read())
            time.sleep(0.01)
    assert time.monotonic() - began_s < 0.3
    assert count > 1000
    meter.close()


def test_silence_is_told_within_the_timeout(fake: type[FakeDriver]) -> None:
    meter = opened(timeout_s=0.2)
    meter.start()
    fake.latest.mute = True
    began_s = time.monotonic()
    with pytest.raises(MeterSilentError):
        while time.monotonic() - began_s < 2.0:
            meter.read()
            time.sleep(0.01)
    assert time.monotonic() - began_s < 0.5
    meter.close()


def test_readings_that_nobody_reads_are_bounded(fake: type[FakeDriver]) -> None:
    meter = opened(hold_s=0.05)
    meter.start()
    time.sleep(0.25)
    meter.read()
    with pytest.raises(MeterError, match="waiting"):
        meter.read()
    meter.close()


def test_closing_lets_go_of_instrument_and_driver(fake: type[FakeDriver]) -> None:
    opened().close()
    assert fake.latest.finalized
    assert fake.latest.state["open"] is None


def test_a_rate_that_it_has_not_is_a_setup_error_and_the_driver_is_let_go(fake: type[FakeDriver]) -> None:
    with pytest.raises(SetupError, match="refuses"):
        opened(rate_hz=30_000.0)
    assert fake.latest.finalized


def test_of_several_one_must_be_named(fake: type[FakeDriver]) -> None:
    fake.paths = (PATH, "u/js110/000007")
    with pytest.raises(SetupError, match="Connected"):
        opened()
    opened(instrument="000123").close()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        opened()


@pytest.mark.parametrize("options", [{"signal": "volts"}, {"signal": "current"}, {"rate_hz": 0.5}, {"hold_s": 0.0}])
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(**options)


# ---- inputs -------------------------------------------------------------------------------


def edges_of(meter: Meter, plant: LivePlant, seconds: float = 0.2) -> tuple[np.ndarray, np.ndarray, int]:
    """Ticks and levels that were recorded while the plant's pin is high from 20 to 50 ms, and when tick 0 was."""
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
    began_ns = fake.latest.probe.true_ns(fake.latest.from_tick) - ORIGIN_NS
    assert levels.tolist() == [1, 0]
    # the instrument runs 30 ppm fast, and sees an edge when it looks next, a microsecond later at most
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
    for first, level in ((100, 0), (116, 0), (148, 1), (164, 0)):
        bits.add(block(first, 8 * [level]))
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


@pytest.mark.parametrize(
    "options", [{"mark_input": 5}, {"mark_input": 0, "pin": "high"}, {"mark_input": 0, "mark_vref": "5"}]
)
def test_inputs_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(**options)
