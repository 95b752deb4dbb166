"""A board with the rig's own firmware: phases as spans, a handshake, and all errors of the board."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.arduino import toolchain
from drivers.devices.arduino.device import NAME, open_device
from drivers.devices.arduino.quantised import Convolution, network_info, read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK
from rig.errors import DataError, SetupError, UsageError
from rig.network.description import network_faults
from rig.types import Device, Sample
from tests.support.raised import raised
from tests.support.remote_workers import answer
from tests.support.tiny_board import Chip, Spoil, TinyBoardSim

pytest.importorskip("serial", reason="extra serial is not installed")
pytestmark = pytest.mark.usefixtures("quiet_soon")

CLASSES = ("airport", "bus", "park", "street_traffic")
SLICE, RATE_HZ = 16000, 16000
BAUD = 12_000_000
"""As fast as the USB port of a Nano."""
QUICK = Chip(input_bytes=2 * SLICE, inference_s=0.004)


def facts(network: Path) -> dict[str, object]:
    """Return what a board with this network answers to ``about``."""
    return {
        "firmware": "neurorig-mcu", "version": "1.0", "board": "nano33ble", "source": "5" * 64,
        "network": read_network(network).sha256, "flags": "gcc 12.2 -O2 [-mcpu=cortex-m4]", "memory": 2 * SLICE,
        "classes": len(CLASSES), "slice": SLICE, "rate": RATE_HZ, "command": 80,
    }  # fmt: skip


def stating(stated: dict[str, object]) -> Spoil:
    """Turn the refusals of a reference board into the answers of the rig's firmware."""

    def said(line: str) -> list[bytes]:
        unknown = line.removeprefix("e-[Unknown command: ").removesuffix("]")
        if unknown == "about":
            return [f"m-about-{key}-[{value}]\r\n".encode() for key, value in stated.items()]
        if unknown.startswith("phase "):
            return [f"m-phase-[{unknown[6:]}]\r\n".encode()]
        return [line.encode() + b"\r\n"]

    return said


def audio(k: int = 0, samples: int = SLICE, rate_hz: float = RATE_HZ) -> Sample:
    """Return a slice of noise."""
    rng = np.random.default_rng(k)
    return Sample(f"s{k}", rng.uniform(-0.5, 0.5, samples).astype(np.float32), CLASSES[k % 4], rate_hz=rate_hz)


@contextmanager
def board_with(**stated: object) -> Iterator[TinyBoardSim]:
    """Start a simulated board that answers ``about`` like the rig's firmware, with the shipped network."""
    with TinyBoardSim(QUICK, baud=BAUD) as board:
        board.spoil = stating(facts(DEFAULT_NETWORK) | stated)
        yield board


@contextmanager
def opened(**options: Any) -> Iterator[tuple[TinyBoardSim, Device]]:
    with board_with() as board, closing(open_(board, **options)) as device:
        yield board, device


def open_(board: TinyBoardSim, **options: Any) -> Device:
    given: dict[str, Any] = {"port": board.port, "network": str(DEFAULT_NETWORK), "timeout_s": 30.0, "boot_s": 30.0}
    return open_device(**(given | options))


def commands(board: TinyBoardSim) -> list[str]:
    """Return the board's commands about phases and loops."""
    return [c for c in board.commands if c.startswith(("phase", "infer"))]


# ---- phases ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("together", "phases"), [(False, ("preprocessing", "inference")), (True, ("both",))])
def test_phases_are_stamped_separately_or_as_one_span(together: bool, phases: tuple[str, ...]) -> None:
    with opened(together=together) as (board, device):
        reply = answer(device, audio(), times=3)

    assert [(s.phase, s.executions) for s in reply.spans] == [(phase, 3) for phase in phases]
    assert reply.spans[0].off_tick <= reply.spans[-1].on_tick or together
    assert commands(board) == [command for phase in phases for command in (f"phase {phase}", "infer 3 0")]
    assert reply.output["label"] in CLASSES


def test_inference_alone_requires_the_features_of_its_sample() -> None:
    with opened() as (board, device):
        assert answer(device, audio(), phase="preprocessing").output == {"label": None}
        spans = answer(device, audio(), times=2, phase="inference").spans
        caught = raised(UsageError, answer, device, audio(1), says="no features of this sample", phase="inference")

    assert [(s.phase, s.executions) for s in spans] == [("inference", 2)] and "samples=1" in caught.remedy
    assert commands(board) == ["phase preprocessing", "infer 1 0", "phase inference", "infer 2 0"]


def test_the_board_gets_the_audio_as_16_bit_samples() -> None:
    with opened() as (board, device):
        device.stage([audio()])
    expected = np.rint(np.asarray(audio().payload, np.float64) * 32768).astype("<i2")
    assert bytes(board._buffer) == expected.tobytes()


def test_a_recording_states_the_firmware_the_network_and_the_flags() -> None:
    with board_with(version="1.7") as board, closing(open_(board)) as device:
        info = device.info()
    stated = facts(DEFAULT_NETWORK)
    assert info.artifacts == {"firmware": stated["source"], "network": stated["network"]}
    assert info.versions["firmware"] == "1.7" and info.details["flags"] == stated["flags"]
    assert info.preprocessing is not None and info.preprocessing.phases == ("preprocessing",)


def test_the_described_network_has_the_deployed_sizes() -> None:
    network = read_network(DEFAULT_NETWORK).network
    info = network_info(network)
    assert not list(network_faults(info))
    for pooled, connection in zip(info.layers, info.connections[:2], strict=True):
        channels = {"first": 8, "second": 16}[connection.name]
        assert connection.dense == pooled.neurons * 4 * connection.weights // channels
    assert sum(connection.dense for connection in info.connections) == 1_122_304
    arrays = [getattr(part, name) for part in (network.first, network.second) for name in Convolution.__slots__]
    arrays += [network.dense_weights, network.dense_bias]
    assert info.footprint_bits() / 8 == sum(array.nbytes for array in arrays)


# ---- who the board is -----------------------------------------------------------------------


def test_reference_firmware_is_refused_with_the_command_to_flash() -> None:
    with TinyBoardSim(baud=BAUD) as board:
        caught = raised(SetupError, open_, board)
    assert caught.field == "firmware" and "arduino-cli" in caught.remedy
    assert "SIM-board" in caught.message and NAME in caught.message


def test_the_firmware_source_is_compared_with_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(source: str) -> str:
        with board_with(source=source) as board, closing(open_(board)) as device:
            return str(device.info().details["source"])

    assert said(toolchain.source_sha256("nano33ble")) == "that of this checkout"
    assert said("5" * 64) == "another than that of this checkout"
    monkeypatch.setattr(toolchain, "FOLDER", Path("/nowhere"))
    assert "not compared" in said("5" * 64)


@pytest.mark.parametrize(("field", "value"), [
    ("firmware", "another"), ("version", "2.0"), ("version", ""), ("slice", "many"), ("memory", "-1"),
    ("command", "5"), ("network", "0" * 64),
])  # fmt: skip
def test_a_board_with_unknown_or_malformed_firmware_is_refused(field: str, value: str) -> None:
    with board_with(**{field: value}) as board:
        caught = raised(SetupError, open_, board)
    assert (caught.field, caught.value) == (field, value) and "arduino-cli" in caught.remedy
    assert field != "network" or "--option network=FILE" in caught.remedy


# ---- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(("sample", "text"), [
    (audio(samples=10 * SLICE), "memory holds 32000"),
    (audio(samples=SLICE - 1), "16000 samples at 16000 Hz"),
    (audio(rate_hz=8000.0), "audio_hz=16000"),
    (Sample("loud", np.full(SLICE, 2.0, np.float32), rate_hz=16000.0), "beyond -1 to 1"),
    (Sample("nan", np.full(SLICE, np.nan, np.float32), rate_hz=16000.0), "not finite"),
])  # fmt: skip
def test_an_invalid_audio_slice_is_refused_before_sending(sample: Sample, text: str) -> None:
    with opened() as (board, device):
        before = len(board.commands)
        caught = raised(DataError, device.stage, [sample])
    assert text in str(caught) and caught.value == sample.id and len(board.commands) == before


def test_a_wrong_baud_rate_is_named() -> None:
    with board_with() as board, pytest.raises(SetupError) as caught:
        board.spoil = lambda line: [bytes(byte ^ 0x95 for byte in line.encode()) + b"\n"]
        open_(board, baud=9600, boot_s=0.4)
    assert "at 9600 baud" in caught.value.message and "baud rate" in caught.value.remedy


def test_the_baud_rate_that_starts_the_bootloader_is_refused() -> None:
    raised(UsageError, open_device, says="bootloader", port="/dev/tty-nothing", baud=1200)
