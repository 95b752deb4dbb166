"""Is a forecast of Mackey-Glass scored as in neurobench, and how long do both take?

    python -m benchmarks.mackey_glass [--starts 30]

Needs the extras torch and peers (Python 3.11). An echo state network learns each series once.
Then the same weights forecast it twice: by our device's network with its counters, and as a torch module in a Benchmark
of neurobench. Compares footprint, sparsity, operations and sMAPE. Measures the processor time of each on one thread,
and of the forecast alone in numpy and in torch. Prints one JSON line. Exits 1 for a difference beyond rounding.

The line contains ``ok``, the means and quartiles of both sMAPEs, the ``largest_difference`` of each figure, and
``processor_s``: the seconds of ``learning``; of the forecast alone in ``numpy`` and in ``torch``; and of forecasting,
counting and scoring by ``ours`` and by ``neurobench``. If a forecast becomes infinite, neurobench scores all of it 200;
we score 200 only from this point on. These forecasts are left out of the differences; ``diverged`` lists our sMAPE of
each.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of
from drivers.devices.cpu.esn import Shape, Trained, trained
from rig.analysis.complexity.cost_and_activity import static_figures
from rig.analysis.scores.predictions import WORST, smape
from rig.network.counting import count
from rig.types import Floats
from scenarios.workloads.mackey_glass.workload import open_workload

SHAPE = Shape(
    186, density=0.11, spectral_radius=1.09, leak=0.58, bias_scale=0.34, input_scale=0.425, ridge=1e-8, washout=45
)
PUBLISHED_SMAPE = 14.79
SAME = {"smape": 0.05, "connection_sparsity": 1e-4, "footprint_bytes": 0.0, "dense": 0.0, "effective": 0.0}
"""Allowed differences: over ten Lyapunov times rounding alone changes a forecast, and neurobench rounds sparsity."""


def main() -> int:
    """Compare and time; return the exit code: 1 for a difference."""
    args = parser_of(__doc__, starts=30).parse_args()
    import torch
    from neurobench.benchmarks import Benchmark  # noqa: F401  # importing it is no part of its time

    torch.set_num_threads(1)  # with several threads, processor time is not elapsed time
    seconds = {"learning": 0.0, "numpy": 0.0, "ours": 0.0, "torch": 0.0, "neurobench": 0.0}
    rows = []
    for sample in open_workload(starts=args.starts).samples:
        half = len(sample.payload) // 2
        series, wanted = sample.payload[:half], sample.payload[half:]
        rng = np.random.default_rng([0, sample.seed or 0])
        network = _timed(seconds, "learning", partial(trained, SHAPE, series, rng))
        _timed(seconds, "numpy", partial(network.forecast, half))
        _timed(seconds, "torch", partial(_module(network), wanted))
        ours = _timed(seconds, "ours", partial(by_us, network, wanted))
        theirs = _timed(seconds, "neurobench", partial(by_neurobench, network, wanted))
        rows.append((ours, theirs))
    finite = [row for row in rows if row[1]["smape"] < WORST]
    worst = {name: max(abs(ours[name] - theirs[name]) for ours, theirs in finite) for name in SAME}
    scores = {
        who: np.percentile([row[k]["smape"] for row in rows], [25, 50, 75]).tolist()
        for k, who in enumerate(("ours", "neurobench"))
    }
    means = {who: float(np.mean([row[k]["smape"] for row in rows])) for k, who in enumerate(scores)}
    ok = all(worst[name] <= allowed for name, allowed in SAME.items())
    diverged = [ours["smape"] for ours, theirs in rows if theirs["smape"] == WORST]
    said = {
        "starts": args.starts,
        "diverged": diverged,
        "smape_mean": means,
        "smape_quartiles": scores,
        "smape_published": PUBLISHED_SMAPE,
    }
    print(
        json.dumps(
            {**said, "smape_published": PUBLISHED_SMAPE, "processor_s": seconds, "largest_difference": worst, "ok": ok}
        )
    )
    return 0 if ok else 1


def by_us(network: Trained, wanted: Floats) -> dict[str, float]:
    """Forecast, score and count as the device and the analysis do; operations are per point."""
    found, seen = network.forecast(len(wanted))
    counted = count(network.synapses(), seen)
    info = network.network()
    static = static_figures(info)
    operations = sum(int(part[kind].sum()) for part in counted.values() for kind in ("acs", "macs") if kind in part)
    return {
        "smape": smape(wanted, found),
        "footprint_bytes": static["footprint_at_start_bytes"].value,
        "connection_sparsity": static["connection_sparsity"].value,
        "dense": float(info.dense),
        "effective": operations / len(wanted),
    }


def by_neurobench(network: Trained, wanted: Floats) -> dict[str, float]:
    """Do the same with a Benchmark of neurobench, as its example runs one start."""
    import torch
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.static import ConnectionSparsity, Footprint
    from neurobench.metrics.workload import SMAPE, SynapticOperations
    from neurobench.models import TorchModel

    points = torch.tensor(wanted)[:, None]
    rows = torch.utils.data.TensorDataset(points, points)
    loader = torch.utils.data.DataLoader(rows, batch_size=len(points))
    metrics = [[Footprint, ConnectionSparsity], [SMAPE, SynapticOperations]]
    benchmark = Benchmark(TorchModel(_module(network)), loader, [], [], metrics)
    found = benchmark.run(quiet=True)
    del benchmark  # later, its hooks would remove the next Benchmark's hooks
    operations = found["SynapticOperations"]
    return {
        "smape": found["SMAPE"],
        "footprint_bytes": found["Footprint"],
        "connection_sparsity": found["ConnectionSparsity"],
        "dense": operations["Dense"],
        "effective": operations["Effective_ACs"] + operations["Effective_MACs"],
    }


def _module(network: Trained) -> Any:
    import torch
    from torch import nn

    def linear(weights: Floats) -> Any:
        made = nn.Linear(*weights.shape, bias=False, dtype=torch.float64)
        made.weight.data = torch.tensor(weights.T.copy())
        return made

    class Network(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.into, self.back = linear(network.weights_in), linear(network.weights)
            self.out = linear(network.weights_out[:, None])

        def forward(self, given: Any) -> Any:
            one, value, found = torch.ones(1), torch.tensor([network.value]), []
            state = torch.tensor(network.state)
            for _ in given:  # a forecast reads only its own values
                drive = self.back(state[None])[0] + self.into(torch.cat((one, value))[None])[0]
                state = (1.0 - SHAPE.leak) * state + SHAPE.leak * torch.tanh(drive)
                value = self.out(torch.cat((one, value, state))[None])[0]
                found.append(value)
            return torch.stack(found)

    torch.set_default_dtype(torch.float64)
    return Network().eval()


def _timed(seconds: dict[str, float], name: str, call: Callable[[], Any]) -> Any:
    began_s = time.process_time()
    result = call()
    seconds[name] += time.process_time() - began_s
    return result


if __name__ == "__main__":
    sys.exit(main())
