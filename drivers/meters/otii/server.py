"""Requests to the TCP server of the Otii application, and its answers: JSON objects, each ended by CR LF."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

import msgspec

from drivers.failures import meter_failed
from rig.errors import MeterError, MeterSilentError, SetupError

DEVICES_S = 10
"""The longest time for the server to look for instruments."""
PATIENCE_S = {"otii_get_devices": DEVICES_S + 3.0, "arc_add_to_project": 10.0}
"""Timeouts of Qoitech's client for these commands; all other commands have ``timeout_s``."""


class _Answer(msgspec.Struct):
    """What the server sends; everything that it may leave out has a default."""

    type: str = ""
    trans_id: Any = ""
    errorcode: Any = "no reason"
    data: dict[str, Any] | None = None

    def ends(self, trans_id: str) -> bool:
        """Return whether this is the answer to a request."""
        return self.type != "progress" and self.trans_id == trans_id


class OtiiServer:
    """One connection to the server. After an error it is broken, and every further request fails."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s, self._sent = timeout_s, 0
        self.last: list[tuple[str, dict[str, Any]]] = []  # sent before closing
        self.where = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            what = f"no Otii server answers on {self.where}: {error}"
            remedy = "Start the Otii application, or otii_server, and enable its TCP server"
            raise SetupError(what, field="port", value=self.where, remedy=remedy) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")
        try:
            hello = self._answer("", timeout_s)
        except MeterError as error:
            self.close()
            what = f"the program that listens on {self.where} is not an Otii server"
            remedy = "Give the port of the TCP server in the Otii application's settings"
            raise SetupError(what, field="port", value=self.where, remedy=remedy) from error
        self.version = str((hello.data or {}).get("otii_version", ""))

    def request(self, cmd: str, **data: Any) -> dict[str, Any]:
        """Send a command; return the data of its answer. Raises ``MeterError`` if refused, or not answered in time."""
        self._sent += 1
        request = {"type": "request", "cmd": cmd, "trans_id": str(self._sent), "data": data}
        try:
            self._socket.sendall(msgspec.json.encode(request) + b"\r\n")
        except OSError as error:
            raise self._gone(str(error)) from error
        answer = self._answer(str(self._sent), max(PATIENCE_S.get(cmd, 0.0), self._timeout_s))
        data = answer.data or {}
        if answer.type == "error":
            what = f"the Otii server refused {cmd}: {answer.errorcode} {data.get('message', '')}".strip()
            remedy = "Check the instrument in the Otii application"
            raise meter_failed(what, cmd, str(answer.errorcode), remedy)
        return data

    def close(self) -> None:
        """Send the ``last`` commands and close the connection. May be called twice; raises nothing."""
        last, self.last = self.last, []
        with suppress(MeterError):
            for cmd, data in last:
                self.request(cmd, **data)
        self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._lines.close()
            self._socket.close()

    def _answer(self, trans_id: str, timeout_s: float) -> _Answer:
        until_s, line = time.monotonic() + timeout_s, b""
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                if not (line := self._lines.readline()):
                    raise self._gone("it closed the connection")
                found = msgspec.json.decode(line, type=_Answer)
                if found.type == "information" if not trans_id else found.ends(trans_id):
                    return found
        except TimeoutError as error:
            raise self._silent(timeout_s) from error
        except OSError as error:
            raise self._gone(str(error)) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._gone(f"it sent {line[:60]!r}") from error
        raise self._silent(timeout_s)

    def _gone(self, why: str) -> MeterError:
        self._hang_up()
        what = f"the Otii server on {self.where} is gone: {why}"
        return meter_failed(what, "port", self.where, "Check the Otii application and the network")

    def _silent(self, timeout_s: float) -> MeterError:
        self._hang_up()
        what = f"the Otii server on {self.where} has not answered for {timeout_s:g} s"
        remedy = "Check the Otii application and the network"
        return meter_failed(what, "timeout_s", timeout_s, remedy, MeterSilentError)
