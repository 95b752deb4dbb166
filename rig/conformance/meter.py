"""``check_meter`` checks a meter by calling it; ``rig.conformance.device`` says how such checks report."""

import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from rig.conformance.rule_failures import Checks, clock_info, close, identity, raised, rate, read_timer
from rig.engine.clock import HostClock
from rig.errors import RigError, said
from rig.types import Chunk, Clock, Clocked, Meter, MeterInfo, Rail, TraceKind


def check_meter(
    meter: Meter, *, clock: Clock | None = None, seconds: float | None = None, prompt_s: float = 0.1
) -> tuple[str, ...]:
    """Start, read, stop, start again and close an opened meter.

    The meter samples for ``seconds`` of ``clock``, by default the host's. The default of ``seconds`` is 0.5, or the
    time of 20 readings of the slowest rail if this is longer. Raises ``ConformanceError``.

    Example, of the meter in ``examples/my_meter.py``::

        import rig
        from examples.my_meter import open_meter
        from rig.engine.clock import HostClock

        rig.check_meter(open_meter(HostClock()), seconds=0.5)
    """
    c = Checks(clock or HostClock(), prompt_s, "meter")
    if not c.complete(meter, Meter):
        return c.verdict()
    with c.calling("info()"):
        info = c.call("info()", meter.info)
        if meter_info_rules(c, info, meter.info()):
            slowest = min((r.rate_hz for r in info.rails if r.rate_hz > 0 and r.kind != "edges"), default=0.0)
            _use(c, meter, info, seconds or max(0.5, 20.0 / slowest if slowest else 0.0))
    close(c, meter)
    return c.verdict()


def _use(c: Checks, meter: Meter, info: MeterInfo, span_s: float) -> None:
    with c.calling("start(), read() and stop()"):
        _readings(c, meter, info, span_s)
        _after_stop(c, meter, span_s)
        error = raised(lambda: _readings(c, meter, info, span_s))
        found = f"{type(error).__name__} from start() after stop(): {error}"
        c.rule("start.again", error is None, found, "a stopped meter that can be started again")


def meter_info_rules(c: Checks, info: MeterInfo, again: MeterInfo) -> bool:
    """Check the info of a meter; return whether the other checks can go on."""
    identity(c, info, again)
    names = [rail.name for rail in info.rails]
    unique = len(set(names)) == len(names) > 0 and all(names)
    c.rule("info.rails", unique, repr(names), "one rail or more, each with a name of its own")
    buffer_s = info.buffer_s
    c.rule("info.buffer", buffer_s is None or buffer_s > 0, f"buffer_s {buffer_s}", "None, or seconds above zero")
    for rail in info.rails:
        _rail_info(c, rail)
    return clock_info(c, info.clock)


def _rail_info(c: Checks, rail: Rail) -> None:
    c.rule("rail.kind", rail.kind in get_args(TraceKind), repr(rail.kind), " or ".join(get_args(TraceKind)))
    numbers = {n: getattr(rail, n) for n in ("rate_hz", "aperture_s", "filter_tau_s", "resolution", "range_max")}
    stated = ("of_reading", "offset", "linearity") if rail.accuracy is not None else ()
    numbers |= {n: getattr(rail.accuracy, n) for n in stated}
    bad = {n: v for n, v in numbers.items() if v is not None and not 0 <= v < math.inf}
    c.rule("rail.numbers", not bad, str(bad), "numbers of zero or more, or None where it is not stated")
    unit, supply_v = rail.conversion.unit, rail.conversion.supply_v
    asked = "a supply_v above zero or a supply_rail when readings are amperes, and joules when they are cumulative"
    volts = unit != "A" or rail.conversion.supply_rail is not None or (supply_v is not None and supply_v > 0)
    c.rule("rail.unit", volts and (unit == "J") == (rail.kind == "cumulative"), f"{unit}, {supply_v} V", asked)


def _readings(c: Checks, meter: Meter, info: MeterInfo, span_s: float) -> None:
    """Read for ``span_s``, then stop; check every chunk, and the number of readings."""
    before_ns = c.clock.now_ns()
    bracket = c.call("start()", meter.start)
    started_ns = c.clock.now_ns()
    whole = all(isinstance(n, (int, np.integer)) for n in (bracket.before_ns, bracket.tick, bracket.after_ns))
    ordered = whole and before_ns <= bracket.before_ns <= bracket.after_ns <= started_ns
    found = f"{bracket}, called from {before_ns} to {started_ns}"
    c.rule("start.bracket", ordered, found, "integers: host stamps in order, inside the call")
    first = read_timer(c, meter) if isinstance(meter, Clocked) else None
    chunks: list[Chunk] = []
    late_s: dict[str, float] = {}
    for k in range(1, 11):
        c.clock.sleep_until(started_ns + round(span_s * k * 1e8))
        read = c.promptly("read.returns", meter.read)
        chunks += read
        for name, seconds in _lateness(info, read, (c.clock.now_ns() - started_ns) * 1e-9).items():
            late_s.setdefault(name, seconds)
    last = read_timer(c, meter) if isinstance(meter, Clocked) else None
    stopping_ns = c.clock.now_ns()
    chunks += c.call("stop()", meter.stop)
    longest_s = (c.clock.now_ns() - before_ns) * 1e-9
    for rail in info.rails:
        own = [chunk for chunk in chunks if chunk.rail == rail.name]
        sound = _columns(c, own)
        if sound and rail.kind == "edges":
            _edges(c, own)
        elif sound:
            shortest_s = (stopping_ns - started_ns) * 1e-9 - late_s.get(rail.name, 0.0)
            _count(c, rail, own, shortest_s, longest_s)
            if whole:
                _near(c, own, bracket.tick, 2.0 * longest_s * info.clock.tick_hz)
    strays = sorted({chunk.rail for chunk in chunks} - {rail.name for rail in info.rails})
    c.rule("chunk.rail", not strays, f"readings of {strays}", "readings of declared rails only")
    if first is not None and last is not None:
        rate(c, info.clock, first, last)


def _lateness(info: MeterInfo, read: Sequence[Chunk], elapsed_s: float) -> dict[str, float]:
    """Return by rail how late (s) the readings of a first ``read`` are; ``stop`` may lose readings of this time."""
    counts = {rail: sum(len(chunk.value) for chunk in read if chunk.rail == rail.name) for rail in info.rails}
    known = {rail.name: elapsed_s - n / rail.rate_hz for rail, n in counts.items() if n and rail.rate_hz > 0}
    return {name: seconds for name, seconds in known.items() if seconds > 0}


def _after_stop(c: Checks, meter: Meter, span_s: float) -> None:
    c.clock.sleep_until(c.clock.now_ns() + round(span_s * 1e8))
    more: list[Chunk] = []
    error = raised(lambda: more.extend(meter.read()))
    ok = isinstance(error, RigError) or (error is None and not any(len(chunk.value) for chunk in more))
    found = f"{len(more)} chunks" if error is None else said(error)
    c.rule("stop.rest", ok, f"{found} from read() after stop()", "nothing, or a RigError: stop() returns the rest")


def _columns(c: Checks, chunks: Sequence[Chunk]) -> bool:
    """Check that the chunks of one rail fit into one table."""
    ok = True
    shapes = set()
    for chunk in chunks:
        value, ticks = np.asarray(chunk.value), [t for t in (chunk.start_tick, chunk.end_tick) if t is not None]
        found = f"{type(chunk.value).__name__} of {value.dtype} and shape {value.shape}"
        column = isinstance(chunk.value, np.ndarray) and value.dtype.isnative
        column &= value.ndim == 1 and value.dtype.kind in "iuf"
        ok &= c.rule("chunk.value", column, found, "an array of numbers, shape (n,), native byte order")
        ok &= c.rule("chunk.ticks", len(ticks) != 1, "one of start_tick and end_tick", "both of them, or neither")
        beside = [*ticks, *([chunk.flags] if chunk.flags is not None else [])]
        fits = all(isinstance(a, np.ndarray) and a.shape == value.shape and a.dtype.kind in "iu" for a in beside)
        asked = "arrays of integers of the same shape as the value"
        ok &= c.rule("chunk.beside", fits, "ticks or flags that do not fit", asked)
        shapes.add((value.dtype.str, len(ticks), chunk.flags is not None))
    found = f"{len(shapes)} kinds of chunk"
    return bool(ok & c.rule("chunk.steady", len(shapes) <= 1, found, "the same type and the same fields in every one"))


def _edges(c: Checks, chunks: Sequence[Chunk]) -> None:
    """Check levels and ticks of a logic input, which may have no edges."""
    pairs = [(k.start_tick, k.end_tick) for k in chunks if k.start_tick is not None and k.end_tick is not None]
    c.rule("edges.ticks", len(pairs) == len(chunks), "edges without ticks", "the tick of each edge")
    ticks = np.concatenate([np.zeros(0, np.int64), *(on for on, _ in pairs)])
    value = np.concatenate([np.zeros(0), *(np.asarray(k.value) for k in chunks)])
    level = bool(np.all((value == 0) | (value == 1)))
    c.rule("edges.level", level, "another level", "0 or 1, the level after the edge")
    ordered = all(np.array_equal(*pair) for pair in pairs) and bool(np.all(np.diff(ticks) > 0))
    asked = "start_tick equal to end_tick, and above that of the edge before"
    c.rule("edges.order", ordered, "ticks that differ, or do not grow", asked)


def _near(c: Checks, chunks: Sequence[Chunk], tick: int, most: float) -> None:
    """Check that the ticks of readings are fewer than ``most`` from the tick of the start."""
    ticks = [int(t) for k in chunks if k.start_tick is not None for t in k.start_tick]
    far = [t for t in ticks if not abs(t - tick) <= most]
    found = f"a reading at tick {far[0] if far else tick}, though start() gave tick {tick}"
    c.rule("chunk.clock", not far, found, "ticks of the declared clock")


def _count(c: Checks, rail: Rail, chunks: Sequence[Chunk], shortest_s: float, longest_s: float) -> None:
    """Check that ticks grow. Without ticks, check that the readings fit the rate within 2 % plus 3 readings."""
    n = sum(len(chunk.value) for chunk in chunks)
    c.rule("read.some", n > 0, f"no reading of {rail.name} in {shortest_s:.3g} s", "readings of every declared rail")
    if not n:
        return
    if chunks[0].start_tick is not None:
        start = np.concatenate([np.asarray(chunk.start_tick) for chunk in chunks])
        end = np.concatenate([np.asarray(chunk.end_tick) for chunk in chunks])
        grow = bool(np.all(np.diff(start) > 0))
        c.rule("chunk.grow", grow, "a start_tick not above the one before", "ticks that only grow, over all chunks")
        c.rule("chunk.order", bool(np.all(end >= start)), "an end_tick below its start_tick", "end >= start")
        return
    if c.rule("rail.rate", rail.rate_hz > 0, f"rate_hz {rail.rate_hz}", "a rate above zero, or ticks"):
        low, high = 0.98 * shortest_s * rail.rate_hz - 3, 1.02 * longest_s * rail.rate_hz + 3
        found = f"{n} readings of {rail.name} in {shortest_s:.3g} s at {rail.rate_hz:g} Hz"
        c.rule("read.count", low <= n <= high, found, f"{low:.0f} to {high:.0f}, or ticks that show what is missing")
