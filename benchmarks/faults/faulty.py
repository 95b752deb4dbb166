"""A device and a meter that fail on purpose; options set which call fails, how, and after how many calls."""

import time
from collections.abc import Callable
from typing import Any

from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.mock_meter import open_meter as open_mock_meter
from fixtures.bench.true_power import SimPlant
from rig.types import Device, Meter


class Odd:
    """An object that fits no interface."""


def _raise(error: BaseException) -> Any:
    raise error


WAYS: dict[str, Callable[[Any], Any]] = {
    "exception": lambda _: _raise(RuntimeError("it broke")),
    "system-exit": lambda _: _raise(SystemExit(0)),
    "generator-exit": lambda _: _raise(GeneratorExit()),
    "interrupt": lambda _: _raise(KeyboardInterrupt()),
    "base-exception": lambda _: _raise(BaseException("out of the ordinary")),
    "stop-iteration": lambda _: _raise(StopIteration()),
    "memory": lambda _: _raise(MemoryError()),
    "none": lambda _: None,
    "odd": lambda _: Odd(),
    "nan": lambda _: float("nan"),
    "huge": lambda _: 1 << 62,
    "text": lambda _: "x" * 1000,
    "hang": lambda _: time.sleep(3600.0),
}


class Faulty:
    """Passes every call on, but one kind of call fails after its first ``after`` calls."""

    def __init__(self, inner: Any, call: str, way: str, after: int) -> None:
        self._inner, self._call, self._way, self._after = inner, call, way, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._call:
            return found

        def spoiled(*args: Any, **more: Any) -> Any:
            self._after -= 1
            return found(*args, **more) if self._after >= 0 else WAYS[self._way](None)

        return spoiled


def open_device(bench: SimPlant, *, device_call: str = "", device_way: str = "none", device_after: int = 0) -> Device:
    """Make a mock device whose call ``device_call`` fails; with ``open``, opening itself fails."""
    if device_call == "open":
        WAYS[device_way](None)
    return Faulty(open_mock_device(bench, inference_s=0.02, timeout_s=2.0), device_call, device_way, device_after)


def open_meter(bench: SimPlant, *, meter_call: str = "", meter_way: str = "none", meter_after: int = 0) -> Meter:
    """Make a mock meter whose call ``meter_call`` fails; with ``open``, opening itself fails."""
    if meter_call == "open":
        WAYS[meter_way](None)
    return Faulty(open_mock_meter(bench), meter_call, meter_way, meter_after)
