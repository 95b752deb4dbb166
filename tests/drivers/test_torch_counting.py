"""Counting by hooks gives the same as counting each call alone, for any batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import drivers.torch_counting
from drivers.torch_counting import TorchCounter
from rig.errors import DataError
from rig.network.counting import linear


class Tensor(np.ndarray[Any, Any]):
    """The parts of a tensor that the counter uses."""

    def numpy(self, force: bool) -> Any:
        return self.view(np.ndarray)

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize


class Module:
    """The parts of a module that the counter uses; a model has one. ``run`` replaces its forward pass."""

    forward: Any = None

    def __init__(self, run: Callable[[Any], Any], **weights: Any) -> None:
        self.run, self.hooks = run, list[Any]()
        self.weights = {name: np.asarray(w, np.float64).view(Tensor) for name, w in weights.items()}
        for name, w in self.weights.items():
            setattr(self, name, w)

    def named_parameters(self) -> Any:
        return self.weights.items()

    def parameters(self, recurse: bool) -> Any:
        return self.weights.values()

    def named_buffers(self) -> Any:
        return ()

    def state_dict(self) -> Any:
        return self.weights

    def named_modules(self) -> Any:
        return [("it", self)]

    def register_forward_hook(self, hook: Any, with_kwargs: bool) -> Any:
        self.hooks.append(hook)
        return type("Handle", (), {"remove": lambda handle: self.hooks.remove(hook)})()

    def __call__(self, *given: Any) -> Any:
        out = self.run(given[0])
        for hook in self.hooks:
            hook(self, tuple(given), {}, out)
        return out


Linear, ReLU = type("Linear", (Module,), {}), type("ReLU", (Module,), {})
LSTMCell = type("LSTMCell", (Module,), {"hidden_size": 5})
PLAIN = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1, "padding_mode": "zeros"}
Conv1d = type("Conv1d", (Module,), PLAIN)


@pytest.mark.parametrize("block_bytes", [0, 500, 1 << 20])
def test_each_call_is_counted_separately(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers.torch_counting, "_BLOCK_BYTES", block_bytes)
    rng = np.random.default_rng(0)
    weights = rng.integers(-1, 2, (4, 6))
    model = Linear(lambda x: x @ weights.T, weight=weights)
    counter = TorchCounter(model)
    for batch in (3, 3, 2):
        calls = [(rng.integers(-2, 3, (batch, 6)) * 0.5).view(Tensor) for _ in range(7)]
        for values in calls:
            model(values.copy())
        rows = counter.activity()
        alone = [linear("it", "in", "it", weights.T).count(np.asarray(values)) for values in calls]
        for what in ("acs", "macs"):
            wanted = np.stack([counts[what] for counts in alone], axis=1).tolist()
            assert [row["it"][what].tolist() for row in rows] == wanted
    assert counter.activity() == []


def test_batches_of_different_sizes_are_refused() -> None:
    model = ReLU(lambda x: x)
    counter = TorchCounter(model)
    for batch in (3, 2):
        model(np.ones((batch, 4)).view(Tensor))
    with pytest.raises(DataError, match="batches of different sizes: it of 2 and 3"):
        counter.activity()


def test_values_overwritten_by_the_model_are_counted_before() -> None:
    model = ReLU(lambda x: x)
    counter = TorchCounter(model)
    values = np.array([[0.0, 1.0, 2.0]]).view(Tensor)
    model(values)
    values[:] = 0.0
    model(values)
    assert counter.activity()[0]["it"]["active"].tolist() == [2, 0]


def test_an_lstm_cell_counts_gate_weights_and_state() -> None:
    """The reference counts 615 in its example: it adds 3 products of each neuron, which are no synapses."""
    model = LSTMCell(lambda x: x[:, :5], weight_ih=np.ones((20, 25)), weight_hh=np.ones((20, 5)))
    counter = TorchCounter(model)
    ones = np.ones((1, 25)).view(Tensor)
    model(ones, (np.ones((1, 5)).view(Tensor), np.ones((1, 5)).view(Tensor)))
    model(ones)
    (row,) = counter.activity()
    assert [row[part]["acs"].tolist() for part in ("it.ih", "it.hh")] == [[500, 500], [100, 0]]
    assert counter.network().dense == 600
    counter.close()
    assert not model.hooks


@pytest.mark.parametrize("lengths", [(4, 9), (9, 4)])
def test_a_convolution_counts_by_input_size(lengths: tuple[int, int]) -> None:
    model = Conv1d(lambda x: x, weight=np.ones((2, 1, 3)))
    counter = TorchCounter(model)
    for length in lengths:
        model(np.ones((1, 1, length)).view(Tensor))
    (row,) = counter.activity()
    assert row["it"]["acs"].tolist() == [2 * 3 * (length - 2) for length in lengths]
    network = counter.network()
    assert (network.dense, network.connections[0].fan_out_max) == (3 * (2 + 7), 2 * 3)


def test_a_layer_with_a_custom_forward_is_refused() -> None:
    masked = type("Masked", (Linear,), {"forward": lambda self, x: x})
    with pytest.raises(DataError, match="module it is a Masked, whose operations are not counted"):
        TorchCounter(masked(lambda x: x, weight=np.ones((2, 2))))
