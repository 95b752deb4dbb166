"""Any microcontroller that prints its readings as lines of text on a serial port: an Arduino, a board with an INA219.

    rig measure --device ... --meter serial-text --option meter.port=/dev/ttyACM0 \\
        --option columns='time:ms, bus:V, current:mA' --option voltage=bus --option kind=point

The user declares the columns; they are never guessed. A line that does not have exactly these columns is not a reading.
See docs/reference/serial-text.md.
"""

from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from drivers.failures import released_on_error
from drivers.links.serial_line import METER, SerialLine, open_line
from drivers.meters.serial_text.acquisition import POLL_S, TextSource, first_line
from drivers.meters.serial_text.lines import Board, Layout, Plan, Row, Stamped, by_rail, layout_of, numbers_by_rail
from drivers.meters.serial_text.loss_detection import Pace
from drivers.meters.threaded import ThreadedMeter
from rig.bench.calibration import load
from rig.bench.settings import of_settings
from rig.errors import refused
from rig.types import Clock, Conversion, Meter, Rail, TraceKind

MODES = ("hardware",)

OMITTED = ("every supply that is no column",)
STAMPS = (
    "a column of time, such as time:ms, or rate_hz=NUMBER, because the arrival of a line does not say when it was "
    "measured (stamp_at says which part of a reading the time belongs to)"
)
HOLD_S, HOLD_MOST = 60.0, 1_000_000
BRIDGE_S = 0.03
"""A USB bridge holds bytes for 16 ms (FTDI's default), and the host reads them a little later (s)."""
BOARD_BYTES = 64
"""Arduino's serial port buffers this many bytes if a sketch prints faster than the wire can send."""


@of_settings
def open_meter(settings: Board, clock: Clock | None = None) -> Meter:
    """Open a board on ``port`` that prints ``columns``: NAME:UNIT for each, ``-`` to skip one.

    Each column of W, A, V or J is a rail. ``separator`` is comma, semicolon, tab or whitespace. Lines whose beginning
    matches the regular expression ``ignore`` are comments. The commands are sent as written (``\\n`` and ``\\r`` are
    line ends). Amperes become watts by ``supply_v`` (1.2, or vdd=1.2, io=1.8) or by a rail of volts named in
    ``voltage`` (bus, or vdd=bus).

    A column of time places the readings. Without it, they are placed by their count at ``rate_hz``. ``stamp_at``
    (start, middle, end, or empty: unknown) is the point of a reading to which its time refers. ``kind`` is mean, point
    or cumulative (always for J); a mean lasts ``aperture_s``, by default one period. The time wraps after
    2^``timer_bits`` of its units, the counter at ``counter_wrap`` (0: never). ``resolution`` and ``range_max`` are in a
    column's own unit. A line may come ``latency_s`` after its reading; the default follows from the line's length.
    At most three lines, plus a share ``bad_share`` of all lines, may be malformed. ``serial_number`` is recorded, and
    compared with the serial number in the calibration file.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` if no line has these columns within ``boot_s``.
    """
    s = settings
    layout = layout_of(s.columns, s.separator, s.ignore)
    names = tuple(c.name for c in layout.rails)
    resolutions, ranges = (numbers_by_rail(k, getattr(s, k), names) for k in ("resolution", "range_max"))
    conversions = _conversions(layout, s.supply_v, s.voltage)
    stamp: Stamped = "column" if layout.has("time") else "count"
    if stamp == "count" and not s.rate_hz > 0:
        raise refused("columns", s.columns, f"Give {STAMPS}", "nothing says when a line was measured")
    plan = Plan(s, layout, stamp, _aperture_s(s.kind, s.aperture_s, s.rate_hz, layout))
    line = open_line(s.port, s.baud, METER, dtr=s.dtr)
    with released_on_error(line.close):
        text, row = first_line(line, layout, s)
        length = len(text) + 2
        late_s = BRIDGE_S + line.wire_s(BOARD_BYTES + length) if s.latency_s is None else s.latency_s
        plan = replace(plan, latency_s=late_s)
        info = s.own.info(
            f"lines of text on a serial port, placed by {plan.stamp}",
            *_limited(s, _rails(plan, row, resolutions, ranges, conversions)), simulated=s.simulated, omitted=OMITTED,
            buffer_s=HOLD_S, versions={"pyserial": version("pyserial")}, details=_details(line, text, row, plan),
            serial_number=s.serial_number or None,
        )  # fmt: skip
        most = max(100, min(HOLD_MOST, round(HOLD_S * max(s.rate_hz, 1.0 / line.wire_s(length)))))
        return ThreadedMeter(info, TextSource(info, line, plan), clock, every_s=POLL_S, most=most)


def _aperture_s(kind: str, aperture_s: float | None, rate_hz: float, layout: Layout) -> float:
    """Return how long a reading lasts (s); 0 for a point."""
    means = any(c.si != "J" for c in layout.rails)
    if kind not in ("mean", "point", "cumulative") or (means and kind == "cumulative"):
        raise refused("kind", kind, "Give mean or point; cumulative is only for columns in J")
    if kind == "point" or not means:
        return 0.0
    if aperture_s is None and rate_hz <= 0:
        what = "readings are means (kind=mean), and neither rate_hz nor aperture_s says how long each lasts"
        raise refused("aperture_s", aperture_s, "Give rate_hz, or aperture_s in seconds, or kind=point", what)
    if aperture_s is not None and rate_hz > 0 and aperture_s > 1.001 / rate_hz:
        raise refused("aperture_s", aperture_s, f"Give {1.0 / rate_hz:g}, the period, or less")
    return aperture_s if aperture_s is not None else 1.0 / rate_hz


def _conversions(layout: Layout, supply_v: str | None, voltage: str | None) -> dict[str, Conversion]:
    """Return the conversion of each rail of amperes."""
    amperes = tuple(c.name for c in layout.rails if c.si == "A")
    volts = [c.name for c in layout.rails if c.si == "V"]
    fixed, read = numbers_by_rail("supply_v", supply_v, amperes), by_rail("voltage", voltage, amperes)
    for option, given in (("supply_v", supply_v), ("voltage", voltage)):
        if given and not amperes:
            raise refused(option, given, "Give it only for columns in A")
    found = {}
    for name in amperes:
        if (name in fixed) == (name in read):
            remedy = f"Give either supply_v= (volts) or voltage= (a column of volts) for {name}"
            raise refused("supply_v", supply_v, remedy, f"the voltage of {name} (in A) is not stated exactly once")
        if name in read and read[name] not in volts:
            raise refused("voltage", voltage, f"Give a column of V: {', '.join(volts) or 'none is declared'}")
        found[name] = Conversion("A", fixed.get(name), supply_rail=read.get(name))
    return found


def _rails(
    plan: Plan, row: Row, resolutions: dict[str, float], ranges: dict[str, float], conversions: dict[str, Conversion]
) -> Iterator[Rail]:
    """Return the rails. ``resolutions`` and ``ranges`` are in columns' units; other resolutions come from ``row``."""
    board = plan.board
    for column, step in zip(plan.layout.rails, row.step, strict=True):
        kind: TraceKind = "cumulative" if column.si == "J" else "point" if board.kind == "point" else "mean"
        plain = Conversion({"W": "W", "J": "J", "V": "V", "A": "A"}[column.si])  # type: ignore[arg-type]
        lasts = plan.aperture_s and (kind == "mean" or plan.stamp == "count")
        given, most = resolutions.get(column.name), ranges.get(column.name)
        yield Rail(
            column.name, kind, conversions.get(column.name, plain), board.rate_hz, plan.aperture_s if lasts else None,
            board.filter_tau_s, resolution=(step or None) if given is None else given * column.factor,
            range_max=None if most is None else most * column.factor, gain_id=f"{board.own.name} {column.si}",
        )  # fmt: skip


def _limited(board: Board, found: Iterator[Rail]) -> Iterator[Rail]:
    """Yield the rails. Rails in the unit of the calibration file get its limits."""
    rails, path = list(found), board.own.calibration
    units = {r.unit for r in load(Path(path)).ranges} if path is not None else set()
    if not units & {r.conversion.unit for r in rails}:
        units = {r.conversion.unit for r in rails}  # if no rail has the file's unit, the file is refused by name
    return (board.own.limited(r, board.serial_number) if r.conversion.unit in units else r for r in rails)


def _details(line: SerialLine, text: str, row: Row, plan: Plan) -> dict[str, object]:
    board, layout = plan.board, plan.layout
    checked = [c.unit if c.role == "check" else c.role for c in layout.columns if c.role in ("time", "count", "check")]
    by_count = board.rate_hz > 0 and plan.stamp == "count" and not layout.has("count")
    return {
        "port": line.port, "baud": line.baud, "columns": board.columns, "first_line": text[:200], "stamp": plan.stamp,
        "stamp_at": board.stamp_at or "not known", "latency_s": plan.latency_s, "bad_share": board.bad_share,
        "time_step_s": row.time_step_ns * 1e-9, "checked_by": checked or ["the number of columns"],
        "unseen_loss_s": Pace("", board.rate_hz, board.own.clock_tolerance).unseen_s if by_count else None,
        "commands": [board.start_command, board.stop_command],
    }  # fmt: skip
