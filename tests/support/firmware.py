"""Conversations with the firmware: built for this machine behind a stub of Arduino, or for a Cortex-M4 in QEMU."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import toolchain

STUB = Path(__file__).with_name("nano33ble")
AT_ONCE = 540
"""Bytes of a sample in one command."""


@dataclass
class Talk:
    """A board's line, both ways."""

    out: IO[bytes]
    back: IO[bytes]

    def answer(self) -> list[str]:
        """Its lines up to ``m-ready``."""
        lines = []
        while (line := self.back.readline().decode().strip()) != "m-ready":
            assert line, "the line has ended"
            lines.append(line)
        return lines

    def ask(self, command: str) -> list[str]:
        self.out.write(command.encode() + b"%")
        self.out.flush()
        return self.answer()

    def load(self, audio: NDArray[np.int16]) -> None:
        data = audio.astype("<i2").tobytes()
        lines = self.ask(f"db load {len(data)}")
        for at in range(0, len(data), AT_ONCE):
            lines = self.ask("db " + data[at : at + AT_ONCE].hex())
        assert lines == ["m-load-done"]

    def infer(self, times: int = 1) -> tuple[list[int], int]:
        """The scores, and microseconds on the board's clock."""
        lines = self.ask(f"infer {times} 0")
        on_us, off_us = (int(line.rsplit("-", 1)[1]) for line in lines if line.startswith("m-lap-us-"))
        return [int(part) for part in _bracketed(lines[-1]).split(",")], off_us - on_us

    def features(self) -> NDArray[np.int8]:
        return np.frombuffer(bytes.fromhex(_bracketed(self.ask("features")[0])), np.int8)


def _bracketed(line: str) -> str:
    return line.split("[", 1)[1].rstrip("]")


def sketch_program(out: Path, *flags: str) -> Path:
    """Compile the sketch for this machine."""
    folder, program = toolchain.sketch(out), out / "sketch"
    core = [str(path) for path in sorted(folder.glob("*.c"))]
    objects = [f"{out}/{Path(source).stem}.o" for source in core]
    for source, made in zip(core, objects, strict=True):
        _ran("gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-c", source, "-o", made)
    main = str(STUB / "main.cpp")
    _ran("g++", "-Wall", "-Wextra", "-Werror", *flags, f"-I{STUB}", f"-I{folder}", main, *objects, "-o", str(program))
    return program


def _ran(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def on_this_machine(program: Path) -> Iterator[tuple[Talk, Path]]:
    """The sketch, started; and the file to which its pins go."""
    pins = program.with_name("pins")
    with (
        pins.open("wb") as told,
        subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        talk = Talk(process.stdin, process.stdout)
        try:
            assert talk.answer() == ["m-timestamp-mode-performance", "m-init-done"]
            yield talk, pins
        finally:
            process.kill()


@contextlib.contextmanager
def in_qemu(firmware: toolchain.Firmware, folder: Path) -> Iterator[Talk]:
    """The firmware in QEMU, which ends with the conversation."""
    place = folder / "line"
    command = toolchain.qemu_command(firmware, place)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 20
            while not place.exists() and time.monotonic() < until:
                time.sleep(0.01)
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(60)
                line.connect(str(place))
                with line.makefile("rwb") as both:
                    talk = Talk(both, both)  # type: ignore[arg-type]  # both directions of one socket
                    assert talk.answer() == ["m-timestamp-mode-performance", "m-init-done"]
                    yield talk
        finally:
            process.kill()
            process.wait()


def lacking(*programs: str) -> str | None:
    """Which of the programs is not installed."""
    return next((name for name in programs if shutil.which(name) is None), None)
