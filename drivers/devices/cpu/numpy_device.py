"""Shared by devices that run a network in numpy on this computer, and count its operations."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.engine.blocking_device import Load, blocking
from rig.network.counting import Synapses, count
from rig.network.description import NetworkInfo
from rig.types import Device, DeviceInfo, Sample

Seen = Mapping[str, NDArray[Any]]
"""Outputs of each layer, and inputs of connections that begin elsewhere: (executions, ...), by name."""


def numpy_device(
    name: str,
    description: str,
    network: NetworkInfo,
    algorithm: Mapping[str, Any],
    run: Callable[[Sample], tuple[Any, Seen]],
    synapses: Callable[[Sample], Sequence[Synapses]],
    load: Load | None = None,
    artifacts: Mapping[str, str] | None = None,
) -> Device:
    """Return the device of a function ``run``, which returns the output for a sample and the activity meanwhile.

    ``synapses`` are those of the network that runs the sample. Counting is not part of the span.
    """
    last: dict[str, NDArray[Any]] = {}

    def answer(sample: Sample) -> Any:
        output, seen = run(sample)
        last.clear()
        last.update(seen)
        return output

    info = DeviceInfo(
        name=name,
        mode="hardware",
        description=f"{description} in numpy {np.__version__} on this computer",
        versions={"numpy": np.__version__},
        details={"processor": platform.processor() or platform.machine()},
        artifacts=artifacts or {},
        algorithm=algorithm,
        network=network,
    )
    return blocking(answer, info, load, lambda sample: count(synapses(sample), last))
