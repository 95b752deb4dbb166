"""The windows over which a rail is summed: spans, widened or shortened by readings, clocks and filters."""

from __future__ import annotations

import numpy as np

from reports.audit.clocks import line
from reports.audit.figures import Spans, batches, device_line, issues, requested
from reports.audit.reading import Run, Trace
from reports.audit.windows import Facts
from rig.types import Bools, Floats

SETTLED = 5.0
"""After so many time constants a filter has settled within 1 %."""
PAD = 2.0
"""By so many readings a span is widened on either side, so that its edges lie inside."""
GAP = 2.0
"""So many readings at both ends of a gap between spans may hold power of the spans."""
PARTS = np.linspace(0.0, 1.0, 9)


def looked_at(
    run: Run, trace: Trace, stamped: Spans, idle: Floats, shift: float, facts: Facts
) -> tuple[dict[str, Floats], int]:
    """The windows of each kind in seconds, float64 of shape (k, 2), and how many ends of spans meet other activity.

    ``spans`` are those that the trace holds, ``unplaced`` the same by the clocks alone; ``region`` is they with their
    edges, ``wide`` with all that the clocks leave open; ``inner`` is spans without their edges, ``gap`` what is between
    them, ``eighth`` the eighths of idle windows, and ``asked`` from the first request to the last answer.
    """
    period, settle = facts.period_s, SETTLED * float(trace.rail.get("filter_tau_s", 0.0))
    bound = line(run, trace.clock).bound_s
    window = batches(stamped.of(~stamped.warmup))[0] + shift
    other = _other(run, stamped) + shift
    seen = (window[:, 0] - PAD * period > facts.first_s) & (window[:, 1] + PAD * period + settle < facts.last_s)
    if seen.any():
        window, other = window[seen], np.concatenate([other, window[~seen]])
    other = other[np.argsort(other[:, 0])]
    region, met = _regions(window, other, PAD * period, PAD * period + settle)
    reach = PAD * period + device_line(run).bound_s + bound
    wide, _ = _regions(window, other, reach, reach + settle)
    quiet = shortened(idle, bound + period + settle, bound + period)
    knots = quiet[:, :1] + (quiet[:, 1:] - quiet[:, :1]) * PARTS
    eighth = np.stack([knots[:, :-1].ravel(), knots[:, 1:].ravel()], axis=1)
    gaps = shortened(np.stack([window[:-1, 1], window[1:, 0]], axis=1), GAP * period + settle, GAP * period)
    found = {"spans": window, "unplaced": window - shift, "region": region, "wide": wide, "eighth": eighth}
    found |= {"inner": shortened(window, period + settle, period), "gap": gaps[~touch(gaps, other)]}
    return found | {"asked": requested(run) + shift}, met


def length_s(window: Floats) -> float:
    """The length of all windows together."""
    return float(np.sum(window[:, 1] - window[:, 0]))


def _other(run: Run, stamped: Spans) -> Floats:
    """What the device does beside counted spans: warm-up, marks, and work that was asked for and has no stamps.

    Such work is that of issues without an answer, and whatever follows the end of a run that broke off.
    """
    clock, last = device_line(run), float(stamped.off.max())
    rows = np.array([pair for event in run.events["marks"] for pair in event["spans"]], dtype=np.int64).reshape(-1, 2)
    begins = [i.issued_s for i in issues(run) if i.issued_s is not None and i.answered_s is None]
    broken = run.stop is None or run.stop.get("error") is not None
    unstamped = [[s, s + 1.0] for s in begins] + [[last, last + 1e9]] * broken
    warmup = stamped.of(stamped.warmup)
    parts = (np.stack([warmup.on, warmup.off], axis=1), clock.seconds(rows), np.array(unstamped).reshape(-1, 2))
    return np.concatenate(parts)


def shortened(window: Floats, head: float, tail: float) -> Floats:
    """Windows without so much of their heads and tails; what has no length then is left out."""
    cut: Floats = window + np.array([head, -tail])
    return cut[cut[:, 1] > cut[:, 0]]


def touch(window: Floats, other: Floats) -> Bools:
    """Whether each window touches one of the others, which are in order of their begin."""
    before = np.searchsorted(other[:, 0], window[:, 1])
    ends = np.concatenate([[-np.inf], np.maximum.accumulate(other[:, 1])])
    return np.asarray(ends[before] > window[:, 0], dtype=bool)


def _regions(window: Floats, other: Floats, head: float, tail: float) -> tuple[Floats, int]:
    """Widened windows, united where they meet; towards other activity no further than half of the way.

    How many ends met other activity, whose readings may hold some of its power, is the second part.
    """
    on, off = window[:, 0] - head, window[:, 1] + tail
    ends, begins = np.sort([-np.inf, *other[:, 1]]), np.append(other[:, 0], np.inf)
    earliest = (ends[np.searchsorted(ends, window[:, 0], "right") - 1] + window[:, 0]) / 2
    latest = (begins[np.searchsorted(begins, window[:, 1])] + window[:, 1]) / 2
    met = int(np.sum(on < earliest) + np.sum(off > latest))
    on, off = np.maximum(on, earliest), np.minimum(off, latest)
    first = np.flatnonzero(np.concatenate([[True], on[1:] > np.maximum.accumulate(off)[:-1]]))
    return np.stack([on[first], np.maximum.reduceat(off, first)], axis=1), met
