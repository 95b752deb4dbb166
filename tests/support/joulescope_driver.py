"""A stand-in for the package ``pyjoulescope_driver``, with its signatures, that streams a plant's rail in real time."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fixtures.bench.live_plant import LivePlant
from fixtures.bench.true_power import ORIGIN_NS
from fixtures.instruments.front_end import EXACT, TICK_HZ, FrontEnd
from tests.support.meters import SUPPLY_V

BASE_HZ, PATH, BLOCK_S = 2_000_000, "u/js220/000123", 0.01


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
        self.front_end = FrontEnd(self.plant, replace(EXACT, supply_v=SUPPLY_V))
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
        now = self.front_end.tick()
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
            until_s = (self.front_end.tick(0.02) - self.origin) / TICK_HZ
            while not self.mute and (k + n) / hz <= until_s:
                tick = self.origin + (k + np.arange(n)) * TICK_HZ / hz
                value = self.front_end.read("CURR", 1.0, tick, 1.0 / hz) * (SUPPLY_V if signal == "p" else 1.0)
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
            until_s = (self.front_end.tick(0.05) - self.origin) / TICK_HZ
            while (k + n) / hz <= until_s:
                pin = list(self.plant.pin)
                began, over = (self.front_end.true_ns(self.origin + at * TICK_HZ / hz) for at in (k, k + n))
                at_s = (began - ORIGIN_NS) * 1e-9 + np.arange(n) * ((over - began) * 1e-9 / n)
                level = np.array([self.plant.pin_rest, *(after for _, after in pin)], np.uint8)
                seen = level[np.searchsorted([at for at, _ in pin], at_s, side="right")]
                self._send(signal, k, 2, np.packbits(seen, bitorder="little"))
                k += n
            if ended:
                return


def installed(plant: LivePlant, monkeypatch: pytest.MonkeyPatch) -> type[FakeDriver]:
    """The driver of one instrument on ``plant``, in the place of the package."""
    driver: type[FakeDriver] = type("Driver", (FakeDriver,), {"plant": plant})
    module = ModuleType("pyjoulescope_driver")
    module.Driver, module.__version__ = driver, "2.2.12"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", module)
    return driver
