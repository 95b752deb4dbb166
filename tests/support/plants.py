"""Record and evaluate a run on a simulated plant, given the options of its device, meter and scenario."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fixtures.bench.mock_device import MockDevice, open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, open_plant
from fixtures.worlds.random_draw import BlankWorkload, blank, steps, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import Run, open_run
from rig.types import Meter, Rules, Step
from scenarios.rules import quick
from scenarios.single_stream import single_stream

Options = dict[str, Any]
Play = Callable[[BlankWorkload], Iterator[Step]]
BARE: Play = partial(steps, idle_s=1.0)
"""A single stream without warm-up, between idle windows of one second."""
STILL: Options = {"noise": 0.0, "gain_limit": 0.0, "offset_limit": 0.0}


@dataclass(frozen=True)
class OnPlant:
    """A recorded run with what made it."""

    plant: SimPlant
    device: Any
    meter: Any
    run: Run
    samples: int

    @cached_property
    def result(self) -> Result:
        """Return what is computed from the recording."""
        return evaluate(self.run)

    def real(self, phase: str = "inference") -> dict[str, float]:
        """Return the true figures of a phase."""
        return truth(self.plant, phase, self.samples)


def on_plant(
    path: Path, play: Play | None = None, *, device: Options | None = None, meter: Options | None = None,
    plant: Options | None = None, stream: Options | None = None, samples: int | BlankWorkload = 20,
    rules: Rules | None = None, driver: Callable[[SimPlant, MockDevice], Any] = lambda plant, device: device,
    read_by: Callable[[SimPlant], Meter] | None = None,
) -> OnPlant:  # fmt: skip
    """Record a run of the mock device, which ``driver`` may change or wrap, and of the mock meter or ``read_by``.

    Without ``play``, it is a single stream with the options ``stream``; its idle windows last a second by default.
    """
    world = open_plant(**plant or {})
    opened = driver(world, open_device(world, **device or {}))
    reader: Any = read_by(world) if read_by else open_meter(world, **meter or {})
    work = blank(samples) if isinstance(samples, int) else samples
    options: Options = {"idle_s": 1.0} | (stream or {})
    phases = opened.info().phases
    played = play(work) if play else single_stream(work, rules or quick("single-stream"), phases=phases, **options)
    scenario = {"name": "single-stream", "options": options}
    record(path, Bench(opened, (reader,), world.clock), work, played, scenario=scenario, rules=rules, argv=[])
    return OnPlant(world, opened, reader, open_run(path), len(work.samples))
