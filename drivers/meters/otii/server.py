"""Requests to the TCP server of the Otii application, and its answers: JSON objects, each ended by CR LF."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any

from drivers.failures import meter_failed
from rig.errors import MeterError, MeterSilentError, SetupError

DEVICES_S = 10
"""The longest time for the server to look for instruments."""
PATIENCE_S = {"otii_get_devices": DEVICES_S + 3.0, "arc_add_to_project": 10.0}
"""Timeouts of Qoitech's client for these commands; all other commands have ``timeout_s``."""


class OtiiServer:
    """One connection to the server. After an error it is broken, and every further request fails."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s, self._sent, self._rest = timeout_s, 0, b""
        self.last: list[tuple[str, dict[str, Any]]] = []  # sent before closing
        self.where = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            what = f"no Otii server answers on {self.where}: {error}"
            remedy = "Start the Otii application, or otii_server, and enable its TCP server"
            raise SetupError(what, field="port", value=self.where, remedy=remedy) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            hello = self._answer("", timeout_s)
        except MeterError as error:
            self.close()
            what = f"the program that listens on {self.where} is not an Otii server"
            remedy = "Give the port of the TCP server in the Otii application's settings"
            raise SetupError(what, field="port", value=self.where, remedy=remedy) from error
        self.version = str(hello.get("data", {}).get("otii_version", ""))

    def request(self, cmd: str, **data: Any) -> dict[str, Any]:
        """Send a command; return the data of its answer. Raises ``MeterError`` if refused, or not answered in time."""
        self._sent += 1
        request = {"type": "request", "cmd": cmd, "trans_id": str(self._sent), "data": data}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\r\n")
        except OSError as error:
            raise self._gone(str(error)) from error
        answer = self._answer(str(self._sent), max(PATIENCE_S.get(cmd, 0.0), self._timeout_s))
        if answer.get("type") == "error":
            said = answer.get("data", {}).get("message", "")
            what = f"the Otii server refused {cmd}: {answer.get('errorcode', 'no reason')} {said}".strip()
            remedy = "Check the instrument in the Otii application"
            raise meter_failed(what, cmd, str(answer.get("errorcode")), remedy)
        return dict(answer.get("data") or {})

    def close(self) -> None:
        """Send the ``last`` commands and close the connection. May be called twice; raises nothing."""
        last, self.last = self.last, []
        with suppress(MeterError):
            for cmd, data in last:
                self.request(cmd, **data)
        self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _answer(self, trans_id: str, timeout_s: float) -> dict[str, Any]:
        until_s = time.monotonic() + timeout_s
        while True:
            while b"\r\n" in self._rest:
                line, self._rest = self._rest.split(b"\r\n", 1)
                found = self._parsed(line)
                if found.get("type") == "information" and not trans_id:
                    return found
                if found.get("type") != "progress" and found.get("trans_id") == trans_id and trans_id:
                    return found
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise self._silent(timeout_s)
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(1 << 17)
            except TimeoutError as error:
                raise self._silent(timeout_s) from error
            except OSError as error:
                raise self._gone(str(error)) from error
            if not data:
                raise self._gone("it closed the connection")
            self._rest += data

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._gone(f"it sent {line[:60]!r}")
        return found

    def _gone(self, why: str) -> MeterError:
        self._hang_up()
        what = f"the Otii server on {self.where} is gone: {why}"
        return meter_failed(what, "port", self.where, "Check the Otii application and the network")

    def _silent(self, timeout_s: float) -> MeterError:
        self._hang_up()
        what = f"the Otii server on {self.where} has not answered for {timeout_s:g} s"
        remedy = "Check the Otii application and the network"
        return meter_failed(what, "timeout_s", timeout_s, remedy, MeterSilentError)
