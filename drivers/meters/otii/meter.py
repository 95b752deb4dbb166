"""Qoitech Otii Arc and Ace, by the TCP server of the Otii application: a supply that measures its own current.

    rig measure --device ... --meter otii --option supply_v=3.0

The application records; this takes its readings out in pieces, by index. JSON objects, each ended by CR LF, one answer
to each request by its ``trans_id`` (Qoitech, otii-tcp-client-python). Log in and reserve an Automation licence in the
application: no password passes through here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from drivers.links.serial_line import positive
from drivers.meters.otii.link import OtiiLink
from drivers.meters.sampled import Fetched, calibrated, calibration_details
from drivers.meters.usb_stream import KEPT, BoundedMeter, GapFilled
from rig.errors import MeterError, MeterSilentError, RigError, SetupError, UsageError
from rig.types import Bracket, Clock, ClockInfo, Conversion, Meter, MeterInfo, Rail

MODES = ("hardware",)

CHANNELS = {"current": "mc", "power": "mp"}
PIECE = 40_000
"""Readings of one request: the most that Qoitech's own client asks for."""
KINDS = ("Arc", "Ace", "Simulator")


def open_meter(
    clock: Clock | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 1905,
    instrument: str = "",
    name: str = "otii",
    rail: str = "supply",
    channel: str = "current",
    supply_v: float = 0.0,
    max_current_a: float = 0.5,
    rate_hz: float = 0.0,
    power: str = "on",
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    hold_s: float = 20.0,
    timeout_s: float = 3.0,
) -> Meter:
    """An Otii on the TCP server at ``host`` and ``port``; ``instrument`` is its name or id, if there are several.

    Its main output is set to ``supply_v`` (V) and cut off above ``max_current_a``, and switched ``on`` and left on,
    switched ``off-at-close``, or all of it is ``keep``t as it is. ``channel`` is ``current`` (A, and watts by
    ``supply_v``) or ``power`` (W, as the instrument computes it). ``rate_hz`` is asked of the instrument (Ace), 0
    leaves its own (Arc). ``clock_tolerance`` limits its sample timer's rate (relative). ``calibration`` names a
    calibration file, limits in the rail's unit; without one no accuracy is stated. ``hold_s`` of readings are held
    unread at most, ``timeout_s`` is how long the server may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for no server, instrument or licence.
    """
    _check(channel, power, supply_v)
    positive(max_current_a=max_current_a, clock_tolerance=clock_tolerance, hold_s=hold_s, timeout_s=timeout_s)
    link = OtiiLink(host, port, timeout_s)
    try:
        found = _setup(lambda: _found(link, instrument))
        own = {"device_id": str(found["device_id"])}
        taken = CHANNELS[channel]
        hz, about = _setup(lambda: _configure(link, own, taken, supply_v, max_current_a, rate_hz, power))
        conversion = Conversion("A", supply_v) if channel == "current" else Conversion("W")
        described = Rail(rail, "mean", conversion, hz, gain_id=f"{own['device_id']}:{taken}")
        described = calibrated(described, calibration, own["device_id"], calibration_range, temperature_c)
        simulated = found.get("type") == "Simulator"
        info = MeterInfo(
            name=name,
            mode="simulator" if simulated else "hardware",
            clock=ClockInfo(name, 1e6, clock_tolerance),
            rails=(described,),
            omitted=("every supply but the main output",),
            description=f"{'SIMULATED ' if simulated else ''}Otii {found.get('type')}, {hz:g} readings/s",
            buffer_s=hold_s,
            versions={"otii": link.server, **{k: str(v) for k, v in about.items()}},
            details={
                "device": dict(found),
                "channel": taken,
                "supply_v": supply_v,
                "max_current_a": max_current_a,
                "power": power,
                "lost_readings": "NaN, as the stamps of the recording tell",
                "calibration": calibration_details(calibration),
            },
        )
        source = _Recording(link, info, own, taken, power == "off-at-close", timeout_s)
        return BoundedMeter(source, round(hold_s * hz), clock, timeout_s + 2.0)
    except BaseException:
        link.close()
        raise


class _Recording:
    """The ``Source``: a recording in the application's active project, read by index while it grows."""

    def __init__(
        self, link: OtiiLink, info: MeterInfo, own: dict[str, str], channel: str, off: bool, timeout_s: float
    ) -> None:
        self._link, self._info, self._own, self._channel, self._off = link, info, own, channel, off
        self._rate_hz, self._timeout_s = info.rails[0].rate_hz, timeout_s
        self._project: dict[str, int] = {}
        self._where: dict[str, Any] = {}
        self._index, self._zero_s, self._grown_s = 0, 0.0, 0.0
        self._grid = GapFilled(info.name, 0)

    def describe(self) -> MeterInfo:
        return self._info

    def begin(self, clock: Clock) -> Bracket:
        project = self._link.ask("otii_get_active_project").get("project_id", -1)
        if project == -1:
            project = self._link.ask("otii_create_project").get("project_id", -1)
        self._project = {"project_id": int(project)}
        before_ns = clock.now_ns()
        self._link.ask("project_start_recording", **self._project)
        after_ns = clock.now_ns()
        last = self._link.ask("project_get_last_recording", **self._project)
        self._where = {"recording_id": last.get("recording_id", -1), **self._own, "channel": self._channel}
        self._index, self._grown_s = 0, time.monotonic()
        self._grid = GapFilled(self._info.name, round(10.0 * self._rate_hz))
        return Bracket(before_ns, 0, after_ns)

    def fetch(self) -> Fetched:
        """What the recording has grown by, a piece at a time."""
        count = int(self._link.ask("recording_get_channel_data_count", **self._where).get("count", 0)) - self._index
        now_s = time.monotonic()
        if count > 0:
            self._grown_s = now_s
        elif now_s - self._grown_s > self._timeout_s:
            raise MeterSilentError(
                f"the recording of {self._info.name} has not grown for {self._timeout_s:g} s",
                field="timeout_s", value=now_s - self._grown_s, remedy=f"Check the instrument's cable. {KEPT}",
            )  # fmt: skip
        return self._piece(min(count, PIECE), more=count > PIECE)

    def finish(self) -> Sequence[Fetched]:
        self._link.ask("project_stop_recording", **self._project)
        rest, more = [], True
        while more:
            rest.append(self.fetch())
            more = rest[-1].more
        return rest

    def close(self) -> None:
        with suppress(RigError):
            if self._off:
                self._link.ask("arc_set_main", **self._own, enable=False)
        self._link.close()

    def _piece(self, count: int, more: bool) -> Fetched:
        rail = self._info.rails[0].name
        if count <= 0:
            return Fetched({rail: np.zeros(0)}, {rail: np.zeros(0, np.uint8)}, False)
        got = self._link.ask("recording_get_channel_data", **self._where, index=self._index, count=count)
        values = np.array([math.nan if v is None else v for v in got.get("values", ())], dtype=np.float64)
        interval_s, stamp_s = float(got.get("interval", 0.0)), float(got.get("timestamp", math.nan))
        if not math.isclose(interval_s * self._rate_hz, 1.0, rel_tol=1e-6) or not math.isfinite(stamp_s):
            raise MeterError(
                f"the recording states an interval of {interval_s:g} s at {self._rate_hz:g} Hz",
                field="rate_hz", value=interval_s, remedy=f"Give rate_hz. {KEPT}",
            )  # fmt: skip
        if self._index == 0:
            self._zero_s = stamp_s
        value = self._grid.take(round((stamp_s - self._zero_s) * self._rate_hz), values)
        self._index += len(values)
        return Fetched({rail: value}, {rail: np.zeros(len(value), np.uint8)}, more)


def _check(channel: str, power: str, supply_v: float) -> None:
    for name, value, known in (
        ("channel", channel, tuple(CHANNELS)),
        ("power", power, ("on", "off-at-close", "keep")),
    ):
        if value not in known:
            raise UsageError(
                f"option {name} is {value!r}", field=name, value=value, remedy=f"Give one of {', '.join(known)}"
            )
    if not 0.0 < supply_v <= 25.0 and (channel == "current" or power != "keep"):
        raise UsageError(
            f"option supply_v is {supply_v}", field="supply_v", value=supply_v, remedy="Give the supply's volts, to 25"
        )


def _setup(step: Any) -> Any:
    """A step of the setting up: what the server refuses now is an error of the bench."""
    try:
        return step()
    except MeterError as error:
        raise SetupError(error.message, field=error.field, value=error.value, remedy=error.remedy) from error


def _found(link: OtiiLink, instrument: str) -> dict[str, Any]:
    if not link.ask("otii_is_logged_in").get("logged_in", False):
        raise SetupError(
            "nobody is logged in to the Otii application", field="licence", value=link.where,
            remedy="Log in there and reserve an Automation licence",
        )  # fmt: skip
    devices = [d for d in link.ask("otii_get_devices", timeout=1).get("devices", ()) if d.get("type") in KINDS]
    wanted = [d for d in devices if not instrument or instrument in (d.get("name"), d.get("device_id"))]
    if len(wanted) != 1:
        names = ", ".join(str(d.get("name")) for d in devices) or "none"
        raise SetupError(
            f"{len(wanted)} instruments are {instrument or 'there'}", field="instrument", value=instrument,
            remedy=f"Name one: instrument=NAME. Connected: {names}",
        )  # fmt: skip
    return dict(wanted[0])


def _configure(
    link: OtiiLink, own: dict[str, str], channel: str, supply_v: float, max_a: float, rate_hz: float, power: str
) -> tuple[float, dict[str, Any]]:
    """Set supply, channel and rate; the rate as the instrument confirms it, and its versions."""
    link.ask("arc_add_to_project", **own)
    if power != "keep":
        link.ask("arc_set_main_voltage", **own, value=supply_v)
        link.ask("arc_set_max_current", **own, value=max_a)
        link.ask("arc_set_main", **own, enable=True)
    link.ask("arc_enable_channel", **own, channel=channel, enable=True)
    if rate_hz > 0:
        link.ask("arc_set_channel_samplerate", **own, channel=channel, value=round(rate_hz))
    hz = float(link.ask("arc_get_channel_samplerate", **own, channel=channel).get("value", 0.0))
    if not hz > 0 or (rate_hz > 0 and hz != round(rate_hz)):
        raise SetupError(
            f"the instrument samples at {hz:g} Hz, not {rate_hz:g}", field="rate_hz", value=hz,
            remedy="Give a rate that it has, or leave rate_hz out",
        )  # fmt: skip
    return hz, link.ask("arc_get_version", **own)
