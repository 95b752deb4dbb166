"""Findings about a clock: its rate and offset against the host, its step and its round trip."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rig.analysis.timing.timebase import CERTAIN, fit_brackets
from rig.doctor.findings import Finding, broken, checked, ok, rounded, si
from rig.errors import DeviceError, RigError
from rig.types import Bracket, Clock, ClockInfo

BURST, BURSTS = 8, 9
UNEVEN_NS = 10_007
COARSE, STEPS_LEAST = 10, 8
"""A counter is coarser than declared if ``STEPS_LEAST`` or more steps have a common divisor of at least ``COARSE``."""
SLOW_S = 20e-3
"""If the round trip is longer than this (s), most traces place span edges better than the clock."""


def bracketed(timer: Callable[[], int], clock: Clock, seconds: float) -> list[Bracket]:
    """Read a clock in bursts over ``seconds``; if its round trips are long, less often and for up to twice as long.

    The bursts are slightly uneven. Otherwise a simulated clock, whose read takes no time, would seem to move in steps.
    """
    began_ns = clock.now_ns()
    found: list[Bracket] = []
    for burst in range(BURSTS):
        clock.sleep_until(began_ns + round(seconds * 1e9 * burst / (BURSTS - 1)) + UNEVEN_NS * burst**2)
        for _ in range(BURST):
            before_ns = clock.now_ns()
            tick = timer()
            found.append(Bracket(before_ns, tick, clock.now_ns()))
            if clock.now_ns() - began_ns > 2e9 * seconds and len(found) > 2:
                return found
    return found


def clock_findings(
    item: str, info: ClockInfo, brackets: Sequence[Bracket], now_ns: int, error: type[RigError] = DeviceError
) -> Iterator[Finding]:
    """Yield findings of round trip, tick order, rate, offset and step; ``+-`` in them is two standard uncertainties."""
    yield _round_trip(item, brackets)
    ticks = np.array([b.tick for b in brackets], dtype=np.int64)
    steps = np.diff(ticks)
    if np.any(steps < 0):
        text = f"the clock {info.name} goes back: by up to {si(-float(steps.min()) / info.tick_hz, 's')}"
        yield broken(item, "clock", text, "Unwrap its counter in the driver, and read it under one lock", error)
        return
    if not np.any(steps > 0):
        yield broken(item, "clock", f"the clock {info.name} stands still", "Start its counter when it is opened", error)
        return
    yield _rate(item, info, brackets, now_ns, error)
    step = int(np.gcd.reduce(steps))
    if step >= COARSE and np.count_nonzero(steps) >= STEPS_LEAST:
        step_s = step / info.tick_hz
        text = f"the clock {info.name} moves in steps of {si(step_s, 's')}, but declares {si(1.0 / info.tick_hz, 's')}"
        yield checked(item, "clock step", text, "Declare as tick_hz the rate at which it counts", step_s=step_s)


def _round_trip(item: str, brackets: Sequence[Bracket]) -> Finding:
    trips_s = np.array([(b.after_ns - b.before_ns) * 1e-9 for b in brackets])
    median_s, worst_s = float(np.median(trips_s)), float(trips_s.max())
    text = f"{si(median_s, 's')} median, {si(worst_s, 's')} worst of {len(trips_s)}"
    values = {"median_s": median_s, "worst_s": worst_s, "least_s": float(trips_s.min()), "n": len(trips_s)}
    remedy = "Use a faster link: half a round trip is the uncertainty of the offset" if median_s > SLOW_S else ""
    return checked(item, "round trip", text, remedy, **values)


def _rate(item: str, info: ClockInfo, brackets: Sequence[Bracket], now_ns: int, error: type[RigError]) -> Finding:
    free = replace(info, tolerance=math.inf)  # the slope of the brackets without the declared tolerance
    base = fit_brackets(free, brackets, now_ns)
    off, twice_u = 1.0 / base.rate - 1.0, 2.0 * base.rate_sigma / base.rate**2
    offset_s = base.ref_tick / info.tick_hz - (now_ns * 1e-9 + base.ref_s)
    ppm, u_ppm = rounded(round(off * 1e6, 4) + 0.0), rounded(twice_u * 1e6, 2)  # 1e-10 ppm becomes 0
    text = f"{info.name} at {si(info.tick_hz, 'Hz', 6)} runs {ppm} +- {u_ppm} ppm against the host (declared: within "
    text += f"{info.tolerance * 1e6:g}), offset {offset_s:.6f} s +- {si(2.0 * base.sigma_s, 's', 2)}"
    values = {"off": off, "off_doubt": twice_u, "offset_s": offset_s, "offset_doubt_s": 2.0 * base.sigma_s}
    if abs(off) - twice_u <= info.tolerance:
        return ok(item, "clock", text, **values)
    if abs(off) - 0.5 * CERTAIN * twice_u > info.tolerance:
        remedy = f"Declare tick_hz {info.tick_hz * (1.0 + off):.7g} in its driver, or a tolerance that includes this"
        return broken(item, "clock", text, remedy, error, **values)
    return checked(item, "clock", text, "Measure for longer, with --seconds 10", **values)
