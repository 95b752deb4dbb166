"""Do sessions of primate reaching, and the published networks on them, give the same results as in neurobench?

    python -m benchmarks.reaching NETWORKS

Needs the extras torch, peers and primate (Python 3.11). ``NETWORKS`` is a folder
with ``SNN2_indy_20160622_01.npz`` and ``ANN_2D_indy_20160622_01.npz``. A session with random spikes, in the file layout
of the recorded sessions, is read by both programs. Both run both networks on the first steps of its test part. Prints a
JSON line of differences for each comparison. Exits 1 for a difference beyond rounding.
"""

import hashlib
import importlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from drivers.devices.cpu.decoders import WINDOW, Spikes, read_decoder
from rig.analysis.scores.predictions import r2
from rig.network.counting import count
from rig.types import Floats
from scenarios.workloads.primate_reaching.sessions import STEP_S, Session, read_session, synthetic

NAME = "indy_20160622_01"
UNITS, RATE_HZ, BEGIN_S, TICK_HZ = 5, 3.0, 1234.5, 24414.0625
STEPS = 6000
SAME = 5e-6
"""The largest allowed difference: neurobench computes in 32 bits."""


def main() -> int:
    """Compare; return the exit code: 1 for a difference."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as made:
        md5 = _written(Path(made))
        ours, theirs = read_session(Path(made), NAME, {NAME: md5}), _theirs(made)
    labels = np.abs(theirs.labels.numpy().T - ours.velocity).max() / np.abs(ours.velocity).max()
    said = [
        {"spikes": int(np.count_nonzero(ours.spikes != theirs.samples.numpy().T)), "velocity": float(labels)},
        {"test_from": int(theirs.ind_test[0]) - ours.test_from, "steps": theirs.samples.shape[1] - len(ours.spikes)},
    ]
    for kind, model in (("SNN2", _spiking), ("ANN_2D", _buffered)):
        file = folder / f"{kind}_{NAME}.npz"
        found, wanted = _by_us(file, ours), _by_neurobench(file, model, theirs)
        said.append({f"{kind} {key}": found[key] - wanted[key] for key in found})
    for line in said:
        print(json.dumps(line))
    return int(any(abs(value) > SAME for line in said for value in line.values()))


def _written(folder: Path) -> str:
    """Write a session with the spikes of five units in each channel; return its md5."""
    h5py: Any = importlib.import_module("h5py")

    drawn, rng = synthetic(200, 5), np.random.default_rng(5)
    steps, channels = drawn.spikes.shape
    path = folder / f"{NAME}.mat"
    with h5py.File(path, "w") as file:
        file["t"] = BEGIN_S + STEP_S * np.arange(steps)[None]
        file["cursor_pos"] = np.cumsum(drawn.velocity, axis=0).T
        targets = np.zeros((2, steps))
        targets[:, drawn.reaches] = 1.0
        file["target_pos"] = np.cumsum(targets, axis=1)
        cells = file.create_dataset("spikes", (UNITS, channels), dtype=h5py.ref_dtype)
        for place in np.ndindex(UNITS, channels):
            times_s = BEGIN_S - 0.1 + (steps * STEP_S + 0.2) * rng.random(rng.poisson(RATE_HZ * steps * STEP_S))
            ticks = np.sort(np.round(times_s * TICK_HZ))
            cells[place] = file.create_dataset(f"#refs#/{place[0]}-{place[1]}", data=ticks[None] / TICK_HZ).ref
    return hashlib.md5(path.read_bytes()).hexdigest()


def _theirs(folder: str) -> Any:
    from neurobench.datasets import PrimateReaching

    return PrimateReaching(folder, NAME, num_steps=1, train_ratio=0.5, bin_width=STEP_S, download=False)


def _by_us(file: Path, session: Session) -> dict[str, float]:
    spikes: Spikes = session.spikes[session.test_from :][:STEPS].astype(np.uint8)
    velocity: Floats = session.velocity[session.test_from :][:STEPS]
    decoder = read_decoder(file, spikes.shape[1])
    predictions, seen = decoder.decode(spikes)
    counted = count(decoder.synapses(), seen)
    done = {kind: sum(int(c[kind].sum()) for c in counted.values() if kind in c) for kind in ("acs", "macs")}
    network, passes = decoder.network(), len(seen["input"])
    active = sum(int(counted[layer.name]["active"].sum()) for layer in network.layers)
    return {
        "Effective_ACs": done["acs"] / len(spikes),
        "Effective_MACs": done["macs"] / len(spikes),
        "ActivationSparsity": 1 - active / (network.neurons * passes),
        "R2": r2(velocity, predictions) or 0.0,
    }


def _by_neurobench(file: Path, made: Callable[[Any], Any], session: Any) -> dict[str, float]:
    import snntorch
    import torch
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.workload import R2, ActivationSparsity, SynapticOperations
    from neurobench.models import TorchModel

    with np.load(file) as arrays:
        held = {key.removeprefix("model_state_dict."): torch.tensor(arrays[key]) for key in arrays.files}
    model = TorchModel(made(held))
    model.add_activation_module(snntorch.SpikingNeuron)
    test = torch.utils.data.Subset(session, session.ind_test[:STEPS])
    loader = torch.utils.data.DataLoader(test, batch_size=len(test))
    benchmark = Benchmark(model, loader, [], [], [[], [R2, ActivationSparsity, SynapticOperations]])
    found = benchmark.run(quiet=True)
    del benchmark  # its hooks would remove the next Benchmark's hooks
    return {**found, **found["SynapticOperations"]}


def _spiking(held: Any) -> Any:
    import snntorch
    import torch

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc_out = (
                torch.nn.Linear(*held[f"{k}.weight"].T.shape, bias=False) for k in ("fc1", "fc_out")
            )
            self.lif1 = snntorch.Leaky(beta=0.5, threshold=1, reset_mechanism="zero")
            self.lif_out = snntorch.Leaky(beta=0.5, threshold=1, reset_mechanism="none")

        def forward(self, given: Any) -> Any:
            u, v, found = self.lif1.init_leaky(), self.lif_out.init_leaky(), []
            for step in given:
                spiked, u = self.lif1(self.fc1(step[0]), u)
                _, v = self.lif_out(self.fc_out(spiked), v)
                found.append(v)
            return torch.stack(found)

    network = Network()
    network.load_state_dict(held)
    return network.eval()


def _buffered(held: Any) -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = (nn.Linear(*held[f"fc{k}.weight"].T.shape) for k in (1, 2, 3))
            self.batchnorm1, self.batchnorm2 = nn.BatchNorm1d(32), nn.BatchNorm1d(48)
            self.activation = nn.ReLU()

        def forward(self, given: Any) -> Any:
            found = [torch.zeros(1, 2)] * (WINDOW - 1)
            for k in range(WINDOW, len(given) + 1):
                hidden = self.batchnorm1(self.activation(self.fc1(given[k - WINDOW : k, 0].sum(0, keepdim=True))))
                found.append(self.fc3(self.batchnorm2(self.activation(self.fc2(hidden)))))
            return torch.cat(found)

    network = Network()
    network.load_state_dict(held)
    return network.eval()


if __name__ == "__main__":
    sys.exit(main())
