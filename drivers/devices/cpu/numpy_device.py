"""What devices share that run a network in numpy on this computer, and count what it did."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.engine.blocking_device import Load, blocking
from rig.errors import DataError
from rig.network.counting import Synapses, count
from rig.network.description import NetworkInfo
from rig.types import Device, DeviceInfo, Floats, Sample

Seen = Mapping[str, NDArray[Any]]
"""What each layer gave out, and what connections were given that begin elsewhere: (executions, ...), by name."""


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
    """Return the device of a function ``run``, which returns the output for a sample and what was seen meanwhile.

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


def checked_series(sample: Sample, washout: int) -> Floats:
    """Return the series of a sample, shape (n,); half of it must be longer than ``washout``.

    Raises ``DataError`` for a payload that is no series of finite floats, or is too short.
    """
    series = np.asarray(sample.payload)
    if series.ndim != 1 or not np.issubdtype(series.dtype, np.floating) or not np.all(np.isfinite(series)):
        what = f"a series must be finite floats of shape (n,), not {series.dtype} of shape {series.shape}"
        raise DataError(what, field="payload", value=str(series.shape))
    if len(series) // 2 < washout + 3:
        what = f"half of a series of {len(series)} points is too short to learn from after a washout of {washout}"
        raise DataError(what, field="payload", value=len(series), remedy="Use longer samples, or a smaller washout")
    return series.astype(np.float64)
