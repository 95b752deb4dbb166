"""Build the firmware of ``firmware/``: for QEMU by the Arm compiler, for the Nano 33 BLE as a sketch folder.

Every build writes the tables of the pre-processing, the network and the digests anew, so that the board and Python
cannot differ unnoticed.
"""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from drivers.devices.arduino.mfe import mfe_header
from drivers.devices.arduino.quantised import read_network
from rig.errors import SetupError

FOLDER = Path(__file__).parents[3] / "firmware"
DEFAULT_NETWORK = FOLDER / "networks" / "asc.h"
COMPILER, QEMU, BOARD, SKETCH_BOARD = "arm-none-eabi-gcc", "qemu-system-arm", "mps2-an386", "nano33ble"
_OPTIONS = "-std=c11 -pedantic -O3 -Wall -Wextra -ffunction-sections -fdata-sections"
_CORE = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16"
FLAGS = [*_OPTIONS.split(" "), *_CORE.split(" ")]
LINK_FLAGS = ["-nostartfiles", "-specs=nano.specs", "-specs=nosys.specs", "-Wl,--gc-sections"]
_SKETCH_FLAGS = """\
#ifdef __OPTIMIZE_SIZE__
#define BUILD_FLAGS "gcc " __VERSION__ ", optimised for size"
#else
#define BUILD_FLAGS "gcc " __VERSION__
#endif
"""
"""The compiler states its version and optimisation itself, because ``arduino-cli`` chooses the flags."""
_TABLES = "mfe_tables.h"


@dataclass(frozen=True)
class Firmware:
    """A built firmware: its file, its board, and the memory that it takes there.

    Flash holds code, constants and the first values of variables; RAM holds variables, without the stack.
    """

    elf: Path
    board: str
    flash_bytes: int
    ram_bytes: int


def build(out: Path, network: Path | None = None) -> Firmware:
    """Build the firmware for ``mps2-an386`` in the folder ``out``, with an exported ``network`` (the shipped if None).

    Raises ``SetupError`` without the compiler or the sources, ``DataError`` for an incomplete network file.
    """
    compiler = _program(COMPILER, "gcc-arm-none-eabi and libnewlib-arm-none-eabi")
    folder, version = _board_folder(BOARD), re.sub(r"[\"\\\[\]]", "", _ran([compiler, "-dumpfullversion"]).strip())
    flags = f"{COMPILER} {version} {' '.join(FLAGS)}"
    out.mkdir(parents=True, exist_ok=True)
    _generate(out, BOARD, f'#define BUILD_FLAGS "{flags}"\n', network)
    elf = out / "firmware.elf"
    sources = [str(path) for place in (FOLDER / "core", folder) for path in sorted(place.glob("*.c"))]
    script = ["-T", str(folder / "link.ld")]
    _ran([compiler, *FLAGS, f"-I{FOLDER / 'core'}", f"-I{out}", *sources, *LINK_FLAGS, *script, "-o", str(elf)])
    text, data, bss = map(int, _ran([compiler.removesuffix("gcc") + "size", str(elf)]).splitlines()[1].split()[:3])
    return Firmware(elf, BOARD, text + data, data + bss)


def sketch(out: Path, network: Path | None = None) -> Path:
    """Write the folder ``neurorig_mcu`` into ``out``, and return it. ``arduino-cli`` builds it for the Nano 33 BLE.

    The folder has the sketch, the core and the generated files. Raises as ``build`` does, but needs no compiler.
    """
    sources = [*_board_folder(SKETCH_BOARD).iterdir(), *(FOLDER / "core").iterdir()]
    folder = out / "neurorig_mcu"
    folder.mkdir(parents=True, exist_ok=True)
    _generate(folder, SKETCH_BOARD, _SKETCH_FLAGS, network)
    for path in sources:
        shutil.copyfile(path, folder / path.name)
    return folder


def qemu_command(firmware: Firmware) -> list[str]:
    """Return the command that runs a firmware. Its standard output is a socket: the serial line in both directions.

    One instruction takes 16 ns of the board's time, so equal work takes equal time. While the board waits for a
    command, its clock follows the host's clock. While it computes, its clock runs as fast as the host emulates. So the
    two clocks have no constant ratio. Raises ``SetupError`` without QEMU.
    """
    program = _program(QEMU, QEMU)
    line = ["-chardev", "socket,id=line,fd=1,mux=on", "-serial", "chardev:line"]
    time = ["-icount", "shift=4,align=off,sleep=on"]  # 2^4 ns
    return [program, "-M", BOARD, "-nographic", "-monitor", "none", *line, *time, "-kernel", str(firmware.elf)]


def source_sha256(board: str) -> str:
    """Return the SHA-256 of the sources of a board's firmware, as ``about`` states it.

    Raises ``SetupError`` without the sources.
    """
    folder = _board_folder(board)
    files = [(path.name, path.read_bytes()) for place in (FOLDER / "core", folder) for path in sorted(place.iterdir())]
    digest = hashlib.sha256()
    for name, content in [*files, (_TABLES, mfe_header().encode())]:
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _board_folder(board: str) -> Path:
    folder = FOLDER / "boards" / board.replace("-", "_")
    if not folder.is_dir():
        what = f"the firmware's sources are not at {FOLDER}"
        raise SetupError(what, field="firmware", value=str(FOLDER), remedy="Work in a checkout of the project")
    return folder


def _generate(out: Path, board: str, flags: str, network: Path | None) -> None:
    """Write the generated headers."""
    found = read_network(network or DEFAULT_NETWORK)
    stated = {"SOURCE_SHA256": source_sha256(board), "NETWORK_SHA256": found.sha256}
    info = flags + "".join(f'#define BUILD_{name} "{value}"\n' for name, value in stated.items())
    for name, text in ((_TABLES, mfe_header()), ("trained_network.h", found.text), ("build_info.h", info)):
        (out / name).write_text(text)


def _program(name: str, packages: str) -> str:
    found = shutil.which(name)
    if found is None:
        remedy = f"Install it; Debian has it in {packages}"
        raise SetupError(f"{name} is not on the path", field="program", value=name, remedy=remedy)
    return found


def _ran(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = f"{Path(command[0]).name} failed: {done.stderr.strip()[-400:]}"
        raise SetupError(what, field="program", value=command[0], remedy="Use the compiler that the docs name")
    return done.stdout
