"""A substitute for pyvisa on NI's VISA library, for raw sockets: a read ends where NI's ends.

A read returns after ``count`` bytes, after the termination character if it is enabled, or at a pause of the data
if ``VI_ATTR_SUPPRESS_END_EN`` is false; its default is true (NI-VISA help, ``viRead``; pyvisa issues 98 and 518).
Otherwise it times out, and loses the data received so far.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

TERMINATED, COUNTED, PAUSED = 0x3FFF0005, 0x3FFF0006, 0
PAUSE_S = 0.02


class NiSocket:
    """A resource with those parts of pyvisa's that a session uses; it is its own ``visalib``."""

    session = 1

    def __init__(self, address: str, timeout_s: float) -> None:
        _, host, port, _ = address.split("::")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self.visalib = self
        self.timeout = 2000
        self.read_termination: str | None = None
        self.attributes: dict[str, bool] = {"suppress_end_enabled": True}
        self.reads: list[int] = []

    def set_visa_attribute(self, name: Any, state: bool) -> None:
        self.attributes[name.name] = bool(state)

    @contextmanager
    def ignore_warning(self, *codes: Any) -> Iterator[None]:
        yield

    def write_raw(self, message: bytes) -> int:
        self._socket.sendall(message)
        return len(message)

    def read(self, session: int, count: int) -> tuple[bytes, int]:
        until_s, got = time.monotonic() + self.timeout * 1e-3, b""
        end = (self.read_termination or "\0").encode()
        while len(got) < count:
            if got and not self.attributes["suppress_end_enabled"]:
                self._socket.settimeout(PAUSE_S)
            else:
                self._socket.settimeout(max(until_s - time.monotonic(), 1e-3))
            try:
                got += self._socket.recv(1)
            except TimeoutError:
                if got and not self.attributes["suppress_end_enabled"]:
                    return got, PAUSED
                raise RuntimeError("VI_ERROR_TMO (-1073807339): Timeout expired before operation completed.") from None
            if self.read_termination and got.endswith(end):
                return got, TERMINATED
        return got, COUNTED

    def close(self) -> None:
        self._socket.close()


def installed(monkeypatch: pytest.MonkeyPatch) -> list[NiSocket]:
    """Replace pyvisa's resource manager; return the opened resources."""
    import pyvisa

    found: list[NiSocket] = []

    class Manager:
        def __init__(self, library: str = "") -> None:
            assert library == ""

        def open_resource(self, address: str, open_timeout: int) -> NiSocket:
            found.append(NiSocket(address, open_timeout * 1e-3))
            return found[-1]

    monkeypatch.setattr(pyvisa, "ResourceManager", Manager)
    return found
