"""What NeuroBench's acoustic scene classification prescribes for its data, and what an opened workload has of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rig.analysis.verdict.known_benchmarks import ASC
from rig.types import Benchmark, Parameter
from scenarios.workloads.asc.catalogue import TAU
from scenarios.workloads.asc.scenes import CLASSES
from scenarios.workloads.asc.slices import SLICE_S

WHOLE_SLICES = {"train": 41360, "test": 16240}
"""Seconds in each split of the TAU set, with all of its clips of device a in the four scenes."""

_DATA = "N, ASC, Benchmark dataset: "


def benchmark_of(details: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark, from the details of an opened workload."""
    scenarios = "P, ASC: 'presented under the Real-time or Single-stream task scenarios'; N, ASC, Task: 'batch-size 1'"
    second = "N, ASC, Task: 'One inference is defined as the processing of one second of audio data'"
    return Benchmark(
        ASC,
        Parameter((), ("single-stream", "real-time"), scenarios),
        {
            "data set": Parameter((details["source"],), (TAU,), f"{_DATA}'using the TAU Urban Acoustic Scenes 2020'"),
            "split": Parameter((details["split"],), ("test",), "N, ASC, Task: 'will report test set accuracy'"),
            "samples": Parameter(
                (details["slices"],), (WHOLE_SLICES["test"],), f"{_DATA}'as well as 16240 test samples'"
            ),
            "classes": Parameter(tuple(details["classes"]), CLASSES, f"{_DATA}'Of the 10 available scene classes'"),
        },
        {"window_s": Parameter((), (SLICE_S,), second)},
    )
