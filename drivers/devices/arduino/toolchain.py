"""Builds the firmware of ``firmware/``: for QEMU by the Arm compiler, for the Nano 33 BLE as a sketch folder.

What is generated (tables of the pre-processing, the network, the digests) is written beside the sources at every build,
so that the board and Python cannot differ unseen.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.errors import SetupError

FOLDER = Path(__file__).parents[3] / "firmware"
DEFAULT_NETWORK = FOLDER / "networks" / "asc.h"
COMPILER, QEMU, BOARD, SKETCH_BOARD = "arm-none-eabi-gcc", "qemu-system-arm", "mps2-an386", "nano33ble"
FLAGS = (
    "-std=c11 -O2 -Wall -Wextra -Werror -ffunction-sections -fdata-sections "
    "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16"
).split()
LINK_FLAGS = "-nostartfiles -specs=nano.specs -specs=nosys.specs -Wl,--gc-sections".split()


@dataclass(frozen=True)
class Firmware:
    """A firmware that was built: its file, what ``about`` states of it, and how much of the board it takes."""

    elf: Path
    board: str
    source_sha256: str
    network_sha256: str
    flags: str
    text_bytes: int
    data_bytes: int
    bss_bytes: int

    @property
    def flash_bytes(self) -> int:
        """Code, constants and the first values of variables."""
        return self.text_bytes + self.data_bytes

    @property
    def ram_bytes(self) -> int:
        """Variables, without the stack."""
        return self.data_bytes + self.bss_bytes


def build(out: Path, network: Path | None = None) -> Firmware:
    """Build the firmware for ``mps2-an386`` in the folder ``out``, with the exported ``network`` (default: the shipped).

    Raises ``SetupError`` without the compiler or the sources, ``DataError`` for a network file that is not whole.
    """
    compiler = _program(COMPILER, "gcc-arm-none-eabi and libnewlib-arm-none-eabi")
    folder = FOLDER / "boards" / "mps2_an386"
    headers, source_sha256, network_sha256 = _generated(folder, _flags_text(compiler), network)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in headers.items():
        (out / name).write_text(text)
    elf = out / "firmware.elf"
    sources = [str(path) for place in (FOLDER / "core", folder) for path in sorted(place.glob("*.c"))]
    script = f"-Wl,-T,{folder / 'link.ld'}"
    _ran([compiler, *FLAGS, f"-I{FOLDER / 'core'}", f"-I{out}", *sources, *LINK_FLAGS, script, "-o", str(elf)])
    sizes = _ran([compiler.removesuffix("gcc") + "size", str(elf)]).splitlines()[1].split()
    return Firmware(elf, BOARD, source_sha256, network_sha256, _flags_text(compiler), *(int(n) for n in sizes[:3]))


def qemu_command(firmware: Firmware, socket: Path, shift: int = 4) -> list[str]:
    """The command that runs a firmware, which waits for a client of the Unix ``socket``; one instruction is 2^shift ns.

    Raises ``SetupError`` without QEMU.
    """
    program = _program(QEMU, QEMU)
    line = ["-chardev", f"socket,id=line,path={socket},server=on,wait=on,mux=on", "-serial", "chardev:line"]
    time = ["-icount", f"shift={shift},align=off,sleep=off"]
    return [program, "-M", BOARD, "-nographic", "-monitor", "none", *line, *time, "-kernel", str(firmware.elf)]


def _generated(board: Path, flags: str, network: Path | None) -> tuple[Mapping[str, str], str, str]:
    """The generated headers by name, the digest of the sources, and that of the network."""
    if not board.is_dir():
        what = f"the firmware's sources are not at {FOLDER}"
        raise SetupError(what, field="firmware", value=str(FOLDER), remedy="Work in a checkout of the project")
    tables = "#define MFE_RATE_HZ 16000\n#define MFE_SLICE 16000\n#define MFE_FRAMES 99\n#define MFE_FILTERS 40\n"
    network_sha256 = "0" * 64
    weights = f'#define NETWORK_SHA256 "{network_sha256}"\n#define NETWORK_CLASSES 10\n'
    digest = hashlib.sha256()
    files = [path for place in (FOLDER / "core", board) for path in sorted(place.iterdir())]
    for name, content in [*((path.name, path.read_bytes()) for path in files), ("mfe_tables.h", tables.encode())]:
        digest.update(f"{name} {len(content)}\n".encode() + content)
    source_sha256 = digest.hexdigest()
    info = f'#define BUILD_SOURCE_SHA256 "{source_sha256}"\n#define BUILD_FLAGS "{flags}"\n'
    headers = {"mfe_tables.h": tables, "trained_network.h": weights, "build_info.h": info}
    return headers, source_sha256, network_sha256


def _program(name: str, packages: str) -> str:
    found = shutil.which(name)
    if found is None:
        remedy = f"Install it; Debian has it in {packages}"
        raise SetupError(f"{name} is not on the path", field="program", value=name, remedy=remedy)
    return found


def _flags_text(compiler: str) -> str:
    version = re.sub(r"[\"\\\[\]]", "", _ran([compiler, "-dumpfullversion"]).strip())
    return f"{COMPILER} {version} {' '.join(FLAGS)}"


def _ran(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = f"{Path(command[0]).name} failed: {done.stderr.strip()[-400:]}"
        raise SetupError(what, field="program", value=command[0], remedy="Use the compiler that the docs name")
    return done.stdout
