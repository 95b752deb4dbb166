"""Readings that contradict the spans or the length of the recording get proven times, or give no power."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.timeline import activity_of
from rig.recording.reader import open_run


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
