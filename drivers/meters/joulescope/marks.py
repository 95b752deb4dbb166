"""The general purpose inputs of a Joulescope: a stream of bits beside the current's, as edges.

Bits come packed, the lowest first (``pyjoulescope_driver``, ``record.py`` and its tests), numbered by the instrument's
own samples as all of its streams are, so that an edge stands on the same clock as the readings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from rig.errors import MeterError, SetupError, UsageError
from rig.types import Bracket, Chunk, Meter, MeterInfo, Pin, Rail

INPUTS = (0, 1, 2, 3, 7)
"""``7`` is the trigger input."""


@dataclass(frozen=True)
class Marking:
    """What was asked of an input: its number, what the pin does, and how far that may lag (s)."""

    number: int
    pin: Pin
    lag_s: float
    vref: str

    @property
    def topic(self) -> str:
        """Below the instrument's own path."""
        return f"s/gpi/{self.number}"


def marking(number: int | None, pin: str, lag_s: float, vref: str) -> Marking | None:
    """The options as one; None without an input. Raises ``UsageError`` for what cannot be meant."""
    if number is None:
        return None
    for name, value, known in (
        ("mark_input", number, INPUTS),
        ("pin", pin, get_args(Pin)),
        ("mark_vref", vref, ("", "3v3", "extern")),
    ):
        if value not in known:
            texts = ", ".join(str(k) for k in known if k != "")
            raise UsageError(f"option {name} is {value!r}", field=name, value=value, remedy=f"Give one of {texts}")
    if not 0.0 <= lag_s < 1.0:
        raise UsageError(f"option pin_lag_s is {lag_s}", field="pin_lag_s", value=lag_s, remedy="Give 0 to 1 s")
    use: Any = pin
    return Marking(number, use, lag_s, vref)


class Bits:
    """Numbered blocks of bits as edges. ``add`` in the package's thread, ``edges`` in ours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[int, NDArray[np.uint8]] | None = None
        self._level: int | None = None
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
        self._next, self.sample_hz, self.rate_hz = -1, 0.0, 0.0

    def add(self, block: Mapping[str, Any]) -> None:
        """A block. Its last byte may hold bits that are none; where the next one begins tells."""
        factor, first = int(block["decimate_factor"]), int(block["sample_id"])
        bits = np.unpackbits(np.array(block["data"], dtype=np.uint8), bitorder="little")
        with self._lock:
            self.sample_hz = float(block["sample_rate"])
            self.rate_hz = self.sample_hz / factor
            if self._held is not None:
                self._take(factor, min((first - self._held[0]) // factor, len(self._held[1])))
            self._held = (first, bits)

    def edges(self, ended: bool) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The instrument's number of each edge since the last call, and the level after it, shapes (n,)."""
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
        if self._level is None or first != self._next:  # what changed while blocks were lost has no time
            self._level = int(bits[0])
        at = np.flatnonzero(np.diff(bits, prepend=np.uint8(self._level)))
        if len(at):
            self._edges.append((first + at * factor, bits[at]))
        self._level, self._next = int(bits[-1]), first + len(bits) * factor


class Numbered(Protocol):
    """A stream of readings that knows the instrument's number of its first one, once that has come."""

    zero_id: int | None


class MarkedMeter:
    """A meter with an input beside it: ``meter`` gives the readings, ``source`` the number of the first."""

    def __init__(self, meter: Meter, source: Numbered, driver: Any, path: str, rail: Rail, mark: Marking) -> None:
        self._meter, self._source, self._driver, self._rail = meter, source, driver, rail
        self._data, self._ctrl = f"{path}/{mark.topic}/!data", f"{path}/{mark.topic}/ctrl"
        self._bits = Bits()
        self._hear = self._heard
        self._on = False

    def info(self) -> MeterInfo:
        """What the instrument was set to, the input included."""
        info = self._meter.info()
        return replace(info, rails=(*info.rails, self._rail))

    def start(self) -> Bracket:
        """Start both streams; the first reading begins at the tick in the bracket."""
        self._bits = Bits()
        streamed(self._driver, self._data, self._ctrl, self._hear)
        self._on = True
        return self._meter.start()

    def read(self) -> Sequence[Chunk]:
        """Readings, and edges that came with or before them."""
        return [*self._meter.read(), *self._edges(False)]

    def stop(self) -> Sequence[Chunk]:
        """Stop both streams and deliver the rest."""
        chunks = self._meter.stop()
        self._quiet()
        return [*chunks, *self._edges(True)]

    def close(self) -> None:
        """Stop and let go."""
        self._quiet()
        self._meter.close()

    def _heard(self, topic: str, block: Mapping[str, Any]) -> None:
        self._bits.add(block)

    def _edges(self, ended: bool) -> list[Chunk]:
        zero = self._source.zero_id
        if zero is None:
            return []
        number, level = self._bits.edges(ended)
        use = number >= zero
        if not np.any(use):
            return []
        rate_hz = self._rail.rate_hz
        if abs(self._bits.rate_hz - rate_hz) > 1e-6 * rate_hz:
            raise MeterError(
                f"the input is looked at {self._bits.rate_hz:g} times a second, and {rate_hz:g} when it was tried",
                field="mark_input", value=self._bits.rate_hz, remedy="Set nothing of it from another program",
            )  # fmt: skip
        tick_hz = self._meter.info().clock.tick_hz
        tick = np.round((number[use] - zero) * (tick_hz / self._bits.sample_hz)).astype(np.int64)
        return [Chunk(self._rail.name, level[use], tick, tick)]

    def _quiet(self) -> None:
        if self._on:
            hushed(self._driver, self._data, self._ctrl, self._hear)
        self._on = False


def marked_rail(driver: Any, path: str, mark: Marking, rail: str, timeout_s: float) -> Rail:
    """Try the input for a moment: how often it is looked at. Raises ``SetupError`` for one that streams nothing."""
    data, ctrl = f"{path}/{mark.topic}/!data", f"{path}/{mark.topic}/ctrl"
    bits = Bits()

    def hear(topic: str, block: Mapping[str, Any]) -> None:
        bits.add(block)

    try:
        if mark.vref:
            driver.publish(f"{path}/c/gpio/vref", mark.vref)
        streamed(driver, data, ctrl, hear)
        until_s = time.monotonic() + timeout_s
        while not bits.rate_hz and time.monotonic() < until_s:
            time.sleep(1e-3)
    except Exception as error:
        raise _no_input(path, mark, str(error)) from error
    finally:
        hushed(driver, data, ctrl, hear)
    if not bits.rate_hz:
        raise _no_input(path, mark, f"nothing came within {timeout_s:g} s")
    return Rail(f"{rail} in{mark.number}", "edges", rate_hz=bits.rate_hz, pin=mark.pin, pin_lag_s=mark.lag_s)


def streamed(driver: Any, data: str, ctrl: str, hear: Any) -> None:
    """Begin a stream."""
    driver.subscribe(data, "pub", hear)
    driver.publish(ctrl, 1)


def hushed(driver: Any, data: str, ctrl: str, hear: Any) -> None:
    """End a stream, as far as the instrument still listens."""
    for call, values in ((driver.publish, (ctrl, 0)), (driver.unsubscribe, (data, hear))):
        with suppress(Exception):
            call(*values)


def _no_input(path: str, mark: Marking, why: str) -> SetupError:
    return SetupError(
        f"the input {mark.number} of {path} cannot be streamed: {why}", field="mark_input", value=mark.number,
        remedy="A JS110 has inputs 0 and 1, a JS220 and JS320 0 to 3; 7 is the trigger input",
    )  # fmt: skip
