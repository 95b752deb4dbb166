"""Find spans that a trace shows at other times than their stamps: lost readings, a wrong rate, other clocks."""

import numpy as np
from msgspec import Struct

from rig.analysis.result.finding import Finding
from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, merged, touches
from rig.analysis.timing.alignment.contrast import Shown
from rig.analysis.timing.profile import FEW
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats

RISELESS = 0.6
"""A span shows no rise if two levels, in the span and beside it, leave over this share of the variance of readings."""
LAST = 2
"""At least this many spans without a rise, or readings of work outside of spans, are needed for a fault."""
SHORT = 0.25
"""If a filter's time constant is above this part of a span, single spans are no proof."""
STRAYS = 0.05
"""This share of the spans may show no rise, and this share of the work may lie elsewhere."""
PART = 0.1
"""It is enough to find this part of the missing work outside of spans, because gaps may be short."""
OFTEN = 3
"""At least this many spans are needed for levels. Work that occurs this often in one idle window is part of idle."""
CONTRAST, LEAST_AMONG, BEGUN = 4.5, 32, 1 << 14
"""Two levels differ by over ``CONTRAST`` standard deviations, in at least ``LEAST_AMONG`` readings.

The search for them begins with quantiles of no more than ``BEGUN`` readings, which are evenly spread.
"""


def after_end(r: Readings, end_s: float) -> tuple[Finding, ...]:
    """Return a failed check if readings were taken after the recording had ended, on the run's time.

    The last reading may end half a second plus a hundredth of the run after the host's last stamp.
    """
    late_s, most_s = float(r.end_s[-1]) - end_s, 0.5 + 0.01 * (end_s - float(r.start_s[0]))
    if late_s <= most_s:
        return ()
    rule = f"readings of rail {r.rail.name} after the end of the recording"
    return (Finding(rule, f"{late_s:.3g} s", f"at most {most_s:.3g} s", False),)


def absent(s: Shown, late_s: float = 0.0) -> Bools:
    """Return which spans show no rise in the trace if all are late by ``late_s``, shape (k,)."""
    at = np.array([late_s])
    left = s.left(at)[:, 0]
    # if a core sleeps while others work, spans draw less than the time beside them, or some classes do
    left = 1.0 - np.abs(1.0 - left) if falls(left) else left
    return np.asarray(s.covered(at)[:, 0] & (left > RISELESS))


def falls(left: Floats) -> bool:
    """Return whether spans draw clearly less than the time beside them, by the shares of variance that levels leave."""
    return float(np.median(left)) > 2.0 - SHORT


def astray(s: Shown) -> int:
    """Return how many spans have no rise where the stamps place them, 0 if nothing shows that they are elsewhere.

    Spans are elsewhere in two cases. Work is missing in spans and found outside of them, both in successive readings,
    since a single reading may be noise. Or most spans, or the last ones, show no rise, and some stand out at another
    time.
    """
    r, c, none = s.readings, s.cells, absent(s)
    count = int(np.count_nonzero(none))
    if count < LAST or s.tau_s > SHORT * c.width_s or (levels := levels_of(r, s.windows_s, r.ok)) is None:
        return 0
    last = count < len(c) and none[-count:].all()
    of = inside(np.column_stack([c.on_s, c.off_s]), r.start_s, r.end_s)
    high = r.watts > 0.5 * (levels.low_w + levels.high_w)
    settled_s = merged(s.windows_s + np.array([0.0, SETTLE_TAU * s.tau_s]))
    within, beside = r.ok & (of >= 0), r.ok & ~touches(settled_s, r.start_s, r.end_s)
    present, least = within & ~none[of], STRAYS * np.count_nonzero(within)
    if not within.any() or not beside.any():
        return 0
    works = high != falls(s.left(np.zeros(1)))
    lacks, found = within & ~works, beside & works
    few, many = (np.count_nonzero(x[:-1] & x[1:]) for x in (lacks, found))
    elsewhere = few > least and many > PART * few * len(s.windows_s) / len(c)
    if last or (2 * count > len(c) and np.count_nonzero(found) >= LAST):
        sought = s if last else s.some(np.flatnonzero(none))
        elsewhere |= bool(np.quantile(sought.left(s.places_s).min(axis=1), SHORT) < SHORT)
    # pulses outside of spans are the missing work only if the other spans show such work too
    return count if elsewhere and (not present.any() or np.mean(works[present]) > 0.5) else 0


class Levels(Struct, frozen=True):
    """The two levels of readings in watts, and their difference in standard deviations of readings about a level.

    Of the two standard deviations, the smaller counts.
    """

    low_w: float
    high_w: float
    contrast: float


def levels_of(r: Readings, spans_s: Floats, among: Bools) -> Levels | None:
    """Return the two levels of the readings ``among`` (Lloyd, 1982), or None if they do not have two."""
    watts = r.watts[among]
    if len(spans_s) < OFTEN or r.counter or r.period_s <= 0.0 or len(watts) < LEAST_AMONG:
        return None
    low, high = np.quantile(watts[:: 1 + len(watts) // BEGUN], [FEW, 1.0 - FEW])
    n, total = len(watts), float(watts.sum())
    for _ in range(10):
        before, upper = (low, high), watts > 0.5 * (low + high)
        if not 0 < (count := np.count_nonzero(upper)) < n:
            return None
        above = float(watts[upper].sum())
        low, high = (total - above) / (n - count), above / count
        if (low, high) == before:
            break
    contrast = (high - low) / max(float(min(watts[upper].std(), watts[~upper].std())), 1e-300)
    return Levels(low, high, contrast) if contrast > CONTRAST else None
