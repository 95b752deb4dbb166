"""The commands of a Nordic PPK2, and the serial ports to which PPK2s are connected.

A command is one byte followed by its values (Nordic, pc-nrfconnect-ppk, src/constants.ts and
src/device/serialDevice.ts).
"""

import time

from drivers.links.serial_line import SerialLine
from drivers.meters.ppk2.words import Modifiers, modifiers_of
from rig.errors import SetupError

BAUD = 115_200
"""A USB serial port ignores its baud rate."""
START, STOP, RUNNING, REGULATOR, POWER_MODE, METADATA = 0x06, 0x07, 0x0C, 0x0D, 0x11, 0x19
POWER_MODES = {"ampere": 1, "source": 2}
QUIET_S = 0.02


def end(line: SerialLine) -> None:
    """Stop the stream. Data that was already sent still arrives."""
    line.write(bytes([STOP]))


def configure(line: SerialLine, mode: str, supply_v: float) -> None:
    """Set the mode, in source mode the voltage (two bytes in mV, the higher first), and switch the output on."""
    line.write(bytes([POWER_MODE, POWER_MODES[mode]]))
    if mode == "source":
        line.write(bytes([REGULATOR, *round(supply_v * 1000.0).to_bytes(2, "big")]))
    line.write(bytes([RUNNING, 1]))


def metadata(line: SerialLine, timeout_s: float) -> Modifiers:
    """Stop the stream and read the calibration up to END. Raises ``SetupError`` if the instrument is no PPK2."""
    silence(line, timeout_s)
    line.write(bytes([METADATA]))
    said, until_s = b"", time.monotonic() + timeout_s
    while b"END" not in said:
        if time.monotonic() > until_s:
            what = f"what is on {line.port} does not state a PPK2's calibration: {said[:60]!r}"
            remedy = "A PPK2 has two ports on some firmware: try the other. Close every other program that uses it"
            raise SetupError(what, field="port", value=line.port, remedy=remedy)
        said += line.waiting()
        time.sleep(1e-3)
    return modifiers_of(said.decode("latin-1"))


def silence(line: SerialLine, timeout_s: float) -> None:
    """Stop a running stream and drop the data that still arrives. Raises ``MeterError`` if data keeps coming."""
    end(line)
    if not line.quiet(QUIET_S, timeout_s):
        raise line.failed("does not stop sending")


def ports() -> dict[str, str]:
    """Return the port of each PPK2 on USB by its serial number. With newer firmware a kit has two ports: the first."""
    from serial.tools.list_ports import comports

    found: dict[str, str] = {}
    for port in sorted(comports(), key=lambda port: port.device):
        if port.product == "PPK2" or (port.description or "").startswith("nRF Connect USB CDC ACM"):
            found.setdefault(str(port.serial_number), port.device)
    return found


def serial_number(line: SerialLine) -> str:
    """Return the serial number of the USB device at this port; empty if the operating system does not state it."""
    from serial.tools.list_ports import comports

    return next((str(p.serial_number or "") for p in comports() if p.device == line.port), "")
