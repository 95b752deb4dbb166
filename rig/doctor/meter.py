"""Findings about a meter's readings: their rate, noise, drift and overloads."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from rig.doctor.findings import Finding, Number, broken, checked, ok, rounded, si
from rig.errors import DataError, MeterError, MeterSilentError, SetupError
from rig.recording.traces.conversion import to_watts
from rig.types import Bracket, Chunk, Clock, Floats, Meter, MeterInfo, Rail

EVERY_S = 0.02
READINGS = 20
"""Take at least this many readings of the slowest rail, if that takes 5 s at most."""


@dataclass
class Taken:
    """The chunks of a short measurement. ``arrived`` has (host ns, readings so far) for each chunk, by rail."""

    trigger: Bracket
    chunks: dict[str, list[Chunk]] = field(default_factory=dict)
    arrived: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, chunks: Sequence[Chunk], now_ns: int, ended: bool = False) -> None:
        """Add chunks. ``rate_finding`` ignores those of ``stop()`` (``ended``), because they arrive early."""
        for chunk in chunks:
            if not len(chunk.value):
                continue
            self.chunks.setdefault(chunk.rail, []).append(chunk)
            if not ended:
                count = sum(len(c.value) for c in self.chunks[chunk.rail])
                self.arrived.setdefault(chunk.rail, []).append((now_ns, count))


def take(meter: Meter, info: MeterInfo, clock: Clock, seconds: float) -> Taken:
    """Start a meter, read it for ``seconds`` (longer if its slowest rail then has too few readings), and stop it."""
    slowest_hz = min((r.rate_hz for r in info.rails if r.rate_hz > 0 and r.kind != "edges"), default=0.0)
    wanted_s = max(seconds, min(READINGS / slowest_hz if slowest_hz else 0.0, 5.0))
    taken = Taken(meter.start())
    try:
        end_ns = clock.now_ns() + round(wanted_s * 1e9)
        every_ns = round(min(EVERY_S, wanted_s / 10.0) * 1e9)
        while (now_ns := clock.now_ns()) < end_ns:
            clock.sleep_until(min(end_ns, now_ns + every_ns))
            chunks = meter.read()
            taken.add(chunks, clock.now_ns())
    except BaseException:
        with suppress(Exception):
            meter.stop()
        raise
    taken.add(meter.stop(), clock.now_ns(), ended=True)
    return taken


def reading_findings(item: str, info: MeterInfo, taken: Taken, wired: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings of every rail; ``wired`` are the rails in the bench file."""
    for name in sorted(set(wired) - {r.name for r in info.rails}):
        known = ", ".join(r.name for r in info.rails)
        yield broken(item, "wiring", f"it has no rail {name}", f"Correct `rail`; it has {known}", DataError)
    for rail in info.rails:
        chunks = taken.chunks.get(rail.name, [])
        if rail.kind == "edges":
            count = sum(len(chunk.value) for chunk in chunks)
            yield ok(item, "pin", f"{rail.name}: {count} edges; the pin is {rail.pin or 'not described'}")
            continue
        if not chunks:
            remedy = "Check its trigger and its cable"
            yield broken(item, rail.name, "no reading came", remedy, MeterSilentError)
            continue
        yield rate_finding(item, rail, taken.arrived.get(rail.name, []), _stamped_hz(info, chunks))
        yield from _level(item, info, rail, chunks)
        if rail.accuracy is None:
            text = f"{rail.name}: the instrument's uncertainty in {rail.conversion.unit} is not stated"
            remedy = (
                "Give calibration = FILE with a range in this unit; until then only the scatter of the trace counts"
            )
            yield checked(item, "accuracy", text, remedy)
        else:
            yield ok(item, "accuracy", f"{rail.name}: {rail.accuracy.source or 'stated, without a source'}")


def rate_finding(item: str, rail: Rail, arrived: Sequence[tuple[int, int]], stamped_hz: float = 0.0) -> Finding:
    """Find readings per second, by a straight line through their arrivals; ``+-`` is two standard errors.

    ``stamped_hz`` is the rate by the stamps of the readings; 0 if they have none.
    """
    rows = np.array(arrived, dtype=float).reshape(-1, 2)
    if len(rows) < 4 or np.ptp(rows[:, 0]) <= 0:
        text = f"{rail.name}: too few readings came before the end to show their rate, {rail.rate_hz:g} declared"
        return ok(item, "rate", text, declared_hz=rail.rate_hz)
    t_s, count = (rows[:, 0] - rows[0, 0]) * 1e-9, rows[:, 1]
    slope, level = np.polyfit(t_s, count, 1)
    scatter = math.sqrt(float(np.sum((count - level - slope * t_s) ** 2)) / (len(rows) - 2) + 1.0 / 12.0)
    twice_u_hz = 2.0 * scatter / (float(np.std(t_s)) * math.sqrt(len(rows)))
    text = f"{rail.name}: {rounded(float(slope), 6)} +- {rounded(twice_u_hz, 2)} readings/s"
    text += f", {rail.rate_hz:g} declared" if rail.rate_hz > 0 else ""
    text += f", {stamped_hz:.6g} by their stamps" if stamped_hz > 0 else ""
    values = {"rate_hz": float(slope), "doubt_hz": twice_u_hz, "declared_hz": rail.rate_hz}
    wrong = "Lower rate_hz, use a faster link, or close other programs that read it"
    if slope > rail.rate_hz:
        wrong = f"Declare the rate at which it reads: rate_hz = {stamped_hz or slope:.4g}"
    for hz, remedy in ((stamped_hz, "Check the unit of its time and its clock"), (rail.rate_hz, wrong)):
        if hz > 0 and abs(float(slope) - hz) > 2.0 * twice_u_hz + 0.02 * hz:
            return broken(item, "rate", text, remedy, MeterError, **values)
    return ok(item, "rate", text, **values)


def _level(item: str, info: MeterInfo, rail: Rail, chunks: Sequence[Chunk]) -> Iterator[Finding]:
    raw = np.concatenate([np.asarray(c.value, dtype=np.float64) for c in chunks])
    flags = np.concatenate([np.zeros(len(c.value), np.uint8) if c.flags is None else c.flags for c in chunks])
    over = int(np.count_nonzero((flags != 0) | (raw >= (rail.range_max or math.inf))))
    if over:
        remedy = "Raise range_max, check the unit and the range of the calibration, and check for a short circuit"
        yield broken(item, "overload", f"{rail.name}: {over} of {len(raw)} readings", remedy, MeterError, over=over)
    elif rail.range_max is not None:
        yield ok(item, "overload", f"{rail.name}: none of {len(raw)} readings", over=0)
    lost = int(np.count_nonzero(~np.isfinite(raw) & (flags == 0)))
    if lost:
        text = f"{rail.name}: {lost} of {len(raw)} readings are not numbers and are not flagged"
        yield broken(item, "readings", text, "Flag them in the driver", MeterError)
    try:
        value, start_s, unit = _powers(info, rail, chunks, raw)
    except DataError as error:
        remedy = "Write supply_v = VOLTS in its table of the bench file"
        yield broken(item, "supply", f"{rail.name}: {error.message}", remedy, SetupError)
        value, start_s, unit = raw, _times(info, rail, chunks, len(raw)), rail.conversion.unit
    good = np.isfinite(value) & (flags == 0 if len(flags) == len(value) else np.ones(len(value), bool))
    yield noise_finding(item, rail, value[good], start_s[good], unit)


def _powers(info: MeterInfo, rail: Rail, chunks: Sequence[Chunk], raw: Floats) -> tuple[Floats, Floats, str]:
    """Return values, the time (s) of each, and their unit: W; V of a rail of volts; A if the volts are on another rail.

    A counter of joules gives the mean power between two readings.
    """
    start_s = _times(info, rail, chunks, len(raw))
    if rail.kind == "cumulative":
        apart_s = np.diff(start_s)
        kept = apart_s > 0
        return np.diff(raw)[kept] / apart_s[kept], start_s[1:][kept], "W"
    if rail.conversion.unit == "V" or rail.conversion.supply_rail:
        return raw, start_s, rail.conversion.unit
    return to_watts(raw, rail.conversion), start_s, "W"


def _stamped_hz(info: MeterInfo, chunks: Sequence[Chunk]) -> float:
    """Return readings per second by the stamps, or 0 without stamps."""
    if any(c.end_tick is None for c in chunks):
        return 0.0
    ends = np.concatenate([c.end_tick for c in chunks if c.end_tick is not None])
    return float((len(ends) - 1) * info.clock.tick_hz / np.ptp(ends)) if np.ptp(ends) > 0 else 0.0


def _times(info: MeterInfo, rail: Rail, chunks: Sequence[Chunk], n: int) -> Floats:
    """Return times of the readings (s) on the meter's clock; without ticks, readings are one period apart."""
    if all(c.end_tick is not None for c in chunks):
        ticks = np.concatenate([c.end_tick for c in chunks if c.end_tick is not None])
        return np.asarray((ticks - ticks[0]) / info.clock.tick_hz, dtype=np.float64)
    return np.arange(n) / (rail.rate_hz or 1.0)


def noise_finding(item: str, rail: Rail, value: Floats, start_s: Floats, unit: str) -> Finding:
    """Find mean, standard deviation about a line, and the line's slope with two standard errors (white noise)."""
    n = len(value)
    if n < 4:
        return ok(item, "noise", f"{rail.name}: too few readings ({n})")
    span_s = float(np.ptp(start_s))
    slope, level = np.polyfit(start_s, value, 1)
    mean = float(np.mean(value))
    deviation = math.sqrt(float(np.sum((value - level - slope * start_s) ** 2)) / (n - 2))
    twice_u = 2.0 * deviation / (float(np.std(start_s)) * math.sqrt(n))
    text = f"{rail.name}: mean {si(mean, unit, 4)}, standard deviation {si(deviation, unit)} of {n} readings, drift "
    text += f"{si(float(slope), unit)}/s +- {si(twice_u, unit, 2)}/s"
    values: dict[str, Number] = {"mean": mean, "deviation": deviation, "unit": unit, "n": n}
    values |= {"drift_per_s": float(slope), "doubt_per_s": twice_u}
    drifted = abs(float(slope)) * span_s > max(deviation, 1e-3 * abs(mean)) and abs(float(slope)) > 1.5 * twice_u
    remedy = "It is not settled: let it and the device warm up" if drifted else ""
    if deviation <= 1e-9 * abs(mean):
        remedy = "Check that its input is connected, and its range: a live input shows noise"
    elif mean < -3.0 * deviation:
        remedy = "It reads backwards: turn its leads, or zero it"
    return checked(item, "noise", text, remedy, **values)
