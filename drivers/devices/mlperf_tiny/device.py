"""Any board that speaks the MLPerf Tiny device protocol over a serial port.

    rig measure --device mlperf-tiny --option port=/dev/ttyACM0 --option labels=down,go,left,...

A sample is loaded with ``db`` commands when it is staged, untimed. ``infer`` is the query: its two time
stamps, from the board's own microsecond clock, are the span, and a loop of N inferences makes one span of N executions.
In energy mode the board stamps by falling edges of a pin, which the power meter must record.
"""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.metadata import version
from pathlib import Path

from drivers.devices.mlperf_tiny.clock import BoardClock
from drivers.devices.mlperf_tiny.greeting import introduced
from drivers.devices.mlperf_tiny.model import model_of
from drivers.devices.mlperf_tiny.protocol import COMMAND_MOST
from drivers.devices.mlperf_tiny.queries import TICK_HZ, QueryPlan, TinyDevice
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, open_line
from rig.bench.option_checks import limits, one_of, positive
from rig.errors import reason, refused
from rig.types import ClockInfo, Device, DeviceInfo

MODES = ("hardware",)

PHASE = "inference"
BAUDS = {"performance": 115200, "energy": 9600}
CHUNK_MOST = (COMMAND_MOST - len("db %")) // 2


def open_device(
    *,
    port: str = "",
    mode: str = "performance",
    baud: int | None = None,
    name: str = "mlperf-tiny",
    input_type: str = "int8",
    input_scale: float | None = None,
    input_zero_point: int = 0,
    labels: str = "",
    threshold: float | None = None,
    iterations: int = 1,
    warmups: int = 0,
    timeout_s: float = 10.0,
    boot_s: float = 5.0,
    chunk_bytes: int = 31,
    timer_bits: int = 32,
    clock_tolerance: float = 1e-3,
    prints_first: bool = False,
    dtr: bool = True,
    firmware: str | None = None,
    network: str = "",
    tuning: str = "",
) -> Device:
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
    one_of(BAUDS, mode=mode)
    on_pin, baud = mode == "energy", BAUDS[mode] if baud is None else baud
    model = model_of(input_type, input_scale, input_zero_point, labels, threshold)
    positive(timeout_s=timeout_s, boot_s=boot_s, clock_tolerance=clock_tolerance)
    limits(iterations=(iterations, 1, 10**9), warmups=(warmups, 0, 10**9))
    limits(chunk_bytes=(chunk_bytes, 1, CHUNK_MOST), timer_bits=(timer_bits, 16, 64))
    digest = {} if firmware is None else {"firmware": digest_of(firmware)}
    line = open_line(port, baud, DEVICE, dtr=dtr)
    with released_on_error(line.close):
        board, said = introduced(line, partial(BoardClock, timer_bits), boot_s, timeout_s, on_pin)
        maker = said.get("name", "")
        info = DeviceInfo(
            name=name,
            mode="simulator" if maker.startswith("SIM") else "hardware",
            description=f"{'SIMULATED ' if maker.startswith('SIM') else ''}{maker}, MLPerf Tiny protocol, model "
            f"{said.get('model', 'not stated')}",
            clock=None if on_pin else ClockInfo(name, TICK_HZ, clock_tolerance),
            spans_on_pin=on_pin,
            phases=(PHASE,),
            timeout_s=timeout_s * (iterations + warmups),
            versions={k: v for k, v in said.items() if k != "name"} | {"pyserial": version("pyserial")},
            artifacts=digest,
            algorithm={"model": said.get("model"), "network": network, "tuning": tuning},
            details={
                "port": port,
                "baud": baud,
                "input": {"type": input_type, "scale": input_scale, "zero_point": input_zero_point},
                "labels": list(model.labels),
                "iterations": iterations,
                "warmups": warmups,
                "prints_first": prints_first,
                "mode": mode,
                "span_begins": _begins(on_pin, prints_first),
            },
        )
        plan = QueryPlan(iterations, warmups, chunk_bytes, timeout_s, prints_first and not on_pin, on_pin)
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
