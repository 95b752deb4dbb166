"""SynSense Xylo Audio 2: sixteen channels of events in, a spiking network, a label out.

One driver for two backends: this version has the simulator (``backend``) and refuses the chip. A sample is one
continuous stream of audio, or of events that were encoded elsewhere. The analog front end hears it in real time
(``preprocess``), then the core works through its events (``inference``); a sample of ten inferences is one stream ten
times as long.
"""

from __future__ import annotations

import importlib.metadata
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo import power as xylo_power
from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.backend import Backend, SimBackend
from drivers.devices.xylo.encoder import check_audio, check_raster, encode
from drivers.devices.xylo.network import Network, load_network
from drivers.devices.xylo.nir_deploy import load_nir
from rig.bench.options import one_of, parts_of
from rig.errors import SetupError, UsageError, refused
from rig.network.description import Activity
from rig.types import Budget, ClockInfo, Device, DeviceInfo, Plant, Preprocessing, Reply, Sample, Span

MODES = ("simulator",)

CORE_CLOCKS_HZ = (50e6, 25e6, 12.5e6, 6.25e6)
"""The core clocks that the board's divider makes: 100 / (2 (wait + 1)) MHz."""
TICK_HZ = 12.5e6
"""The rate of the counter in the board's FPGA, which stamps the spans."""
PHASES = ("preprocess", "inference")
FRONT_ENDS = ("replay", "live")

_TICK_NS = 80


def open_device(
    plant: Plant | None = None,
    *,
    simulate: bool = False,
    network: str | None = None,
    dt_s: float | None = None,
    reset: str | None = None,
    quantize: str = "channel",
    classes: str = "",
    core_clock_hz: float = 25e6,
    front_end: str = "replay",
) -> Device:
    """Open Xylo Audio 2 with a network file (None: the shipped scene network).

    A file that ends in ``.nir`` is a NIR graph, for which ``dt_s`` is the time step and ``reset`` the reset of its
    neurons, which the chip does by "subtract". ``quantize`` is "channel", or "none" for a graph that holds integers of
    the chip already. ``classes`` names its output neurons, with commas between; by default they are counted from 0.

    With ``front_end`` "replay" each sample is played to the front end after it was handed over, in real time. With
    "live" the front end listened while the sample happened: only inference is left, and what the front end draws is
    part of idle. The power of its own rails is reported as pre-processing. ``simulate`` must be stated, since this
    version cannot drive a board.

    Raises ``UsageError`` for a core clock that the board cannot make, ``SetupError`` without ``simulate`` or without a
    simulated bench, ``DataError`` for a missing or altered network file, or a graph that does not fit the chip,
    ``MissingExtraError`` without Rockpool.
    """
    one_of(CORE_CLOCKS_HZ, core_clock_hz=core_clock_hz)
    one_of(FRONT_ENDS, front_end=front_end)
    if not simulate:
        raise _no_hardware(rockpool_import.attached_boards())
    if plant is None:
        what = "the simulated Xylo needs a simulated bench: its power and its time are virtual"
        raise SetupError(what, field="plant", remedy="Use the simulated bench, or pass plant=")
    loaded = read_network(network, dt_s, reset, quantize, classes)
    return XyloDevice(loaded, SimBackend.open(loaded, core_clock_hz), plant, front_end)


def read_network(path: str | None, dt_s: float | None, reset: str | None, quantize: str, classes: str) -> Network:
    """Read a network file of either format, with the options of ``open_device``."""
    if path is not None and path.lower().endswith(".nir"):
        return load_nir(Path(path), dt_s, reset, quantize, parts_of(classes))
    for name, value in (("dt_s", dt_s), ("reset", reset), ("classes", classes or None)):
        if value is not None:
            raise refused(name, value, "Leave it out: only a network in NIR takes it, and this one states its own")
    return load_network(path)


def _no_hardware(boards: Sequence[str]) -> SetupError:
    if boards:
        what = f"found {', '.join(boards)}, but chip mode is not in this version"
        return SetupError(what, field="device", value="xylo", remedy="Add --simulate to run the simulator")
    why = "samna lists none" if rockpool_import.has_real_samna() else "samna is not installed"
    remedy = "Connect one and install samna as Rockpool's manual describes, or add --simulate"
    return SetupError(f"no Xylo HDK found ({why})", field="device", value="xylo", remedy=remedy)


class XyloDevice:
    """Encodes, keeps the device's virtual time and decodes; the backend makes the spikes."""

    def __init__(self, network: Network, backend: SimBackend, plant: Plant, front_end: str = "replay") -> None:
        self._network = network
        self._backend: Backend = backend
        self._info = _describe(network, backend, front_end)
        self._plant = plant
        self._open_ns = self._busy_until_ns = plant.clock.now_ns()
        self._pending: deque[tuple[int, Reply]] = deque()
        if front_end == "live":
            plant.install(xylo_power.LIVE_IDLE_W, xylo_power.LIVE_PHASE_W)
        else:
            plant.install(xylo_power.IDLE_W, xylo_power.PHASE_W)

    def info(self) -> DeviceInfo:
        """What this device is; ``details`` holds the encoder, the network and the power profile."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Check every payload and keep nothing: encoding is pre-processing, which is measured."""
        for sample in samples:
            self._lasting_s(sample)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Start on one sample when the device is free. Raises ``UsageError`` for more than one, and for a budget."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Do one phase of one sample ``times`` times, in one span.

        With ``phase`` None all the pre-processing comes first, then all the inference, each in one span. Without
        inference there is no decision, and the reply's label is None. Raises ``UsageError``.
        """
        sample = _one_sample(samples, times, phase, budget, self._info.phases)
        lasting_s = {"preprocess": self._lasting_s(sample)}
        phases = self._info.phases
        spikes = [0] * len(self._network.classes)
        label: str | None = None
        activity: Activity | None = None
        if phase != "preprocess":
            result = self._backend.infer(self._raster(sample))
            activity, lasting_s["inference"] = result.activity, result.seconds
            spikes = [int(count) for count in result.output.sum(axis=0)]
            label = self._network.classes[int(np.argmax(spikes))]
        wanted = phases if phase is None else (phase,)
        spans = tuple(self._occupy(name, lasting_s[name] * times, times) for name in wanted)
        output = {"label": label, "spikes": spikes, "probability": _spike_shares(self._network.classes, spikes)}
        reply = Reply(sample.id, output, spans, activity=activity)
        self._pending.append((self._busy_until_ns, reply))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Sleep until the oldest sample ends, or for ``timeout_s``; replies that are then complete."""
        if not self._pending:
            return ()
        clock = self._plant.clock
        until_ns = min(self._pending[0][0], clock.now_ns() + round(max(timeout_s, 0.0) * 1e9))
        clock.sleep_until(until_ns)
        replies = []
        while self._pending and self._pending[0][0] <= clock.now_ns():
            replies.append(self._pending.popleft()[1])
        return tuple(replies)

    def timer(self) -> int:
        """The 12.5 MHz counter now; it started at 0 when the device was opened."""
        return self._tick(self._plant.clock.now_ns())

    def close(self) -> None:
        """Forget what is pending. May be called twice."""
        self._pending.clear()

    def _lasting_s(self, sample: Sample) -> float:
        """How long a sample lasts for the front end. Raises ``DataError`` for one that the device cannot take."""
        if sample.payload.ndim == 2:
            return len(check_raster(sample.payload, self._network.encoder)) * self._network.encoder.bin_s
        audio = check_audio(sample.payload, sample.rate_hz, sample.duration_s)
        return sample.duration_s or audio.size / float(sample.rate_hz or 0.0)  # check_audio has refused a missing rate

    def _raster(self, sample: Sample) -> NDArray[np.int64]:
        if sample.payload.ndim == 2:
            return check_raster(sample.payload, self._network.encoder)
        return encode(sample.payload, float(sample.rate_hz or 0.0), self._network.encoder)

    def _tick(self, ns: int) -> int:
        return (ns - self._open_ns) // _TICK_NS

    def _occupy(self, phase: str, seconds: float, executions: int) -> Span:
        on_ns = max(self._plant.clock.now_ns(), self._busy_until_ns)
        off_ns = on_ns + round(seconds * 1e9)
        self._plant.occupy(phase, on_ns, off_ns)
        self._busy_until_ns = off_ns
        return Span(phase, self._tick(on_ns), self._tick(off_ns), executions)


def _spike_shares(classes: Sequence[str], spikes: Sequence[int]) -> dict[str, float]:
    """The share of each class in the output spikes, equal shares without a spike. It is no calibrated probability."""
    total = sum(spikes)
    return {name: n / total if total else 1.0 / len(classes) for name, n in zip(classes, spikes, strict=True)}


def _one_sample(
    samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None, phases: Sequence[str]
) -> Sample:
    wrong = (
        ("samples", len(samples), "one sample at a time", len(samples) != 1),
        ("times", times, "at least 1", times < 1),
        ("phase", phase, " or ".join(phases), phase is not None and phase not in phases),
        ("budget", budget, "no budget, because it is not a solver", budget is not None),
    )
    for field, value, takes, is_wrong in wrong:
        if is_wrong:
            raise UsageError(f"{field} is {value!r}; the Xylo device takes {takes}", field=field, value=value)
    return samples[0]


def _kind(network: Network) -> str:
    return "recurrent" if any(a >= b for a, b in network.links) else "feed-forward"


def _describe(network: Network, backend: SimBackend, front_end: str) -> DeviceInfo:
    names = ("rockpool", "xylosim")
    return DeviceInfo(
        name="xylo",
        mode="simulator",
        description="SIMULATED SynSense Xylo Audio 2: bit-exact XyloSim, estimated time, declared power",
        clock=ClockInfo("device", TICK_HZ),
        phases=PHASES if front_end == "replay" else ("inference",),
        onboard_meter="xylo-monitor",
        preprocessing=Preprocessing(phases=("preprocess",))
        if front_end == "replay"
        else Preprocessing(rails=xylo_power.FRONT_END_RAILS),
        versions={name: importlib.metadata.version(name) for name in names},
        artifacts={"network": network.digest_sha256},
        network=backend.inspection.info,
        details={
            "encoder": {name: getattr(network.encoder, name) for name in network.encoder.__slots__},
            "network": f"{_kind(network)} spiking network, layers {', '.join(map(str, network.layers))}",
            "layers": list(network.layers),
            "classes": list(network.classes),
            "training": dict(network.training),
            **({"deployment": dict(network.deployment)} if network.deployment else {}),
            "core_clock_hz": backend.core_clock_hz,
            "inference_time": "estimated: Rockpool's cycle model on the simulated spikes / core_clock_hz",
            "front_end": front_end,
            "preprocess_time": "the sample's duration: the analog front end hears in real time",
            "power_profile": xylo_power.profile(),
        },
    )
