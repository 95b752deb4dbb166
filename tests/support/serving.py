"""A small bench for tests of serving: a device of known service time, played in virtual time, and hand-made runs."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import rig
from fixtures.bench.mock_device import MockDevice, open_device
from fixtures.bench.true_power import SimPlant, open_plant
from rig.engine.acquisition import Bench
from rig.engine.play_steps import collect
from rig.errors import Ended
from rig.recording.disk.decoding import declared_start
from rig.recording.events import IdleWindow
from rig.recording.reader import Run, open_run
from rig.recording.writer import Recorder
from tests.support.start_lines import LEAST, start

S = 1_000_000_000
MS = 1_000_000
Log = list[tuple[Any, ...]]


def samples(n: int) -> list[rig.Sample]:
    return [rig.Sample(f"s{k}", np.full(1, k, np.float32), "x") for k in range(n)]


class Blank:
    """A workload of samples, without further details."""

    name, task, version, digest_sha256 = "blank", "none", "1", "0" * 64

    def __init__(self, n: int = 0) -> None:
        self.samples: Sequence[rig.Sample] = samples(n)
        self.details: dict[str, Any] = {}


class Queue:
    """A device that takes ``seconds`` for each batch, one after the other, and queues what it gets.

    ``stage_s`` passes whenever samples are loaded; ``lost`` are numbers of batches (from 0) that it forgets.
    """

    def __init__(
        self, clock: rig.Clock, seconds: float = 0.1, *, batch: int = 1, holds: int | None = None,
        stage_s: float = 0.0, lost: Sequence[int] = (), timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        self.clock, self.service_ns, self.stage_ns = clock, round(seconds * S), round(stage_s * S)
        self.facts = rig.DeviceInfo("queue", "simulator", max_batch=batch, max_pending=holds, timeout_s=timeout_s)
        self.lost, self.log = set(lost), list[tuple[Any, ...]]()
        self.held: deque[tuple[int, rig.Reply]] = deque()
        self.free_ns = self.batches = self.count = 0

    def info(self) -> rig.DeviceInfo:
        return self.facts

    def stage(self, samples: Sequence[rig.Sample]) -> None:
        self.clock.sleep_until(self.clock.now_ns() + self.stage_ns)

    def submit(self, samples: Sequence[rig.Sample], budget: rig.Budget | None) -> None:
        now_ns = self.clock.now_ns()
        self.log.append(("submit", now_ns, tuple(s.id for s in samples), len(self.held) + len(samples)))
        on_ns = max(now_ns, self.free_ns)
        self.batches += 1
        if self.batches - 1 in self.lost:
            return
        self.free_ns = on_ns + self.service_ns
        span = rig.Span("inference", on_ns, self.free_ns)
        for sample in samples:
            self.held.append((self.free_ns, rig.Reply(sample.id, self.count, (span,))))
            self.count += 1

    def poll(self, timeout_s: float) -> Sequence[rig.Reply]:
        until_ns = self.clock.now_ns() + round(timeout_s * S)
        self.clock.sleep_until(min(until_ns, self.held[0][0]) if self.held else until_ns)
        ready = []
        while self.held and self.held[0][0] <= self.clock.now_ns():
            ready.append(self.held.popleft()[1])
        return ready

    def close(self) -> None: ...


def submitted(device: Queue) -> list[tuple[str, ...]]:
    return [entry[2] for entry in device.log if entry[0] == "submit"]


@contextmanager
def played(
    device: rig.Device, steps: Iterable[rig.Step], plant: SimPlant, meters: tuple[rig.Meter, ...] = (),
    raises: type[Ended] | None = None,
) -> Iterator[Run]:  # fmt: skip
    """Return the recording of ``steps``, read back; with ``raises``, the run ends in that error."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        bench = Bench(device, meters, plant.clock)
        with Recorder(path) as recorder:
            infos: list[rig.DeviceInfo | rig.MeterInfo] = [device.info(), *(meter.info() for meter in meters)]
            clocks = [rig.ClockInfo("host", 1e9, 0.0), *(i.clock for i in infos if i.clock)]
            given = {"t0_ns": plant.clock.now_ns(), "device": infos[0], "meters": infos[1:], "clocks": clocks}
            recorder.event(declared_start(LEAST | {"run_id": "run", "scenario": {"name": "by hand"}, **given}))
            with nullcontext() if raises is None else pytest.raises(raises):
                collect(steps, bench, recorder)
        yield open_run(path)


def bench(seconds: float = 0.1, **options: Any) -> tuple[SimPlant, Queue]:
    plant = open_plant()
    plant.install({"core": 1e-3}, {})
    return plant, Queue(plant.clock, seconds, **options)


def due(at_s: Sequence[float], named: Sequence[rig.Sample] | None = None, **fields: Any) -> list[rig.Step]:
    """Return one issue for each moment."""
    named = named or samples(len(at_s))
    return [rig.Issue([s], due_ns=round(t * S), **fields) for s, t in zip(named, at_s, strict=True)]


def rows(run: Run, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(run.replies[c].to_pylist() for c in columns), strict=True))


def since_due(run: Run, column: str) -> list[float]:
    """Return a column of stamps in seconds after the first due time."""
    found = run.replies[column].to_pylist()
    first = min(d for d in run.replies["due_ns"].to_pylist() if d is not None)
    return [(t - first) / S for t in found if t is not None]


# ---- recordings made by hand ---------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One query of a hand-made recording, in seconds of the run; ``at`` is its issue, None if it was dropped."""

    due: float | None
    at: float | None
    done: float | None
    id: str = "s0"
    output: Any = "x"
    warmup: bool = False


def recording(
    path: Path, asked: Iterable[Asked], *, rules: rig.Rules | None = None, options: Mapping[str, Any] | None = None,
    mode: str = "hardware", meters: Sequence[Mapping[str, Any]] = (), idle_s: Sequence[float] = (2.0, 2.0),
    purpose: str = "all", known: Sequence[rig.Sample] | None = None, size: int = 1, holds: int | None = None,
    error: Ended | None = None, scenario: str = "server", details: Mapping[str, Any] | None = None,
    training: Any = None,
) -> Run:  # fmt: skip
    """Write a run directory of these queries and read it; spans last from issue to completion."""
    device: dict[str, Any] = {"name": "hand", "mode": mode, "clock": None, "phases": ["inference"]}
    device |= {"max_pending": holds, "algorithm": {"training": {"data": training}}}
    with Recorder(path) as r:
        r.event(start(
            run_id=path.name, device=device, meters=list(meters), purpose=purpose,
            scenario={"name": scenario, "options": dict(options or {})},
            rules=None if rules is None else asdict(rules),
            workload={"name": "blank", "samples": size, "details": dict(details or {})},
        ))  # fmt: skip
        for sample in known or samples(max(size, 1)):
            r.sample(sample)
        for k, seconds in enumerate(idle_s):
            r.event(IdleWindow(on_ns=k * 100 * S, off_ns=k * 100 * S + round(seconds * S)))
        for k, a in enumerate(asked):
            due_ns, at_ns, done_ns = (None if t is None else round(t * S) for t in (a.due, a.at, a.done))
            if at_ns is not None and done_ns is not None:
                span = (rig.Span("inference", at_ns, done_ns),)
                r.reply(k, rig.Reply(a.id, a.output, span), due_ns, at_ns, done_ns, a.warmup)
            else:
                r.unanswered(k, a.id, due_ns, at_ns, a.warmup)
        r.stop(error)
    return open_run(path)


# ---- devices for whole sessions, named by this file -----------------------------------------


def abilities(driver: Any, wrapper: type) -> dict[str, Any]:
    """Return the methods that a wrapper leaves to its driver: from Python 3.12 on, no protocol sees ``__getattr__``."""
    return {name: getattr(driver, name) for name in {*dir(driver)} - {*dir(wrapper)}}


class Wrapped:
    """The mock device with a test's changes; ``before`` is called with each issued sample."""

    def __init__(self, plant: SimPlant, before: Callable[[MockDevice, rig.Sample], rig.Sample], **options: Any) -> None:
        self.device = open_device(plant, **{"inference_s": 0.05, "hit_rate": 1.0, "marks": False} | options)
        self.before = before
        vars(self).update(abilities(self.device, type(self)))

    def submit(self, samples: Sequence[rig.Sample], budget: rig.Budget | None) -> None:
        self.device.submit([self.before(self.device, sample) for sample in samples], budget)


def honest(bench: SimPlant, *, inference_s: float = 0.05, spread: float = 0.0) -> Any:
    """Return a device that gives the same answers in the same time in every run."""
    return Wrapped(bench, lambda device, sample: sample, inference_s=inference_s, span_spread=spread)


def caching(bench: SimPlant, *, kept: int = 1) -> Any:
    """Return a device that answers in a fifth of the time if a sample is among the last ``kept`` ones."""
    seen: deque[str] = deque(maxlen=kept)

    def before(device: MockDevice, sample: rig.Sample) -> rig.Sample:
        device._phase_s["inference"] = 0.01 if sample.id in seen else 0.05
        seen.append(sample.id)
        return sample

    return Wrapped(bench, before)
