"""Audio, and a simulated reference board that answers like the rig's firmware."""

from pathlib import Path

import numpy as np

from drivers.devices.arduino.quantised import read_network
from rig.types import Sample
from tests.support.tiny_board import Spoil

CLASSES = ("airport", "bus", "park", "street_traffic")
SLICE, RATE_HZ = 16000, 16000


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
