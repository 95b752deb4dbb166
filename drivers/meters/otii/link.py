"""Requests and answers with the TCP server of the Otii application: JSON objects, each ended by CR LF."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any

from drivers.meters.usb_stream import KEPT
from rig.errors import MeterError, MeterSilentError, SetupError


class OtiiLink:
    """Requests and answers on one connection. After an error it is broken, and every further request fails."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s, self._sent, self._rest = timeout_s, 0, b""
        self.where = f"{host}:{port}"
        try:
            self._peer = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise SetupError(
                f"no Otii server answers on {self.where}: {error}",
                field="port",
                value=self.where,
                remedy="Start the Otii application, or otii_server, and enable its TCP server",
            ) from error
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            hello = self._answer("")
        except MeterError as error:
            self.close()
            raise SetupError(
                f"what listens on {self.where} is no Otii server", field="port", value=self.where,
                remedy="Give the port of the TCP server in the Otii application's settings",
            ) from error  # fmt: skip
        self.server = str(hello.get("data", {}).get("otii_version", ""))

    def ask(self, cmd: str, **data: Any) -> dict[str, Any]:
        """Send a command and await its answer's data. Raises ``MeterError`` for a refusal, or none in time."""
        self._sent += 1
        request = {"type": "request", "cmd": cmd, "trans_id": str(self._sent), "data": data}
        try:
            self._peer.sendall(json.dumps(request).encode() + b"\r\n")
        except OSError as error:
            raise self._gone(str(error)) from error
        answer = self._answer(str(self._sent))
        if answer.get("type") == "error":
            said = answer.get("data", {}).get("message", "")
            raise MeterError(
                f"the Otii server refused {cmd}: {answer.get('errorcode', 'no reason')} {said}".strip(),
                field=cmd,
                value=str(answer.get("errorcode")),
                remedy=f"Check the instrument in the Otii application. {KEPT}",
            )
        return dict(answer.get("data") or {})

    def close(self) -> None:
        """Hang up. May be called twice; raises nothing."""
        with suppress(OSError):
            self._peer.close()

    def _answer(self, trans_id: str) -> dict[str, Any]:
        until_s = time.monotonic() + self._timeout_s
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
                raise self._silent()
            self._peer.settimeout(left_s)
            try:
                data = self._peer.recv(1 << 17)
            except TimeoutError as error:
                raise self._silent() from error
            except OSError as error:
                raise self._gone(str(error)) from error
            if not data:
                raise self._gone("it hung up")
            self._rest += data

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._gone(f"it said {line[:60]!r}")
        return found

    def _gone(self, why: str) -> MeterError:
        self.close()
        return MeterError(
            f"the Otii server on {self.where} is gone: {why}", field="port", value=self.where,
            remedy=f"Check the Otii application and the network. {KEPT}",
        )  # fmt: skip

    def _silent(self) -> MeterError:
        self.close()
        return MeterSilentError(
            f"the Otii server on {self.where} has not answered for {self._timeout_s:g} s", field="timeout_s",
            value=self._timeout_s, remedy=f"Check the Otii application and the network. {KEPT}",
        )  # fmt: skip
