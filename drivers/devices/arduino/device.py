"""An Arduino Nano 33 BLE with the rig's own firmware, or QEMU in its place.

    rig measure --device arduino --option port=/dev/ttyACM0 --meter scpi-dmm ...
    rig measure --device arduino --simulate

Staging a sample loads a slice of audio into the board's memory, and is not timed. The board then computes on this
slice: mel-filterbank energies (``preprocessing``), the network (``inference``), or both. The board stamps each loop
with its own microsecond counter, and holds a pin high during each phase.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from drivers.devices.arduino.emulator import Emulator, GuestClock, SimulatedBoard, simulation, taken
from drivers.devices.arduino.mfe import pcm16
from drivers.devices.arduino.quantised import NetworkFile, network_info, read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK, source_sha256
from drivers.devices.mlperf_tiny.device import BAUDS
from drivers.devices.mlperf_tiny.protocol import Board, BoardClock
from drivers.devices.mlperf_tiny.queries import TICK_HZ, Before, QueryPlan, TinyDevice, introduced
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, open_line
from drivers.links.virtual_time import needed
from rig.bench.settings import positive
from rig.errors import DataError, RigError, SetupError, refused
from rig.types import CLOCK_TOLERANCE, ClockInfo, Device, DeviceInfo, Preprocessing, Sample, SimulatedBench

NAME, MAJOR = "neurorig-mcu", 1
Whole = Annotated[int, Meta(ge=0)]
FLASH = "Flash the firmware of this rig with arduino-cli, as docs/how-to/arduino.md shows"

_FACT = re.compile(r"m-about-([a-z]+)-\[(.*)\]")
MODES = ("hardware", "simulator")

PREPROCESSING, INFERENCE, BOTH = "preprocessing", "inference", "both"
TOUCH_BAUD = 1200
"""A port that is opened at this rate restarts the board into its bootloader."""
COUNTER_BITS = 32


class About(msgspec.Struct, frozen=True):
    """The answer to ``about``.

    ``source`` and ``network`` are SHA-256 digests. ``memory`` is the size of the board's sample memory in bytes.
    ``slice`` is the number of audio samples in one slice, at ``rate`` Hz. ``command`` is the largest number of
    characters in a command: 6 or more, because the shortest command that carries a byte has 6.
    """

    firmware: str
    version: str
    board: str
    source: str
    network: str
    flags: str
    memory: Whole
    classes: Whole
    slice: Whole
    rate: Whole
    command: Annotated[int, Meta(ge=len("db 00%"))]


def handshake(board: Board, said: Mapping[str, str]) -> About:
    """Ask the board for its facts. Raises ``SetupError`` for another firmware or version, and for malformed facts."""
    port = board.line.port
    try:
        lines = board.ask("about")
    except RigError as error:
        lines, why = [], error.message
    else:
        why = "it does not say which"
    facts: dict[str, str] = {found[1]: found[2] for line in lines if (found := _FACT.fullmatch(line))}
    if facts.get("firmware") != NAME:
        what = f"the board on {port} ({said.get('name', 'no name')}) runs another firmware than {NAME}: "
        raise _refused("firmware", facts.get("firmware"), what + str(facts.get("firmware", why)))
    version = facts.get("version", "")
    if version.partition(".")[0] != str(MAJOR):
        what = f"the firmware of the board on {port} is of version {version!r}, and this driver needs version {MAJOR}"
        raise _refused("version", version, what)
    try:
        return msgspec.convert(facts, About, strict=False)
    except msgspec.ValidationError as error:
        field = next((name for name in About.__struct_fields__ if f"{name}`" in str(error)), "about")
        what = f"the board on {port} does not state its facts in the answer to `about`: {error}"
        raise _refused(field, facts.get(field), what) from error


def _refused(field: str, value: object, what: str) -> SetupError:
    return SetupError(what, field=field, value=value, remedy=FLASH)


@dataclass(frozen=True)
class SliceCoding:
    """Converts audio to the bytes of a sample in the board's memory, and the scores of ``labels`` to an answer."""

    about: About
    labels: tuple[str, ...]

    def encoded(self, sample: Sample) -> bytes:
        """Return little-endian bytes. Raises ``DataError`` unless the sample is one slice at the board's rate."""
        audio, about = np.asarray(sample.payload), self.about
        if 2 * audio.size > about.memory:
            what = f"has {2 * audio.size} bytes of 16-bit audio, and the board's memory holds {about.memory}"
            raise _unfit(sample, what, f"Give slices of {about.slice} samples, and leave --amortise out")
        if audio.shape != (about.slice,) or sample.rate_hz != about.rate:
            what = f"has the shape {audio.shape} at {sample.rate_hz} Hz"
            remedy = f"Give {about.slice} samples at {about.rate} Hz (--option audio_hz={about.rate})"
            raise _unfit(sample, what, remedy)
        if audio.dtype.kind != "f" or not np.all(np.abs(audio) <= 1.0):
            raise _unfit(sample, f"has {audio.dtype} beyond -1 to 1 or not finite", "Give audio as floats from -1 to 1")
        return pcm16(audio).astype("<i2").tobytes()

    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]:
        """Return the label of the first of the highest scores, and all scores."""
        return {"label": self.labels[int(np.argmax(scores))], "scores": list(scores)}


def _unfit(sample: Sample, what: str, remedy: str) -> DataError:
    return DataError(f"sample {sample.id} {what}", field="payload", value=sample.id, remedy=remedy)


def announced(board: Board) -> Before:
    """Return a function that sets the phase of the board's next loop.

    The function refuses inference alone on a sample whose features the board has not computed. Computing them outside
    a span would put work into the gaps between spans, from which idle power may be taken.
    """

    def before(phase: str, fresh: bool) -> object:
        if phase == INFERENCE and fresh:
            remedy = "Leave --per-phase out, or loop one slice with it (--option workload.samples=1)"
            raise refused("phase", phase, remedy, "the board has no features of this sample for inference alone")
        return board.ask(f"phase {phase}")

    return before


def open_device(
    bench: SimulatedBench | None = None,
    *,
    simulate: bool = False,
    port: str = "",
    baud: int = BAUDS["performance"],
    network: str | None = None,
    together: bool = False,
    timeout_s: float = 10.0,
    boot_s: float = 5.0,
    clock_tolerance: float = CLOCK_TOLERANCE,
    tuning: str = "",
) -> Device:
    """Open the board on a serial ``port`` (extra ``serial``). With ``simulate``, open QEMU on a simulated bench.

    ``baud`` is the rate of the port. ``network`` is the exported network (.h) that the firmware was built with,
    by default the shipped one; a board with another network is refused. With ``together`` both phases are one span,
    ``both``. ``timeout_s`` limits each execution, and ``boot_s`` limits the time until the board states its name.
    ``clock_tolerance`` is the largest relative error of the rate of its counter. ``tuning`` tells the report how the
    network was tuned.

    Raises ``UsageError`` for options that do not fit, and ``DataError`` for an incomplete network file. Raises
    ``SetupError`` for a port without such a board, another firmware, and a missing compiler or QEMU.
    """
    positive(timeout_s=timeout_s, boot_s=boot_s, clock_tolerance=clock_tolerance)
    if baud == TOUCH_BAUD:
        what = f"{TOUCH_BAUD} baud restarts the board into its bootloader"
        raise refused("baud", baud, f"Give {BAUDS['performance']}", what)
    path = DEFAULT_NETWORK if network is None else Path(network)
    deployed = read_network(path)
    plant = needed(bench, "board") if simulate else None
    emulator = None if plant is None else Emulator(path)
    line = open_line(port, baud, DEVICE) if emulator is None else emulator.line
    end = line.close if emulator is None else emulator.close
    with released_on_error(end):
        clock = partial(BoardClock, COUNTER_BITS, clock_tolerance) if emulator is None else GuestClock
        board, said = introduced(line, clock, boot_s, timeout_s)
        about = handshake(board, said)
        _check_network(about, deployed, path)
        whole, phases = deployed.network, (BOTH,) if together else (PREPROCESSING, INFERENCE)
        more = {"port": port, "baud": baud} if emulator is None else simulation(emulator.firmware)
        info = DeviceInfo(
            name="arduino",
            mode="simulator" if said["name"].startswith("SIM") else "hardware",
            description=f"{said['name']}, {about.firmware} {about.version} on {about.board}",
            clock=ClockInfo(about.board, TICK_HZ, clock_tolerance),
            phases=phases,
            timeout_s=timeout_s * len(phases),
            onboard_meter=None if emulator is None else "mock",
            versions={"firmware": about.version, "board": about.board},
            artifacts={"firmware": about.source, "network": about.network},
            algorithm={
                "encoder": "mel-filterbank energies",
                "network": "two convolutions with batch normalisation and max pooling, int8",
                "training": dict(whole.training),
                "tuning": tuning,
            },
            network=network_info(whole, "" if emulator is None else taken(emulator.firmware)),
            preprocessing=None if together else Preprocessing(phases=(PREPROCESSING,)),
            details={
                "classes": list(whole.classes),
                "flags": about.flags,
                "source": _compared(about),
                "slice": {"samples": about.slice, "rate_hz": about.rate, "memory_bytes": about.memory},
                "span": "between two readings of the board's microsecond counter around its loop, with nothing printed",
                **more,
            },
        )
        plan = QueryPlan(1, (about.command - len("db %")) // 2, timeout_s)
        own = TinyDevice(board, info, SliceCoding(about, whole.classes), plan, announced(board))
        return own if plant is None else SimulatedBoard(own, plant, end)


def _compared(about: About) -> str:
    """Say whether the firmware was built from the sources of this checkout."""
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
