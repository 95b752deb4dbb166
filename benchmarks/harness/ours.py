"""One run of the rig in a separate process, for ``benchmarks.harness``; it is recorded like any run and read later.

    python -m benchmarks.harness.ours single --out DIR --queries 1000000

The device answers at once, or a fixed time after a request. Prints what the recording cost, as JSON: wall time,
CPU time, wait for a CPU and peak memory.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from benchmarks.harness.load import arrays, costed, parser_of, said, waiting
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.types import Budget, Device, DeviceInfo, Reply, Rules, Sample, Span, Step
from scenarios.rules import quick
from scenarios.server import server
from scenarios.single_stream import single_stream


class AtOnce:
    """Answers whenever it is polled, and stamps its own span."""

    def __init__(self) -> None:
        self._ready: tuple[Reply, ...] = ()

    def info(self) -> DeviceInfo:
        return DeviceInfo("no-op", "simulator")

    def stage(self, samples: Sequence[Sample]) -> None:
        pass

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        on_ns = time.monotonic_ns()
        self._ready = (Reply(samples[0].id, None, (Span("inference", on_ns, time.monotonic_ns()),)),)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        ready, self._ready = self._ready, ()
        return ready

    def close(self) -> None:
        pass


class After(AtOnce):
    """Answers ``answer_s`` after a request; ``poll`` waits for this time."""

    def __init__(self, answer_s: float, wait: Any) -> None:
        super().__init__()
        self._answer_ns, self._wait = round(answer_s * 1e9), wait
        self._asked: tuple[str, int] = ("", 0)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self._asked = samples[0].id, time.monotonic_ns()

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        name, on_ns = self._asked
        return (Reply(name, None, (Span("inference", on_ns, self._wait(on_ns + self._answer_ns)),)),)


def workload() -> Any:
    """Return the samples, and what a run records about their origin."""
    samples = [Sample(f"s{k}", payload) for k, payload in enumerate(arrays())]
    return SimpleNamespace(name="zeros", task="none", version="1", digest_sha256="0" * 64, details={}, samples=samples)


def steps(a: argparse.Namespace, work: Any, rules: Rules, clock: HostClock) -> Iterator[Step]:
    """Yield the scenario as the rig plays it, without idle windows, which only a power meter needs."""
    if a.scenario == "single":
        return single_stream(work, rules, clock, idle_s=0.0, warmup=0)
    return server(work, rules, arrival_hz=a.rate, arrival_seed=a.seed, duration_s=a.seconds, idle_s=0.0, warmup=0)


def main() -> None:
    a = parser_of(__doc__ or "", "the recording").parse_args()
    work, clock = workload(), HostClock()
    device: Device = After(a.answer_s, waiting(a.wait)) if a.answer_s else AtOnce()
    least = a.queries if a.scenario == "single" else 1
    rules = replace(quick("single-stream" if a.scenario == "single" else "server"), min_queries=least)
    bench = Bench(device, (), clock)
    named = {"name": a.scenario}
    said(costed(lambda: record(a.out, bench, work, steps(a, work, rules, clock), scenario=named, rules=rules)))


if __name__ == "__main__":
    main()
