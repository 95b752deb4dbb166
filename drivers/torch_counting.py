"""Counts what a torch model does, by forward hooks: the adapter for a model whose simulator is torch itself.

Linear layers, convolutions and cells of a recurrent network are connections. ReLU, sigmoid and the spiking neurons of
snnTorch are layers of neurons. Nothing else is counted. torch is the user's own; this module does not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.network.counting import Synapses, active, convolution, linear, memory_of
from rig.network.description import Activity, Counts, Layer, Memory, NetworkInfo

_ACTIVATIONS = ("ReLU", "Sigmoid")
_BLOCK_BYTES = 1 << 18
"""How much of the values of one part is counted together."""
Count = Callable[[NDArray[Any]], Mapping[str, Counts]]


class TorchCounter:
    """Counts one model from its making until ``close``; a sample is one row of a batch.

    A forward pass may call a module once for each time step. Each call is one execution of its connection.
    ``states`` are the values that neurons carry from step to step, by name: elements for one sample, of 32 bits.
    """

    def __init__(self, model: Any, states: Mapping[str, int] | None = None) -> None:
        self._parts: dict[str, _Part] = {}
        self._synapses: dict[str, Synapses] = {}
        self._neurons: dict[str, int] = {}
        arrays = [*model.named_parameters(), *model.named_buffers()]
        memory = memory_of({name: values.detach().numpy() for name, values in arrays})
        self._memory = (*memory, *(Memory(name, "states", n, 32, 0) for name, n in (states or {}).items()))
        self._hooks = [
            module.register_forward_hook(hook)
            for name, module in model.named_modules()
            if (hook := self._hook(name, module)) is not None
        ]

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()

    def network(self, execution_s: float | None = None, convention: str = "") -> NetworkInfo:
        """Return the description, after the first forward pass, which shows the shapes."""
        layers = tuple(Layer(name, n) for name, n in self._neurons.items())
        connections = tuple(s.connection for s in self._synapses.values())
        return NetworkInfo(layers, connections, self._memory, execution_s, convention)

    def activity(self) -> list[Activity]:
        """Return the activity of each row of the batch since the last call, and begin anew."""
        counted = {name: found for name, part in self._parts.items() if (found := part.take())}
        batch = max((len(rows) for names in counted.values() for rows in names.values()), default=0)
        return [{part: {n: rows[k] for n, rows in names.items()} for part, names in counted.items()}
                for k in range(batch)]  # fmt: skip

    def _hook(self, name: str, module: Any) -> Callable[[Any, Any, Any], None] | None:
        kind = type(module).__name__
        if kind == "Linear":
            return lambda module, given, out: self._linear(name, module.weight, given[0])
        if kind in ("Conv1d", "Conv2d", "Conv3d"):
            return lambda module, given, out: self._convolution(name, module, given[0])
        if kind in ("RNNCell", "GRUCell", "LSTMCell"):
            return lambda module, given, out: self._cell(name, module, given)
        if kind in _ACTIVATIONS or type(module).__module__.startswith("snntorch._neurons"):
            return lambda module, given, out: self._activation(name, out[0] if isinstance(out, tuple) else out)
        return None

    def _linear(self, name: str, weight: Any, given: Any) -> None:
        if name not in self._parts:
            self._connect(name, linear(name, f"input of {name}", name, weight.detach().numpy().T))
        self._parts[name].add(given.detach().numpy())

    def _convolution(self, name: str, module: Any, given: Any) -> None:
        if name not in self._parts:
            for what in ("stride", "padding", "dilation"):
                if isinstance(getattr(module, what), str) or len(set(getattr(module, what))) != 1:
                    raise ValueError(f"{name} has a {what} of {getattr(module, what)}; only one number is counted")
            options = {what: int(getattr(module, what)[0]) for what in ("stride", "padding", "dilation")}
            synapses = convolution(
                name, f"input of {name}", name, module.weight.detach().numpy(), tuple(given.shape[1:]),
                groups=module.groups, **options,
            )  # fmt: skip
            self._connect(name, synapses)
        self._parts[name].add(given.detach().numpy())

    def _cell(self, name: str, module: Any, given: Any) -> None:
        """The weights of all gates are connections; their products with one another are none."""
        self._linear(f"{name}.ih", module.weight_ih, given[0])
        state = given[1] if len(given) > 1 else None
        state = state[0] if isinstance(state, tuple) else state  # an LSTM has another state, which meets no weight
        rest = given[0].new_zeros(len(given[0]), module.hidden_size) if state is None else state
        self._linear(f"{name}.hh", module.weight_hh, rest)

    def _activation(self, name: str, out: Any) -> None:
        values = out.detach().numpy()
        if name not in self._parts:
            self._neurons[name] = int(np.prod(values.shape[1:]))
            self._parts[name] = _Part(lambda rows: {"active": active(rows)})
        self._parts[name].add(values)

    def _connect(self, name: str, synapses: Synapses) -> None:
        self._synapses[name], self._parts[name] = synapses, _Part(synapses.count)


class _Part:
    """The counts of one connection or layer.

    Counting costs more for the call than for a few values, so those of several calls are copied, since the model may
    write over them, and counted together. Many values are counted at once, in blocks of rows.
    """

    def __init__(self, count: Count) -> None:
        self._count = count
        self._waiting: NDArray[Any] = np.empty((0, 0))
        self._used = 0
        self._counted: dict[str, list[Counts]] = {}

    def add(self, values: NDArray[Any]) -> None:
        """Take the values of one call, shape (batch, ...)."""
        waiting = self._waiting
        alike = waiting.shape[1:] == values.shape and waiting.dtype == values.dtype
        if not alike or self._used == len(waiting):
            self._flush()
        if values.nbytes > _BLOCK_BYTES:
            self._take(values[None])
            return
        if not alike:
            waiting = self._waiting = np.empty(
                (_BLOCK_BYTES // max(1, values.nbytes) or 1, *values.shape), values.dtype
            )
        waiting[self._used] = values
        self._used += 1

    def take(self) -> dict[str, list[Counts]]:
        """Return the counts since the last call by counter, for each row of the batch an array of shape (calls,)."""
        self._flush()
        counted, self._counted = self._counted, {}
        return {name: list(np.concatenate(found, axis=1)) for name, found in counted.items()}

    def _flush(self) -> None:
        values, self._used = self._waiting[: self._used], 0
        if len(values):
            self._take(values)

    def _take(self, values: NDArray[Any]) -> None:
        calls, batch = values.shape[:2]
        rows = values.reshape(calls * batch, -1)
        block = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
        found = [self._count(rows[k : k + block]) for k in range(0, len(rows), block)]
        for name in found[0]:
            counts = np.concatenate([one[name] for one in found])
            self._counted.setdefault(name, []).append(counts.reshape(calls, batch).T)
