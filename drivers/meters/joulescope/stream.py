"""The readings that a Joulescope streams, as a source: they arrive in the thread of its package."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from drivers.failures import meter_failed, quietly
from drivers.meters.joulescope.inputs import Input
from drivers.meters.threaded import Batch, GapFiller, first_reading
from rig.errors import MeterError, MeterSilentError
from rig.types import Bracket, Chunk, Clock, Floats, MeterInfo

GONE = "@/!remove"
GAP_MOST_S = 10.0


class JoulescopeStream:
    """The ``Source``: a signal's readings, and the edges of an input where there is one."""

    def __init__(
        self, driver: Any, path: str, signal: str, info: MeterInfo, marks: Input | None, timeout_s: float, most: int
    ) -> None:
        self._driver, self._path, self._info, self._marks = driver, path, info, marks
        self._timeout_s, self._most = timeout_s, most
        self._data, self._ctrl = f"{path}/s/{signal}/!data", f"{path}/s/{signal}/ctrl"
        self._lock = threading.Lock()
        self._blocks: deque[tuple[int, float, Floats]] = deque()
        self._held, self._heard_s, self._arrived_ns = 0, 0.0, 0
        self._gone = self._full = self._streaming = False
        self._zero_id: int | None = None  # the sample number of the first reading, at tick 0
        self._callback, self._on_gone = self._on_data, self._on_removed  # it unsubscribes the same object only
        driver.subscribe(GONE, "pub", self._on_gone)

    def begin(self, clock: Clock) -> Bracket:
        """Start the stream and await its first block."""
        rate_hz = self._info.rails[0].rate_hz
        self._blocks.clear()
        self._held, self._arrived_ns, self._clock, self._zero_id = 0, 0, clock, None
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
            self._held = 0
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
        """Copy a block, whose memory is the package's. Called in the package's thread."""
        factor = int(block["decimate_factor"])
        value = np.array(block["data"], dtype=np.float32)
        with self._lock:
            self._heard_s = time.monotonic()
            self._arrived_ns = self._arrived_ns or self._clock.now_ns()
            self._full = self._full or self._held > self._most
            if len(value) and not self._full:
                sample_id = int(block["sample_id"])
                self._zero_id = sample_id if self._zero_id is None else self._zero_id
                number = sample_id // factor - self._zero_id // factor
                self._blocks.append((number, block["sample_rate"] / factor, value))
                self._held += len(value)

    def _on_removed(self, topic: str, path: Any) -> None:
        self._gone = self._gone or path == self._path

    def _check(self) -> None:
        """Raise an error of the instrument, after all data before the error has been taken."""
        if self._blocks:
            return
        silent_s = time.monotonic() - self._heard_s
        who = f"the Joulescope {self._path}"
        if self._gone:
            raise meter_failed(f"{who} was unplugged", "instrument", self._path, "Check its cable")
        if self._full:
            what = f"{self._most} readings of {who} were not yet read, which is the most that can wait"
            raise meter_failed(what, "hold_s", self._most, "Lower rate_hz")
        if self._streaming and silent_s > self._timeout_s:
            what = f"{who} has sent nothing for {self._timeout_s:g} s"
            raise meter_failed(what, "timeout_s", silent_s, "Check its cable", MeterSilentError)

    def _call(self, what: str, *values: Any) -> None:
        try:
            getattr(self._driver, what)(*values, timeout=self._timeout_s)
        except Exception as error:  # RuntimeError, TimeoutError and what a callback throws
            what = f"the Joulescope {self._path} did not accept {what} {values[0]}: {error}"
            raise meter_failed(what, "instrument", self._path, "Check its cable") from error


def let_go(driver: Any, path: str) -> None:
    """Close an instrument, where one is open, and the package's driver."""
    if path:
        quietly(driver.close, path)
    quietly(driver.finalize)
