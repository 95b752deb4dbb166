"""A Joulescope's stream of readings as a ``Source``. The readings arrive in a thread of the driver package.

The general purpose inputs are separate streams of bits, recorded as edges. Bits are packed, the lowest first
(``pyjoulescope_driver``, ``record.py`` and its tests). The instrument numbers them by its own samples, as in all its
streams, so edges and readings have the same clock.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed, quietly, raising
from drivers.meters.threaded import Batch, GapFiller, first_reading
from rig.bench.settings import within
from rig.errors import MeterError, MeterSilentError, SetupError
from rig.types import Bracket, Chunk, Clock, Floats, MeterInfo, Pin, Rail

GONE = "@/!remove"
GAP_MOST_S = 10.0


@dataclass(frozen=True)
class Mark:
    """The options of an input: its number, what the device does with it, and the voltage of the inputs."""

    mark_input: Literal[0, 1, 2, 3, 7] | None = None
    pin: Pin = "level"
    pin_lag_s: Annotated[float, partial(within, 0.0, 1.0, "s")] = 0.0
    mark_vref: Literal["", "3v3", "extern"] = ""


class Bits:
    """Turns numbered blocks of bits into edges. The package's thread calls ``add``, the meter's thread ``edges``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[int, NDArray[np.uint8]] | None = None
        self._level: int | None = None
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
        self._next, self.sample_hz, self.rate_hz = -1, 0.0, 0.0

    def add(self, block: Mapping[str, Any]) -> None:
        """Add a block. Its last byte may be padded, so the next block's number tells how many bits are valid."""
        factor, first = int(block["decimate_factor"]), int(block["sample_id"])
        bits = np.unpackbits(np.array(block["data"], dtype=np.uint8), bitorder="little")
        with self._lock:
            self.sample_hz = float(block["sample_rate"])
            self.rate_hz = self.sample_hz / factor
            if self._held is not None:
                self._take(factor, min((first - self._held[0]) // factor, len(self._held[1])))
            self._held = (first, bits)

    def edges(self, ended: bool) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the sample number of each edge since the last call, and the level after the edge; shapes (n,)."""
        with self._lock:
            if ended and self._held is not None and self.rate_hz:
                self._take(round(self.sample_hz / self.rate_hz), len(self._held[1]) - 7)
                self._held = None
            got, self._edges = self._edges, []
        if not got:
            return np.zeros(0, np.int64), np.zeros(0, np.uint8)
        at, level = (np.concatenate(part) for part in zip(*got, strict=True))
        return at, level

    def _take(self, factor: int, count: int) -> None:
        assert self._held is not None
        first, bits = self._held[0], self._held[1][: max(count, 0)]
        if not len(bits):
            return
        if self._level is None or first != self._next:  # an edge inside lost blocks has no known time
            self._level = int(bits[0])
        at = np.flatnonzero(np.diff(bits, prepend=np.uint8(self._level)))
        if len(at):
            self._edges.append((first + at * factor, bits[at]))
        self._level, self._next = int(bits[-1]), first + len(bits) * factor


class Input:
    """One input of the instrument at ``path``; number 7 is the trigger. ``rail`` describes it as a rail of edges.

    The input is started for a moment to find its rate. Raises ``SetupError`` if it sends nothing within ``timeout_s``.
    """

    def __init__(self, driver: Any, path: str, name: str, mark: Mark, timeout_s: float) -> None:
        number, vref = mark.mark_input, mark.mark_vref
        self._driver, self._bits = driver, Bits()
        self._data, self._ctrl = f"{path}/s/gpi/{number}/!data", f"{path}/s/gpi/{number}/ctrl"
        self._callback = self._on_data  # the package unsubscribes only the same object
        why = f"no data arrived within {timeout_s:g} s"
        try:
            if vref == "3v3" and "/js110/" in path:
                driver.publish(f"{path}/s/extio/voltage", "3.3V")
            elif vref:
                driver.publish(f"{path}/c/gpio/vref", vref)
            self.start()
            until_s = time.monotonic() + timeout_s
            while not self._bits.rate_hz and time.monotonic() < until_s:
                time.sleep(1e-3)
        except Exception as error:
            why = str(error)
        finally:
            self.stop()
        if not self._bits.rate_hz:
            what = f"the input {number} of {path} cannot be streamed: {why}"
            remedy = "A JS110 has inputs 0 and 1, and no mark_vref=extern; later models have 0 to 3, and 7 (trigger)"
            raise SetupError(what, field="mark_input", value=number, remedy=remedy)
        rate_hz = self._bits.rate_hz
        self.rail = Rail(f"{name} in{number}", "edges", rate_hz=rate_hz, pin=mark.pin, pin_lag_s=mark.pin_lag_s)

    def start(self) -> None:
        self._bits = Bits()
        self._driver.subscribe(self._data, "pub", self._callback)
        self._driver.publish(self._ctrl, 1)

    def stop(self) -> None:
        """Stop the stream if the instrument still answers. Bits that have arrived are kept."""
        quietly(self._driver.publish, self._ctrl, 0)
        quietly(self._driver.unsubscribe, self._data, self._callback)

    def edges(self, zero_id: int, tick_hz: float, ended: bool = False) -> Chunk:
        """Return the edges since the last call, in ticks since the sample numbered ``zero_id``."""
        number, level = self._bits.edges(ended)
        use = number >= zero_id
        rate_hz = self.rail.rate_hz
        if np.any(use) and abs(self._bits.rate_hz - rate_hz) > 1e-6 * rate_hz:
            what = f"the input is sampled at {self._bits.rate_hz:g} Hz, but it was at {rate_hz:g} Hz when it was opened"
            remedy = "Do not change its settings from another program"
            raise meter_failed(what, "mark_input", self._bits.rate_hz, remedy)
        ticks_per_sample = tick_hz / self._bits.sample_hz if self._bits.sample_hz else 0.0
        tick = np.round((number[use] - zero_id) * ticks_per_sample).astype(np.int64)
        return Chunk(self.rail.name, level[use], tick, tick)

    def _on_data(self, topic: str, block: Mapping[str, Any]) -> None:
        self._bits.add(block)


class JoulescopeStream:
    """The ``Source``: the readings of power, and the edges of an input if one is set."""

    def __init__(self, driver: Any, path: str, info: MeterInfo, marks: Input | None, timeout_s: float) -> None:
        self._driver, self._path, self._info, self._marks = driver, path, info, marks
        self._timeout_s = timeout_s
        self._data, self._ctrl = f"{path}/s/p/!data", f"{path}/s/p/ctrl"
        self._lock = threading.Lock()
        self._blocks: deque[tuple[int, float, Floats]] = deque()
        self._heard_s, self._arrived_ns = 0.0, 0
        self._gone = self._streaming = False
        self._zero_id: int | None = None  # the sample number of the first reading, at tick 0
        self._callback, self._on_gone = self._on_data, self._on_removed  # the package unsubscribes only the same object
        driver.subscribe(GONE, "pub", self._on_gone)

    def begin(self, clock: Clock) -> Bracket:
        """Start the stream and wait for its first block. Raises ``MeterError`` if the block has another rate."""
        rate_hz = self._info.rails[0].rate_hz
        self._blocks.clear()
        self._arrived_ns, self._clock, self._zero_id = 0, clock, None
        self._gaps = GapFiller(self._info.name, round(GAP_MOST_S * rate_hz))
        if self._marks is not None:
            self._marks.start()
        self._call("subscribe", self._data, "pub", self._callback)
        self._streaming, self._heard_s = True, time.monotonic()
        before_ns = clock.now_ns()
        self._call("publish", self._ctrl, 1)
        while not self._blocks:
            self._check()
            time.sleep(1e-3)
        with self._lock:
            _, hz, value = self._blocks[0]
            arrived_ns = self._arrived_ns
        if abs(hz - rate_hz) > 1e-6 * rate_hz:
            what = f"the Joulescope streams {hz:g} readings/s but was set to {rate_hz:g}"
            remedy = f"Give rate_hz={hz:g}, or another rate that it supports"
            raise MeterError(what, field="rate_hz", value=hz, remedy=remedy)
        return first_reading(before_ns, arrived_ns, len(value), rate_hz, self._info.clock.tolerance)

    def fetch(self, ended: bool = False) -> Iterator[Batch]:
        self._check()
        with self._lock:
            blocks = list(self._blocks)
            self._blocks.clear()
        supply, *_ = self._info.rails
        parts = [self._gaps.take(number, value) for number, _, value in blocks]
        chunks = [Chunk(supply.name, np.concatenate([np.zeros(0, np.float32), *parts]))]
        if self._marks is not None and self._zero_id is not None:
            chunks.append(self._marks.edges(self._zero_id, self._info.clock.tick_hz, ended))
        yield chunks

    def finish(self) -> Iterator[Batch]:
        self._call("publish", self._ctrl, 0)
        self._call("unsubscribe", self._data, self._callback)
        self._streaming = False
        if self._marks is not None:
            self._marks.stop()
        return self.fetch(ended=True)

    def close(self) -> None:
        quietly(self._driver.unsubscribe, self._data, self._callback)
        quietly(self._driver.unsubscribe, GONE, self._on_gone)
        if self._streaming:
            quietly(self._driver.publish, self._ctrl, 0, self._timeout_s)
        self._streaming = False
        if self._marks is not None:
            self._marks.stop()
        let_go(self._driver, self._path)

    def _on_data(self, topic: str, block: Mapping[str, Any]) -> None:
        """Copy a block, because its memory belongs to the package. Called in the package's thread."""
        factor = int(block["decimate_factor"])
        value = np.array(block["data"], dtype=np.float32)
        with self._lock:
            self._heard_s = time.monotonic()
            if len(value):
                self._arrived_ns = self._arrived_ns or self._clock.now_ns()
                sample_id = int(block["sample_id"])
                self._zero_id = sample_id if self._zero_id is None else self._zero_id
                number = sample_id // factor - self._zero_id // factor
                self._blocks.append((number, block["sample_rate"] / factor, value))

    def _on_removed(self, topic: str, path: Any) -> None:
        self._gone = self._gone or path == self._path

    def _check(self) -> None:
        """Raise the instrument's error, but only after all data before the error has been fetched."""
        if self._blocks:
            return
        silent_s = time.monotonic() - self._heard_s
        who = f"the Joulescope {self._path}"
        if self._gone:
            raise meter_failed(f"{who} was unplugged", "instrument", self._path, "Check its cable")
        if self._streaming and silent_s > self._timeout_s:
            what = f"{who} has sent nothing for {self._timeout_s:g} s"
            raise meter_failed(what, "timeout_s", silent_s, "Check its cable", MeterSilentError)

    def _call(self, what: str, *values: Any) -> None:
        said, at = f"the Joulescope {self._path} did not accept {what} {values[0]}", ("instrument", self._path)
        # RuntimeError, TimeoutError and whatever a callback raises
        with raising(lambda error: meter_failed(f"{said}: {error}", *at, "Check its cable"), Exception):
            getattr(self._driver, what)(*values, timeout=self._timeout_s)


def let_go(driver: Any, path: str) -> None:
    """Close the instrument, if it is open, and the package's driver."""
    if path:
        quietly(driver.close, path)
    quietly(driver.finalize)
