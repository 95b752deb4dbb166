"""SynSense Xylo Audio 2 and 3: sixteen channels of events in, a spiking network, a label out.

The driver has two backends: the simulator (``backend``) and the chip (``chip``). A sample is one continuous stream of
audio, or of events that were encoded elsewhere. In the simulator, the analog front end hears the audio in real time
(``preprocess``), then the core processes its events (``inference``). A chip gets events that the host encodes, or
listens to its microphone. A sample of ten inferences is one stream that is ten times as long.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from drivers.devices.training_data import LEARNING, shots_of
from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.afe_model import AfeModel
from drivers.devices.xylo.backend import Backend, Done, Job, Learner, Raster, SimBackend, SimulatedChip
from drivers.devices.xylo.board import Board
from drivers.devices.xylo.chip import ChipBackend, ChipOptions
from drivers.devices.xylo.describe import describe_chip, describe_microphone, describe_simulator
from drivers.devices.xylo.kit import Kit, only_one
from drivers.devices.xylo.microphone import SLACK_S, MicrophoneBackend, Play, Playing, overlapping, player_of
from drivers.devices.xylo.networks.encoder import check_audio, check_raster, raster_of
from drivers.devices.xylo.networks.network import Network, load_network
from drivers.devices.xylo.networks.nir_deploy import QUANTIZERS, load_nir
from drivers.links.virtual_time import needed
from rig.bench.settings import of_settings, one_of, parts_of
from rig.errors import DataError, refused
from rig.types import Budget, Device, DeviceInfo, Reply, Sample, SimulatedBench, Workload

MODES = ("hardware", "simulator")
SIMULATED_FRONT_ENDS, BOARD_FRONT_ENDS = ("replay", "live"), ("events", "microphone")
UNHEARD: Raster = np.zeros((0, 0), np.int64)
"""Stands for the events of a sample that the chip hears by itself."""


@dataclass(frozen=True)
class Xylo:
    """The options. See ``open_device``."""

    simulate: bool = False
    network: str | None = None
    dt_s: float | None = None
    reset: str | None = None
    quantize: str = QUANTIZERS[0]
    classes: str = ""
    front_end: str | None = None
    afe_model: Literal["filter-bank", "rockpool"] = "filter-bank"
    afe_seed: int = 1
    board: int | None = None
    play: str | None = None
    chip: ChipOptions = ChipOptions()
    start_s: float = 60.0


@of_settings
def open_device(settings: Xylo, bench: SimulatedBench | None = None, workload: Workload | None = None) -> Device:
    """Open a Xylo Audio 2 or 3 board, or a simulated Audio 2, with a network file (None: the shipped scene network).

    A file that ends in ``.nir`` is a NIR graph. ``dt_s`` is its time step, and ``reset`` is the reset of its neurons;
    the chip resets by "subtract". ``quantize`` is "channel", or "none" for a graph that already holds integers of the
    chip. ``classes`` names its output neurons, separated by commas; by default they are numbered from 0.

    Audio becomes events by a quick filter bank, or with ``afe_model`` "rockpool" by Rockpool's model of the analog
    front end of Audio 2. ``afe_seed`` draws its mismatch and noise. The model takes seconds for a second of audio.

    Without ``simulate`` a board is used: ``board`` is its number, if there are several. By default (``front_end``
    "events") it gets events that the host encodes, as fast as its core works. ``core_clock_hz`` is the clock of its
    core, also with ``simulate``. With ``record_activity`` it also records its neurons' activity. This costs time and
    power, so use such a run for activity alone. With ``echo`` an answer that differs from the simulator's in any spike
    ends the run. ``timeout_s`` is the longest time for one sample.

    With ``front_end`` "microphone" the board listens in real time. ``play`` is a command of this computer that reads a
    WAV file from its standard input and plays it, such as "aplay -q". The chip listens in idle windows too.

    With ``simulate`` the front end is simulated too. By default (``front_end`` "replay") each sample is played to it
    in real time after it was submitted. With "live" the front end has heard the sample while it happened: only
    inference remains, and the front end's power is part of idle. The power of its own rails is reported as
    pre-processing. A workload that teaches needs "live": the readout of the network then holds a prototype of each
    word. The prototype of a base word is made from all its samples. The phase ``learning`` is the core's time for the
    shots (samples) of one word. Opening may take ``start_s``: the simulator takes some 0.1 s for a second of sound.

    Raises ``UsageError`` for a core clock that the board cannot make, ``SetupError`` without a board, samna or a
    simulated bench, ``DataError`` for a missing or altered network file or a graph that does not fit the chip, and
    ``MissingExtraError`` without Rockpool.
    """
    s, chip = settings, settings.chip
    allowed = SIMULATED_FRONT_ENDS if s.simulate else BOARD_FRONT_ENDS
    front_end = allowed[0] if s.front_end is None else s.front_end
    one_of(allowed, front_end=front_end)
    if (front_end == "microphone") != (s.play is not None):
        remedy = "A sample must be played to a microphone and nothing else: front_end=microphone and play='aplay -q'"
        raise refused("play", s.play, remedy)
    player = None if s.play is None else player_of(s.play)
    teaches = workload is not None and _teaches(workload)
    if teaches and front_end != "live":
        remedy = "Add --simulate and --option device.front_end=live: only the simulated core learns"
        raise refused("front_end", front_end, remedy)
    kit = None if s.simulate else only_one(rockpool_import.attached_boards(), s.board)
    loaded = read_network(s.network, s.dt_s, s.reset, s.quantize, s.classes)
    if kit is not None and player is not None:
        return open_microphone(kit, loaded, chip, player)
    afe = AfeModel(loaded.encoder, s.afe_seed) if s.afe_model == "rockpool" else None
    if kit is not None:
        return open_chip(kit, loaded, chip, afe)
    return _open_simulator(bench, loaded, chip.core_clock_hz, front_end, afe, workload if teaches else None)


def _teaches(workload: Workload) -> bool:
    """Return whether a workload has samples to learn from.

    Only stored samples and those of a workload with base words are looked at, because making others may take hours.
    """
    can = isinstance(workload.samples, list | tuple) or hasattr(workload, "base")
    return can and any(sample.learn for sample in workload.samples)


def _open_simulator(
    bench: SimulatedBench | None,
    network: Network,
    core_clock_hz: float,
    front_end: str,
    afe: AfeModel | None,
    taught: Workload | None,
) -> XyloDevice:
    plant = needed(bench, "Xylo")
    if taught is not None:
        learner = Learner(network, taught, core_clock_hz, plant, lambda shot: _events(shot, network, afe))
        info = describe_simulator(learner.network, learner.simulator, front_end)
        info = replace(info, phases=(LEARNING, *info.phases), network=learner.info())
        return XyloDevice(learner.network, learner, info, afe=afe)
    backend = SimBackend.open(network, core_clock_hz)
    chip = SimulatedChip(backend, plant, live=front_end == "live")
    return XyloDevice(network, chip, describe_simulator(network, backend, front_end), afe=afe)


def read_network(path: str | None, dt_s: float | None, reset: str | None, quantize: str, classes: str) -> Network:
    """Read a network file of either format, with the options of ``open_device``.

    Raises ``DataError`` for a file that cannot be used, and ``SetupError`` for a graph without ``dt_s`` or ``reset``.
    Raises ``UsageError`` for options of a graph that are given for another file, and for a function.
    """
    if path is not None and path.lower().endswith(".nir"):
        return load_nir(Path(path), dt_s, reset, quantize, parts_of(classes))
    if path is not None and ".py:" in path:
        what = f"a Xylo takes network files and no modules, and {path} is a function that returns a module"
        raise refused("network", path, "Export the module as a NIR graph, or run it with --device torch", what)
    own = None if quantize == QUANTIZERS[0] else quantize
    for name, value in (("dt_s", dt_s), ("reset", reset), ("classes", classes or None), ("quantize", own)):
        if value is not None:
            raise refused(name, value, "Leave it out: only a network in NIR takes it, and this one states its own")
    return load_network(path)


def open_chip(kit: Kit, network: Network, chip: ChipOptions, afe: AfeModel | None = None) -> XyloDevice:
    """Open the chip of one board with a network. Raises ``SetupError``, and ``DataError`` if it does not fit."""
    backend = ChipBackend.open(kit, network, chip)
    return XyloDevice(network, backend, describe_chip(network, kit, backend, chip), backend.board, afe=afe)


def open_microphone(kit: Kit, network: Network, chip: ChipOptions, play: Play) -> XyloDevice:
    """Open the chip of one board to listen. Raises ``UsageError``, and the errors of ``open_chip``."""
    for name, asked in (("record_activity", chip.record_activity), ("echo", chip.echo)):
        if asked:
            raise refused(name, True, "Leave it out: a chip that listens neither records nor gets known events")
    backend = MicrophoneBackend.open(kit, network, chip)
    return XyloDevice(network, backend, describe_microphone(network, kit, backend, chip), backend.board, play=play)


class XyloDevice:
    """Encodes samples and decodes answers; the backend, simulator or chip, makes the spikes and keeps the time."""

    def __init__(
        self,
        network: Network,
        backend: Backend,
        info: DeviceInfo,
        board: Board | None = None,
        *,
        afe: AfeModel | None = None,
        play: Play | None = None,
    ) -> None:
        self._network, self._backend, self._afe, self._play = network, backend, afe, play
        self._info = info if afe is None else replace(info, details={**info.details, "afe_model": afe.details()})
        self.board = board
        """The board of a chip; its power monitor is a separate meter."""
        self._encoded: dict[str, Raster] = {}
        self._playing: deque[Playing] = deque()
        self._done: Sequence[Done] = ()
        """Samples whose answers are complete, but whose players still run."""

    def info(self) -> DeviceInfo:
        """Return this device; ``details`` holds the encoder and the network."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Check every payload, and encode it for a chip that gets events. Raises ``DataError``."""
        for sample in samples:
            for shot in shots_of(sample) if sample.learn else [sample]:
                self._lasting_s(shot)
        encodes = self.board is not None and self._play is None
        self._encoded = {s.id: _events(s, self._network, self._afe) for s in samples} if encodes else {}

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Start the one sample, as ``submit_repeated`` does; a Xylo takes no batch, and ignores ``budget``."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Do one phase of one sample ``times`` times, in one span.

        With ``phase`` None all repetitions of pre-processing come first, then all of inference, each in one span.
        Without inference there is no decision, so the reply's label is None. Raises ``UsageError`` for another phase,
        and for a sample that is issued while the microphone still hears another one.
        """
        if phase not in (None, *self._info.phases):
            raise refused("phase", phase, f"Give {' or '.join(self._info.phases)}")
        (sample,) = samples
        if sample.learn:
            shots = np.stack([_events(shot, self._network, self._afe) for shot in shots_of(sample)])
            self._backend.begin(Job(sample.id, shots, 0.0, times, (LEARNING,)))
            return
        if self._play is not None:
            if self._playing and not self._playing[-1].ended(SLACK_S):
                raise overlapping(sample.id)
            self._backend.begin(Job(sample.id, UNHEARD, self._lasting_s(sample), times, self._info.phases))
            self._playing.append(self._play(sample, times))
            return
        encoded = self._encoded.get(sample.id)
        phases = tuple(p for p in self._info.phases if p != LEARNING) if phase is None else (phase,)
        raster = _events(sample, self._network, self._afe) if encoded is None else encoded
        self._backend.begin(Job(sample.id, raster, self._lasting_s(sample), times, phases))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait until the oldest sample ends, or for ``timeout_s``; return all replies that are then complete.

        A sample played to a microphone is answered once its player has ended. Raises ``DeviceError`` if it failed.
        """
        until_s = time.monotonic() + timeout_s
        self._done = self._done or self._backend.finished(timeout_s)
        if self._done and self._playing:
            if not self._playing[0].ended(until_s - time.monotonic()):
                return ()
            self._playing.popleft()
        done, self._done = self._done, ()
        return tuple(map(self._reply, done))

    def timer(self) -> int:
        """Return the time now by the clock of the spans."""
        return self._backend.timer()

    def close(self) -> None:
        """Forget what is pending, stop players, and release the board. May be called twice."""
        for playing in self._playing:
            playing.stop()
        self._backend.close()

    def _reply(self, done: Done) -> Reply:
        output = decision(self._network.classes, done.spikes)
        if done.tries > 1:
            output["tries"] = done.tries
        return Reply(done.sample_id, output, done.spans, activity=done.activity)

    def _lasting_s(self, sample: Sample) -> float:
        """Return how long the front end hears a sample (s). Raises ``DataError`` if the device cannot take it."""
        if sample.payload.ndim == 2 and self._play is not None:
            what = f"sample {sample.id} holds events, which cannot be played to a microphone"
            raise DataError(what, field="payload", value=sample.id, remedy="Give audio, or another front_end")
        if sample.payload.ndim == 2:
            return len(check_raster(sample.payload, self._network.encoder)) * self._network.encoder.bin_s
        audio = check_audio(sample.payload, sample.rate_hz, sample.duration_s)
        return sample.duration_s or audio.size / float(sample.rate_hz or 0.0)  # check_audio has refused a missing rate


def _events(sample: Sample, network: Network, afe: AfeModel | None) -> Raster:
    if afe is not None and sample.payload.ndim != 2:
        return afe.encode(sample.payload, float(sample.rate_hz or 0.0))
    return raster_of(sample, network.encoder)


def decision(classes: Sequence[str], spikes: Sequence[int] | None) -> dict[str, Any]:
    """Return the output of a reply from the number of spikes of each output neuron; None gives no label.

    ``probability`` is each class's share of the spikes, or equal shares without spikes. It is not calibrated.
    """
    counts = [0] * len(classes) if spikes is None else [int(count) for count in spikes]
    total = sum(counts)
    shares = {name: n / total if total else 1.0 / len(classes) for name, n in zip(classes, counts, strict=True)}
    label = None if spikes is None else classes[int(np.argmax(counts))]
    return {"label": label, "spikes": counts, "probability": shares}
