"""A network for keywords in torch on this computer's CPU that learns new words from a few samples, by prototypes.

The phase ``learning`` computes the readout weights of a new word from its few samples (its shots). The phase
``inference`` answers. The networks are those of NeuroBench's keyword FSCIL (few-shot class-incremental learning): the
M5, and a spiking network with recurrent adaptive neurons. Each is a torch module with the parts ``features`` and
``readout``, and takes samples of the shape of its front end.
"""

import hashlib
import math
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.training_data import INFERENCE, LEARNING, base_words, prototypes
from drivers.failures import UNFIT
from drivers.torch_counting import TorchCounter
from rig.bench.settings import one_of, within
from rig.engine.blocking_device import blocking
from rig.errors import DataError, refused, said
from rig.network.description import Activity, NetworkInfo
from rig.plugins import imported
from rig.types import Device, DeviceInfo, Reply, Sample, Span, Workload

NAME = "keywords"
WORDS = 200
STEPS, STEP_S = 200, 0.005
BLOCKS = ((20, 256, 4, 2), (256, 256, 3, 1), (256, 512, 3, 1), (512, 512, 3, 1))
"""For each block of the M5: input and output channels, kernel, stride."""
INPUTS, HIDDEN = 40, 1024
SPIKING = "Fire"
"""The class whose outputs are activations, for ``TorchCounter``."""
ALPHA, BETA = (5.0, 25.0), (30.0, 120.0)
"""Ranges of the initial time constants, in steps, of membranes and adaptations (Bittar and Garner 2022)."""
SHAPES = {"m5": (20, 201), "snn": (STEPS, 40)}
_BATCH = 100
_STATES = {f"{layer} {what}": HIDDEN for layer in ("first", "second") for what in ("potentials", "adaptations")}


def open_device(
    workload: Workload,
    *,
    network: str = "m5",
    weights: str = "",
    readout: str = "prototypes",
    epochs: int = 0,
    seed: int = 0,
    count: bool = True,
    threads: int = 0,
    start_s: float = 3600.0,
) -> Device:
    """Open ``network``, ``m5`` or ``snn``, for the words of ``workload``, which is ``mswc-fscil``.

    ``weights`` is a torch file with the network's state dictionary. Training takes ``epochs`` over the samples of the
    base words (Adam, rate 0.01 for m5 and 0.001 for snn), with random numbers from ``seed``. ``readout`` is ``trained``
    or ``prototypes``; prototypes are made from all samples of the base words. With ``count``, each answer is computed
    once more outside its span, to count its operations. ``threads`` is the number of CPU threads, by default torch's
    own. Opening may take ``start_s``.

    Raises ``MissingExtraError`` without torch, ``UsageError`` for options out of range, ``DataError`` for a workload or
    weights that do not fit.
    """
    one_of(tuple(SHAPES), network=network)
    one_of(("prototypes", "trained"), readout=readout)
    within(0, 10_000, epochs=epochs, threads=threads)
    torch = imported("torch", "the device keywords", "torch", field="device", value=NAME)
    if threads:
        torch.set_num_threads(threads)
    words, shown = base_words(workload)
    shapes = {sample.payload.shape[1 if sample.learn else 0 :] for sample in workload.samples}
    if shapes != {SHAPES[network]}:
        what = f"{workload.name} gives samples of shape {sorted(shapes)}, and {network} takes {SHAPES[network]}"
        remedy = f"Use --workload mswc-fscil --option front_end={'mfcc' if network == 'm5' else 'spikes'}"
        raise DataError(what, field="workload", value=workload.name, remedy=remedy)
    if len({sample.label for sample in workload.samples}) > WORDS:
        raise DataError(f"the workload has more than {WORDS} words", field="workload", value=workload.name)
    if readout == "trained" and any(sample.learn for sample in workload.samples):
        raise refused("readout", readout, "Use --option learn=false of the workload: a trained readout learns no word")
    torch.manual_seed(seed)
    model = (m5 if network == "m5" else spiking)(torch)
    if weights:
        _load(torch, model, Path(weights))
    if epochs:
        train(torch, model, dict(shown()), epochs, 0.01 if network == "m5" else 0.001)
    net = Keywords(torch, model, words, STEPS if network == "snn" else 1)
    if readout == "prototypes":
        net.forget_readout()
        for word, heard in shown():
            net.learn(word, heard)
    told = {"readout": readout, "epochs": epochs, "seed": seed, "weights": weights}
    if epochs or readout == "prototypes":
        told["data"] = {"source": workload.details.get("source"), "split": "train"}
    return _device(net, workload.samples, network, told, count)


class Keywords:
    """A network with the words that it has learnt, in the order of its outputs.

    The network runs for ``steps`` steps, and each step adds the bias of the readout to the output.
    """

    def __init__(self, torch: Any, model: Any, words: list[str], steps: int) -> None:
        self._torch, self.model, self.words, self._steps = torch, model.eval(), words, steps

    def forget_readout(self) -> None:
        """Replace the trained readout by a readout with zero weights and biases."""
        torch, inputs = self._torch, self.model.readout.in_features
        self.model.readout = torch.nn.Linear(inputs, WORDS)
        for values in self.model.readout.parameters():
            torch.nn.init.zeros_(values)

    def learn(self, word: str, heard: NDArray[np.float32]) -> None:
        """Make a word's prototype from samples (n, ...). The bias of the spiking network is divided by its steps."""
        features = [self.features(heard[k : k + _BATCH]) for k in range(0, len(heard), _BATCH)]
        weights, biases = prototypes(np.mean(np.concatenate(features), axis=0, keepdims=True))
        if word not in self.words:
            self.words.append(word)
        row, torch = self.words.index(word), self._torch
        with torch.no_grad():
            self.model.readout.weight[row] = torch.from_numpy(weights[0])
            self.model.readout.bias[row] = float(biases[0]) / self._steps

    def features(self, heard: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of samples (n, ...), shape (n, features)."""
        with self._torch.inference_mode():
            return np.asarray(self.model.features(self._torch.from_numpy(np.ascontiguousarray(heard))).numpy())

    def answer(self, heard: NDArray[np.float32]) -> str:
        """Return the known word with the largest output."""
        with self._torch.inference_mode():
            outputs = self.model(self._torch.from_numpy(np.ascontiguousarray(heard[None])))[0]
        return self.words[int(outputs[: len(self.words)].argmax())]

    def counted(self, heard: NDArray[np.float32]) -> tuple[NetworkInfo, Activity]:
        """Return the network, and its activity for one sample."""
        of_steps = self._steps > 1
        with closing(TorchCounter(self.model, _STATES if of_steps else {}, neurons={SPIKING})) as counter:
            self.answer(heard)
            return counter.network(STEP_S if of_steps else 1.0, "float32, as torch keeps it"), counter.activity()[0]


def train(torch: Any, model: Any, heard: dict[str, NDArray[np.float32]], epochs: int, rate: float) -> None:
    """Train a network on samples of words by cross-entropy in batches of 256; the first word is output 0."""
    inputs = torch.from_numpy(np.concatenate(list(heard.values())))
    wanted = torch.cat([torch.full((len(samples),), k) for k, samples in enumerate(heard.values())])
    optimiser = torch.optim.Adam(model.parameters(), rate, weight_decay=1e-4)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(256):
            if len(rows) > 1:  # a batch of one cannot be normalised
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs[rows]), wanted[rows]).backward()
                optimiser.step()
    model.eval()


def _device(net: Keywords, samples: Sequence[Sample], network: str, told: dict[str, Any], count: bool) -> Device:
    example, base, first = np.zeros(SHAPES[network], np.float32), len(net.words), samples[0].id

    def run(sample: Sample) -> Reply:
        if sample.id == first:  # the first sample of a round; a round begins with only the base words
            del net.words[base:]
        on_ns = time.monotonic_ns()
        if sample.learn:
            net.learn(str(sample.label), sample.payload)
            return Reply(sample.id, {"label": sample.label}, (Span(LEARNING, on_ns, time.monotonic_ns()),))
        word = net.answer(sample.payload)
        return Reply(sample.id, {"label": word}, (Span(INFERENCE, on_ns, time.monotonic_ns()),))

    info = DeviceInfo(
        name=NAME,
        mode="hardware",
        description=f"{network} of NeuroBench's keyword FSCIL in torch on this computer's CPU",
        phases=(LEARNING, INFERENCE) if any(sample.learn for sample in samples) else (INFERENCE,),
        versions={"torch": net._torch.__version__},
        artifacts={"network": _digest(net.model.state_dict().items())},
        algorithm={"model": network, "training": told, "encoder": "mfcc" if network == "m5" else "Speech2Spikes"},
        network=net.counted(example)[0],
    )
    return blocking(run, info, None, (lambda s: {} if s.learn else net.counted(s.payload)[1]) if count else None)


def _digest(state: Iterable[tuple[str, Any]]) -> str:
    parts = (f"{name} {tuple(v.shape)}".encode() + np.ascontiguousarray(v.numpy()).tobytes() for name, v in state)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _load(torch: Any, model: Any, path: Path) -> None:
    try:
        model.load_state_dict(torch.load(path, weights_only=True))
    except (*UNFIT, pickle.UnpicklingError) as error:
        what = f"{path} cannot be used: {said(error)}"
        raise DataError(what, field="weights", value=str(path), remedy="Give the network's state dictionary") from error


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
        """Make one step of (batch, neurons) with a normalised drive; the state is potential, adaptation and spikes."""
        (u, w, s), of = state, layer.fire
        alpha, beta, current = of.alpha.clamp(0.0, 1.0), of.beta.clamp(0.0, 1.0), drive + layer.back(s)
        u, w = alpha * u + (1 - alpha) * (current - w) - s, beta * w + of.a * (1 - beta) * u + of.b * s
        state[:] = u, w, layer.fire(u)
        return state[2]

    def whole(layer: Any, given: Any) -> Any:
        """Make all steps of (batch, steps, inputs), for training."""
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
    """Apply ``last`` to the second layer's spikes of each step, and return the sum over the steps."""
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
