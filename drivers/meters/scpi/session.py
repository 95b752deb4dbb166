"""A session with one SCPI instrument: lines, numbers, blocks and the error queue.

A raw socket needs no VISA library. ``pyvisa`` is imported only for an instrument on another interface.
"""

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Protocol

from drivers.failures import brief, meter_failed, released_on_error
from rig.bench.connected import Connected
from rig.bench.settings import Positive
from rig.errors import MeterError, RigError, SetupError, UsageError
from rig.plugins import imported

ADDRESS = "TCPIP::192.0.2.7::5025::SOCKET"
"""An example address for messages. Its host is reserved for documentation (RFC 5737)."""
ERRORS_MOST = 25
"""The largest number of errors read. Error queues are 20 deep (Truevolt, N6700), so more mean a faulty queue."""
BLOCK_MOST = 1 << 28
LINE_MOST = 1 << 20
"""A longer line (bytes) is refused, because it may be endless."""
ANSWER_TIMEOUTS = 10.0
"""A slow answer must be complete after this many timeouts."""
PIECE = 1 << 16
ASK_S = 2.0
"""The longest time in which an instrument must identify itself (s)."""
_SOCKET = re.compile(r"TCPIP\d*::(?P<host>.+)::(?P<port>\d{1,5})::SOCKET", re.IGNORECASE)
CHECK = "Check its power, its cable and which other programs use it"
NO_PYUSB = "pip install pyusb libusb-package, through which pyvisa-py uses USB, or use the VISA of the maker"
USB = (
    "Check its cable, and that this user may open it (on Linux a udev rule). Some instruments, a 34465A among them, "
    "time out under pyvisa-py (pyvisa-py issue 262): use their network socket, or install the VISA of Keysight or NI "
    "and give visa_library= (empty)"
)


@dataclass(frozen=True)
class Identity:
    """The four fields of the answer to ``*IDN?``, and the version of the library that reached the instrument."""

    maker: str
    model: str
    serial: str
    firmware: str
    library: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Return whether the serial number is a simulator's."""
        return self.serial.startswith("SIM")

    def described(self) -> dict[str, Any]:
        """Return the fields of ``MeterInfo`` that identify the instrument."""
        versions = {f"{self.model} {self.serial}": self.firmware, **self.library}
        return {"versions": versions, "serial_number": self.serial, "firmware": self.firmware}


class Link(Protocol):
    """The connection to an instrument. ``receive`` returns the received bytes, and whether they end a message."""

    library: Mapping[str, str]

    def send(self, data: bytes) -> None: ...
    def receive(self) -> tuple[bytes, bool]: ...
    def close(self) -> None: ...


class RawSocket:
    """A raw socket, which does not mark the end of a message. ``receive`` returns no bytes after a hang-up."""

    library: Mapping[str, str] = {}

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send, self.close = self._socket.sendall, self._socket.close

    def receive(self) -> tuple[bytes, bool]:
        return self._socket.recv(PIECE), False


class VisaResource:
    """A message-based resource of pyvisa. Its warnings with the status codes ``quiet`` are switched off."""

    def __init__(self, resource: Any, quiet: tuple[Any, ...]) -> None:
        self._resource, self._quiet = resource, quiet
        self.library: Mapping[str, str] = {"pyvisa": version("pyvisa")}
        self.send, self.close = resource.write_raw, resource.close

    def receive(self) -> tuple[bytes, bool]:
        with self._resource.ignore_warning(*self._quiet):
            piece, status = self._resource.visalib.read(self._resource.session, PIECE)
        return piece, int(status) == 0


class ScpiSession:
    """A session with one instrument, for one user at a time. The instrument may be silent for ``timeout_s``.

    Every method but ``close`` raises ``MeterError`` if the instrument is gone, is silent or gives no valid answer.
    After such an error every further call fails at once, because late bytes may still arrive.
    """

    def __init__(self, link: Link, address: str, timeout_s: float, remedy: str = CHECK) -> None:
        self.address = address
        self._link, self._timeout_s, self._remedy = link, timeout_s, remedy
        self._buffer = bytearray()
        self._until_s = 0.0
        self._broken: str | None = None

    def write(self, line: str) -> None:
        """Send one line.

        Join related commands into one line with ``;:``, because the second of two small packets waits about 40 ms
        (Nagle's algorithm and delayed acknowledgement).
        """
        if self._broken is not None:
            raise self._failed(f"cannot be sent {line!r}: {self._broken}")
        self._until_s = time.monotonic() + ANSWER_TIMEOUTS * self._timeout_s
        try:
            self._link.send(line.encode("ascii") + b"\n")
        except Exception as error:  # VisaIOError, OSError or a bare Exception, by backend
            raise self._failed(f"is gone: {brief(error)}") from error

    def query(self, line: str) -> str:
        """Send one line and return one line, without its end."""
        self.write(line)
        return self._line(line).decode("latin-1").strip()

    def numbers(self, line: str, count: int) -> list[float]:
        """Send one line that asks for ``count`` numbers. The instrument separates its answers by semicolons."""
        answer = self.query(line)
        try:
            found = [float(part) for part in answer.split(";")]
        except ValueError:
            found = []
        if len(found) != count:
            raise self._failed(f"answered {answer[:80]!r} to {line!r}, which is not {count} numbers")
        return found

    def block(self, line: str, expected: int | None = None) -> bytes:
        """Send one line and return the payload of one definite-length block (IEEE 488.2, 8.7.9).

        A block of indefinite length (``#0``, 8.7.10) is read only if ``expected`` states its number of bytes.
        """
        self.write(line)
        head = self._take(2, line)
        digits = head[1:2]
        if head == b"#0" and expected is not None:
            return self._ended(self._take(expected, line), line)
        if head[:1] != b"#" or digits not in b"123456789":
            raise self._failed(f"answered {bytes(head + self._buffer)[:40]!r} to {line!r}, which is not a data block")
        length = self._take(int(digits), line)
        if not length.isdigit() or int(length) > BLOCK_MOST:
            raise self._failed(f"announced a block of {length!r} bytes to {line!r}")
        return self._ended(self._take(int(length), line), line)

    def errors(self) -> list[str]:
        """Empty the error queue; return each entry as ``code, "text"``."""
        found: list[str] = []
        for _ in range(ERRORS_MOST):
            entry = self.query("SYST:ERR?")
            if entry.partition(",")[0].strip() in ("0", "+0", "-0"):
                return found
            found.append(entry)
        raise self._failed(f"reports more errors than its queue can hold: {'; '.join(found[:3])} ...")

    def check(self, doing: str) -> None:
        """Raise ``MeterError`` with all errors in the instrument's queue, if there are any."""
        if found := self.errors():
            what = f"the instrument at {self.address} reports while {doing}: {'; '.join(found)}"
            remedy = "Look up the errors in its manual, and change the options that caused them"
            raise MeterError(what, field="address", value=self.address, remedy=remedy)

    def identity(self) -> Identity:
        """Return maker, model, serial number and firmware. Raises ``SetupError`` for an answer without four fields."""
        answer = self.query("*IDN?")
        fields = [part.strip() for part in answer.split(",", 3)]
        if len(fields) != 4:
            what = f"the instrument at {self.address} identifies itself as {answer[:80]!r}"
            remedy = "Check that this is the port of its SCPI socket (5025 on most)"
            raise SetupError(what, field="address", value=self.address, remedy=remedy)
        return Identity(fields[0], fields[1], fields[2], fields[3], self._link.library)

    def close(self) -> None:
        """Release the instrument. May be called twice."""
        self._broken = self._broken or "it was closed"
        self._link.close()

    def _ended(self, payload: bytes, asked: str) -> bytes:
        if rest := self._line(asked).strip():
            raise self._failed(f"sent {rest[:40]!r} after the block that answers {asked!r}")
        return payload

    def _line(self, asked: str) -> bytes:
        """Return bytes up to the next newline, or on a message-based interface up to the end of the message."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_MOST:
                raise self._failed(f"answered {len(self._buffer)} bytes without a line end to {asked!r}")
            if self._pull(asked):
                end = len(self._buffer)
                break
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _take(self, count: int, asked: str) -> bytes:
        while len(self._buffer) < count:
            if self._pull(asked) and len(self._buffer) < count:
                raise self._failed(f"ended its answer to {asked!r} {count - len(self._buffer)} bytes too early")
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _pull(self, asked: str) -> bool:
        """Wait for more bytes. Return whether they end a message; on a raw socket they never do."""
        if time.monotonic() > self._until_s:
            raise self._failed(f"has not ended its answer to {asked!r} after {ANSWER_TIMEOUTS * self._timeout_s:g} s")
        try:
            piece, ended = self._link.receive()
        except Exception as error:
            raise self._failed(f"gave no answer to {asked!r} within {self._timeout_s:g} s: {brief(error)}") from error
        if not piece and not ended:
            raise self._failed(f"hung up before it had answered {asked!r}")
        self._buffer += piece
        return ended

    def _failed(self, what: str) -> MeterError:
        self._broken = self._broken or what
        return meter_failed(f"the instrument at {self.address} {what}", "address", self.address, self._remedy)


@dataclass(frozen=True)
class Visa:
    """How to reach an instrument: its VISA ``address``, the VISA library, and its longest silence ``timeout_s``.

    A raw socket is reached without a library.
    """

    address: str = ""
    visa_library: str = "@py"
    timeout_s: Positive = 4.0

    def open(self) -> ScpiSession:
        """Open the instrument. ``@py`` is pyvisa-py, ``""`` the vendor's VISA library.

        Raises ``UsageError`` without an address, ``MissingExtraError`` without pyvisa where it is needed,
        ``SetupError`` when no instrument is there.
        """
        address, timeout_s = self.address, self.timeout_s
        if not address:
            raise UsageError("no address of an instrument is given", field="address", value=address, example=ADDRESS)
        remedy = USB if _is_usb(address) and self.visa_library == "@py" else CHECK
        try:
            if place := _SOCKET.fullmatch(address):
                link: Link = RawSocket(place["host"], int(place["port"]), timeout_s)
            else:
                link = _by_visa(address, self.visa_library, max(1, round(timeout_s * 1e3)))
        except RigError:
            raise
        except Exception as error:  # OSError, and whatever the libraries raise
            what = f"the instrument at {address} cannot be opened: {brief(error)}"
            remedy = f"Check its power, its network and the address (a raw SCPI socket looks like {ADDRESS})"
            if _is_usb(address):
                remedy = NO_PYUSB if "PyUSB" in str(error) else USB
            raise SetupError(what, field="address", value=address, remedy=remedy) from error
        return ScpiSession(link, address, timeout_s, remedy)


def _by_visa(address: str, visa_library: str, milliseconds: int) -> VisaResource:
    pyvisa = imported("pyvisa", "a VISA instrument", "visa", value="pyvisa")
    resource = pyvisa.ResourceManager(visa_library).open_resource(address, open_timeout=milliseconds)
    with released_on_error(resource.close):
        resource.timeout, resource.read_termination = milliseconds, None
        codes = pyvisa.constants.StatusCode
        return VisaResource(resource, (codes.success_device_not_present, codes.success_max_count_read))


def identified(addresses: Sequence[str], model: str) -> Iterator[Connected]:
    """Yield the instruments, on USB and at ``addresses``, whose model matches a pattern. Each is asked for ``*IDN?``.

    The network is not searched, because a search would query every host in it. An instrument that does not answer is
    listed as uncertain. Raises ``MissingExtraError`` without pyvisa-py, and at the end ``SetupError`` if USB is not
    readable.
    """
    sessions = imported("pyvisa_py.sessions", "a VISA instrument", "visa", value="pyvisa-py")
    kinds = sessions.Session.iter_valid_session_classes()
    usb = [kind for (interface, resource), kind in kinds if (interface.name, resource) == ("usb", "INSTR")]
    listed = [address for kind in usb for address in kind.list_resources()]
    tmc = imported("pyvisa_py.protocols.usbtmc", "USB", "visa").find_tmc_devices() if usb else ()
    hidden = len([*tmc]) - len(listed)
    for address in dict.fromkeys([*listed, *addresses]):
        try:
            with closing(Visa(address, timeout_s=ASK_S).open()) as session:
                who = session.identity()
        except RigError as error:
            yield Connected(f"no answer: {error}", {"address": address}, sure=False)
            continue
        if re.search(model, who.model):
            yield Connected(f"{who.maker} {who.model}, serial {who.serial}", {"address": address})
    if not usb:
        raise SetupError(f"USB cannot be searched. {NO_PYUSB}", field="address", value="USB", remedy=NO_PYUSB)
    if hidden > 0:
        what = f"{hidden} instruments on USB may not be opened by this user. {USB}"
        raise SetupError(what, field="address", value="USB", remedy=USB)


def _is_usb(address: str) -> bool:
    return address.upper().startswith("USB")
