"""Synaptic operations are counted by definition: neither the weight nor the input is zero."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rig.network.counting import active, convolution, count, linear
from rig.network.description import Layer, NetworkInfo, activity_faults, network_faults

LAW = settings(max_examples=60)


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.integers(-2, 3, shape) * rng.integers(0, 2, shape)


def by_definition(values: Any, weights: Any, delay: int) -> list[tuple[int, int]]:
    """Count accumulates and multiply-accumulates of each execution, one product after another."""
    found = []
    for t in range(len(values)):
        x = values[t - delay] if t >= delay else np.zeros_like(values[0])
        done = sum(1 for i in range(len(x)) for j in range(weights.shape[1]) if x[i] != 0 and weights[i, j] != 0)
        binary = all(v in (-1, 0, 1) for v in x)
        found.append((done, 0) if binary else (0, done))
    return found


@LAW
@given(seed=st.integers(0, 2**32 - 1), delay=st.integers(0, 4))
def test_a_linear_connection_counts_every_effective_product(seed: int, delay: int) -> None:
    rng = np.random.default_rng(seed)
    weights, values = sparse(rng, (4, 5)), sparse(rng, (int(rng.integers(1, 7)), 4))
    counted = linear("c", "in", "out", weights, delay).count(values)
    assert list(zip(counted["acs"], counted["macs"], strict=True)) == by_definition(values, weights, delay)


@LAW
@given(
    seed=st.integers(0, 2**32 - 1), stride=st.integers(1, 3), padding=st.integers(0, 2), dilation=st.integers(1, 2),
    groups=st.integers(1, 2), dims=st.integers(1, 2),
)  # fmt: skip
def test_a_convolution_counts_like_its_unrolled_matrix(
    seed: int, stride: int, padding: int, dilation: int, groups: int, dims: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (4, *rng.integers(1, 7, dims).tolist())
    kernel = sparse(rng, (6, 4 // groups, *rng.integers(1, 4, dims).tolist()))
    unrolled, dense = _unrolled(kernel, shape, stride, padding, dilation, groups)
    values = sparse(rng, (3, *shape))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    made = convolution("c", "in", "c", kernel, shape, **options)
    alike = linear("c", "in", "out", unrolled).count(values.reshape(3, -1))
    assert {k: v.tolist() for k, v in made.count(values).items()} == {k: v.tolist() for k, v in alike.items()}
    assert made.connection.dense == dense
    assert not [*network_faults(NetworkInfo((), (made.connection,), ()))]  # some weights may meet padding alone


def _unrolled(kernel: Any, shape: Any, stride: int, padding: int, dilation: int, groups: int) -> tuple[Any, int]:
    """Return a convolution's matrix, made window by window, and how many of its products are not with padding."""
    free = [n + 2 * padding - dilation * (k - 1) for n, k in zip(shape[1:], kernel.shape[2:], strict=True)]
    sizes = [max((n - 1) // stride + 1, 0) for n in free]
    matrix = np.zeros((int(np.prod(shape)), kernel.shape[0] * int(np.prod(sizes))), np.int64)
    per_out, per_in, dense = kernel.shape[0] // groups, shape[0] // groups, 0
    for o in range(kernel.shape[0]):
        for number, window in enumerate(np.ndindex(*sizes)):
            for c, *offset in np.ndindex(*kernel.shape[1:]):
                at = [w * stride - padding + dilation * k for w, k in zip(window, offset, strict=True)]
                if all(0 <= a < n for a, n in zip(at, shape[1:], strict=True)):
                    source = np.ravel_multi_index((o // per_out * per_in + c, *at), shape)
                    matrix[source, o * int(np.prod(sizes)) + number] = kernel[(o, c, *offset)]
                    dense += 1
    return matrix, dense


@pytest.mark.parametrize(("gates", "theirs"), [(1, 150), (3, 465), (4, 615)], ids=["RNN", "GRU", "LSTM"])
def test_cells_have_the_counts_of_the_published_examples(gates: int, theirs: int) -> None:
    """From the reference, 25 inputs and 5 neurons: for each gated neuron it adds 3 products, which are not synapses."""
    counted = [linear("c", "in", "out", np.ones((n, 5 * gates))).count(np.ones((1, n))) for n in (25, 5)]
    assert sum(int(c["acs"].sum()) for c in counted) == theirs - (3 * 5 if gates > 1 else 0)


def test_counts_fit_the_network_description() -> None:
    rng = np.random.default_rng(1)
    parts = [linear("a", "input", "hidden", sparse(rng, (6, 8))), linear("r", "hidden", "hidden", np.eye(8), 1)]
    network = NetworkInfo((Layer("hidden", 8),), tuple(p.connection for p in parts), ())
    values = {"input": sparse(rng, (20, 6)), "hidden": sparse(rng, (20, 8))}
    activity = count(parts, values)
    assert not [*network_faults(network), *activity_faults(network, activity)]
    assert activity["hidden"]["active"].tolist() == active(values["hidden"]).tolist()
    activity["r"]["acs"][3] += 9
    assert [*activity_faults(network, activity)]
