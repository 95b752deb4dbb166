"""Readings are placed at their spans, however far away, with the right uncertainty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from fixtures.worlds.random_draw import draw, measured
from rig.analysis.evaluate import evaluate
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.timeline import activity_of
from rig.recording.reader import open_run
from tests.support.labs import evaluated, off


@pytest.mark.parametrize("seed", [1000000, 1000027])
def test_readings_lost_one_by_one_are_followed_to_the_last_span(seed: int, tmp_path: Path) -> None:
    """The last spans are farther away than the first search reaches; most spans are nearer."""
    assert off(*evaluated("drops_now_and_then", seed, tmp_path)) <= 1.0


def test_spans_that_nearly_touch_have_no_edges_to_follow(tmp_path: Path) -> None:
    """Two of its spans are closer than the readings that are left out of the levels next to an edge."""
    measured(draw(115), tmp_path / "run")
    result = evaluate(open_run(tmp_path / "run"))

    assert not any("later in the trace" in note for note in result.notes)


@pytest.mark.parametrize("seed", [41000003, 41000008])
def test_a_long_reading_beside_a_span_is_not_cut_by_what_is_looked_at_near_an_edge(seed: int, tmp_path: Path) -> None:
    """The logger reads up to 25 times less often in gaps, and notices the begin of work late."""
    assert off(*evaluated("logger_slows_down_when_quiet", seed, tmp_path)) <= 1.0


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
