"""Dynamic power of each kind of bench is within its interval: what readings hide is stated, what they show is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Piece, plain_lab
from rig.analysis.result.figure_key import LITERAL, FigureKey
from tests.support.labs import POWER, evaluated, lab_of, measured, off

HELD = [
    # what readings cannot show
    ("range_switch_lags", 0), ("clips_at_zero", 1), ("point_samples_of_pulses", 2), ("trace_ends_early", 0),
    ("volts_read_slowly", 1), ("stamps_on_arrival", 2), ("spans_short_against_a_reading", 0),
    # readings that are missing: a class, the begin of each span, one by one over the recording
    ("a_class_missing", 0), ("a_class_missing", 1000028), ("first_readings_missing", 1000016),
    ("drops_now_and_then", 0), ("drops_now_and_then", 1000025),
    # clocks and filters that spans are followed through
    ("device_oscillator_warms_up", 1), ("filter_undeclared", 2), ("wrong_rate", 11), ("lost_block", 1000115),
    ("lost_block", 1000182), ("gated_inrush", 1000006),
    # sleep between spans, also below the configured idle
    ("gated_at_once", 1000000), ("gated_late", 1000001), ("gated_deep", 1000002),
    # idle that moves between its windows
    ("idle_steps_at_first_span", 0), ("idle_steps_in_the_middle", 1), ("idle_drifts_with_one_window", 2),
    ("gated_at_once+idle_drifts_with_one_window", 1),
    # leakage that rises with the heat of the work, and a supply that falls where heat would rise
    ("slow_meter_while_the_board_warms", 9000002), ("many_warmups_few_that_count", 9000000),
    ("only_window_is_after_work_and_cools", 9000001), ("supply_settles_after_first_span", 31000005),
    # idle that swings between its windows, a gain that changes, and a meter that loses power at edges
    ("rare_spans_through_a_week", 11000002), ("rare_spans_through_a_week", 11000004),
    ("gain_sags_in_the_afternoon", 11000001), ("second_rail_missing_for_a_while", 11000000),
    ("gain_renewed_in_stairs", 11000003), ("logarithmic_amplifier_before_the_mean", 11000000),
    # a long first warm-up heats, idle wanders under a long batch, a job yields to the work, a fan follows heat
    ("compile_then_warm_up_then_count", 12000000), ("compile_then_warm_up_then_count", 12000002),
    # work after which idle settles for longer than gaps last, before the last window
    ("compile_then_warm_up_then_count", 12000004), ("criterion_samples_grow_linearly", 13000000),
    ("streams_without_rest_while_it_warms", 9000005), ("monitor_open_during_the_work", 11000007),
    ("offline_batch_is_most_of_the_run", 12000000), ("nice_job_fills_gaps_and_the_last_window", 12000004),
    ("offline_batch_is_most_of_the_run", 12000001), ("two_sessions_glued", 6000000002),
    ("rests_until_it_has_cooled", 13000001), ("rests_until_it_has_cooled", 13000007),
    ("fan_with_hysteresis_on_a_jetson", 12000003), ("fan_with_hysteresis_on_a_jetson", 12000004),
    # spans in step with a slow meter, and a step that only spans have
    ("stream_of_one_hertz_on_a_two_hertz_meter", 12000000), ("more_digits_at_idle_than_at_work", 12000003),
    # idle that moves by more than work adds
    ("clock_pinned_for_each_block", 11000005),
    # work beside spans: an input copied within or for longer than a reading, gaps too short to see, a governor
    ("preparation_before_each_span", 3000008), ("preparation_before_each_span", 1000031),
    ("batches_of_spans", 2000002), ("governor_follows_load", 1000014),
    ("update_runs_for_a_while", 6000000005), ("work_without_spans", 1_000_021),
    # a capacitor, alone, beside a governor that follows later, and where the device sleeps
    ("capacitor_behind_the_shunt", 1000000),
    ("governor_follows_load+capacitor_behind_the_shunt", 41000011),
    ("governor_follows_load+capacitor_behind_the_shunt", 41000039),
    ("gated_at_once+capacitor_behind_the_shunt", 5000009),
    ("gated_heads_and_tails+capacitor_behind_the_shunt", 5000011),
    # instruments within their limits and their steps
    ("autoranged", 1_000_000), ("nonlinear", 1_000_001), ("coarse_steps", 1_000_002),
    ("coarse_steps_undeclared", 1_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "seed"), HELD)
def test_dynamic_power_is_stated_and_its_interval_is_not_silently_wrong(kind: str, seed: int, tmp_path: Path) -> None:
    lab, result = evaluated(kind, seed, tmp_path)
    assert off(lab, result) <= 1.5


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("peak_detect_of_an_oscilloscope", 77000000), ("wraps_at_full_scale", 77000001),
        ("wraps_at_full_scale", 77000005), ("peaks_paid_back_at_the_limit", 77000003),
        ("peaks_paid_back_at_the_limit", 77000004), ("truncated_to_a_step", 77000002),
    ],
)  # fmt: skip
def test_readings_that_are_extremes_wrapped_late_or_cut_off_are_within_the_interval(
    kind: str, seed: int, tmp_path: Path
) -> None:
    lab, result = evaluated(kind, seed, tmp_path)
    assert off(lab, result) <= 1.0
    assert off(lab, result, FigureKey("active_power_w")) <= 1.0


@pytest.mark.parametrize(("kind", "seed"), [("idle_steps_at_first_span", 1), ("idle_drifts_with_one_window", 0)])
def test_idle_that_moves_is_in_the_figure_by_the_text_too(kind: str, seed: int, tmp_path: Path) -> None:
    lab, result = evaluated(kind, seed, tmp_path)
    assert off(lab, result, FigureKey("dynamic_power_w", method=LITERAL)) <= 1.5


def test_sleep_between_spans_is_not_idle_that_moves(tmp_path: Path) -> None:
    lab, result = evaluated("gated_at_once", 1, tmp_path)
    assert off(lab, result) <= 1.0
    assert result.quantities[POWER].half_width() < 0.01 * result.quantities[POWER].value


def test_peaks_that_an_undeclared_range_cuts_off_give_no_power(tmp_path: Path) -> None:
    _, result = evaluated("clips_at_peaks", 0, tmp_path)
    assert POWER not in result.quantities
    assert any("end of the meter's range" in r.reason for r in result.refusals)


@pytest.mark.parametrize(
    "kind",
    [
        "prefix_lost_at_the_threshold",
        "negative_read_as_unsigned",
        "mean_since_start",
        "probe_switch_knocked",
        "divided_by_the_nominal_interval",
    ],
)
def test_readings_of_another_unit_sign_or_meaning_give_no_power(kind: str, tmp_path: Path) -> None:
    _, result = evaluated(kind, 1, tmp_path)
    assert POWER not in result.quantities
    assert any("readings of rail core at idle" in r.reason for r in result.refusals)


@pytest.mark.parametrize("seed", [0, 3])
def test_idle_windows_that_begin_before_a_device_rests_are_told_and_counted(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("each_gap_called_idle", seed, tmp_path)
    assert off(lab, result) <= 1.5
    assert any("more than where they end" in note for note in result.notes)


def test_a_trace_that_ends_early_counts_what_it_shows_and_says_so(tmp_path: Path) -> None:
    lab, result = evaluated("trace_ends_early", 0, tmp_path)
    power = result.quantities[POWER]
    assert 0.5 * len(lab.spans_s) < power.n < len(lab.spans_s)
    assert power.bias > 0.0
    assert "spans outside the trace" in [c.source for c in power.components]
    assert any("holds no reading, so a drift of idle is not known" in note for note in result.notes)


@pytest.mark.parametrize("seed", [0, 2])
def test_a_trend_of_the_spans_that_were_seen_is_taken_on_to_those_that_were_not(tmp_path: Path, seed: int) -> None:
    lab = plain_lab(seed, "warms up")
    lab.span_w = lab.idle_w + (lab.span_w - lab.idle_w) * np.linspace(1.0, 1.5, len(lab.span_w))
    seen_s = float(lab.spans_s[int(0.7 * len(lab.spans_s)), 0])
    lab.deliver = lambda n: np.arange(int(seen_s * lab.rate_hz))
    assert 0.5 <= off(lab, measured(lab, tmp_path)) <= 1.0


def test_spans_shorter_than_a_reading_have_a_figure_of_their_area_and_a_note(tmp_path: Path) -> None:
    lab, result = evaluated("spans_short_against_a_reading", 1, tmp_path)
    assert float(lab.spans_s[0, 1] - lab.spans_s[0, 0]) * lab.rate_hz < 2.0
    assert any("fitted to what spans and gaps fill of each reading" in note for note in result.notes)


@pytest.mark.parametrize("kind", ["class_of_powers", "plain"])
def test_spans_of_even_power_are_not_widened_by_their_differences(kind: str, tmp_path: Path) -> None:
    lab = plain_lab(1, kind)
    KINDS[kind](lab)
    lab.aperture = 0.3
    power = measured(lab, tmp_path).quantities[POWER]
    assert "spans that differ, seen in part" not in [c.source for c in power.components]


def test_a_filter_as_slow_as_spans_and_gaps_is_named_and_its_figure_is_fitted(tmp_path: Path) -> None:
    """An undeclared moving mean of eight readings, over spans and gaps of nine."""
    lab, result = evaluated("filter_undeclared", 1000053, tmp_path)
    assert off(lab, result) <= 1.5
    assert any("filter" in note and "filter_tau_s" in note for note in result.notes)


@pytest.mark.parametrize("seed", [1000013, 1000040])
def test_a_capacitor_and_a_device_that_tails_off_are_both_what_power_may_be(seed: int, tmp_path: Path) -> None:
    """The readings are the same, whether a short filter seems to fit or none does."""
    lab, result = evaluated("capacitor_behind_the_shunt", seed, tmp_path)
    assert off(lab, result) <= 1.5
    assert result.quantities[POWER].bias > 0.0
    assert any("gaps begin with what spans" in note for note in result.notes)


@pytest.mark.parametrize("seed", [4, 13])
def test_a_capacitor_shows_beside_spans_that_begin_low(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "plain")
    low_w, length_s = 0.3 * (lab.idle_w - lab.span_w[0]), lab.spans_s[0, 1] - lab.spans_s[0, 0]
    lab.pieces = [Piece(on, on + 0.1 * length_s, low_w) for on in lab.spans_s[:, 0]]
    KINDS["capacitor_behind_the_shunt"](lab)
    assert off(lab, measured(lab, tmp_path)) <= 1.5


@pytest.mark.parametrize("seed", [1000004, 1000020])
def test_ends_of_spans_after_which_power_stays_up_are_as_uncertain_as_their_place(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("governor_follows_load", seed, tmp_path)
    assert off(lab, result) <= 1.5
    assert "place of spans beside other levels" in [c.source for c in result.quantities[POWER].components]


@pytest.mark.parametrize("seed", [1000010, 1000017])
def test_pulses_that_the_device_draws_or_the_meter_picks_up_make_the_same_recording(seed: int, tmp_path: Path) -> None:
    """Power differs by what falls into the spans, so an interval narrow for one error misses the other."""
    drawn, picked_up = (lab_of("idle_housekeeping", seed) for _ in range(2))
    picked_up.pieces = []
    picked_up.seen_j = drawn.seen_j  # type: ignore[method-assign]
    results = [measured(lab, tmp_path / name) for lab, name in ((drawn, "drawn"), (picked_up, "picked up"))]
    traces = {(tmp_path / name / "run" / "traces" / "core.arrows").read_bytes() for name in ("drawn", "picked up")}
    assert len(traces) == 1
    assert all(off(lab, results[0]) <= 1.0 for lab in (drawn, picked_up))


def test_spans_that_all_go_on_after_their_stamps_are_no_work_without_a_span(tmp_path: Path) -> None:
    """The supply is limited, and a capacitor recharges for most of each gap."""
    lab, result = evaluated("peaks_paid_back_at_the_limit", 77000002, tmp_path)
    assert off(lab, result) <= 1.5
    assert not any("where no span is" in note for note in result.notes)


@pytest.mark.parametrize("seed", [8000000, 8000006])
def test_a_filter_that_nobody_declared_may_be_the_device_itself(seed: int, tmp_path: Path) -> None:
    """Several boards start and stop one after another, as smoothly as behind a filter."""
    lab, result = evaluated("boards_start_one_after_another", seed, tmp_path)
    assert off(lab, result) <= 1.5
    assert any("smooth alike" in note and "middle of both" in note for note in result.notes)


def test_spans_that_draw_less_than_idle_show_no_break(tmp_path: Path) -> None:
    lab, result = evaluated("core_sleeps_while_the_rest_works", 8000005, tmp_path)
    assert off(lab, result) <= 1.5
    assert not [f.rule for f in result.findings if f.effect == "check"]


def test_a_logger_that_the_work_delays_takes_longer_readings_and_misses_none(tmp_path: Path) -> None:
    lab, result = evaluated("logger_starves_while_the_device_works", 8000001, tmp_path)
    assert off(lab, result) <= 1.5
    assert not any("missing" in note for note in result.notes)


@pytest.mark.parametrize("seed", [61000000, 61000002, 61000003])
def test_a_timer_that_cuts_spans_short_does_not_cancel_in_energy_if_the_trace_shows_their_ends(
    seed: int, tmp_path: Path
) -> None:
    lab, result = evaluated("starts_on_coarse_tick", seed, tmp_path)
    assert off(lab, result, FigureKey("energy_per_inference_j")) <= 1.0


@pytest.mark.parametrize("seed", [9000000, 9000001, 9000002])
def test_few_spans_of_unlike_lengths_have_no_jitter_of_their_lengths(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("few_spans_on_a_drifting_supply", seed, tmp_path)
    assert off(lab, result) <= 1.0
    assert result.quantities[POWER].half_width() < 0.03 * result.quantities[POWER].value


def test_a_meter_that_counts_nothing_at_idle_fails_a_check(tmp_path: Path) -> None:
    _, result = evaluated("counter_stands_still_at_idle", 14000000, tmp_path)
    assert [f.rule for f in result.findings if f.effect == "check" and not f.ok] == ["Idle power above zero"]
