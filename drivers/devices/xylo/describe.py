"""Describe a Xylo for the recording: simulated, as a chip that gets events, or as a chip that listens."""

import importlib.metadata
from dataclasses import asdict, replace
from typing import Any

from drivers.devices.xylo import published_power as xylo_power
from drivers.devices.xylo.backend import PHASES, TICK_NS, SimBackend
from drivers.devices.xylo.board import Board
from drivers.devices.xylo.chip import SPAN_TICK_HZ, ChipBackend, ChipOptions
from drivers.devices.xylo.kit import Kit
from drivers.devices.xylo.microphone import PENDING, MicrophoneBackend
from drivers.devices.xylo.networks.complexity import inspection_of
from drivers.devices.xylo.networks.network import Network
from rig.types import ClockInfo, DeviceInfo, Preprocessing

TICK_HZ = 1e9 / TICK_NS
"""The rate of the simulated counter, equal to that of the board's FPGA (Hz)."""


def _algorithm(network: Network) -> dict[str, Any]:
    kind = "recurrent" if any(a >= b for a, b in network.links) else "feed-forward"
    return {
        "encoder": asdict(network.encoder),
        "network": f"{kind} spiking network, layers {', '.join(map(str, network.layers))}",
        "layers": list(network.layers),
        "classes": list(network.classes),
        "training": dict(network.training),
        **({"deployment": dict(network.deployment)} if network.deployment else {}),
    }


def describe_simulator(network: Network, backend: SimBackend, front_end: str) -> DeviceInfo:
    """Describe a simulated Audio 2, whose ``front_end`` replays samples or is live."""
    preprocessing, heard = Preprocessing(rails=xylo_power.FRONT_END_RAILS), "none: the front end hears all the time"
    if front_end == "replay":
        preprocessing = Preprocessing(phases=("preprocess",))
        heard = "the sample's duration: the analog front end hears in real time"
    return DeviceInfo(
        name="xylo",
        mode="simulator",
        description="SIMULATED SynSense Xylo Audio 2: bit-exact XyloSim, estimated time, declared power",
        clock=ClockInfo("device", TICK_HZ),
        phases=PHASES if front_end == "replay" else ("inference",),
        onboard_meter="xylo-monitor",
        preprocessing=preprocessing,
        versions={name: importlib.metadata.version(name) for name in ("rockpool", "xylosim")},
        artifacts={"network": network.digest_sha256},
        network=backend.inspection.info,
        details={
            **_algorithm(network),
            "core_clock_hz": backend.core_clock_hz,
            "inference_time": "estimated: Rockpool's cycle model on the simulated spikes / core_clock_hz",
            "front_end": front_end,
            "preprocess_time": heard,
            "power_profile": xylo_power.profile(),
        },
    )


def describe_chip(network: Network, kit: Kit, backend: ChipBackend, chip: ChipOptions) -> DeviceInfo:
    """Describe a chip that gets events from the host."""
    details = {
        "inference_time": "the board's stopwatch: begins a mean time step before the first readout, ends at the last",
        "repeated": "one stream of all repetitions; only the first begins at rest, and its spikes are the answer",
        "front_end": "none: events are encoded on the host, which is neither timed nor measured",
        "records_activity": chip.record_activity,
        "compared_with_simulator": chip.echo,
    }
    return _on_board(network, kit, backend.board, chip, "events from the host", details)


def describe_microphone(network: Network, kit: Kit, backend: MicrophoneBackend, chip: ChipOptions) -> DeviceInfo:
    """Describe a chip that listens."""
    details = {
        "inference_time": "from the issue until a sample was heard and its last time step was processed",
        "idle": "the chip listens and works in idle windows too: dynamic power is what the sound adds",
        "front_end": "the microphone of the board, to which each sample is played",
    }
    shared = "the front end works in the same spans as the core, on the same rails"
    preprocessing = Preprocessing(rails=kit.chip.front_end) if kit.chip.front_end else Preprocessing(none=shared)
    info = _on_board(network, kit, backend.board, chip, "its microphone in real time", details)
    return replace(info, max_pending=PENDING, preprocessing=preprocessing)


def _on_board(
    network: Network, kit: Kit, board: Board, chip: ChipOptions, hears: str, details: dict[str, Any]
) -> DeviceInfo:
    common = {"chip": kit.chip.name, "core_clock_hz": chip.core_clock_hz, "vendor_calls": board.calls()}
    common["core_clock"] = "set; Rockpool does not read it back"
    return DeviceInfo(
        name="xylo",
        mode="simulator" if kit.simulated else "hardware",
        description=f"{'SIMULATED ' if kit.simulated else ''}SynSense {kit.chip.name}, {hears}",
        clock=ClockInfo("spans", SPAN_TICK_HZ),
        timeout_s=chip.timeout_s,
        onboard_meter="xylo-monitor",
        network=inspection_of(network).info,
        versions={"rockpool": importlib.metadata.version("rockpool"), **kit.versions},
        artifacts={"network": network.digest_sha256},
        details={**_algorithm(network), **common, **details},
    )
