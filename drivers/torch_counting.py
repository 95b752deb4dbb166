"""Count the operations of a torch model by forward hooks: the adapter for models that torch itself simulates.

Linear layers, convolutions, and RNN, GRU and LSTM with their cells are connections. ReLU, sigmoid and the spiking
neurons of snnTorch are layers of neurons, as ``Layer`` defines them. Normalisation is counted only as memory. Any other
module with parameters of its own is refused by its name, and so is a connection whose class has its own forward pass.
Functions such as ``torch.relu`` are not counted, nor are weights that a module keeps in buffers. This module does not
import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.network.counting import Synapses, active, convolution, linear
from rig.network.description import Activity, Counts, Layer, Memory, MemoryKind, NetworkInfo

_WITHOUT = ("_NormBase", "LayerNorm", "GroupNorm", "RMSNorm", "PReLU", "ParametrizationList", "_Membranes")
"""Modules with parameters but no synaptic operations; the first is the base of all batch and instance norms."""
_BLOCK_BYTES = 1 << 18
"""Values of one connection or layer are counted in blocks of about this size (bytes), but of at least one row."""
Count = Callable[..., Mapping[str, Counts]]
"""A function of arrays of shape (rows, values), which returns counts of shape (rows,) by name."""
Hook = Callable[[str, Any, tuple[Any, ...], Any], None]
"""A function of a module's name, the module, its inputs and its output."""


class TorchCounter:
    """Counts one model until ``close``. A sample is one row of a batch, which is the first axis.

    The number of executions is the greatest common divisor of the modules' numbers of calls. So a forward pass that
    calls each module once is one execution. A pass that calls each module at every time step has one execution a step.
    ``states`` names values that a model carries from step to step outside of spiking neurons and recurrent modules,
    with their number for one sample; each takes as many bits as a parameter. ``neurons`` names further classes whose
    outputs are activations. ``uncounted`` names modules that are left out of the counts; the description states them.
    Raises ``DataError`` for a module that cannot be counted.
    """

    def __init__(
        self,
        model: Any,
        states: Mapping[str, int] | None = None,
        *,
        neurons: Collection[str] = (),
        uncounted: Collection[str] = (),
    ) -> None:
        self._model, self._neurons, self._uncounted = model, neurons, uncounted
        self._parts: dict[str, _Part] = {}
        self._synapses: dict[str, Synapses] = {}
        self._windows: dict[tuple[str, tuple[int, ...]], Synapses] = {}
        self._sizes: dict[str, int] = {}
        self._dense: dict[str, int] = {}
        bits = next((8 * values.element_size() for values in model.parameters(recurse=True)), 32)
        self._states = {name: (n, bits) for name, n in (states or {}).items()}
        self._batches: dict[str, int] = {}
        named = [(name or type(module).__name__, module) for name, module in model.named_modules()]
        hooked = [(name, module, self._hook(name, module)) for name, module in named]
        self._silent = {name for name, module, hook in hooked if hook and [*module.parameters(recurse=False)]}
        self._hooks = [handle for name, module, hook in hooked if hook for handle in self._hung(name, module, hook)]

    def close(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def network(self, execution_s: float | None = None, convention: str = "") -> NetworkInfo:
        """Return the description of the network. Call it after the first forward pass, which reveals the shapes.

        Trained values are weights and parameters. All other stored values are buffers, such as fixed thresholds and the
        mask of a pruned layer. Buffers that spiking neurons carry from step to step are states. Raises ``DataError``
        for a module with parameters that was not called, because a function may have used its parameters.
        """
        if self._silent:
            remedy = "Call the module in place of a function with its parameters, or leave it out by uncounted="
            raise _refused(min(self._silent), "has parameters and was not called in a forward pass", remedy)
        self._measure()
        layers = tuple(Layer(name, n) for name, n in self._sizes.items() if name not in self._synapses)
        connections = tuple(replace(s.connection, dense=self._dense[name]) for name, s in self._synapses.items())
        without = f"without the operations of {', '.join(sorted(self._uncounted))}" if self._uncounted else ""
        said = "; ".join(filter(None, (convention, without)))
        return NetworkInfo(layers, connections, tuple(self._memory()), execution_s, said)

    def activity(self) -> list[Activity]:
        """Return the activity of each row of the batch since the previous call of ``activity``.

        Raises ``DataError`` if modules got batches of different sizes.
        """
        self._measure()
        counted = {name: found for name, part in self._parts.items() if (found := part.take())}
        calls = {name: next(iter(found.values())) for name, found in counted.items()}
        batches = {name: sorted({len(counts) for counts in each}) for name, each in calls.items()}
        if len(sizes := {size for own in batches.values() for size in own}) > 1:
            said = ", ".join(f"{name} of {' and '.join(map(str, own))}" for name, own in batches.items())
            remedy = "Let the batch be the first axis (batch_first=True), and ask for the activity after each batch"
            raise DataError(f"modules were given batches of different sizes: {said}", field="batch", remedy=remedy)
        executions = gcd(*map(len, calls.values()))
        rows: list[dict[str, dict[str, Counts]]] = [{} for _ in range(max(sizes, default=0))]
        for name, found in counted.items():
            for what, counts in found.items():
                sums = np.stack(counts, axis=1).reshape(len(rows), executions, -1).sum(axis=2)
                for row, own in zip(rows, sums, strict=True):
                    row.setdefault(name, {})[what] = own
        return list(rows)

    def _measure(self) -> None:
        """Fix, once, the number of values and of dense operations of each part in an execution."""
        if not self._sizes:
            executions = gcd(*(part.calls for part in self._parts.values()))
            self._sizes = {name: part.size // executions for name, part in self._parts.items()}
            self._dense = {name: part.dense // executions for name, part in self._parts.items()}

    def _memory(self) -> Iterator[Memory]:
        kinds = {name: {kind.__name__ for kind in type(part).__mro__} for name, part in self._model.named_modules()}
        neurons = {"_Membranes", "SpikingNeuron", *self._neurons}
        for name, values in self._model.named_parameters():
            of_neurons = neurons & kinds.get(name.rpartition(".")[0], set())
            kind: MemoryKind = "weights" if values.ndim > 1 and not of_neurons else "parameters"
            yield Memory(name, kind, values.numel(), 8 * values.element_size())
        lasting = self._model.state_dict()
        for name, values in self._model.named_buffers():
            batch = self._batches.get(name.rpartition(".")[0] or type(self._model).__name__)
            if batch and name not in lasting:
                yield Memory(name, "states", values.numel() // batch, 8 * values.element_size(), 0)
            else:
                yield Memory(name, "buffers", values.numel(), 8 * values.element_size())
        for name, (elements, bits) in self._states.items():
            yield Memory(name, "states", elements, bits, 0)

    def _hung(self, name: str, module: Any, hook: Hook) -> Iterator[Any]:
        """Add a hook to a module. For spiking neurons, the hook also gets the membranes from before the call."""
        before: list[Any] = []

        def enter(module: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
            states = [state for state in (*given[1:], *named.values()) if state is not None]
            # neurons of snnTorch take the membrane as the last argument, if they take it at all
            before[:] = [states[-1] if states else getattr(module, "mem", None)]

        def leave(module: Any, given: tuple[Any, ...], named: Mapping[str, Any], out: Any) -> None:
            self._silent.discard(name)
            hook(name, module, (*given, *named.values(), *before), out)

        if hook == self._spiking:
            yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave, with_kwargs=True)

    def _hook(self, name: str, module: Any) -> Hook | None:
        """Return the function that counts a module; None for a module without operations. Raises ``DataError``."""
        kinds: dict[str, Any] = {kind.__name__: kind for kind in type(module).__mro__}
        known: dict[str, Hook] = {
            "Linear": self._linear, "Conv1d": self._convolution, "Conv2d": self._convolution,
            "Conv3d": self._convolution, "RNNCell": self._cell, "GRUCell": self._cell, "LSTMCell": self._cell,
            "RNN": self._sequence, "GRU": self._sequence, "LSTM": self._sequence,
        }  # fmt: skip
        known |= dict.fromkeys(("ReLU", "Sigmoid", *self._neurons), self._activation) | {"SpikingNeuron": self._spiking}
        first = None if name in self._uncounted else next((kind for kind in kinds if kind in known), None)
        found = known[first] if first else None
        harmless = name in self._uncounted or any(kind in _WITHOUT for kind in kinds)
        own = type(module).__module__.startswith("snntorch.") or [*module.parameters(recurse=False)]
        neurons = found in (self._activation, self._spiking)  # their outputs count, whatever computes them
        if first and not neurons and type(module).forward is not kinds[first].forward:
            found = None
        if found is None and own and not harmless:
            remedy = "Put layers that are counted in its place; if its outputs are activations, name its class in "
            remedy += "neurons=; or leave it out by its name in uncounted="
            raise _refused(name, f"is a {type(module).__name__}, whose operations are not counted", remedy)
        return found

    def _linear(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        self._line(name, module.weight, _array(given[0]))

    def _line(self, name: str, weight: Any, values: NDArray[Any]) -> None:
        """Count a linear connection, which is applied at each place of the axes between the first and the last."""
        if values.ndim < 2:
            raise _refused(name, "was given a sample without a batch", "Give a batch of one")
        if name not in self._synapses:
            self._synapses[name] = linear(name, f"input of {name}", name, _array(weight).T)
        self._connected(name, self._synapses[name], values)

    def _convolution(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        values = _array(given[0])
        if values.ndim != module.weight.ndim:
            raise _refused(name, "was given a sample without a batch", "Give a batch of one")
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            what = f"pads {module.padding} with {module.padding_mode}"
            raise _refused(name, what, "Pad with zeros, equally at both ends, or pad in a module before it")
        shape = values.shape[1:]
        if (name, shape) not in self._windows:
            options = {what: getattr(module, what) for what in ("stride", "padding", "dilation", "groups")}
            of_shape = convolution(name, f"input of {name}", name, _array(module.weight), shape, **options)
            self._windows[name, shape] = of_shape
            known = self._synapses.setdefault(name, of_shape)
            if of_shape.connection.fan_out_max > known.connection.fan_out_max:
                self._synapses[name] = of_shape
        self._connected(name, self._windows[name, shape], values)

    def _cell(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        """Count the weights of all gates as connections. Products between gates are not connections."""
        state = given[1] if len(given) > 1 else None
        state = state[0] if isinstance(state, tuple) else state  # the second state of an LSTM has no weights
        values = _array(given[0])
        self._line(f"{name}.ih", module.weight_ih, values)
        rest = np.zeros((len(values), module.hidden_size), values.dtype) if state is None else _array(state)
        self._line(f"{name}.hh", module.weight_hh, rest)
        self._carry(name, out, len(values))

    def _sequence(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        """Count a recurrent module as one cell for each layer and direction."""
        if getattr(given[0], "ndim", 0) != 3 or module.proj_size:
            remedy = "Give a batch of equally long sequences as one tensor, and leave proj_size out"
            raise _refused(name, "was given sequences that are packed or no batch, or has projections", remedy)
        first = given[1] if len(given) > 1 and given[1] is not None else ()
        sides, size = 2 if module.bidirectional else 1, module.hidden_size
        steps, last = (each if module.batch_first else each.transpose(0, 1) for each in (given[0], out[0]))
        for k in range(module.num_layers):
            states = [state[k * sides :][:sides] for state in (first if isinstance(first, tuple) else (first,))]
            done = last if k == module.num_layers - 1 else _layer(module, k, steps, states)
            for side, suffix in enumerate((f"_l{k}", f"_l{k}_reverse")[:sides]):
                hidden = _array(done)[:, :, side * size :][:, :, :size]
                rest = _array(states[0][side])[:, None] if states else np.zeros_like(hidden[:, :1])
                before = np.concatenate((hidden[:, 1:], rest) if side else (rest, hidden[:, :-1]), axis=1)
                self._line(f"{name}.ih{suffix}", getattr(module, f"weight_ih{suffix}"), _array(steps))
                self._line(f"{name}.hh{suffix}", getattr(module, f"weight_hh{suffix}"), before)
            steps = done
        self._carry(name, out[1], len(steps))

    def _carry(self, name: str, out: Any, batch: int) -> None:
        carried = out if isinstance(out, tuple) else (out,)
        elements = sum(values.numel() for values in carried) // batch
        self._states.setdefault(name, (elements, 8 * carried[0].element_size()))

    def _activation(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        values = _array(out[0] if isinstance(out, tuple) else out)
        self._part(name).add(lambda rows: {"active": active(rows)}, values)

    def _spiking(self, name: str, module: Any, given: tuple[Any, ...], out: Any) -> None:
        """Count the membranes that a call changes, compared with rest or with the state after the previous call."""
        if given[-1] is None:
            self._activation(name, module, given, out)
            return
        spikes, after, before = map(_array, (out[0] if isinstance(out, tuple) else out, module.mem, given[-1]))
        self._batches[name] = len(spikes)
        before = before if before.shape == after.shape else np.zeros_like(after)
        self._part(name).add(_spikes_and_updates, spikes, after, before)

    def _connected(self, name: str, synapses: Synapses, values: NDArray[Any]) -> None:
        """Count a call of a connection, which is applied at each place in ``values``."""
        places = values[0].size // synapses.fan_out.size
        tiled = replace(synapses, fan_out=np.tile(synapses.fan_out.ravel(), places))
        self._part(name).add(tiled.count, values, dense=places * synapses.connection.dense)

    def _part(self, name: str) -> _Part:
        return self._parts.setdefault(name, _Part())


def _refused(name: str, what: str, remedy: str) -> DataError:
    return DataError(f"module {name} {what}", field="model", value=name, remedy=remedy)


def _array(values: Any) -> NDArray[Any]:
    try:
        array: NDArray[Any] = values.numpy(force=True)
    except TypeError:  # numpy has no bfloat16
        array = values.float().numpy(force=True)
    return array


def _spikes_and_updates(spikes: NDArray[Any], after: NDArray[Any], before: NDArray[Any]) -> Mapping[str, Counts]:
    return {"active": active(spikes), "updates": active(after != before)}


def _layer(module: Any, k: int, steps: Any, states: list[Any]) -> Any:
    """Run one layer alone and return its outputs: a stacked module returns only those of its last layer."""
    kind = next(kind for kind in type(module).__mro__ if kind.__name__ in ("RNN", "GRU", "LSTM"))
    options = {"nonlinearity": module.nonlinearity} if kind.__name__ == "RNN" else {}
    options |= {"bias": module.bias, "bidirectional": module.bidirectional, "batch_first": True}
    alone = kind(steps.shape[-1], module.hidden_size, dtype=steps.dtype, device=steps.device, **options)
    alone.load_state_dict({name: getattr(module, name.replace("_l0", f"_l{k}")) for name in alone.state_dict()})
    return alone(steps.detach(), tuple(states) if len(states) == 2 else states[0] if states else None)[0]


class _Part:
    """The counts of one connection or layer.

    ``size`` is the number of values of one sample in all ``calls``. ``dense`` is the number of operations that these
    values would take if no value and no weight were zero.
    """

    def __init__(self) -> None:
        self.calls, self.size, self.dense = 0, 0, 0
        self._counted: dict[str, list[Counts]] = {}

    def add(self, count: Count, *values: NDArray[Any], dense: int = 0) -> None:
        """Count the values of one call: arrays of one shape (batch, ...), in blocks of rows to save memory."""
        rows = [array.reshape(len(array), -1) for array in values]
        self.calls, self.size, self.dense = self.calls + 1, self.size + rows[0].shape[1], self.dense + dense
        block = max(1, _BLOCK_BYTES // max(1, rows[0][:1].nbytes))
        found = [count(*(array[k : k + block] for array in rows)) for k in range(0, len(rows[0]), block)]
        for name in found[0]:
            self._counted.setdefault(name, []).append(np.concatenate([one[name] for one in found]))

    def take(self) -> dict[str, list[Counts]]:
        """Return the counts since the last ``take``, by the counter's name: for each call, shape (batch,)."""
        counted, self._counted = self._counted, {}
        return counted
