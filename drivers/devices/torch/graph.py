"""A NIR graph as a torch module that goes through the time steps of its input.

NIR describes neurons by differential equations. They are integrated by Euler's method, as in the frameworks that write
NIR. A neuron sends at most one spike in a step, if its membrane is above its threshold (``nir.LIF``: v > v_threshold).
Recurrent inputs come from the step before. A node of an unknown kind is refused, with its name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.nir_file import Edges, Nodes, check_edges, ends_of, finite, refused

Given = Sequence[tuple[str, bool]]
"""The nodes that lead to a node. The flag is true if the output is from the step before."""
NEURONS = ("Neurons", "Threshold")
"""The classes of modules whose outputs are spikes and count as activations. Output membranes do not count."""
_STATEFUL = ("CubaLIF", "LIF", "IF", "CubaLI", "LI", "I")
_SPIKING = ("CubaLIF", "LIF", "IF")
_CURRENTS = ("CubaLIF", "CubaLI")


def stateful(nodes: Nodes) -> list[str]:
    """Return the names of the neurons, which carry a state from step to step."""
    return [name for name, node in nodes.items() if _kind(node) in _STATEFUL]


def states_of(nodes: Nodes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the number of state values of neurons of these ``shapes``, by name, such as ``membrane of lif1``."""
    held = {name: ["membrane", *(["current"] if _kind(nodes[name]) in _CURRENTS else [])] for name in stateful(nodes)}
    return {f"{what} of {name}": int(np.prod(shapes[name])) for name, whats in held.items() for what in whats}


def input_shape(nodes: Nodes) -> tuple[int, ...]:
    """Return the shape of the input of one step. Raises ``DataError`` for a graph without one."""
    source, _ = ends_of(nodes)
    return tuple(int(n) for n in np.ravel(nodes[source].input_type["input"]))


def module_of(torch: Any, nodes: Nodes, edges: Edges, dt_s: float, to_zero: bool) -> Any:
    """Return a module that takes inputs (batch, steps, ...) and returns the graph's output, summed over the steps.

    ``dt_s`` is the time step. A spike subtracts the threshold from the membrane or, with ``to_zero``, sets it to
    ``v_reset``. Raises ``DataError`` that names the node.
    """
    parts = {name: _part(torch, name, node, dt_s, to_zero) for name, node in nodes.items()}
    plan, own, (_, sink) = _plan(nodes, edges), stateful(nodes), ends_of(nodes)

    class Graph(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.plan = []
            for name, given in plan:
                key = name.replace(".", "_")
                key = f"node_{key}" if hasattr(self, key) else key  # a name that every module has
                self.add_module(key, parts[name])
                self.plan.append((name, parts[name], given))
            self.rest = self._shapes(torch.zeros(1, *input_shape(nodes), dtype=torch.float64))

        def forward(self, inputs: Any) -> Any:
            sent = {name: inputs.new_zeros(len(inputs), *shape) for name, shape in self.rest.items()}
            for name in own:
                parts[name].begin()
            total: Any = 0
            for at in inputs.unbind(1):
                sent = self._step(at, sent)
                total = total + sent[sink]
            return total

        def _step(self, at: Any, before: dict[str, Any]) -> dict[str, Any]:
            now: dict[str, Any] = {}
            for name, part, given in self.plan:
                values = [before.get(a) if late else now[a] for a, late in given]
                known = [value for value in values if value is not None]
                now[name] = at if not given else part(sum(known[1:], known[0])) if known else None
            return now

        def _shapes(self, at: Any) -> dict[str, tuple[int, ...]]:
            """Find the shapes of the neurons' outputs by a trial step of zeros without recurrent inputs.

            ``forward`` begins with zeros of these shapes.
            """
            for name in own:
                parts[name].begin()
            with torch.no_grad():
                return {name: tuple(out.shape[1:]) for name, out in self._step(at, {}).items() if name in own}

    return Graph()


def _plan(nodes: Nodes, edges: Edges) -> list[tuple[str, Given]]:
    """Return the nodes in the order of execution in a step, each with its inputs.

    Raises ``DataError`` for a loop without neurons, and for a node that nothing leads to.
    """
    check_edges(nodes, edges)
    own, plan, done = stateful(nodes), list[tuple[str, Given]](), set[str]()

    def pull(name: str, path: tuple[str, ...]) -> bool:
        if name in done:
            return False
        if name in own and path:
            return True
        if name in path:
            raise refused(name, "is in a loop without neurons", "Put neurons into the loop")
        given = [(a, pull(a, (*path, name))) for a, b in edges if b == name]
        if not given and _kind(nodes[name]) != "Input":
            raise refused(name, "is not reached from the input", "Remove it, or connect it")
        plan.append((name, given))
        done.add(name)
        return False

    for name in _in_order(nodes, edges):
        pull(name, ())
    for late in (a for _, given in plan for a, before in given if before and a not in done):
        raise refused(late, "is not reached from the input", "Remove it, or connect it")
    return plan


def _in_order(nodes: Nodes, edges: Edges) -> list[str]:
    """Return the neurons in order from the input on, without regard to loops back, and then the output."""
    seen, after = set[str](), list[str]()

    def visit(name: str) -> None:
        seen.add(name)
        for b in [b for a, b in edges if a == name]:
            if b not in seen:
                visit(b)
        after.append(name)

    source, sink = ends_of(nodes)
    visit(source)
    return [*(n for n in reversed(after) if _kind(nodes[n]) in _STATEFUL), sink]


def _part(torch: Any, name: str, node: Any, dt_s: float, to_zero: bool) -> Any:
    """Return the module of one node. Raises ``DataError`` for a kind that is not known, and for impossible values."""
    for what, values in vars(node).items():
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            finite(name, what, values)
    kind, nn = _kind(node), torch.nn
    make: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(("Input", "Output"), nn.Identity),
        **dict.fromkeys(_STATEFUL, lambda: _neurons(torch, _values(name, node, dt_s), kind in _SPIKING, to_zero)),
        "Linear": lambda: _weighted(torch, nn.Linear(*node.weight.shape[::-1], bias=False), node),
        "Affine": lambda: _weighted(torch, nn.Linear(*node.weight.shape[::-1]), node),
        **dict.fromkeys(("Conv1d", "Conv2d"), lambda: _convolution(torch, node)),
        # NIR counts dimensions without the batch
        "Flatten": lambda: nn.Flatten(*(int(d) + (int(d) >= 0) for d in (node.start_dim, node.end_dim))),
        "AvgPool2d": lambda: _pool(torch, node),
        "SumPool2d": lambda: nn.Sequential(_pool(torch, node), _times(torch, float(np.prod(node.kernel_size)))),
        "Scale": lambda: _times(torch, node.scale),
        "Threshold": lambda: _threshold(torch, node.threshold),
    }
    if kind not in make:
        raise refused(name, f"is a {kind}", f"The device torch runs {', '.join(make)}")
    return make[kind]()


def _convolution(torch: Any, node: Any) -> Any:
    groups, (outputs, inputs, *kernel) = int(node.groups), node.weight.shape
    how = {what: _size(getattr(node, what)) for what in ("stride", "padding", "dilation")}
    made = getattr(torch.nn, _kind(node))
    return _weighted(torch, made(inputs * groups, outputs, tuple(kernel), groups=groups, **how), node)


def _pool(torch: Any, node: Any) -> Any:
    return torch.nn.AvgPool2d(_size(node.kernel_size), _size(node.stride), _size(node.padding))


def _weighted(torch: Any, module: Any, node: Any) -> Any:
    for what, _ in list(module.named_parameters()):
        values = torch.from_numpy(np.array(getattr(node, what), np.float64))
        setattr(module, what, torch.nn.Parameter(values, requires_grad=False))
    return module


def _times(torch: Any, scale: NDArray[Any] | float) -> Any:
    made = type("Times", (torch.nn.Module,), {"forward": lambda module, values: values * module.scale})()
    made.register_buffer("scale", torch.as_tensor(np.array(scale, np.float64)))
    return made


def _threshold(torch: Any, threshold: NDArray[Any]) -> Any:
    over = {"forward": lambda module, values: (values > module.threshold).to(values.dtype)}
    made = type("Threshold", (torch.nn.Module,), over)()
    made.threshold = torch.nn.Parameter(torch.as_tensor(np.array(threshold, np.float64)), requires_grad=False)
    return made


def _neurons(torch: Any, values: dict[str, NDArray[Any]], spiking: bool, to_zero: bool) -> Any:
    class _Membranes(torch.nn.Module):  # type: ignore[misc]
        """Neurons of all kinds, with or without a synaptic current; those that do not spike output their membranes."""

        def __init__(self) -> None:
            super().__init__()
            absent = {"keep_current": None, "keep_membrane": 1.0, "leak": 0.0}
            for name, of in (absent | values).items():
                given = isinstance(of, np.ndarray)
                setattr(self, name, torch.nn.Parameter(torch.from_numpy(of), requires_grad=False) if given else of)
            self.begin()

        def begin(self) -> None:
            """Reset to the resting state."""
            self.current = self.membrane = None

        def forward(self, arrives: Any) -> Any:
            current = arrives * self.gain
            membrane = self.leak
            if self.membrane is not None:
                current = current if self.keep_current is None else current + self.current * self.keep_current
                membrane = self.membrane * self.keep_membrane + self.leak
            membrane = membrane + current
            self.current, self.membrane = current, membrane
            if not spiking:
                return membrane
            spikes = (membrane > self.threshold).to(membrane.dtype)
            reset = membrane + spikes * (self.reset - membrane) if to_zero else membrane - spikes * self.threshold
            self.membrane = reset
            return spikes

    class Neurons(_Membranes):
        """Neurons that spike."""

    return Neurons() if spiking else _Membranes()


def _values(name: str, node: Any, dt_s: float) -> dict[str, NDArray[Any]]:
    """Return the factors of one Euler step: how much neurons keep and take in, each in the shape of the neurons."""
    kind, r = _kind(node), np.asarray(node.r, np.float64)
    cuba, leaks = kind in _CURRENTS, kind not in ("IF", "I")
    steps = {what: np.asarray(getattr(node, what), np.float64) / dt_s for what in ("tau_syn", "tau_mem", "tau")
             if hasattr(node, what)}  # fmt: skip
    for what, values in steps.items():
        if values.min() < 1.0 - 1e-9:
            said = f"has {what} of {values.min():g} time steps of {dt_s:g} s"
            raise refused(name, said, "Euler's method takes 1 or more: check --option dt_s")
    of_membrane = 1.0 / steps.get("tau_mem", steps.get("tau", np.ones_like(r)))
    gain = r * (of_membrane if leaks else dt_s)
    found = {"gain": gain * (np.asarray(node.w_in) / steps["tau_syn"] if cuba else 1.0)}
    found |= {"keep_current": 1.0 - 1.0 / steps["tau_syn"]} if cuba else {}
    found |= {"keep_membrane": 1.0 - of_membrane, "leak": np.asarray(node.v_leak) * of_membrane} if leaks else {}
    if kind in _SPIKING:
        found["threshold"] = np.asarray(node.v_threshold)
        found["reset"] = np.zeros_like(r) if node.v_reset is None else np.asarray(node.v_reset)
    shape = np.broadcast_shapes(*(values.shape for values in found.values()))
    return {what: np.array(np.broadcast_to(values, shape), np.float64) for what, values in found.items()}


def _size(values: Any) -> Any:
    """Return a size as torch takes it: a text, or a number for each axis."""
    return values if isinstance(values, str) else tuple(int(v) for v in np.ravel(values))


def _kind(node: Any) -> str:
    return type(node).__name__
