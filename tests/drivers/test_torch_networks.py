"""The counter's results for networks in torch, compared with NeuroBench's package and with the definitions by hand."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.torch_counting import TorchCounter
from rig.analysis.complexity.cost_and_activity import static_figures
from rig.commands.shell.main import main
from rig.errors import DataError
from rig.network.description import Activity, NetworkInfo, activity_faults, network_faults
from tests.support.paths import DOCS
from tests.support.raised import raised

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def counted(model: Any, *batches: Any, **options: Any) -> tuple[NetworkInfo, list[Activity]]:
    """Return the description of a model and the activity of its last batch, checked against each other."""
    import torch

    with closing(TorchCounter(model, **options)) as counter, torch.inference_mode():
        rows: list[Activity] = []
        for data in batches:
            model(data)
            rows = counter.activity()
        network = counter.network()
    assert not [*network_faults(network), *(fault for row in rows for fault in activity_faults(network, row))]
    return network, rows


def total(rows: list[Activity], *counters: str) -> int:
    return sum(int(part[c].sum()) for row in rows for part in row.values() for c in counters if c in part)


def spiking() -> Any:
    """Return a model of ten inputs, 20 and 7 leaky neurons: 367 trained values."""
    import snntorch
    import torch

    torch.manual_seed(0)
    neurons = [snntorch.Leaky(beta=0.9, init_hidden=True), snntorch.Leaky(beta=0.8, init_hidden=True, output=True)]
    return torch.nn.Sequential(torch.nn.Linear(10, 20), neurons[0], torch.nn.Linear(20, 7), neurons[1])


# ---- its page ---------------------------------------------------------------------------------


def test_the_example_of_the_page_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "count-operations.md").read_text(encoding="utf-8")
    (source,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "TorchCounter" in block]
    (tmp_path / "torch_device.py").write_text(source, encoding="utf-8")
    device = f"{tmp_path / 'torch_device.py'}:open_device"
    brief = ("--meter", "none", "--option", "samples=8", "--option", "idle_s=0.2", "--json")
    assert main(["measure", "--device", device, *brief, "--out", str(tmp_path / "run")]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    found = {name: q["value"] for name, q in results["quantities"].items()}
    assert found["dense_operations_per_sample"] == 16 * 32 + 32 * 4
    assert found["parameters"] == 16 * 32 + 32 + 32 * 4 + 4
    assert 0.0 < found["activation_sparsity"] < 1.0
    assert not [note for note in results["notes"] if "layer" in note or ("network" in note and "trained" not in note)]


# ---- memory -----------------------------------------------------------------------------------


def test_parameters_and_footprint_match_neurobench(torch: Any) -> None:
    """Membranes are counted for one sample, for any batch size and any number of runs."""
    pytest.importorskip("neurobench", reason="needs neurorig[peers]")
    from neurobench.metrics.static import Footprint, ParameterCount
    from neurobench.models import SNNTorchModel

    model = spiking()
    theirs = SNNTorchModel(model)
    footprint = Footprint()(theirs)
    network, _ = counted(model, torch.rand(3, 10), torch.rand(3, 10))
    again, _ = counted(model, torch.rand(8, 10))
    assert network == again
    assert network.parameters == ParameterCount()(theirs) == 367
    assert static_figures(network)["footprint_at_start_bytes"].value == footprint
    assert static_figures(network)["footprint_states_bytes"].value == 4 * (20 + 7)


def pruned(nn: Any) -> Any:
    from torch.nn.utils import prune

    return prune.random_unstructured(nn.Linear(4, 5), "weight", 0.5)


@pytest.mark.parametrize(("made", "dense", "parameters", "buffer_bits"), [
    (pruned, 20, 20 + 5, 32 * 20),  # the mask
    (lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), 20, 20 + 5 + 5, 0),
    (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.LayerNorm(6), nn.PReLU()), 24,
     24 + 6 + 2 * 6 + 2 * 6 + 1, 32 * 2 * 6 + 64),  # and the number of batches
])  # fmt: skip
def test_masks_are_buffers_and_normalisation_takes_no_operations(
    made: Callable[[Any], Any], dense: int, parameters: int, buffer_bits: int, torch: Any
) -> None:
    network, _ = counted(torch.nn.Sequential(made(torch.nn), torch.nn.ReLU()).eval(), torch.randn(2, 4))
    assert (network.dense, network.parameters) == (dense, parameters)
    assert network.footprint_bits("buffers") == buffer_bits
    assert network.connections[0].zeros == (10 if made is pruned else 0)


def test_weights_of_sixteen_bits_take_sixteen_bits(torch: Any) -> None:
    network, rows = counted(torch.nn.Sequential(torch.nn.Linear(4, 5)).bfloat16(), torch.ones(1, 4).bfloat16())
    assert network.footprint_bits() == 16 * (4 * 5 + 5)
    assert total(rows, "acs") == 20


# ---- operations -------------------------------------------------------------------------------


NEURONS: dict[str, dict[str, Any]] = {
    "Leaky": {"beta": 0.5}, "Lapicque": {"beta": 0.5}, "Synaptic": {"alpha": 0.5, "beta": 0.5},
    "Alpha": {"alpha": 0.6, "beta": 0.5}, "RLeaky": {"beta": 0.5, "linear_features": 9},
    "RSynaptic": {"alpha": 0.5, "beta": 0.5, "linear_features": 9}, "SLSTM": {"input_size": 9, "hidden_size": 9},
}  # fmt: skip


@pytest.mark.parametrize("neuron", NEURONS)
def test_updates_count_the_changed_membranes(neuron: str, torch: Any) -> None:
    import snntorch

    torch.manual_seed(1)
    hidden, found, before = getattr(snntorch, neuron)(init_hidden=True, **NEURONS[neuron]), [], torch.zeros(1, 9)
    model = torch.nn.Sequential(torch.nn.Linear(5, 9, bias=False), hidden)
    with closing(TorchCounter(model)) as counter, torch.no_grad():
        for step in (torch.rand(6, 1, 5) < 0.2).float():
            model(step)
            found.append(int((hidden.mem != before).sum()))
            before = hidden.mem.clone()
        (row,) = counter.activity()
    assert row["1"]["updates"].tolist() == found and sum(found) > 0


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("stacked", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": False}])
def test_a_recurrent_module_equals_its_cells(kind: str, stacked: dict[str, Any], torch: Any) -> None:
    """Cells with the same weights, one time step after another, from a state that is not zero."""
    torch.manual_seed(2)
    rnn = getattr(torch.nn, kind)(4, 6, **{"batch_first": True} | stacked)
    data, sides, layers = (torch.rand(3, 5, 4) < 0.5).float(), 1 + rnn.bidirectional, rnn.num_layers
    state = torch.randn(layers * sides, 3, 6)
    given = data if rnn.batch_first else data.transpose(0, 1)
    first = (state, state.clone()) if kind == "LSTM" else state

    class Once(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = rnn

        def forward(self, values: Any) -> Any:
            return self.rnn(values, first)[0]

    network, rows = counted(Once(), given)
    dense, effective, steps = 0, 0, data
    for k in range(layers):
        sequences = []
        for side in range(sides):
            cell = getattr(torch.nn, f"{kind}Cell")(steps.shape[2], 6)
            suffix = f"_l{k}" + ("_reverse" if side else "")
            cell.load_state_dict({name: getattr(rnn, name + suffix) for name in cell.state_dict()})
            hidden = (state[k * sides + side],) * 2 if kind == "LSTM" else state[k * sides + side]
            found = []
            with closing(TorchCounter(cell)) as counter, torch.no_grad():
                for step in steps.unbind(1)[:: -1 if side else 1]:
                    hidden = cell(step, hidden)
                    found.append(hidden[0] if kind == "LSTM" else hidden)
                effective += total(counter.activity(), "acs", "macs")
                dense += 5 * counter.network().dense
            sequences.append(torch.stack(found[:: -1 if side else 1], 1))
        steps = torch.cat(sequences, 2)
    assert network.dense == dense
    assert total(rows, "acs", "macs") == effective
    assert network.footprint_bits("states") == 32 * 6 * sides * layers * (2 if kind == "LSTM" else 1)


def test_a_module_used_twice_counts_as_two_layers(torch: Any) -> None:
    relu = torch.nn.ReLU()
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), relu, torch.nn.Linear(5, 3), relu)
    network, rows = counted(model, torch.randn(2, 4))
    assert network.neurons == 5 + 3
    assert [len(row["1"]["active"]) for row in rows] == [1, 1]


def test_a_linear_layer_counts_each_sequence_position(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU())
    network, rows = counted(model, torch.ones(2, 7, 4))
    assert network.dense == 7 * 20 == total(rows[:1], "acs")
    assert network.connections[0].weights == 20


def test_a_kernel_may_differ_along_its_axes(torch: Any) -> None:
    conv = torch.nn.Conv2d(2, 3, (3, 1), stride=(2, 1), padding=(1, 0))
    network, _ = counted(torch.nn.Sequential(conv, torch.nn.ReLU()), torch.ones(1, 2, 6, 4))
    with torch.no_grad():
        conv.weight.data, conv.bias.data = torch.ones_like(conv.weight), torch.zeros(3)
        assert network.dense == conv(torch.ones(1, 2, 6, 4)).sum()


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "text"), [
    (lambda nn: nn.Sequential(nn.Linear(4, 5), nn.ConvTranspose1d(1, 2, 3)), "module 1 is a ConvTranspose1d"),
    (lambda nn: nn.Embedding(4, 3), "module Embedding is a Embedding"),
    (lambda nn: nn.MultiheadAttention(4, 2), "module MultiheadAttention is a"),
    (lambda nn: nn.Bilinear(4, 4, 3), "module Bilinear is a"),
])  # fmt: skip
def test_an_unknown_module_is_named_in_the_refusal(made: Callable[[Any], Any], text: str, torch: Any) -> None:
    caught = raised(DataError, TorchCounter, made(torch.nn), says=text)
    assert "uncounted=" in caught.remedy
    TorchCounter(made(torch.nn), uncounted=("1", caught.field and str(caught.value), "out_proj")).close()


def test_omitted_modules_are_named(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    network, rows = counted(model, torch.randn(2, 4), uncounted=("2",))
    assert (network.convention, network.dense) == ("without the operations of 2", 20) and "2" not in rows[0]


def test_a_weight_used_by_a_function_is_reported(torch: Any) -> None:
    class Functional(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

        def forward(self, values: Any) -> Any:
            return torch.nn.functional.linear(self.first(values), self.second.weight)

    raised(DataError, counted, Functional(), torch.randn(2, 4), says="module second has parameters and was not called")


@pytest.mark.parametrize(("made", "shape", "text"), [
    (lambda nn: nn.Linear(4, 2), (4,), "without a batch"),
    (lambda nn: nn.Conv1d(1, 2, 3), (1, 8), "without a batch"),
    (lambda nn: nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), (1, 1, 8), "with circular"),
    (lambda nn: nn.Conv1d(1, 2, 3, padding="same"), (1, 1, 8), "pads same"),
    (lambda nn: nn.LSTM(4, 3, proj_size=2, batch_first=True), (2, 5, 4), "has projections"),
    (lambda nn: nn.GRU(4, 3), (5, 4), "or no batch"),
    (lambda nn: nn.GRUCell(4, 3), (4,), "without a batch"),
])  # fmt: skip
def test_an_uncounted_use_of_a_module_is_refused(
    made: Callable[[Any], Any], shape: tuple[int, ...], text: str, torch: Any
) -> None:
    raised(DataError, counted, made(torch.nn), torch.ones(shape), says=text)


def test_custom_neurons_are_counted_if_named(torch: Any) -> None:
    class Spikes(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.threshold = torch.nn.Parameter(torch.ones(1))

        def forward(self, values: Any) -> Any:
            return (values > self.threshold).float()

    model = torch.nn.Sequential(torch.nn.Linear(4, 5), Spikes())
    raised(DataError, TorchCounter, model, says="module 1 is a Spikes")
    network, rows = counted(model, torch.randn(2, 4), neurons=("Spikes",))
    assert network.neurons == 5
    assert np.all([row["1"]["active"] <= 5 for row in rows])
