"""Read the spans of a device without time stamps from the edges of a GPIO pin that a meter recorded.

The spans are then on the meter's clock, so the readings of this meter need no alignment. The rate error of this clock
adds to the uncertainty of every time.
"""

import numpy as np
import pyarrow as pa
from msgspec import structs
from msgspec.structs import replace

from rig.analysis.timing.clocks_and_tolerances import timebase_of
from rig.analysis.timing.timebase import SURE, Timebase
from rig.errors import DataError
from rig.recording.columns.buffers import array_of, valid
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace
from rig.types import Floats, Indices


def on_device_clock(run: Run) -> tuple[Run, Timebase]:
    """Return the run, with spans from a pin if its device marks them there, and the timebase of the spans' clock.

    Raises ``DataError`` if several pins are declared to mark the spans, and for an issue without exactly one begin and
    one end.
    """
    pins = [t for t in run.traces.values() if t.rail.kind == "edges" and t.rail.pin is not None]
    if not (pins and run.start.device.spans_on_pin):
        device_clock = run.start.device.clock
        return run, timebase_of(run, device_clock.name if device_clock else "host")
    if len(pins) > 1:
        names = ", ".join(sorted(t.rail.name for t in pins))
        what = f"the device marks its spans on one pin, but {names} are all declared to be that pin"
        remedy = "Declare `pin` for the input that the pin is wired to, and for no other input"
        raise DataError(what, field="pin", value=names, remedy=remedy)
    pin = pins[0]
    beside = (n for n, t in run.traces.items() if t.clock == pin.clock and t.rail.kind != "edges" and len(t.value) > 1)
    timebase = timebase_of(run, pin.clock, next(beside, None))
    look_s = 1.0 / pin.rail.rate_hz if pin.rail.rate_hz > 0 else 1.0 / timebase.clock.tick_hz
    return _with_spans(run, pin, timebase), replace(timebase, look_s=look_s, lag_s=pin.rail.pin_lag_s)


def _with_spans(run: Run, pin: Trace, timebase: Timebase) -> Run:
    t = run.replies
    issued, completed, stamped = (valid(t[name]) for name in ("issued_ns", "completed_ns", "on_tick"))
    rows = np.flatnonzero(issued & completed & ~stamped)
    t0_ns = run.start.t0_ns
    hosts = [array_of(t[name], 0)[rows] for name in ("issued_ns", "completed_ns")]
    rows = rows[np.argsort(hosts[0], kind="stable")]
    windows = np.column_stack([np.sort(hosts[0]), np.sort(hosts[1])]).astype(np.int64)
    issue = array_of(t["issue"])[rows]
    ticks = _pairs(pin, timebase, (windows - t0_ns) * 1e-9, issue)
    phases = run.start.device.phases or ["inference"]
    columns = {name: t[name].to_pylist() for name in ("phase", "on_tick", "off_tick")}
    for row, (on, off) in zip(rows.tolist(), ticks.tolist(), strict=True):
        columns["phase"][row] = columns["phase"][row] or phases[0]
        columns["on_tick"][row], columns["off_tick"][row] = on, off
    for name, values in columns.items():
        field = t.schema.field(name)
        t = t.set_column(t.schema.get_field_index(name), field, pa.array(values, field.type))
    device = structs.replace(run.start.device, clock=run.clocks()[pin.clock])
    return replace(run, replies=t, start=structs.replace(run.start, device=device))


def _edges(pin: Trace, timebase: Timebase) -> tuple[Indices, Indices]:
    """Return ticks of edges, half a sampling interval before they were seen, and the level after each (-1: either)."""
    use = pin.value == 0 if pin.rail.pin == "stamp" else np.ones(len(pin.value), bool)
    half = round(0.5 * timebase.clock.tick_hz / pin.rail.rate_hz) if pin.rail.rate_hz > 0 else 0
    level = pin.value[use] if pin.rail.pin == "level" else np.full(np.count_nonzero(use), -1)
    return np.asarray(pin.end_tick[use] - half, dtype=np.int64), np.asarray(level, dtype=np.int64)


def _pairs(pin: Trace, timebase: Timebase, windows_s: Floats, issue: Indices) -> Indices:
    """Return begin and end of each issue in ticks, shape (k, 2).

    Raises ``DataError`` for an issue without exactly one begin and one end.
    """
    tick, level = _edges(pin, timebase)
    if not len(issue):
        return np.zeros((0, 2), np.int64)
    at_s = timebase.seconds(tick)
    wide_s = SURE * timebase.most_sigma(windows_s) + pin.rail.pin_lag_s
    owner = np.searchsorted(0.5 * (windows_s[1:, 0] + windows_s[:-1, 1]), at_s)  # the nearest issue
    near = np.flatnonzero((at_s >= windows_s[owner, 0] - wide_s) & (at_s <= windows_s[owner, 1] + wide_s))
    if len(near) == 2 * len(issue):
        # if there are exactly as many edges as expected, their order decides, even with uncertain brackets
        on, off = near[0::2], near[1::2]
        within = (at_s[on] >= windows_s[:, 0] - wide_s) & (at_s[off] <= windows_s[:, 1] + wide_s)
        if np.all(within) and np.all(level[on] != 0) and np.all(level[off] != 1):
            return np.column_stack([tick[on], tick[off]])
    begins, ends = (np.bincount(owner[near][level[near] != k], minlength=len(issue)) for k in (0, 1))
    if pin.rail.pin != "level":
        begins, ends = (begins + 1) // 2, ends // 2
    wrong = np.flatnonzero((begins != 1) | (ends != 1))
    first = int(wrong[0]) if len(wrong) else 0
    what = f"issue {issue[first]} has {begins[first]} begins and {ends[first]} ends on the pin {pin.rail.name}"
    what += f" instead of one each; {max(len(wrong), 1)} of {len(issue)} issues are wrong"
    remedy = "Check the wire, its ground and a filter against bounces, and that the device marks each span as "
    remedy += f"`pin` = {pin.rail.pin} declares"
    raise DataError(what, field="pin", value=int(issue[first]), remedy=remedy)
