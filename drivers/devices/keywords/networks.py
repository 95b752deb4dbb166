"""The two networks of NeuroBench's keyword FSCIL: the M5, and a spiking one with recurrent adaptive neurons.

Each is a torch module with the parts ``features`` and ``readout``, whose shapes are those of the front ends.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

WORDS = 200
STEPS, STEP_S = 200, 0.005
BLOCKS = ((20, 256, 4, 2), (256, 256, 3, 1), (256, 512, 3, 1), (512, 512, 3, 1))
"""For each block of the M5: input and output channels, kernel, stride."""
INPUTS, HIDDEN = 40, 1024
SPIKING = "Fire"
"""The class whose outputs are activations, for ``TorchCounter``."""
ALPHA, BETA = (5.0, 25.0), (30.0, 120.0)
"""Ranges of the initial time constants, in steps, of membranes and adaptations (Bittar and Garner 2022)."""


def m5(torch: Any) -> Any:
    """Return the M5: (batch, 20, 201) to (batch, 200), through features (batch, 512)."""
    nn = torch.nn
    blocks = [
        part
        for given, made, kernel, stride in BLOCKS
        for part in (nn.Conv1d(given, made, kernel, stride), nn.BatchNorm1d(made), nn.ReLU(), nn.Dropout(0.2),
                     nn.MaxPool1d(2))
    ]  # fmt: skip
    features = nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(features=features, readout=nn.Linear(512, WORDS)))


def spiking(torch: Any) -> Any:
    """Return the spiking network: (batch, steps, 40) to (batch, 200), through features (batch, 1024).

    A feature is the sum of a neuron's spikes over the steps, and the outputs are summed over the steps. Neurons follow
    equations 6 to 8 of NeuroBench, from rest; in training, their input is normalised over batch and steps.
    """
    nn = torch.nn

    def fire(_: Any, potential: Any) -> Any:
        above = potential - 1.0
        slope = above.clamp(-0.5, 0.5)  # its gradient is the surrogate, a box
        return slope + ((above >= 0).to(slope.dtype) - slope).detach()

    def make(layer: Any, given: int) -> None:
        nn.Module.__init__(layer)
        layer.forth, layer.back = nn.Linear(given, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        layer.norm, layer.fire = nn.BatchNorm1d(HIDDEN, momentum=0.05), _module(nn, SPIKING, fire)()
        bounds = {"alpha": [math.exp(-1 / t) for t in ALPHA], "beta": [math.exp(-1 / t) for t in BETA]}
        for name, (low, high) in {**bounds, "a": (-1.0, 1.0), "b": (0.0, 2.0)}.items():
            setattr(layer.fire, name, nn.Parameter(torch.empty(HIDDEN).uniform_(low, high)))

    def rest(layer: Any, batch: int) -> list[Any]:
        return [torch.zeros(batch, HIDDEN, device=layer.back.weight.device) for _ in range(3)]

    def step(layer: Any, drive: Any, state: list[Any]) -> Any:
        """One step of (batch, neurons): the drive is normalised; the state is potential, adaptation and spikes."""
        (u, w, s), of = state, layer.fire
        alpha, beta, current = of.alpha.clamp(0.0, 1.0), of.beta.clamp(0.0, 1.0), drive + layer.back(s)
        u, w = alpha * u + (1 - alpha) * (current - w) - s, beta * w + of.a * (1 - beta) * u + of.b * s
        state[:] = u, w, layer.fire(u)
        return state[2]

    def whole(layer: Any, given: Any) -> Any:
        """All steps of (batch, steps, inputs), for training."""
        drive = layer.norm(layer.forth(given).flatten(0, 1)).unflatten(0, given.shape[:2])
        state = layer.rest(len(given))
        return torch.stack([layer.step(drive[:, t], state) for t in range(given.shape[1])], dim=1)

    radlif = _module(nn, "RadLif", whole, {"__init__": make, "rest": rest, "step": step})

    def features(model: Any, given: Any) -> Any:
        if model.training:
            return model.second(model.first(given)).sum(dim=1)
        return _stepped(model, given, lambda hidden: hidden)

    def forward(model: Any, given: Any) -> Any:
        if model.training:  # a linear readout of the sum is the sum of its outputs
            return model.readout(model.features(given))
        return _stepped(model, given, model.readout)

    def build(model: Any) -> None:
        nn.Module.__init__(model)
        model.first, model.second = radlif(INPUTS), radlif(HIDDEN)
        model.readout = nn.Linear(HIDDEN, WORDS, bias=False)

    return _module(nn, "KeywordSnn", forward, {"__init__": build, "features": features})()


def _stepped(model: Any, given: Any, last: Callable[[Any], Any]) -> Any:
    """Return the sum over the steps of the last part's output for the second layer; each step calls every part."""
    states, total = (model.first.rest(len(given)), model.second.rest(len(given))), 0.0
    for t in range(given.shape[1]):
        hidden = given[:, t]
        for layer, state in zip((model.first, model.second), states, strict=True):
            hidden = layer.step(layer.norm(layer.forth(hidden)), state)
        total = total + last(hidden)
    return total


def _module(nn: Any, name: str, forward: Callable[..., Any], more: Mapping[str, Any] | None = None) -> Any:
    """Return a class of modules, made here because torch is not imported before a device is opened."""
    return type(name, (nn.Module,), {"forward": forward, **(more or {})})
