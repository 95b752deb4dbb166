"""Do complexity metrics equal neurobench's, and what does counting cost compared with a plain forward pass?

    python -m benchmarks.complexity [--networks 300] [--seed 0]

Needs the extras torch and peers (Python 3.11). Draws networks of eight kinds (dense, convolution, spiking; cells of an
RNN, LSTM and GRU; whole LSTMs and GRUs) and batches of one or more samples. The rig and neurobench's package count each
network on the same inputs, and their figures are compared, metric by metric. Then the processor time and, on Linux, the
memory of counting are measured. Prints a line for each difference that is not explained and, last, one JSON line. Exits
1 for such a difference, or if counting adds more than a fifteenth of the time that neurobench adds.

Some differences follow from neurobench's definitions. They are added to our figures before the comparison
(``explained``), and the figures must then be equal. Neurobench

- counts up to three products of each neuron in an LSTM or GRU cell, though the products use no weight: two, and a third
if the neuron's cell (in a GRU, its hidden state) is not zero;
- adds these products to a cell's dense operations, for a GRU cell always three of each neuron;
- leaves out of an LSTM cell's dense operations the weights of hidden values that are zero (in the first step, all);
- counts the biases of a cell in connection sparsity, and rounds this sparsity to four decimals;
- counts every membrane in the first step, and later those that change;
- counts 0 operations for a model with a whole LSTM or GRU, so here it gets cells with the same weights instead.

Neurobench decides between ACs and MACs for a whole batch, and for a cell by the input alone, though the state has real
values. So their split is compared only for batches of one sample without cells, and otherwise their sum.
"""

import copy
import ctypes
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import concluded, parser_of
from benchmarks.harness.load import status_b
from drivers.torch_counting import TorchCounter
from rig.analysis.complexity.cost_and_activity import static_figures

GOAL_RATIO = 1 / 15
TIMED = ("dense", "convolution", "spiking", "RNNCell")
KINDS = (*TIMED, "LSTMCell", "GRUCell", "LSTM", "GRU")
ROUNDS = 5
PASSES = {"dense": 100, "convolution": 10, "spiking": 10, "RNNCell": 10}
"""The number of forward passes that are timed together; with neurobench they take some tenths of a second."""
MEMORY_BATCH = 128
ROUNDED = 1.01e-4
"""The largest difference between two ways of rounding the fourth decimal of a sparsity."""


def main() -> int:
    """Draw, compare and time; the exit code is 1 when a goal is missed."""
    args = parser_of(__doc__, networks=300, seed=0).parse_args()
    import torch

    differences: Counter[str] = Counter()
    terms: Counter[str] = Counter()
    for number in range(args.networks):
        rng = np.random.default_rng([args.seed, number])
        kind, batch = KINDS[number % len(KINDS)], 1 if number % 16 < 8 else int(rng.integers(2, 9))
        model, data = drawn(kind, rng, batch)
        untouched = copy.deepcopy(model)  # the first pass creates membranes, and neurobench counts them
        ours, theirs, known = counted(model, data), by_neurobench(kind, untouched, data), explained(kind, model, data)
        for name, value in theirs.items():
            allowed = ROUNDED if name == "ConnectionSparsity" else 1e-9 * max(1.0, abs(value))
            terms[f"{kind}: {name}"] += bool(known.get(name))
            if abs(ours[name] + known.get(name, 0.0) - value) > allowed:
                differences[f"{kind}: {name}"] += 1
                print(f"network {number} ({kind}, batch {batch}): {name} is {ours[name]:.9g}, theirs {value:.9g}")
    print(f"explained: {', '.join(f'{name} in {n}' for name, n in terms.items() if n)}")
    torch.set_num_threads(1)  # with several threads, processor time is not elapsed time
    ratios = {kind: overhead(kind) for kind in TIMED}
    for kind, (plain_s, ours_s, theirs_s) in ratios.items():
        print(f"{kind}: forward {plain_s:.4g} s, counting adds {ours_s:.4g} s, neurobench {theirs_s:.4g} s")
        if sys.platform == "linux":
            grown = ", ".join(f"{size / 2**20:.1f}" for size in memory(kind))
            print(f"{kind}: memory grows by {grown} MiB: a plain pass, counted, by neurobench")
    share = {kind: ours_s / theirs_s for kind, (_, ours_s, theirs_s) in ratios.items()}
    ok = not differences and max(share.values()) <= GOAL_RATIO
    found = {"networks": args.networks, "differences": differences, "explained": +terms, "overhead_share": share}
    return concluded(found | {"ok": ok}, ok)


def drawn(kind: str, rng: np.random.Generator, batch: int, size: int = 30, steps: int = 6) -> tuple[Any, Any]:
    """Draw a random network with some zero weights, and one batch for it."""
    import torch
    from torch import nn

    torch.manual_seed(int(rng.integers(2**31)))
    n, hidden, out = (int(k) for k in rng.integers(size // 3, size, 3))
    if kind == "dense":
        model: Any = nn.Sequential(nn.Linear(n, hidden), nn.ReLU(), nn.Linear(hidden, out), nn.ReLU())
        data = torch.randn(batch, n)
    elif kind == "convolution":
        options = {"stride": int(rng.integers(1, 3)), "padding": int(rng.integers(0, 2))}
        conv = nn.Conv2d(2, 4, 3, groups=int(rng.integers(1, 3)), **options)
        shape = (batch, 2, 3 * size // 10, 3 * size // 10)
        data = torch.randn(shape) * (torch.rand(shape) < 0.5)
        flat = int(np.prod(conv(data).shape[1:]))
        model = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(flat, out), nn.Sigmoid())
    elif kind == "spiking":
        import snntorch

        neurons = [snntorch.Leaky(beta=0.9, init_hidden=True), snntorch.Leaky(beta=0.8, init_hidden=True, output=True)]
        bias = bool(rng.integers(2))  # without a bias, some membranes rest in the first step
        model = nn.Sequential(nn.Linear(n, hidden, bias), neurons[0], nn.Linear(hidden, out, bias), neurons[1])
        data = (torch.rand(batch, steps, n) < 0.3).float()
    else:
        model, data = _recurrent(kind, n, hidden, out), (torch.rand(batch, steps, n) < 0.3).float()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "weight" in name:
                values.mul_(torch.rand_like(values) < 0.7)
    return model.eval(), data


def _recurrent(kind: str, n: int, hidden: int, out: int) -> Any:
    """Return a network of one recurrent module that starts from rest; its last state is read out."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            options = {} if kind.endswith("Cell") else {"batch_first": True}
            self.cell = getattr(nn, kind)(n, hidden, **options)
            self.readout, self.act = nn.Linear(hidden, out), nn.ReLU()

        def forward(self, given: Any) -> Any:
            if not kind.endswith("Cell"):
                return self.act(self.readout(self.cell(given)[0][:, -1]))
            return self.act(self.readout(self.states(given)[-1][0]))

        def states(self, given: Any) -> list[tuple[Any, ...]]:
            """Return the states before and after each step: hidden values and, for an LSTM, the cells."""
            found = [(torch.zeros(len(given), hidden),) * (2 if "LSTM" in kind else 1)]
            for step in given.unbind(1):
                state = self.cell(step, found[-1] if "LSTM" in kind else found[-1][0])
                found.append(state if "LSTM" in kind else (state,))
            return found

    return Recurrent()


def cells_of(kind: str, model: Any) -> Any:
    """Return a network that steps a cell with the weights of a whole LSTM or GRU; any other network unchanged."""
    if kind not in ("LSTM", "GRU"):
        return model
    twin = _recurrent(f"{kind}Cell", model.cell.input_size, model.cell.hidden_size, model.readout.out_features)
    twin.load_state_dict({name.replace("_l0", ""): values for name, values in model.state_dict().items()})
    return twin.eval()


def explained(kind: str, model: Any, data: Any) -> dict[str, float]:
    """Return what neurobench adds to each metric of one batch by its formulas (``metrics/utils/layers/macs.py``)."""
    import torch

    if kind == "spiking":
        counter = TorchCounter(model)
        forward(model, data)
        counter.close()
        names = [layer.name for layer in counter.network().layers]
        still = [layer.neurons for layer in counter.network().layers]
        rows = counter.activity()
        first = sum(int(row[name]["updates"][0]) for row in rows for name in names)
        return {"MembraneUpdates": sum(still) - first / len(data)}
    if kind in ("dense", "convolution"):
        return {}
    twin, batch = cells_of(kind, model), len(data)
    weights = [twin.cell.weight_ih, twin.cell.weight_hh, twin.readout.weight]
    zeros, held = sum(int((w == 0).sum()) for w in weights), sum(w.numel() for w in weights)
    found = {"ConnectionSparsity": zeros / (held + 2 * twin.cell.bias_ih.numel()) - zeros / held}
    with torch.no_grad():
        before = twin.states(data)[:-1]
    active = [[int(state.count_nonzero()) for state in states] for states in before]
    size, steps = twin.cell.hidden_size, len(before)
    if "LSTM" in kind:
        products = sum(2 * size * batch + cells for _, cells in active)
        found |= {"Effective": products / batch}
        found |= {"Dense": (products + sum(4 * size * (hidden - size * batch) for hidden, _ in active)) / batch}
    if "GRU" in kind:
        found |= {"Effective": 2 * size * steps + sum(hidden for (hidden,) in active) / batch}
        found |= {"Dense": 3 * size * steps}
    return found


def forward(model: Any, data: Any) -> Any:
    """Run one forward pass; a spiking network takes one step after another, from the resting state."""
    import torch

    with torch.no_grad():
        if "snntorch" not in {type(m).__module__.partition(".")[0] for m in model.modules()}:
            return model(data)
        from snntorch import utils

        utils.reset(model)
        return [model(data[:, step]) for step in range(data.shape[1])]


def counted(model: Any, data: Any, times: int = 1) -> dict[str, float]:
    """Return our metrics of one batch, or of ``times`` equal batches together, by neurobench's names."""
    counter = TorchCounter(model)
    try:
        for _ in range(times):
            forward(model, data)
        rows, network = counter.activity(), counter.network()
    finally:
        counter.close()
    static, samples = static_figures(network), times * len(data)
    sums = {k: sum(int(np.sum([row[c.name][k] for row in rows])) for c in network.connections) for k in ("acs", "macs")}
    dense = sum(c.dense * sum(len(row[c.name]["acs"]) for row in rows) for c in network.connections)
    layers = [(layer.neurons, np.array([row[layer.name]["active"] for row in rows])) for layer in network.layers]
    neurons = sum(n * found.size for n, found in layers)
    active = sum(int(found.sum()) for _, found in layers)
    updates = sum(int(np.sum(row[layer.name].get("updates", 0))) for row in rows for layer in network.layers)
    return {
        "Footprint": static["footprint_at_start_bytes"].value,
        "ParameterCount": static["parameters"].value,
        "ConnectionSparsity": static["connection_sparsity"].value,
        "ActivationSparsity": 1 - active / neurons,
        "Dense": dense / samples,
        "Effective": (sums["acs"] + sums["macs"]) / samples,
        "Effective_ACs": sums["acs"] / samples,
        "Effective_MACs": sums["macs"] / samples,
        "MembraneUpdates": updates / samples,
    }


def by_neurobench(kind: str, model: Any, data: Any, times: int = 1) -> dict[str, float]:
    """Return the same metrics from neurobench; the split of operations only for a batch of one."""
    import torch
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.static import ConnectionSparsity, Footprint, ParameterCount
    from neurobench.metrics.workload import ActivationSparsity, MembraneUpdates, SynapticOperations
    from neurobench.models import SNNTorchModel, TorchModel

    wrapped = SNNTorchModel(model) if kind == "spiking" else TorchModel(cells_of(kind, model))
    static = [Footprint, ParameterCount, ConnectionSparsity]
    workload = [ActivationSparsity, SynapticOperations] + ([MembraneUpdates] if kind == "spiking" else [])
    rows = torch.utils.data.TensorDataset(data.repeat(times, *[1] * (data.ndim - 1)), torch.zeros(times * len(data)))
    loader = torch.utils.data.DataLoader(rows, batch_size=len(data))
    benchmark = Benchmark(wrapped, loader, [], [], [static, workload])
    found = benchmark.run(quiet=True)
    del benchmark  # its hooks would remove the next Benchmark's hooks
    operations = found.pop("SynapticOperations")
    found |= {"Dense": operations["Dense"]}
    found["Effective"] = operations["Effective_ACs"] + operations["Effective_MACs"]
    if len(data) == 1 and kind in ("dense", "convolution", "spiking"):
        found |= {k: operations[k] for k in ("Effective_ACs", "Effective_MACs")}
    return {name: float(value) for name, value in found.items()}


def overhead(kind: str) -> tuple[float, float, float]:
    """Return processor seconds of plain passes, and the seconds that our counting and neurobench's counting add."""
    model, data = drawn(kind, np.random.default_rng(1), 8, size=300, steps=50)
    calls = _calls(kind, model, data, PASSES[kind])
    # in turn, so that a slow moment of the computer affects all three
    plain_s, ours_s, theirs_s = np.min([[_timed(call) for call in calls] for _ in range(ROUNDS)], axis=0).tolist()
    return plain_s, max(ours_s - plain_s, 0.0), theirs_s - plain_s


def memory(kind: str) -> list[int]:
    """Return the growth of the process (bytes) in a pass of a large batch: plain, counted by us, by neurobench."""
    model, data = drawn(kind, np.random.default_rng(1), MEMORY_BATCH, size=300, steps=50)
    forward(model, data)
    return [_growth_bytes(call) for call in _calls(kind, model, data, 1)]


def _calls(kind: str, model: Any, data: Any, times: int) -> list[Callable[[], object]]:
    return [
        lambda: [forward(model, data) for _ in range(times)],
        lambda: counted(model, data, times),
        lambda: by_neurobench(kind, model, data, times),
    ]


def _growth_bytes(call: Callable[[], object]) -> int:
    """Return the growth of memory to its peak; needs Linux, which can reset the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status_b("VmRSS")
    call()
    return status_b("VmHWM") - before


def _timed(call: Callable[[], object]) -> float:
    began_s = time.process_time()
    call()
    return time.process_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
