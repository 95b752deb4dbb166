"""Qoitech Otii Arc and Ace, by the TCP server of the Otii application: supplies that measure their own current.

    rig measure --device ... --meter otii --option supply_v=3.0

The Otii application records, and this driver fetches the recording in pieces, by index (Qoitech,
otii-tcp-client-python). Log in and reserve an Automation licence in the application. Requests and answers of the TCP
server are JSON objects, each ended by CR LF.
"""

import math
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from drivers.failures import meter_failed, raising, released_on_error
from drivers.meters.common_options import Instrument
from drivers.meters.threaded import HOLD_S, Batch, GapFiller, sampled_meter
from rig.bench.settings import Positive, of_settings
from rig.errors import MeterError, MeterSilentError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, Conversion, Floats, Meter, MeterInfo, Rail

DEVICES_S = 10
"""The longest time in which the server looks for instruments (s)."""
PATIENCE_S = {"otii_get_devices": DEVICES_S + 3.0, "arc_add_to_project": 10.0}
"""Timeouts of Qoitech's client for these commands (s); every other command has ``timeout_s``."""
MODES = ("hardware",)
FEEDS = True

CHANNELS = {"current": "mc", "power": "mp"}
PIECE = 40_000
"""Readings in one request: the largest number that Qoitech's own client requests."""
KINDS = ("Arc", "Ace", "Simulator")


class _Answer(msgspec.Struct):
    """What the server sends. Every field that the server may leave out has a default."""

    type: str = ""
    trans_id: Any = ""
    errorcode: Any = "no reason"
    data: dict[str, Any] | None = None

    def ends(self, trans_id: str) -> bool:
        """Return whether this message is the answer to the request ``trans_id``."""
        return self.type != "progress" and self.trans_id == trans_id


class OtiiServer:
    """One connection to the server. After a late or missing answer it is closed, and every further request fails."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s, self._sent = timeout_s, 0
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
        """Send a command; return its answer's data. Raises ``MeterError`` if it is refused or not answered in time."""
        self._sent += 1
        request = {"type": "request", "cmd": cmd, "trans_id": str(self._sent), "data": data}
        with raising(lambda error: self._gone(str(error)), OSError):
            self._socket.sendall(msgspec.json.encode(request) + b"\r\n")
        answer = self._answer(str(self._sent), max(PATIENCE_S.get(cmd, 0.0), self._timeout_s))
        data = answer.data or {}
        if answer.type == "error":
            what = f"the Otii server refused {cmd}: {answer.errorcode} {data.get('message', '')}".strip()
            raise meter_failed(what, cmd, str(answer.errorcode), "Check the instrument in the Otii application")
        return data

    def close(self) -> None:
        """Close the connection. May be called twice; raises nothing."""
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
        self.close()
        what = f"the Otii server on {self.where} is gone: {why}"
        return meter_failed(what, "port", self.where, "Check the Otii application and the network")

    def _silent(self, timeout_s: float) -> MeterError:
        self.close()
        what = f"the Otii server on {self.where} has not answered for {timeout_s:g} s"
        remedy = "Check the Otii application and the network"
        return meter_failed(what, "timeout_s", timeout_s, remedy, MeterSilentError)


@dataclass(frozen=True)
class Otii:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("otii")
    rail: str = "supply"
    host: str = "127.0.0.1"
    port: int = 1905
    instrument: str = ""
    channel: Literal["current", "power"] = "current"
    supply_v: float = 0.0
    max_current_a: Positive = 0.5
    rate_hz: float = 0.0
    power: Literal["on", "keep"] = "on"
    timeout_s: Positive = 3.0


@of_settings
def open_meter(settings: Otii, clock: Clock | None = None) -> Meter:
    """Open an Otii on the TCP server at ``host`` and ``port``. ``instrument`` is its name or id, if there are several.

    The main output is set to ``supply_v`` (V) and cut off above ``max_current_a``. ``power`` is ``on`` (the output is
    switched on and left on), or ``keep`` (the output is not changed). ``channel`` is ``current`` (A, times ``supply_v``
    for watts) or ``power`` (W, computed by the instrument). ``rate_hz`` is set if the instrument has several rates
    (Ace); 0 keeps the instrument's own (Arc). ``clock_tolerance`` limits the relative rate error of its sample timer.
    ``calibration`` names a file with limits in the rail's unit; without a file no accuracy is stated. The server may be
    silent for ``timeout_s``.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no server, instrument or licence.
    """
    s = settings
    if not 0.0 < s.supply_v <= 25.0 and (s.channel == "current" or s.power != "keep"):
        raise refused("supply_v", s.supply_v, "Give the volts of the supply, up to 25")
    server = OtiiServer(s.host, s.port, s.timeout_s)
    with released_on_error(server.close):
        with raising(lambda e: SetupError(e.message, field=e.field, value=e.value, remedy=e.remedy), MeterError):
            _check_user(server)
            found = _device(server, s.instrument)
            own = {"device_id": str(found["device_id"])}
            taken = CHANNELS[s.channel]
            hz, about = _configure(server, own, taken, s)
        conversion = Conversion("A", s.supply_v) if s.channel == "current" else Conversion("W")
        rail = Rail(s.rail, "mean", conversion, hz, gain_id=f"{own['device_id']}:{taken}")
        info = s.own.info(
            f"Otii {found.get('type')}, {hz:g} readings/s", s.own.limited(rail, own["device_id"], one_range=False),
            simulated=found.get("type") == "Simulator", tick_hz=1e6, omitted=("every supply but the main output",),
            buffer_s=HOLD_S, versions={"otii": server.version, **{k: str(v) for k, v in about.items()}},
            details={
                "device": dict(found), "channel": taken, "supply_v": s.supply_v, "max_current_a": s.max_current_a,
                "power": s.power, "lost_readings": "NaN, as the stamps of the recording show",
            },
        )  # fmt: skip
        source = _Recording(server, info, own, taken, s.timeout_s)
        return sampled_meter(info, source, clock, s.timeout_s + 2.0, most=round(HOLD_S * hz))


class _Recording:
    """The ``Source``: a recording in the application's active project, fetched by index while it grows."""

    def __init__(
        self, server: OtiiServer, info: MeterInfo, own: dict[str, str], channel: str, timeout_s: float
    ) -> None:
        self._server, self._info, self._own, self._channel = server, info, own, channel
        self._rate_hz, self._timeout_s = info.rails[0].rate_hz, timeout_s

    def begin(self, clock: Clock) -> Bracket:
        project = self._server.request("otii_get_active_project").get("project_id", -1)
        if project == -1:
            project = self._server.request("otii_create_project").get("project_id", -1)
        self._project = {"project_id": int(project)}
        before_ns = clock.now_ns()
        self._server.request("project_start_recording", **self._project)
        after_ns = clock.now_ns()
        last = self._server.request("project_get_last_recording", **self._project)
        self._where = {"recording_id": last.get("recording_id", -1), **self._own, "channel": self._channel}
        self._index, self._zero_s, self._grown_s = 0, 0.0, time.monotonic()
        self._gaps = GapFiller(self._info.name, round(10.0 * self._rate_hz))
        return Bracket(before_ns, 0, after_ns)

    def fetch(self) -> Iterator[Batch]:
        """Yield the new readings of the recording, in pieces."""
        more = True
        while more:
            count = int(self._request("recording_get_channel_data_count").get("count", 0)) - self._index
            now_s = time.monotonic()
            if count > 0:
                self._grown_s = now_s
                value = self._piece(min(count, PIECE))
                yield [Chunk(self._info.rails[0].name, value, flags=np.zeros(len(value), np.uint8))]
            elif now_s - self._grown_s > self._timeout_s:
                what = f"the recording of {self._info.name} has not grown for {self._timeout_s:g} s"
                remedy = "Check the instrument's cable"
                raise meter_failed(what, "timeout_s", now_s - self._grown_s, remedy, MeterSilentError)
            more = count > PIECE

    def finish(self) -> Iterator[Batch]:
        self._server.request("project_stop_recording", **self._project)
        return self.fetch()

    def close(self) -> None:
        self._server.close()

    def _piece(self, count: int) -> Floats:
        got = self._request("recording_get_channel_data", index=self._index, count=count)
        values = np.array([math.nan if v is None else v for v in got.get("values", ())], dtype=np.float64)
        interval_s, stamp_s = float(got.get("interval", 0.0)), float(got.get("timestamp", math.nan))
        if not math.isclose(interval_s * self._rate_hz, 1.0, rel_tol=1e-6) or not math.isfinite(stamp_s):
            what = f"the recording states an interval of {interval_s:g} s at {self._rate_hz:g} Hz"
            raise meter_failed(what, "rate_hz", interval_s, "Give rate_hz")
        if self._index == 0:
            self._zero_s = stamp_s
        self._index += len(values)
        return self._gaps.take(round((stamp_s - self._zero_s) * self._rate_hz), values)

    def _request(self, cmd: str, **data: Any) -> dict[str, Any]:
        return self._server.request(cmd, **self._where, **data)


def _check_user(server: OtiiServer) -> None:
    """Refuse a server to which nobody is logged in.

    A server that cannot tell who is logged in (issue 13 of Qoitech's client) is assumed to have a user.
    """
    try:
        logged_in = bool(server.request("otii_is_logged_in").get("logged_in", False))
    except MeterError as error:
        if error.value != "Invalid command":
            raise
        return
    if not logged_in:
        what = "no user is logged in to the Otii application"
        remedy = "Log in there and reserve an Automation licence"
        raise SetupError(what, field="licence", value=server.where, remedy=remedy)


def _device(server: OtiiServer, instrument: str) -> dict[str, Any]:
    answer = server.request("otii_get_devices", timeout=DEVICES_S)
    devices = [d for d in answer.get("devices", ()) if d.get("type") in KINDS]
    wanted = [d for d in devices if not instrument or instrument in (d.get("name"), d.get("device_id"))]
    if len(wanted) != 1:
        names = ", ".join(str(d.get("name")) for d in devices) or "none"
        what = f"{len(wanted)} instruments match {instrument!r}"
        remedy = f"Name one: instrument=NAME. Connected: {names}"
        raise SetupError(what, field="instrument", value=instrument, remedy=remedy)
    return dict(wanted[0])


def _configure(server: OtiiServer, own: dict[str, str], channel: str, s: Otii) -> tuple[float, dict[str, Any]]:
    """Set supply, channel and rate. Return the rate that the instrument confirms, and its versions."""
    server.request("arc_add_to_project", **own)
    if s.power != "keep":
        server.request("arc_set_main_voltage", **own, value=s.supply_v)
        server.request("arc_set_max_current", **own, value=s.max_current_a)
        server.request("arc_set_main", **own, enable=True)
    server.request("arc_enable_channel", **own, channel=channel, enable=True)
    if s.rate_hz > 0:
        server.request("arc_set_channel_samplerate", **own, channel=channel, value=round(s.rate_hz))
    hz = float(server.request("arc_get_channel_samplerate", **own, channel=channel).get("value", 0.0))
    if not hz > 0 or (s.rate_hz > 0 and hz != round(s.rate_hz)):
        what = f"the instrument samples at {hz:g} Hz, not {s.rate_hz:g}"
        raise SetupError(what, field="rate_hz", value=hz, remedy="Give a rate that it has, or leave rate_hz out")
    return hz, server.request("arc_get_version", **own)
