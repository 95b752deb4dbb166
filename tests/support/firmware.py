"""Conversations with the firmware: built for this machine with a stub of Arduino, or for a Cortex-M4 in QEMU."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import toolchain
from drivers.devices.arduino.emulator import BAUD, GuestClock, SocketPort
from drivers.devices.mlperf_tiny.protocol import Board
from drivers.links.serial_line import DEVICE, SerialLine

STUB = Path(__file__).with_name("nano33ble")
AT_ONCE = 540
"""Bytes of a sample in one command."""
ANSWER_S = 60.0


@dataclass
class Talk:
    """A board that has just started, on its line."""

    line: SerialLine

    def __post_init__(self) -> None:
        assert self.answer() == ["m-timestamp-mode-performance", "m-init-done"]

    def answer(self) -> list[str]:
        """Return its lines up to ``m-ready``."""
        lines = []
        while (line := self.line.line(time.monotonic() + ANSWER_S)) != "m-ready":
            assert line, "the board is silent"
            lines.append(line)
        return lines

    def ask(self, command: str) -> list[str]:
        self.line.write(command.encode() + b"%")
        return self.answer()

    def load(self, audio: NDArray[np.int16]) -> None:
        Board(self.line, GuestClock(), ANSWER_S).load(audio.astype("<i2").tobytes(), AT_ONCE)

    def infer(self, times: int = 1) -> tuple[list[int], int]:
        """Return the scores, and microseconds on the board's clock."""
        found = Board(self.line, GuestClock(), ANSWER_S).infer(times)
        return [int(score) for score in found.scores], found.off_tick - found.on_tick

    def features(self) -> NDArray[np.int8]:
        return np.frombuffer(bytes.fromhex(self.ask("features")[0].split("[", 1)[1].rstrip("]")), np.int8)


def sketch_program(out: Path, *flags: str) -> Path:
    """Compile the sketch for this machine."""
    folder, program = toolchain.sketch(out), out / "sketch"
    core = [str(path) for path in sorted(folder.glob("*.c"))]
    objects = [f"{out}/{Path(source).stem}.o" for source in core]
    for source, made in zip(core, objects, strict=True):
        _ran("gcc", "-std=c11", "-pedantic", "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-c", source, "-o", made)
    main = str(STUB / "main.cpp")
    _ran("g++", "-Wall", "-Wextra", "-Werror", *flags, f"-I{STUB}", f"-I{folder}", main, *objects, "-o", str(program))
    return program


def _ran(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def on_this_machine(program: Path) -> Iterator[tuple[Talk, Path]]:
    """Start the sketch; yield a talk with it, and the file of its pins."""
    pins = program.with_name("pins")
    ours, theirs = socket.socketpair()
    with (
        contextlib.closing(SerialLine(SocketPort(ours), "socket", BAUD, DEVICE)) as line,
        theirs,
        pins.open("wb") as told,
        subprocess.Popen([program], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=told) as process,
    ):
        try:
            yield Talk(line), pins
        finally:
            process.kill()


def lacking(*programs: str) -> str | None:
    """Return the first of these programs that is not installed; None if all are."""
    return next((name for name in programs if shutil.which(name) is None), None)
