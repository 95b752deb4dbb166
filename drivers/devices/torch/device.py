"""A network in torch on this computer's CPU or on a CUDA GPU, to compare a chip with.

A span begins when the inputs are in the host's memory, and ends when the outputs are. Opening the device prepares all
samples of the workload and, with ``count``, executes each once to count its operations. So only the network runs in the
measurement.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from drivers.devices.torch.models import Model, no_memory, read_model
from drivers.devices.torch.processor import Processor, open_processor
from drivers.failures import UNFIT
from drivers.torch_counting import TorchCounter
from rig.bench.settings import one_of, parts_of, within
from rig.engine.blocking_device import blocking
from rig.errors import DataError, SetupError, refused, said
from rig.network.description import Activity, NetworkInfo
from rig.plugins import imported
from rig.types import Device, DeviceInfo, Reply, Sample, Span, Workload

NAME = "torch"
TYPES = ("float32", "float64", "float16", "bfloat16")


def open_device(
    workload: Workload | None = None,
    *,
    network: str = "",
    processor: str = "cpu",
    batch: int = 1,
    classes: str = "",
    dt_s: float | None = None,
    reset: str | None = None,
    dtype: str = "float32",
    count: bool = True,
    warmup: int = 3,
    threads: int = 0,
    clock_mhz: int = 0,
    start_s: float = 300.0,
) -> Device:
    """Open a network: ``FILE.nir``, or ``FILE.py:function`` that returns a module and a tensor shaped like a sample.

    The module gives out one number for each class, shape (batch, classes), and the largest one is the answer.
    ``classes`` names them, with commas between; by default they are counted from 0. For a NIR graph, ``dt_s`` is the
    time step, ``reset`` is "subtract" or "zero", and ``dtype`` is the type of its numbers; events have the shape
    (steps, inputs), and audio becomes events as for a Xylo. The outputs of a graph are summed over the steps.

    ``processor`` is "cpu", "cuda" or "cuda:N". ``batch`` is how many samples run together. ``threads`` is the number of
    CPU threads, by default torch's own. ``clock_mhz`` locks the clock of a GPU, which needs root. With ``count``, each
    sample of the workload runs once more beforehand to count its operations. ``warmup`` is how often the network runs
    at opening. Opening may take ``start_s``.

    Raises ``MissingExtraError`` without torch, ``SetupError`` without the processor or the memory, ``DataError`` for a
    network or a sample that cannot be used, and for an output that is no label.
    """
    within(1, 1_000_000, batch=batch)
    within(0, 1_000_000, warmup=warmup, threads=threads, clock_mhz=clock_mhz)
    one_of(TYPES, dtype=dtype)
    torch = imported("torch", "the device torch", "torch", field="device", value=NAME)
    place = open_processor(torch, processor, threads, clock_mhz)
    try:
        model = read_model(torch, network, dt_s, reset)
        of_graph = model.execution_s is not None or network.lower().endswith(".nir")
        runner = _Runner(torch, model, place, dtype if of_graph else None, classes)
        runner.prepare(() if workload is None else workload.samples, batch)
        runner.warm_up(batch, warmup)
        counted = runner.counted() if count else None
    except BaseException as error:
        place.close()
        if not isinstance(error, torch.OutOfMemoryError) and not no_memory(error):
            raise
        remedy = "Use a smaller network or a smaller --option batch, or free some memory"
        raise SetupError(f"there is not enough memory: {said(error)}", field="memory", remedy=remedy) from error
    info = DeviceInfo(
        name=NAME,
        mode="hardware",
        description=f"a network in torch {torch.__version__} on {place.place} of this computer",
        max_batch=batch,
        onboard_meter=place.meter,
        versions={"torch": torch.__version__},
        artifacts={"network": model.digest_sha256},
        details={**place.details, "place": place.place, "dtype": str(runner.dtype), "classes": list(runner.classes)},
        algorithm=model.algorithm,
        network=counted,
    )
    return blocking(runner.answer, info, partial(runner.prepare, batch=batch), batches=True, end=place.close)


class _Runner:
    """A module on its processor, and the inputs of samples, each of shape (1, ...)."""

    def __init__(self, torch: Any, model: Model, place: Processor, dtype: str | None, classes: str) -> None:
        """Move the module to its processor, and find the number of classes by a first execution."""
        self._torch, self._model, self._execute = torch, model, place.execute
        self._inputs: dict[str, tuple[Any, Any]] = {}
        self.activity: dict[str, Activity] = {}
        self.dtype = model.example.dtype if dtype is None else getattr(torch, dtype)
        model.module.to(place.place) if dtype is None else model.module.to(place.place, self.dtype)
        outputs = self._executed(model.example[None].to(self.dtype))[0].shape[1]
        self.classes = tuple(parts_of(classes)) or tuple(str(k) for k in range(outputs))
        if len(self.classes) != outputs or len(set(self.classes)) != outputs:
            raise refused("classes", classes, f"Name {outputs} classes, one for each output")

    def prepare(self, samples: Sequence[Sample], batch: int = 1) -> None:
        """Make missing inputs of samples. Raises ``DataError`` for a sample that the network cannot take."""
        for sample in samples:
            known = self._inputs.get(sample.id)
            if known is None or not np.array_equal(known[0], sample.payload):  # the sample may have been decoded again
                self._inputs[sample.id] = (sample.payload, self._input(sample))
                self.activity.pop(sample.id, None)
        if batch > 1 and len({tuple(self._inputs[sample.id][1].shape) for sample in samples}) > 1:
            what = "the samples differ in shape, and cannot run as batches"
            raise DataError(what, field="batch", value=batch, remedy="Use --option batch=1")

    def answer(self, samples: Sequence[Sample], times: int) -> list[Reply]:
        """Execute a batch."""
        inputs = [self._inputs[sample.id][1] for sample in samples]
        rows, span, kernels_s = self._executed(inputs[0] if len(inputs) == 1 else self._torch.cat(inputs), times)
        beside = {} if kernels_s is None else {"kernels_s": kernels_s}
        return [
            Reply(sample.id, self.output(row) | beside, (span,), activity=self.activity.get(sample.id))
            for sample, row in zip(samples, rows, strict=True)
        ]

    def warm_up(self, batch: int, times: int) -> None:
        """Execute the first batch ``times`` times, and check the answers. Raises ``DataError`` if one is no label."""
        inputs = self._torch.cat([values for _, values in self._prepared()[:batch]])
        for _ in range(times):
            for row in self._executed(inputs)[0]:
                self.output(row)

    def output(self, row: Any) -> dict[str, Any]:
        """Return the answer of one sample. Raises ``DataError`` for an output that is no label."""
        scores = row.double().tolist()
        if not np.isfinite(scores).all():
            what = f"the network gives out {scores[:3]} and so on, which is no label"
            raise DataError(what, field="output", value=str(scores[:3]), remedy="Correct its weights or its input")
        return {"label": self.classes[int(np.argmax(scores))], "scores": scores}

    def counted(self) -> NetworkInfo:
        """Count the operations of each prepared sample in an untimed pass; return the description of the network."""
        model = self._model
        try:
            with closing(TorchCounter(model.module, model.states, neurons=model.neurons)) as counter:
                for name, values in self._prepared():
                    self._executed(values)
                    (self.activity[name],) = counter.activity() or [{}]  # nothing is counted in a graph without weights
                return counter.network(model.execution_s, f"as torch keeps it, {self.dtype}")
        except DataError as error:
            error.remedy = f"{error.remedy}; or leave the counts out: --option count=false"
            raise

    def _prepared(self) -> list[tuple[str, Any]]:
        """Return the inputs by the name of their sample; if there are none, the example."""
        found = [(name, values) for name, (_, values) in self._inputs.items()]
        return found or [("", self._model.example[None].to(self.dtype))]

    def _input(self, sample: Sample) -> Any:
        values, example = self._model.encode(sample), self._model.example
        in_time = self._model.execution_s is not None
        shape, wanted = tuple(values.shape), tuple(example.shape)
        fits = shape[1:] == wanted[1:] and len(shape) == len(wanted) if in_time else shape == wanted
        if not fits or 0 in shape or values.dtype.kind not in "biuf":
            asked = f"(steps, {', '.join(map(str, wanted[1:]))})" if in_time else wanted
            what = f"sample {sample.id} is {values.dtype} of shape {shape}; the network takes numbers of shape {asked}"
            raise DataError(what, field="payload", value=sample.id, remedy="Choose the workload of this network")
        return self._torch.as_tensor(np.ascontiguousarray(values)).to(self.dtype)[None]

    def _executed(self, inputs: Any, times: int = 1) -> tuple[Any, Span, float | None]:
        try:
            with self._torch.inference_mode():
                timed = self._execute(self._model.module, inputs, times)
        except UNFIT as error:
            if isinstance(error, self._torch.OutOfMemoryError) or no_memory(error):
                raise
            what = f"the network fails on an input of shape {tuple(inputs.shape)}: {said(error)}"
            raise DataError(what, field="network", value=str(tuple(inputs.shape)), remedy="Correct it") from error
        rows = timed.output
        if not isinstance(rows, self._torch.Tensor) or rows.ndim != 2 or len(rows) != len(inputs) or rows.is_complex():
            is_tensor = isinstance(rows, self._torch.Tensor)
            got = f"a tensor of shape {tuple(rows.shape)}" if is_tensor else f"a {type(rows).__name__}"
            what = f"the network returns {got} for {len(inputs)} samples, which is no label for each"
            remedy = f"Return one number for each class: shape ({len(inputs)}, classes)"
            raise DataError(what, field="output", value=got, remedy=remedy)
        return rows, Span("inference", timed.on_ns, timed.off_ns, times), timed.kernels_s
