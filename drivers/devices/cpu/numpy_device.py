"""A device that runs a network in numpy on this computer and counts its operations, and one that forecasts a series."""

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rig.engine.blocking_device import Load, blocking
from rig.errors import DataError
from rig.network.counting import Synapses, count, linear
from rig.network.description import NetworkInfo
from rig.types import Device, DeviceInfo, Floats, Sample

Seen = Mapping[str, NDArray[Any]]
"""Arrays (executions, ...) by name: the output of each layer, and each input of a connection that no layer feeds."""


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
    """Return the device of a function ``run``, which returns the output for a sample and the values of its layers.

    ``synapses`` are those of the network that runs the sample. Counting is not part of the span.
    """
    last: dict[str, Seen] = {}

    def answer(sample: Sample) -> Any:
        output, last["seen"] = run(sample)
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
    return blocking(answer, info, load, lambda sample: count(synapses(sample), last["seen"]))


def recurrent(name: str, into: Floats, back: Floats, read: str, out: Floats) -> tuple[Synapses, ...]:
    """Return the connections of one recurrent layer, and of a readout of the values named ``read``."""
    return (
        linear(f"input-{name}", "input", name, into),
        linear(f"{name}-{name}", "state before", name, back),
        linear("readout", read, "readout", out),
    )


class Forecaster(Protocol):
    """A network that has read a series."""

    def forecast(self, points: int) -> tuple[Floats, Seen]:
        """Return forecasts of shape (points,), and the inputs of each layer: (points, ...) by name of the source."""

    def synapses(self) -> tuple[Synapses, ...]:
        """Return the connections."""


Learn = Callable[[Floats, np.random.Generator], tuple[Forecaster, Mapping[str, Any]]]
"""Draws a network, lets it learn a series of shape (n,), and returns it with a record of the training."""


def forecasting_device(
    name: str, title: str, training: str, parameters: Mapping[str, Any], network: NetworkInfo, learn: Learn,
    washout: int, seed: int,
) -> Device:  # fmt: skip
    """Return a device that learns the first half of each sample once, outside the span, and forecasts the second.

    ``title`` names the kind of network, and ``network`` describes an untrained network. The weights for a sample are
    drawn from ``seed`` and the seed of the sample.
    """
    learnt: dict[tuple[str, bytes], tuple[Forecaster, Mapping[str, Any]]] = {}

    def load(samples: Sequence[Sample]) -> None:
        for sample in (sample for sample in samples if _key(sample) not in learnt):
            series = _series(sample, washout)
            learnt[_key(sample)] = learn(series[: len(series) // 2], np.random.default_rng([seed, sample.seed or 0]))

    def forecast(sample: Sample) -> tuple[dict[str, Any], Seen]:
        load([sample])
        learner, said = learnt[_key(sample)]
        points, seen = learner.forecast(len(sample.payload) - len(sample.payload) // 2)
        return {"forecast": [float(p) if np.isfinite(p) else None for p in points], **said}, seen

    algorithm = {
        "model": f"{title}, weights of each sample drawn anew",
        "training": f"{training}, outside the span",
        "parameters": parameters,
    }

    def synapses(sample: Sample) -> Sequence[Synapses]:
        return learnt[_key(sample)][0].synapses()

    return numpy_device(name, title, network, algorithm, forecast, synapses, load)


def _key(sample: Sample) -> tuple[str, bytes]:
    return sample.id, np.asarray(sample.payload).tobytes()


def _series(sample: Sample, washout: int) -> Floats:
    """Return the series of a sample, float64, shape (n,).

    Raises ``DataError`` for other values than finite floats, and if half of it is shorter than ``washout`` + 3 points.
    """
    series = np.asarray(sample.payload)
    if series.ndim != 1 or not np.issubdtype(series.dtype, np.floating) or not np.all(np.isfinite(series)):
        what = f"a series must be finite floats of shape (n,), not {series.dtype} of shape {series.shape}"
        raise DataError(what, field="payload", value=str(series.shape))
    if len(series) // 2 < washout + 3:
        what = f"half of a series of {len(series)} points is too short to learn from after a washout of {washout}"
        raise DataError(what, field="payload", value=len(series), remedy="Use longer samples, or a smaller washout")
    return series.astype(np.float64)
