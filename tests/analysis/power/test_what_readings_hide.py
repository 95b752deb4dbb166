"""On benches as in labs, what readings cannot show is bounded or refused, and what they show is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Lab, Piece, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.recording.reader import open_run

POWER = FigureKey("dynamic_power_w")


def evaluated(kind: str, seed: int, folder: Path) -> tuple[Lab, Result]:
    """Return the lab and the result of one kind, or of several joined by +."""
    lab = plain_lab(seed, kind)
    for each in kind.split("+"):
        KINDS[each](lab)
    write(lab, folder / "run")
    return lab, evaluate(open_run(folder / "run"))


def near(lab: Lab, q: Quantity) -> bool:
    """Return whether the truth is within 1.5 half-widths: one interval in twenty may miss."""
    return abs(q.value - lab.truth()["dynamic_power_w"]) <= 1.5 * q.half_width()


@pytest.mark.parametrize(
    "kind",
    [
        "range_switch_lags",
        "clips_at_zero",
        "point_samples_of_pulses",
        "trace_ends_early",
        "volts_read_slowly",
        "stamps_on_arrival",
        "spans_short_against_a_reading",
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_dynamic_power_is_stated_and_no_figure_is_silently_wrong(kind: str, seed: int, tmp_path: Path) -> None:
    lab, result = evaluated(kind, seed, tmp_path)
    assert near(lab, result.quantities[POWER])


@pytest.mark.parametrize("seed", range(3))
def test_peaks_that_an_undeclared_range_cuts_off_give_no_power(seed: int, tmp_path: Path) -> None:
    _, result = evaluated("clips_at_peaks", seed, tmp_path)
    assert POWER not in result.quantities
    assert any("end of the meter's range" in r.reason for r in result.refusals)


@pytest.mark.parametrize(
    "kind",
    ["prefix_lost_at_the_threshold", "negative_read_as_unsigned", "mean_since_start", "probe_switch_knocked"],
)
def test_readings_of_another_unit_sign_or_meaning_give_no_power(kind: str, tmp_path: Path) -> None:
    _, result = evaluated(kind, 1, tmp_path)
    assert POWER not in result.quantities
    assert any("readings of rail core at idle" in r.reason for r in result.refusals)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_idle_windows_that_begin_before_a_device_rests_are_told_and_counted(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("each_gap_called_idle", seed, tmp_path)
    assert near(lab, result.quantities[POWER])
    assert any("more than where they end" in note for note in result.notes)


def test_power_above_idle_for_longer_than_spans_last_is_not_theirs_without_a_word(tmp_path: Path) -> None:
    """The input is copied before each span, and the clock is known only within two readings."""
    lab, result = evaluated("preparation_before_each_span", 3000008, tmp_path)
    assert near(lab, result.quantities[POWER])


def test_a_trace_that_ends_early_counts_what_it_shows_and_says_so(tmp_path: Path) -> None:
    lab, result = evaluated("trace_ends_early", 0, tmp_path)
    power = result.quantities[POWER]
    assert 0.5 * len(lab.spans_s) < power.n < len(lab.spans_s)
    assert power.bias > 0.0
    assert "spans outside the trace" in [c.source for c in power.components]
    assert any("holds no reading, so a drift of idle is not known" in note for note in result.notes)


@pytest.mark.parametrize("seed", range(3))
def test_a_trend_of_the_spans_that_were_seen_is_taken_on_to_those_that_were_not(tmp_path: Path, seed: int) -> None:
    lab = plain_lab(seed, "warms up")
    lab.span_w = lab.idle_w + (lab.span_w - lab.idle_w) * np.linspace(1.0, 1.5, len(lab.span_w))
    seen_s = float(lab.spans_s[int(0.7 * len(lab.spans_s)), 0])
    lab.deliver = lambda n: np.arange(int(seen_s * lab.rate_hz))
    write(lab, tmp_path / "run")
    power = evaluate(open_run(tmp_path / "run")).quantities[POWER]

    error = abs(power.value - lab.truth()["dynamic_power_w"])
    assert error <= power.half_width() <= 2.0 * error


def test_spans_shorter_than_a_reading_have_a_figure_of_their_area_and_a_note(tmp_path: Path) -> None:
    lab, result = evaluated("spans_short_against_a_reading", 1, tmp_path)
    assert float(lab.spans_s[0, 1] - lab.spans_s[0, 0]) * lab.rate_hz < 2.0
    assert any("fitted to what spans and gaps fill of each reading" in note for note in result.notes)


@pytest.mark.parametrize("kind", ["class_of_powers", "plain"])
def test_spans_of_even_power_are_not_widened_by_their_differences(kind: str, tmp_path: Path) -> None:
    lab = plain_lab(1, kind)
    KINDS[kind](lab)
    lab.aperture = 0.3
    write(lab, tmp_path / "run")
    power = evaluate(open_run(tmp_path / "run")).quantities[POWER]
    assert "spans that differ, seen in part" not in [c.source for c in power.components]


def test_a_filter_as_slow_as_spans_and_gaps_is_named_and_its_figure_is_fitted(tmp_path: Path) -> None:
    """An undeclared moving mean of eight readings, over spans and gaps of nine."""
    lab, result = evaluated("filter_undeclared", 1000053, tmp_path)

    assert near(lab, result.quantities[POWER])
    assert any("filter" in note and "filter_tau_s" in note for note in result.notes)


@pytest.mark.parametrize("seed", [1000000, 1000013, 1000027, 1000040])
def test_a_capacitor_and_a_device_that_tails_off_are_both_what_power_may_be(seed: int, tmp_path: Path) -> None:
    """The readings are the same, whether a short filter seems to fit or none does."""
    lab, result = evaluated("capacitor_behind_the_shunt", seed, tmp_path)
    power = result.quantities[POWER]

    assert near(lab, power)
    assert any("gaps begin with what spans" in note for note in result.notes)


@pytest.mark.parametrize("seed", [41000011, 41000017, 41000039])
def test_a_capacitor_shows_at_once_beside_a_governor_that_follows_later(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("governor_follows_load+capacitor_behind_the_shunt", seed, tmp_path)
    assert near(lab, result.quantities[POWER])


@pytest.mark.parametrize("kind", ["gated_at_once", "gated_heads_and_tails"])
@pytest.mark.parametrize("seed", [5000009, 5000011])
def test_a_capacitor_shows_where_the_device_sleeps(kind: str, seed: int, tmp_path: Path) -> None:
    """Gaps that settle below idle still begin with what spans lack, and bursts at begins do not hide it."""
    lab, result = evaluated(f"{kind}+capacitor_behind_the_shunt", seed, tmp_path)
    assert near(lab, result.quantities[POWER])


@pytest.mark.parametrize("seed", [4, 13, 37])
def test_a_capacitor_shows_beside_spans_that_begin_low(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "plain")
    low_w, length_s = 0.3 * (lab.idle_w - lab.span_w[0]), lab.spans_s[0, 1] - lab.spans_s[0, 0]
    lab.pieces = [Piece(on, on + 0.1 * length_s, low_w) for on in lab.spans_s[:, 0]]
    KINDS["capacitor_behind_the_shunt"](lab)
    write(lab, tmp_path / "run")
    assert near(lab, evaluate(open_run(tmp_path / "run")).quantities[POWER])


@pytest.mark.parametrize("seed", [1000031, 1000050])
def test_work_before_spans_that_lasts_less_than_a_reading_is_told_by_their_phases(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("preparation_before_each_span", seed, tmp_path)
    power = result.quantities[POWER]

    assert near(lab, power)


@pytest.mark.parametrize("seed", [2000001, 2000002, 2000003])
def test_what_is_drawn_in_gaps_too_short_for_a_reading_is_told(seed: int, tmp_path: Path) -> None:
    """A few long gaps between batches of spans show nothing about the many short ones within."""
    lab, result = evaluated("batches_of_spans", seed, tmp_path)
    assert near(lab, result.quantities[POWER])


@pytest.mark.parametrize("seed", [1000014, 1000027])
def test_power_that_is_held_after_spans_is_not_theirs(seed: int, tmp_path: Path) -> None:
    """The steps of a governor are not a filter, so power in gaps is not silently added to the spans."""
    lab, result = evaluated("governor_follows_load", seed, tmp_path)
    assert near(lab, result.quantities[POWER])


@pytest.mark.parametrize("seed", [1000004, 1000014, 1000020])
def test_ends_of_spans_after_which_power_stays_up_are_as_uncertain_as_their_place(seed: int, tmp_path: Path) -> None:
    lab, result = evaluated("governor_follows_load", seed, tmp_path)
    power = result.quantities[POWER]

    assert near(lab, power)
    assert "place of spans beside other levels" in [c.source for c in power.components]


@pytest.mark.parametrize("seed", [1000010, 1000011, 1000017])
def test_pulses_that_the_device_draws_or_the_meter_picks_up_make_the_same_recording(seed: int, tmp_path: Path) -> None:
    """Power differs by what falls into the spans, so a narrow interval for one cause misses with the other."""
    drawn, picked_up = (plain_lab(seed, "idle_housekeeping") for _ in range(2))
    for lab in (drawn, picked_up):
        KINDS["idle_housekeeping"](lab)
    picked_up.pieces = []
    picked_up.seen_j = drawn.seen_j  # type: ignore[method-assign]
    for lab, name in ((drawn, "drawn"), (picked_up, "picked up")):
        write(lab, tmp_path / name)
    traces = {(tmp_path / name / "traces" / "core.arrows").read_bytes() for name in ("drawn", "picked up")}
    power = evaluate(open_run(tmp_path / "drawn")).quantities[POWER]
    real = [lab.truth()["dynamic_power_w"] for lab in (drawn, picked_up)]

    assert len(traces) == 1
    assert all(abs(power.value - each) <= power.half_width() for each in real)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("peak_detect_of_an_oscilloscope", 77000000),
        ("peak_detect_of_an_oscilloscope", 77000007),
        ("wraps_at_full_scale", 77000001),
        ("wraps_at_full_scale", 77000005),
        ("peaks_paid_back_at_the_limit", 77000003),
        ("peaks_paid_back_at_the_limit", 77000006),
        ("peaks_paid_back_at_the_limit", 77000004),
        ("truncated_to_a_step", 77000002),
        ("truncated_to_a_step", 77000004),
    ],
)
def test_readings_that_are_extremes_wrapped_late_or_cut_off_are_within_the_interval(
    kind: str, seed: int, tmp_path: Path
) -> None:
    lab, result = evaluated(kind, seed, tmp_path)

    for name in ("dynamic_power_w", "active_power_w"):
        q = result.quantities[FigureKey(name)]
        assert abs(q.value - lab.truth()[name]) <= q.half_width(), name


def test_spans_that_all_go_on_after_their_stamps_are_no_work_without_a_span(tmp_path: Path) -> None:
    """The supply is limited, and a capacitor recharges for most of each gap."""
    lab, result = evaluated("peaks_paid_back_at_the_limit", 77000002, tmp_path)

    assert near(lab, result.quantities[POWER])
    assert not any("where no span is" in note for note in result.notes)


@pytest.mark.parametrize("seed", [8000000, 8000005, 8000006])
def test_a_filter_that_nobody_declared_may_be_the_device_itself(seed: int, tmp_path: Path) -> None:
    """Several boards start and stop one after another, as smoothly as behind a filter."""
    lab, result = evaluated("boards_start_one_after_another", seed, tmp_path)
    assert near(lab, result.quantities[POWER])
    assert any("smooth alike" in note and "middle of both" in note for note in result.notes)


def test_spans_that_draw_less_than_idle_show_no_break(tmp_path: Path) -> None:
    lab, result = evaluated("core_sleeps_while_the_rest_works", 8000005, tmp_path)
    assert near(lab, result.quantities[POWER])
    assert not [f.rule for f in result.findings if f.effect == "check"]


def test_a_logger_that_the_work_delays_takes_longer_readings_and_misses_none(tmp_path: Path) -> None:
    lab, result = evaluated("logger_starves_while_the_device_works", 8000001, tmp_path)
    assert near(lab, result.quantities[POWER])
    assert not any("missing" in note for note in result.notes)
