"""Readings that contradict the spans or the length of the recording get proven times, or give no power."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds import random_draw
from fixtures.worlds.lab_recording import plain_lab
from rig.analysis.evaluate import evaluate
from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.alignment.breaks import bridged, strays
from rig.analysis.timing.alignment.shown import shown
from rig.analysis.timing.readings import Readings
from rig.recording.reader import open_run
from rig.recording.traces.traces import Trace
from rig.types import Floats, Rail
from tests.support.labs import POWER, evaluated, lab_of, measured, off


@pytest.mark.parametrize("kind", ["every_reading_twice", "wrong_rate", "lost_block"])
def test_readings_get_the_times_that_the_spans_prove(kind: str, tmp_path: Path) -> None:
    lab, result = evaluated(kind, 1_000_000, tmp_path)
    assert off(lab, result) <= 1.5
    assert any(note.startswith("Rail core: ") and "reading" in note for note in result.notes)


@pytest.mark.parametrize(("seed", "late"), [(1, -0.4), (2, -0.2), (2, 0.2), (1, 0.4)])
def test_clocks_that_are_apart_lose_no_reading_and_change_no_rate(seed: int, late: float, tmp_path: Path) -> None:
    lab = lab_of("plain", seed)
    lab.said_late_s = late * float(np.median(np.diff(lab.spans_s[:, 0])))
    result = measured(lab, tmp_path)

    assert off(lab, result) <= 1.5
    (note,) = [n for n in result.notes if "all spans" in n]
    assert f"{'later' if late > 0.0 else 'earlier'} in the trace" in note
    assert not any("readings are missing in" in n or "rate of readings" in n for n in result.notes)


def test_spans_next_to_those_that_were_recorded_prove_no_wander(tmp_path: Path) -> None:
    """At a wrong rate each span may seem to move to another span's place; the last spans are not visible."""
    lab, result = evaluated("wrong_rate", 1_000_070, tmp_path)
    assert off(lab, result) <= 1.0
    assert any("of the declared rate of readings" in note for note in result.notes)


@pytest.mark.parametrize("seed", [39, 78])
def test_last_spans_of_which_nothing_is_left_are_named_and_do_not_count(seed: int, tmp_path: Path) -> None:
    """The break cuts a span, or later readings fall on the next spans by chance."""
    lab, result = evaluated("lost_block", 1_000_000 + seed, tmp_path)
    assert off(lab, result) <= 1.5
    assert any("an unknown number before the last" in note for note in result.notes)


def test_classes_of_a_device_that_sleeps_are_no_jitter_of_stamps(tmp_path: Path) -> None:
    power = evaluated("gated_by_class", 1_000_000, tmp_path)[1].quantities[POWER]
    assert power.half_width() < 5e-3 * abs(power.value)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [("plain", 0), ("gated_at_once", 1), ("class_of_powers", 2), ("first_spans_hot", 0), ("bursts", 1)],
)
def test_what_a_device_does_contradicts_nothing(kind: str, seed: int, tmp_path: Path) -> None:
    assert POWER in evaluated(kind, seed, tmp_path)[1].quantities


def test_a_break_is_named_with_its_place_and_the_number_of_readings(tmp_path: Path) -> None:
    _, run = evaluated("lost_block", 1_000_001, tmp_path)  # 229 readings are lost after 6714 at 1730 Hz

    (note,) = [n for n in run.notes if "missing from its grid" in n]
    assert "+229 at" in note


def test_readings_are_never_fewer_than_none(tmp_path: Path) -> None:
    """Spans that are longer in the trace fit other places too, but only if a negative number of readings was lost."""
    _, result = evaluated("governor_follows_load", 1_000_012, tmp_path)

    assert POWER in result.quantities
    assert not any("missing" in note for note in result.notes)


def test_more_lost_than_half_of_the_spans_gives_no_power(tmp_path: Path) -> None:
    _, result = evaluated("lost_block", 1_000_006, tmp_path)

    assert POWER not in result.quantities
    assert "of the spans" in result.refusals[0].reason or "of spans" in result.refusals[0].reason


@pytest.mark.parametrize("seed", [1000231, 1000368])
def test_long_spans_with_short_gaps_and_bursts_contradict_nothing(tmp_path: Path, seed: int) -> None:
    random_draw.measured(random_draw.draw(seed), tmp_path / "run")
    result = evaluate(open_run(tmp_path / "run"))

    assert not result.refusals


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


def test_a_lost_block_is_found_where_it_is() -> None:
    on_s = 0.1 + np.cumsum(np.random.default_rng(2).uniform(0.09, 0.1, 48))
    spans_s = np.column_stack([on_s, on_s + 0.05])
    r = seen(spans_s)
    cut = r.watts[: 5000 - 130].copy()
    cut[2480:] = r.watts[2610:]
    start_s, end_s, fine = r.start_s[: len(cut)], r.end_s[: len(cut)], np.ones(len(cut), bool)
    r = replace(r, watts=cut, raw=cut, ok=fine, overload=~fine, start_s=start_s, end_s=end_s)
    found = shown(r, spans_s)
    assert found is not None
    mended = bridged(trace_of(r), found, None, 2e-3, 5.0)
    assert mended is not None and mended.note is not None
    assert mended.check.found.startswith("+130 at 2.3")


def test_spans_that_a_coarse_timer_stamps_as_nothing_give_a_refusal(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.spans_s[:, 1] = lab.spans_s[:, 0] + 0.1e-3
    lab.device_hz, lab.starts_on_tick = 1000.0, True
    result = measured(lab, tmp_path)

    assert POWER not in result.quantities
    assert any("a window lasts 0 s" in refusal.reason for refusal in result.refusals)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("blocks_out_of_order", 1_000_005),
        ("kernels_launched_asynchronously", 1_000_006),
        ("rate_switched_without_a_word", 1_000_004),
        ("stamps_of_a_timer_beside_the_work", 1_000_000),
        ("trace_off_by_a_few_pitches", 1_000_007),
    ],
)
def test_work_that_some_spans_lack_and_that_lies_elsewhere_gives_no_power(kind: str, seed: int, tmp_path: Path) -> None:
    """Most spans are where they are stamped, or nearly none; no loss of readings explains the others."""
    _, result = evaluated(kind, seed, tmp_path)

    assert POWER not in result.quantities
    assert "at another time" in result.refusals[0].reason


@pytest.mark.parametrize(("seed", "share"), [(7, 0.5), (9, 0.2)])
def test_a_ring_buffer_that_was_not_unrolled_gives_no_power(seed: int, share: float, tmp_path: Path) -> None:
    """The recording ends before it begins, which no loss of readings explains."""
    lab = plain_lab(seed, "plain")
    lab.deliver = lambda n: np.roll(np.arange(n), int(share * n))
    result = measured(lab, tmp_path)

    assert POWER not in result.quantities
    assert any(why in refusal.reason for refusal in result.refusals for why in ("at another time", "rise of rail"))
