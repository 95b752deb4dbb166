"""The firmware agrees with Python: the sketch on this machine, and a Cortex-M4 in QEMU."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from drivers.devices.arduino import mfe, toolchain
from drivers.devices.arduino.emulator import BAUD, Emulator, GuestClock, SocketPort
from drivers.devices.arduino.quantised import read_network
from drivers.devices.mlperf_tiny.protocol import Board
from drivers.links.serial_line import DEVICE, SerialLine
from rig.errors import SetupError
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from tests.support.raised import raised

STUB = Path(__file__).parents[2] / "support" / "nano33ble"
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


@contextmanager
def on_this_machine(program: Path) -> Iterator[tuple[Talk, Path]]:
    """Start the sketch; yield a talk with it, and the file of its pins."""
    pins = program.with_name("pins")
    ours, theirs = socket.socketpair()
    with (
        closing(SerialLine(SocketPort(ours), "socket", BAUD, DEVICE)) as line,
        theirs,
        pins.open("wb") as told,
        subprocess.Popen([program], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=told) as process,
    ):
        try:
            yield Talk(line), pins
        finally:
            process.kill()


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip if a program is not installed, and name it."""
    name = next((name for name in programs if shutil.which(name) is None), None)
    return pytest.mark.skipif(name is not None, reason=f"{name} is not installed: the firmware was NOT run")


needs_host, needs_arm = needs("gcc", "g++"), needs(toolchain.COMPILER, toolchain.QEMU)


def scene(seed: int) -> NDArray[np.int16]:
    return mfe.pcm16(synthesize(CLASSES[seed % len(CLASSES)], seed))


def extremes() -> list[NDArray[np.int16]]:
    """Return noise of full scale, its sign alone, silence, and noise of two bits."""
    rng = np.random.default_rng(0)
    noise = rng.integers(-32768, 32768, 16000)
    return [x.astype(np.int16) for x in (noise, np.where(noise < 0, -32768, 32767), 0 * noise, noise >> 14)]


def assert_as_in_python(talk: Talk, audio: NDArray[np.int16]) -> None:
    """Compare the features and every score, bit for bit."""
    features = mfe.features(audio)
    talk.load(audio)
    scores, _ = talk.infer()
    assert scores == read_network(toolchain.DEFAULT_NETWORK).network.scores(features[None])[0].tolist()
    assert np.array_equal(talk.features(), features.ravel())


@pytest.fixture(scope="module")
def sketch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sketch_program(tmp_path_factory.mktemp("sketch"), "-fsanitize=undefined", "-fno-sanitize-recover")


@pytest.fixture
def talk(sketch: Path) -> Iterator[Talk]:
    with on_this_machine(sketch) as (line, _):
        yield line


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with closing(Emulator()) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def board(emulator: Emulator) -> Talk:
    return Talk(emulator.line)


# ---- the sketch, whose C has no undefined behaviour on the way


@needs_host
def test_the_sketch_computes_the_scores_of_python(talk: Talk) -> None:
    for audio in [*extremes(), *(scene(1000 + k) for k in range(8))]:
        assert_as_in_python(talk, audio)


@needs_host
def test_a_pin_is_high_only_while_its_phase_runs(sketch: Path) -> None:
    with on_this_machine(sketch) as (talk, pins):
        talk.load(scene(1000))
        for phase in ("both", "preprocessing", "inference"):
            assert talk.ask(f"phase {phase}") == [f"m-phase-[{phase}]"]
            talk.infer(2)
        assert pins.read_text() == "2+2-3+3-" * 2 + "2+2-" * 2 + "3+3-" * 2


@needs_host
def test_inference_alone_uses_the_last_features_of_its_sample(talk: Talk) -> None:
    talk.load(scene(1000))
    both, _ = talk.infer()
    talk.ask("phase preprocessing")
    assert talk.infer()[0] == [0, 0, 0, 0]
    talk.ask("phase inference")
    assert talk.infer()[0] == both
    talk.load(scene(1001))
    assert talk.ask("infer 1 0") == ["e-[no features: run phase preprocessing first]"]


@needs_host
def test_the_answer_to_infer_follows_mlperf_tiny(talk: Talk) -> None:
    talk.load(scene(1000))
    lines = [line.rstrip("0123456789") if "lap" in line else line for line in talk.ask("infer 3 2")]
    assert lines[:-1] == [
        "m-warmup-start-2", "m-warmup-done", "m-infer-start-3", "m-lap-us-", "m-lap-us-", "m-infer-done",
    ]  # fmt: skip
    assert lines[-1].startswith("m-results-[")


@needs_host
@pytest.mark.parametrize(("commands", "said"), [
    (("bogus",), "no such command"), (("phase all",), "a phase is both, preprocessing or inference"),
    (("infer 1 0",), "no sample: load one first"), (("infer 0 0",), "infer takes a count"),
    (("infer 4294967296",), "infer takes a count"), (("db load 32002",), "a sample has 32000 bytes"),
    (("db load 32000", "db 0g"), "not hexadecimal"), (("db load 32000", "db 000"), "not hexadecimal"),
    (("db load 32000", *(["db " + "00" * 500] * 65)), "more bytes than db load announced"),
    (("db 00",), "more bytes than db load announced"), (("db load 32000", "db 0000", "infer 1 0"), "no sample"),
    (("db " + "0" * 2000,), "longer than"), (("features",), "no features"),
])  # fmt: skip
def test_an_impossible_command_is_refused_and_the_next_runs(talk: Talk, commands: tuple[str, ...], said: str) -> None:
    for command in commands:
        lines = talk.ask(command)
    (line,) = lines
    assert line.startswith("e-[") and said in line
    assert talk.ask("name") == ["m-name-dut-[neurorig-mcu on nano33ble]"]


# ---- the Cortex-M4 in QEMU


@needs_arm
def test_the_board_computes_the_scores_of_python(board: Talk) -> None:
    for audio in [extremes()[0], *(scene(2000 + k) for k in range(3))]:
        assert_as_in_python(board, audio)


@needs_arm
def test_the_board_states_its_build(board: Talk) -> None:
    about = dict(line.removeprefix("m-about-").rstrip("]").split("-[", 1) for line in board.ask("about"))
    assert about["source"] == toolchain.source_sha256("mps2-an386")
    assert about["network"] == read_network(toolchain.DEFAULT_NETWORK).sha256
    assert about["flags"].startswith(toolchain.COMPILER) and about["flags"].endswith(" ".join(toolchain.FLAGS))
    assert (about["firmware"], about["board"], about["classes"]) == ("neurorig-mcu", "mps2-an386", "4")
    assert (about["memory"], about["slice"], about["rate"]) == ("32000", "16000", "16000")


@needs_arm
def test_device_time_is_repeatable_to_10_ppm(board: Talk) -> None:
    board.load(scene(2000))
    times_us = [board.infer(10)[1] for _ in range(3)]
    assert min(times_us) > 100_000
    assert max(times_us) - min(times_us) <= 1e-5 * min(times_us)


@needs_arm
def test_phase_times_add_up_and_scale_with_the_loop(board: Talk) -> None:
    board.load(scene(2000))
    took_us = {}
    for phase in ("both", "preprocessing", "inference"):
        board.ask(f"phase {phase}")
        took_us[phase] = board.infer(4)[1]
    board.ask("phase both")
    assert took_us["preprocessing"] + took_us["inference"] == pytest.approx(took_us["both"], rel=1e-4)
    assert board.infer(8)[1] == pytest.approx(2 * took_us["both"], rel=1e-4)


@needs_arm
def test_the_firmware_fits_the_board_memory(emulator: Emulator) -> None:
    assert 10_000 < emulator.firmware.flash_bytes < 100_000
    assert 32_000 < emulator.firmware.ram_bytes < 64_000


# ---- what is lacking


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    raised(SetupError, toolchain.build, tmp_path, says=r"arm-none-eabi-gcc is not on the path.*libnewlib")
    with pytest.raises(SetupError, match="qemu-system-arm is not on the path"):
        toolchain.qemu_command(toolchain.Firmware(tmp_path / "a.elf", toolchain.BOARD, 0, 0))
    monkeypatch.setattr(toolchain, "FOLDER", tmp_path / "none")
    raised(SetupError, toolchain.sketch, tmp_path, says=r"sources are not at .*Work in a checkout")
