"""The facts that the firmware states about itself, the check that this driver understands it, and slices for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from drivers.devices.arduino.mfe import pcm16
from drivers.devices.mlperf_tiny.protocol import Board
from rig.errors import DataError, RigError, SetupError
from rig.types import Sample

NAME, MAJOR = "neurorig-mcu", 1
LEAST_COMMAND = len("db 00%")
FLASH = "Flash the firmware of this rig with arduino-cli, as docs/how-to/arduino.md shows"

_FACT = re.compile(r"m-about-([a-z]+)-\[(.*)\]")


@dataclass(frozen=True)
class About:
    """The answer to ``about``.

    ``source`` and ``network`` are digests (SHA-256), ``memory`` the bytes of the resident sample, ``slice`` its
    samples of audio at ``rate`` Hz, ``command`` the characters that a command may have.
    """

    firmware: str
    version: str
    board: str
    source: str
    network: str
    flags: str
    memory: int
    classes: int
    slice: int
    rate: int
    command: int


def handshake(board: Board, said: Mapping[str, str]) -> About:
    """Ask the board for its facts. Raises ``SetupError`` for another firmware or version, and for unfit facts."""
    port = board.line.port
    try:
        lines = board.converse(board.ask("about"))
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
        what = f"the firmware of the board on {port} is of version {version!r}, and this driver speaks version {MAJOR}"
        raise _refused("version", version, what)
    kinds = {field.name: int if field.type == "int" else str for field in fields(About)}
    wrong = [k for k, kind in kinds.items() if k not in facts or (kind is int and not facts[k].isdecimal())]
    if wrong:
        what = f"the board on {port} does not state its {wrong[0]} in the answer to `about`"
        raise _refused(wrong[0], facts.get(wrong[0]), what)
    if int(facts["command"]) < LEAST_COMMAND:
        what = f"the board on {port} takes commands of {facts['command']} characters; a byte is sent in {LEAST_COMMAND}"
        raise _refused("command", facts["command"], what)
    return About(**{name: kind(facts[name]) for name, kind in kinds.items()})  # type: ignore[arg-type]


def _refused(field: str, value: object, what: str) -> SetupError:
    return SetupError(what, field=field, value=value, remedy=FLASH)


@dataclass(frozen=True)
class SliceCoding:
    """How audio becomes the bytes of the sample in memory, and how scores of ``labels`` become an answer."""

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
            raise _unfit(sample, f"is {audio.dtype} beyond -1 to 1 or not finite", "Give audio as floats from -1 to 1")
        return pcm16(audio).astype("<i2").tobytes()

    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]:
        """Return the label of the first of the highest scores, and all scores."""
        return {"label": self.labels[int(np.argmax(scores))], "scores": list(scores)}


def _unfit(sample: Sample, what: str, remedy: str) -> DataError:
    return DataError(f"sample {sample.id} {what}", field="payload", value=sample.id, remedy=remedy)
