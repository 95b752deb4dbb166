"""Read a network file: a torch module, the form of its input, and the conversion of a sample to it."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from drivers.devices.nir_file import check_said, digest_of, read_nodes
from drivers.devices.torch.graph import NEURONS, input_shape, module_of, stateful, states_of
from drivers.devices.xylo.networks.encoder import EncoderParams, raster_of
from drivers.failures import UNFIT
from rig.bench.settings import one_of, positive
from rig.errors import DataError, refused, said
from rig.plugins import load
from rig.types import Sample

MOST_BYTES = 1 << 32
RESETS = ("subtract", "zero")
Encode = Callable[[Sample], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Model:
    """A module in evaluation mode, a tensor like one sample (no batch), and what a recording states about the module.

    ``encode`` returns the values of a sample in the shape of ``example``. If the module goes through time, the first
    axis, time, may have another length. ``neurons`` and ``states`` are arguments of ``TorchCounter``.
    """

    module: Any
    example: Any
    encode: Encode
    digest_sha256: str
    algorithm: Mapping[str, Any]
    neurons: Collection[str] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    execution_s: float | None = None


def read_model(torch: Any, network: str, dt_s: float | None, reset: str | None) -> Model:
    """Read ``FILE.nir`` or ``FILE.py:function``, which returns a module and a tensor shaped like a sample.

    A graph with neurons needs a time step and, if they spike, a ``reset``. Raises ``SetupError`` if one of these is
    missing, ``DataError`` for a file that is no network, ``UsageError`` for another name.
    """
    if ".py:" in network:
        for name, value in (("dt_s", dt_s), ("reset", reset)):
            if value is not None:
                raise refused(name, value, "Leave it out: only a NIR graph takes it")
        return _of_function(torch, network)
    if not network.lower().endswith(".nir"):
        what = "no network was named" if not network else f"{network} is neither FILE.nir nor FILE.py:function"
        raise refused("network", network, "Give a NIR graph, or a function that returns a module and an input", what)
    return _of_graph(torch, Path(network), dt_s, reset)


def no_memory(error: BaseException) -> bool:
    """Return whether an error of torch means that memory is short. On a CPU, its class does not show this."""
    return isinstance(error, MemoryError) or "you tried to allocate" in str(error)


def _of_function(torch: Any, network: str) -> Model:
    file = Path(network.rpartition(":")[0])
    try:
        made = load("network", network)()
    except UNFIT as error:
        if no_memory(error):
            raise
        what = f"{network} failed: {said(error)}"
        raise DataError(what, field="network", value=network, remedy="Correct the function") from error
    known = isinstance(made, tuple) and len(made) == 2
    if not (known and isinstance(made[0], torch.nn.Module) and isinstance(made[1], torch.Tensor)):
        got = ", ".join(type(part).__name__ for part in made) if isinstance(made, tuple) else type(made).__name__
        remedy = "Return a torch.nn.Module, and a tensor shaped like a sample, without a batch"
        raise DataError(f"{network} returns {got}", field="network", value=network, remedy=remedy)
    module, example = made
    digest = hashlib.sha256(file.read_bytes())
    for name, values in module.state_dict().items():
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return Model(
        module.eval(), example, lambda sample: sample.payload, digest.hexdigest(), {"model": network.rpartition("/")[2]}
    )


def _of_graph(torch: Any, path: Path, dt_s: float | None, reset: str | None) -> Model:
    nodes, edges = read_nodes(path, MOST_BYTES)
    own = stateful(nodes)
    spike = any(hasattr(nodes[name], "v_threshold") for name in own)
    check_said(**({"dt_s": (dt_s, "0.001")} if own else {}), **({"reset": (reset, "subtract")} if spike else {}))
    positive(dt_s=dt_s)
    one_of((*RESETS, None), reset=reset)
    shape = input_shape(nodes)
    try:
        module = module_of(torch, nodes, edges, dt_s or 1.0, reset == "zero")
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if no_memory(error):
            raise
        what = f"the nodes of {path.name} do not fit each other: {said(error)}"
        raise DataError(what, field="network", value=path.name, remedy="Export the graph again") from error
    return Model(
        module.eval(),
        torch.zeros(2 if own else 1, *shape),
        partial(_encoded, shape, dt_s if own else None),
        digest_of(nodes, edges),
        {"model": "NIR graph", "parameters": {"dt_s": dt_s, "reset": reset}},
        NEURONS,
        states_of(nodes, module.rest),
        dt_s if own else None,
    )


def _encoded(shape: tuple[int, ...], step_s: float | None, sample: Sample) -> NDArray[Any]:
    """Return events unchanged, and audio as events of a Xylo's front end. Without neurons, the payload is one step."""
    if step_s is None:
        return sample.payload[None]
    if sample.payload.ndim == len(shape) == 1 and sample.rate_hz is not None:
        return raster_of(sample, EncoderParams(channels=shape[0], bin_s=step_s))
    return sample.payload
