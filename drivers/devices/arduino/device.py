"""An Arduino Nano 33 BLE with the rig's own firmware, or QEMU in its place.

    rig measure --device arduino --option port=/dev/ttyACM0 --meter scpi-dmm ...
    rig measure --device arduino --simulate

A slice of audio is loaded while it is staged, which is not timed. The board then computes on the slice in its memory:
mel-filterbank energies (``preprocessing``), the network (``inference``), or both. It stamps each loop by its own
microsecond counter, and holds a pin high during each phase.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from drivers.devices.arduino.about import FLASH, About, SliceCoding, handshake
from drivers.devices.arduino.emulator import Emulator, GuestClock, SimulatedBoard, simulation, taken
from drivers.devices.arduino.quantised import NetworkFile, Quantised, network_info, read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK, source_sha256
from drivers.devices.mlperf_tiny.device import BAUDS
from drivers.devices.mlperf_tiny.greeting import introduced
from drivers.devices.mlperf_tiny.protocol import Board, BoardClock, Talk
from drivers.devices.mlperf_tiny.queries import TICK_HZ, Before, QueryPlan, TinyDevice
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, open_line
from rig.bench.option_checks import limits, positive
from rig.errors import SetupError, refused
from rig.types import ClockInfo, Device, DeviceInfo, Preprocessing, SimulatedBench

MODES = ("hardware", "simulator")

PREPROCESSING, INFERENCE, BOTH = "preprocessing", "inference", "both"
TOUCH_BAUD = 1200
"""A port that is opened at this rate restarts the board into its bootloader."""
COUNTER_BITS = 32


def announced(board: Board) -> Before:
    """Set the phase of the board's next loop, and refuse inference alone on a sample without features.

    Computing features outside of spans would be work in the gaps, which may be used for idle power.
    """

    def before(phase: str, fresh: bool) -> Talk[None]:
        if phase == INFERENCE and fresh:
            remedy = "Leave --per-phase out, or loop one slice with it (--option workload.samples=1)"
            raise refused("phase", phase, remedy, "the board has no features of this sample for inference alone")
        yield from board.ask(f"phase {phase}")

    return before


def open_device(
    bench: SimulatedBench | None = None,
    *,
    simulate: bool = False,
    port: str = "",
    baud: int = BAUDS["performance"],
    network: str | None = None,
    together: bool = False,
    warmups: int = 0,
    timeout_s: float = 10.0,
    boot_s: float = 5.0,
    clock_tolerance: float = 1e-3,
    tuning: str = "",
) -> Device:
    """Open the board on a serial ``port`` (extra ``serial``), or with ``simulate`` QEMU on a simulated bench.

    ``network`` is the exported network (.h) that the firmware was built with, by default the shipped one; the board
    must run the same. With ``together`` both phases are one span, ``both``. ``warmups`` executions come before each
    span. Each execution may take ``timeout_s``, the board ``boot_s`` to say its name. ``clock_tolerance`` limits the
    rate of its counter (relative). ``tuning`` says for the report how the network was tuned.

    Raises ``UsageError`` for options that do not fit, ``DataError`` for a network file that is not whole, and
    ``SetupError`` for a port without such a board, another firmware, and a missing compiler or QEMU.
    """
    positive(timeout_s=timeout_s, boot_s=boot_s, clock_tolerance=clock_tolerance)
    limits(warmups=(warmups, 0, 10**9))
    if baud == TOUCH_BAUD:
        what = f"{TOUCH_BAUD} baud restarts the board into its bootloader"
        raise refused("baud", baud, f"Give {BAUDS['performance']}", what)
    path = DEFAULT_NETWORK if network is None else Path(network)
    deployed = read_network(path)
    emulator = _emulator(bench, path) if simulate else None
    line = open_line(port, baud, DEVICE) if emulator is None else emulator.line
    end = line.close if emulator is None else emulator.close
    with released_on_error(end):
        clock = partial(BoardClock, COUNTER_BITS) if emulator is None else GuestClock
        board, said = introduced(line, clock, boot_s, timeout_s)
        about = handshake(board, said)
        _check_network(about, deployed, path)
        own_info = _described(
            said["name"], about, deployed.network, (BOTH,) if together else (PREPROCESSING, INFERENCE)
        )
        more = {"port": port, "baud": baud} if emulator is None else simulation(emulator.firmware)
        takes = "" if emulator is None else taken(emulator.firmware)
        info = replace(
            own_info,
            clock=ClockInfo(about.board, TICK_HZ, clock_tolerance),
            timeout_s=timeout_s * (1 + warmups) * len(own_info.phases),
            onboard_meter=None if emulator is None else "mock",
            algorithm={**own_info.algorithm, "tuning": tuning},
            network=network_info(deployed.network, takes),
            details={**own_info.details, **more, "warmups": warmups},
        )
        plan = QueryPlan(1, warmups, (about.command - len("db %")) // 2, timeout_s)
        own = TinyDevice(board, info, SliceCoding(about, deployed.network.classes), plan, announced(board))
        return own if emulator is None or bench is None else SimulatedBoard(own, bench, end)


def _emulator(bench: SimulatedBench | None, network: Path) -> Emulator:
    if bench is None:
        what = "the simulated board needs a simulated bench: its power and its time are virtual"
        raise SetupError(what, field="bench", remedy="Use the simulated bench, or pass bench=")
    return Emulator(network)


def _described(maker: str, about: About, network: Quantised, phases: tuple[str, ...]) -> DeviceInfo:
    """Describe the device by what the board and its network file state."""
    return DeviceInfo(
        name="arduino",
        mode="simulator" if maker.startswith("SIM") else "hardware",
        description=f"{maker}, {about.firmware} {about.version} on {about.board}",
        phases=phases,
        versions={"firmware": about.version, "board": about.board},
        artifacts={"firmware": about.source, "network": about.network},
        algorithm={
            "encoder": "mel-filterbank energies",
            "network": "two convolutions with batch normalisation and max pooling, int8",
            "training": dict(network.training),
        },
        preprocessing=Preprocessing(phases=(PREPROCESSING,)) if PREPROCESSING in phases else None,
        details={
            "classes": list(network.classes),
            "flags": about.flags,
            "source": _compared(about),
            "slice": {"samples": about.slice, "rate_hz": about.rate, "memory_bytes": about.memory},
            "span": "between two readings of the board's microsecond counter around its loop, nothing printed",
        },
    )


def _compared(about: About) -> str:
    """Return whether the firmware is from the local sources."""
    try:
        here = source_sha256(about.board)
    except SetupError as error:
        return f"not compared: {error.message}"
    return "that of this checkout" if about.source == here else "another than that of this checkout"


def _check_network(about: About, deployed: NetworkFile, path: Path) -> None:
    if about.network != deployed.sha256 or about.classes != len(deployed.network.classes):
        what = f"the board runs the network {about.network[:12]}, and {path.name} is {deployed.sha256[:12]}"
        remedy = f"Name the file that the firmware was built with (--option network=FILE), or flash this one: {FLASH}"
        raise SetupError(what, field="network", value=about.network, remedy=remedy)
