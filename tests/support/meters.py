"""Helpers for tests of meters: read for a while, wait for an error, record a computation, check its figures."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.true_power import SimPlant
from fixtures.worlds.random_draw import blank
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.blocking_device import blocking
from rig.engine.record import record
from rig.errors import MeterError
from rig.recording.reader import open_run
from rig.types import Chunk, DeviceInfo, Floats, Idle, Issue, Meter, Reply, Sample, Span, Step
from tests.support.waiting import until

IDLE_W, RUN_W, SUPPLY_V = 0.0018, 0.09, 1.8
"""Idle and busy power of the rail of the PPK2, and the supply voltage of all instruments."""


def column(chunks: Sequence[Chunk], name: str, rail: str | None = None) -> Any:
    """Return a column of all chunks, or of those of a rail, in one array."""
    return np.concatenate([getattr(chunk, name) for chunk in chunks if rail in (None, chunk.rail)])


def values(chunks: Sequence[Chunk]) -> Floats:
    """Return the values of all chunks, in one array."""
    return np.asarray(column(chunks, "value"))


def taken(meter: Meter, seconds: float, then: Callable[[], object] = lambda: None) -> list[Chunk]:
    """Return all readings from a start to a stop; ``then`` runs after a fifth of the time."""
    meter.start()
    chunks: list[Chunk] = []
    began_s, done = time.monotonic(), False
    while (now_s := time.monotonic()) < began_s + seconds:
        if not done and now_s > began_s + 0.2 * seconds:
            then()
            done = True
        chunks += meter.read()
        time.sleep(0.005)
    return chunks + list(meter.stop())


def at_least(meter: Meter, readings: int, rail: str | None = None) -> list[Chunk]:
    """Return this many readings or more of a rail, or of all rails, from a start to a stop."""
    chunks: list[Chunk] = []

    def enough() -> bool:
        chunks.extend(meter.read())
        return sum(len(chunk.value) for chunk in chunks if rail in (None, chunk.rail)) >= readings

    meter.start()
    until(enough)
    return [*chunks, *meter.stop()]


def ended(meter: Meter) -> tuple[int, MeterError]:
    """Read a meter until it raises; return how many values came before, and the error."""
    until_s, count = time.monotonic() + 60.0, 0
    with pytest.raises(MeterError) as caught:
        while time.monotonic() < until_s:
            count += sum(len(chunk.value) for chunk in meter.read())
            time.sleep(0.005)
    return count, caught.value


@contextmanager
def or_the_machine_was_busy(words: str) -> Iterator[None]:
    """Ignore a meter's error with these words: if readings have no stamps, a busy host looks like a loss."""
    try:
        yield
    except MeterError as error:
        if words not in error.message:
            raise


def error_of(meter: Meter) -> MeterError:
    """Return the error that reading a meter raises."""
    return ended(meter)[1]


def computed(path: Path, plant: SimPlant, meter: Meter, samples: int = 6) -> Result:
    """Record a computation on this computer, which uses the plant's power of ``inference``, and close the meter."""

    def compute(sample: Sample) -> Reply:
        on_ns = time.monotonic_ns() + 30_000_000
        off_ns = on_ns + 60_000_000
        plant.occupy("inference", on_ns, off_ns)
        plant.clock.sleep_until(off_ns + 30_000_000)
        return Reply(sample.id, None, (Span("inference", on_ns, off_ns),))

    workload = blank(samples)
    played: tuple[Step, ...] = (Idle(0.3), *(Issue([sample]) for sample in workload.samples), Idle(0.3))
    with closing(meter), closing(blocking(compute, DeviceInfo("computer", "simulator", timeout_s=5.0))) as device:
        record(path, Bench(device, (meter,), plant.clock), workload, iter(played), scenario={"name": "x"}, argv=[])
    return evaluate(open_run(path))


def check_figures(result: Result, real: Mapping[str, float], half_width: float) -> None:
    """Check that the intervals contain the truth, and that half-widths are below this share of it."""
    for name in ("dynamic_power_w", "active_power_w", "energy_per_inference_j"):
        low, high = result.quantities[name].interval(0.999)
        assert low <= real[name] <= high, name
        assert result.quantities[name].half_width() < half_width * real[name]
