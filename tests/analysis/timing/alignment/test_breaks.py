"""Readings that contradict the spans or the length of the recording get proven times, or give no power."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.alignment.breaks import bridged, strays
from rig.analysis.timing.alignment.shown import shown
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import activity_of
from rig.recording.reader import open_run
from rig.recording.traces.traces import Trace
from rig.types import Floats, Rail

PERIOD_S = 1e-3
BUSY_S = np.array([[k * 0.1, k * 0.1 + 0.05] for k in range(1, 49)])
RAIL = Rail("core")


def seen(spans_s: Floats) -> Readings:
    """Return readings of 1 W, and of 3 W in these spans, with noise of 0.1 W."""
    start_s = np.arange(5000) * PERIOD_S
    end_s = start_s + PERIOD_S
    busy = mean_signal(edges_of(spans_s), start_s, end_s, 0.0)
    watts = 1.0 + 2.0 * busy + np.random.default_rng(1).normal(0.0, 0.1, len(start_s))
    fine = np.ones(len(watts), bool)
    return Readings(RAIL, start_s, end_s, watts, watts, fine, ~fine, PERIOD_S, 0.0)


def straying(drawn_s: Floats, stamped_s: Floats) -> int:
    found = shown(seen(drawn_s), stamped_s)
    assert found is not None
    return int(np.count_nonzero(strays(found)))


def test_spans_that_the_trace_shows_where_they_are_do_not_stray() -> None:
    assert straying(BUSY_S, BUSY_S) == 0


def test_spans_at_another_time_stray() -> None:
    late_s = BUSY_S.copy()
    late_s[36:40] += 0.02
    assert straying(BUSY_S, late_s) == 4


def test_spans_that_draw_half_as_much_stray_nowhere() -> None:
    """Each span has its own levels, so another power is no reason to search elsewhere."""
    r = seen(BUSY_S)
    half = mean_signal(edges_of(BUSY_S[::2]), r.start_s, r.end_s)
    found = shown(replace(r, watts=r.watts - half), BUSY_S)
    assert found is not None
    assert not strays(found).any()


def trace_of(r: Readings) -> Trace:
    ticks = np.arange(len(r.watts), dtype=np.int64) * 1000
    rail = replace(RAIL, rate_hz=1000.0)
    return Trace(rail, "meter", "meter", ticks, ticks + 1000, r.watts, np.zeros(len(ticks), bool), uniform=True)


@pytest.mark.parametrize("seed", range(6))
def test_spans_that_stand_out_where_the_clocks_say_prove_no_break(seed: int) -> None:
    """Their power and their cycle vary; a few of them use hardly any power."""
    rng = np.random.default_rng(seed)
    on_s = 0.1 + np.cumsum(rng.uniform(0.08, 0.1, 48))
    spans_s = np.column_stack([on_s, on_s + 0.04])
    r = seen(np.zeros((0, 2)))
    watts = r.watts.copy()
    for window, watt in zip(spans_s, rng.uniform(0.2, 3.0, 48) * (rng.random(48) > 0.1), strict=True):
        watts += watt * mean_signal(edges_of(window[None]), r.start_s, r.end_s)
    r = replace(r, watts=watts)
    found = shown(r, spans_s)
    assert found is not None
    assert bridged(trace_of(r), found, None, 2e-3, 5.0) is None


def lab_with_long_spans(seed: int) -> Lab:
    """Return a lab whose spans last 2000 readings, with noise of a tenth of what they add, and clocks of 0.4 ms."""
    lab, n, each = plain_lab(seed, "long spans"), 40, 2000
    lab.rate_hz, lab.device_rate, lab.meter_rate, lab.bracket_s = 1e5, 0.0, 1e-4, 4e-4
    on = (20_000 + 2 * each * np.arange(n)) / lab.rate_hz
    lab.spans_s, lab.span_w = np.column_stack([on, on + each / lab.rate_hz]), np.full(n, 1.3 * lab.idle_w)
    lab.label, lab.noise_w, lab.end_s = np.zeros(n, int), 0.03 * lab.idle_w, float(on[-1]) + 0.24
    lab.idle_s = [(0.02, 0.18), (lab.end_s - 0.18, lab.end_s - 0.02)]
    return lab


@pytest.mark.parametrize("part", [1, 8])
@pytest.mark.parametrize("seed", [4, 6])
def test_long_spans_among_noise_are_placed_to_a_part_of_a_reading(seed: int, part: int, tmp_path: Path) -> None:
    """All readings of a long span show its edge only roughly; few near the edge show it well, once it is near."""
    lab = lab_with_long_spans(seed)
    write(lab, tmp_path / "run")
    run, device = on_device_clock(open_run(tmp_path / "run"))
    trace, activity = run.traces["core"], activity_of(run, device)
    number = (lab.spans_s - 0.005) * lab.rate_hz * (1.0 + lab.meter_rate) - lab.offset_s
    (rail,) = aligned_rails(run, activity, device, np.inf, len(trace.value) // part)
    begins_s = rail.timebase.seconds(np.asarray(trace.start_tick))
    late_s = np.interp(number, np.arange(len(begins_s)), begins_s) - activity.every_s()
    assert abs(float(late_s.mean())) < 2.0 * rail.timebase.sigma_s < 1.0 / lab.rate_hz
