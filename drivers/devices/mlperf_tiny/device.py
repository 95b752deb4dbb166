"""Any board that speaks the MLPerf Tiny device protocol over a serial port.

    rig measure --device mlperf-tiny --option port=/dev/ttyACM0 --option labels=down,go,left,...

A sample is loaded with ``db`` commands when it is staged, untimed. ``infer`` is the query: its two time
stamps, from the board's own microsecond clock, are the span, and a loop of N inferences makes one span of N executions.
In energy mode the board stamps by falling edges of a pin, which the power meter must record.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from drivers.devices.mlperf_tiny.greeting import introduced
from drivers.devices.mlperf_tiny.model import Model
from drivers.devices.mlperf_tiny.protocol import BoardClock
from drivers.devices.mlperf_tiny.queries import TICK_HZ, QueryPlan, TinyDevice
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, open_line
from rig.bench.option_checks import within
from rig.bench.settings import Positive, of_settings
from rig.errors import reason, refused
from rig.types import ClockInfo, Device, DeviceInfo

MODES = ("hardware",)

PHASE = "inference"
BAUDS = {"performance": 115200, "energy": 9600}


@dataclass(frozen=True)
class MlperfTiny:
    """The options. See ``open_device``."""

    port: str = ""
    mode: Literal["performance", "energy"] = "performance"
    baud: int | None = None
    name: str = "mlperf-tiny"
    model: Model = Model()
    plan: QueryPlan = QueryPlan()
    boot_s: Positive = 5.0
    timer_bits: Annotated[int, partial(within, 16, 64)] = 32
    clock_tolerance: Positive = 1e-3
    dtr: bool = True
    firmware: str | None = None
    network: str = ""
    tuning: str = ""


@of_settings
def open_device(settings: MlperfTiny) -> Device:
    """Open the board on a serial ``port``; pyserial opens the port (extra ``serial``).

    ``mode`` is the build of its firmware: ``performance`` (115200 baud) or ``energy`` (9600 baud; stamps by falling
    edges of a pin, wired to a logic input of the meter); ``baud`` sets another rate.
    ``input_type`` is int8, uint8, int16 or float32 (little-endian). With ``input_scale`` a payload is quantised:
    round(x / scale) + zero point; without it, the payload must already be whole numbers that fit. ``labels`` are the
    model's outputs in order, separated by commas (default 0, 1, ...). With one output, the label is the second of two
    if the output is at least ``threshold``. ``iterations`` inferences make one span, after ``warmups`` outside of any
    span. Each inference may take ``timeout_s``, and the board ``boot_s`` to send its name. One command carries
    ``chunk_bytes`` (at most 38). ``timer_bits`` is the width of its microsecond counter, ``clock_tolerance`` the limit
    of its relative rate error. With ``prints_first`` a span begins when the line with the first time stamp has been
    sent, as in the reference firmware, which prints before it infers; without, at that stamp, as in MLPerf Tiny.
    ``dtr=false`` keeps low a line that resets some boards. ``firmware`` names a file whose digest is recorded.
    ``network`` and ``tuning`` state for the report what the firmware runs, and how it was trained and tuned.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port without such a board.
    """
    s, model, plan = settings, settings.model, settings.plan
    on_pin, baud, labels = s.mode == "energy", BAUDS[s.mode] if s.baud is None else s.baud, model.names
    digest = {} if s.firmware is None else {"firmware": digest_of(s.firmware)}
    line = open_line(s.port, baud, DEVICE, dtr=s.dtr)
    with released_on_error(line.close):
        board, said = introduced(line, partial(BoardClock, s.timer_bits), s.boot_s, plan.timeout_s, on_pin)
        maker = said.get("name", "")
        info = DeviceInfo(
            name=s.name,
            mode="simulator" if maker.startswith("SIM") else "hardware",
            description=f"{'SIMULATED ' if maker.startswith('SIM') else ''}{maker}, MLPerf Tiny protocol, model "
            f"{said.get('model', 'not stated')}",
            clock=None if on_pin else ClockInfo(s.name, TICK_HZ, s.clock_tolerance),
            spans_on_pin=on_pin,
            phases=(PHASE,),
            timeout_s=plan.timeout_s * (plan.iterations + plan.warmups),
            versions={k: v for k, v in said.items() if k != "name"} | {"pyserial": version("pyserial")},
            artifacts=digest,
            algorithm={"model": said.get("model"), "network": s.network, "tuning": s.tuning},
            details={
                "port": s.port,
                "baud": baud,
                "input": dict(zip(("type", "scale", "zero_point"), astuple(model), strict=False)),
                "labels": list(labels),
                "iterations": plan.iterations,
                "warmups": plan.warmups,
                "prints_first": plan.prints_first,
                "mode": s.mode,
                "span_begins": _begins(on_pin, plan.prints_first),
            },
        )
        return TinyDevice(board, info, model, plan)


def _begins(on_pin: bool, prints_first: bool) -> str:
    if on_pin:
        return "at the falling edge of the pin"
    return "when the first time stamp is on the wire" if prints_first else "at the first time stamp"


def digest_of(path: str) -> str:
    """Return the SHA-256 of the file that was flashed. Raises ``UsageError`` if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        what = f"cannot read the firmware {path}: {reason(error)}"
        raise refused("firmware", path, "Name the file that was flashed", what) from error
