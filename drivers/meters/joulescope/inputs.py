"""The general purpose inputs of a Joulescope: a stream of bits beside the readings, recorded as edges.

Bits come packed, the lowest first (``pyjoulescope_driver``, ``record.py`` and its tests). They are numbered by the
instrument's own samples like all of its streams, so that edges are on the clock of the readings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed, quietly
from rig.bench.option_checks import within
from rig.errors import SetupError
from rig.types import Chunk, Pin, Rail


@dataclass(frozen=True)
class Mark:
    """The options of an input: its number, what the device does with it, and the voltage of the inputs."""

    mark_input: Literal[0, 1, 2, 3, 7] | None = None
    pin: Pin = "level"
    pin_lag_s: Annotated[float, partial(within, 0.0, 1.0, "s")] = 0.0
    mark_vref: Literal["", "3v3", "extern"] = ""


class Bits:
    """Numbered blocks of bits as edges. ``add`` is called in the package's thread, ``edges`` in the meter's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[int, NDArray[np.uint8]] | None = None
        self._level: int | None = None
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
        self._next, self.sample_hz, self.rate_hz = -1, 0.0, 0.0

    def add(self, block: Mapping[str, Any]) -> None:
        """Add a block. Its last byte may be padded; the begin of the next block shows how many bits are valid."""
        factor, first = int(block["decimate_factor"]), int(block["sample_id"])
        bits = np.unpackbits(np.array(block["data"], dtype=np.uint8), bitorder="little")
        with self._lock:
            self.sample_hz = float(block["sample_rate"])
            self.rate_hz = self.sample_hz / factor
            if self._held is not None:
                self._take(factor, min((first - self._held[0]) // factor, len(self._held[1])))
            self._held = (first, bits)

    def edges(self, ended: bool) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the sample number of each edge since the last call, and the level after it; shapes (n,)."""
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
        if self._level is None or first != self._next:  # an edge in lost blocks has no known time
            self._level = int(bits[0])
        at = np.flatnonzero(np.diff(bits, prepend=np.uint8(self._level)))
        if len(at):
            self._edges.append((first + at * factor, bits[at]))
        self._level, self._next = int(bits[-1]), first + len(bits) * factor


class Input:
    """One input of the instrument at ``path``; number 7 is the trigger. ``rail`` is its declaration.

    The input is started for a moment to find its rate. Raises ``SetupError`` if it sends nothing within ``timeout_s``.
    """

    def __init__(self, driver: Any, path: str, name: str, mark: Mark, timeout_s: float) -> None:
        number, vref = mark.mark_input, mark.mark_vref
        self._driver, self._bits = driver, Bits()
        self._data, self._ctrl = f"{path}/s/gpi/{number}/!data", f"{path}/s/gpi/{number}/ctrl"
        self._callback = self._on_data  # the package unsubscribes the same object only
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
        """Start the stream."""
        self._bits = Bits()
        self._driver.subscribe(self._data, "pub", self._callback)
        self._driver.publish(self._ctrl, 1)

    def stop(self) -> None:
        """Stop the stream if the instrument still answers. Bits that have arrived are kept."""
        quietly(self._driver.publish, self._ctrl, 0)
        quietly(self._driver.unsubscribe, self._data, self._callback)

    def edges(self, zero_id: int, tick_hz: float, ended: bool = False) -> Chunk:
        """Edges since the last call, in ticks from the sample numbered ``zero_id`` on."""
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
