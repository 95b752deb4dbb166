"""Numbers and names are written for people, and traces are thinned for a picture."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from reports import format as report_format, headlines_and_tables
from reports.format import Group, brief, budget, flatten, groups, heading, kind_of, parts_of, quantity_text, si, title
from reports.pictures.trace import envelope
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import LITERAL, PEER, TRIMMED, Component, FigureKey, Quantity


@pytest.mark.parametrize(("quantity", "text"), [
    (Quantity(341.2e-6, "W", bias=3.1e-6), "341.2 ± 3.1 µW"),
    (Quantity(0.875, "1", bias=0.012), "87.5 ± 1.2 %"),
    (Quantity(12.5, "1", bias=0.25), "12.50 ± 0.25"),
    (Quantity(math.nan, "W", bias=1.0), "n/a"),
    (Quantity(math.inf, "W"), "n/a"),
    (Quantity(0.875, "1"), "87.5 % (no uncertainty stated)"),
    (Quantity(0.0, "W"), "0 W (no uncertainty stated)"),
    (Quantity(0.0, "W", bias=2e-6), "0.0 ± 2.0 µW"),
    (Quantity(0.0, "W", bias=4e-31), "0 W"),
    (Quantity(-1e-9, "W", bias=2e-6), "0.0 ± 2.0 µW"),
    (Quantity(0.9996, "s", bias=0.0996), "1000 ± 100 ms"),
    (Quantity(0.01, "W", bias=5.0), "0.0 ± 5.0 W"),
    (Quantity(4.2, "W", bias=math.inf), "4.2 ± unknown W"),
    (Quantity(1e30, "W", bias=1e28), "1.000e+06 ± 1.0e+04 YW"),
    (Quantity(1e30, "widgets", bias=1e28), "1.000e+30 ± 1.0e+28 widgets"),
    (Quantity(2.5e-6, "J/step", bias=1e-7), "2.50 ± 0.10 µJ/step"),
    (Quantity(1.939e-18, "1"), "0 % (no uncertainty stated)"),  # what rounding left of a share
    (Quantity(1e-7, "1", bias=2e-8), "0.0000100 ± 0.0000020 %"),
    (Quantity(15567.6, "s", limits=(15555.2, 15578.8)), "15568 (15555 to 15579) s"),
])  # fmt: skip
def test_quantities_read_well(quantity: Quantity, text: str) -> None:
    assert quantity_text(quantity) == text


def test_an_interval_of_rounding_errors_is_zero() -> None:
    gap = Quantity(-0.02985074626865671, "1", (Component("scatter", 2.4e-18),))  # of one seed
    assert quantity_text(gap, "percent") == "-2.985 %"


@pytest.mark.parametrize(("given", "told"), [
    ({"targets": {"best_known": {"mis-d0.05-s0": -96}}}, {"targets: best_known: mis-d0.05-s0": "-96"}),
    ({"idle_s": 10**400}, {"idle": "n/a"}),
    ({"idle_w": {"io": 6.3145e-05}}, {"idle: io": "63.15 µW"}),
    ({"phase_w": {"a": {"io": 1e-3, "core": 2.0}}}, {"phase: a: io": "1 mW", "phase: a: core": "2 W"}),
    ({"list_s": [0.1, 2]}, {"list": "100 ms, 2 s"}),
    ({"model_a": {"name": "x"}, "is_s": True}, {"model_a: name": "x", "is_s": "yes"}),
])  # fmt: skip
def test_a_unit_at_the_end_of_a_key_follows_every_number_below_it(given: object, told: object) -> None:
    assert dict(flatten(given)) == told


def test_plain_numbers_read_well() -> None:
    assert [si(x, "Hz") for x in (1280.0, None, math.nan, 90.0)] == ["1.28 kHz", "not stated", "n/a", "90 Hz"]


def test_a_heading_names_phase_and_rail() -> None:
    key = FigureKey("idle_power_w", "inference", "vdd.core")
    said = ("phase and rail", "Phase inference, rail vdd.core", "Idle power")
    assert (kind_of(key), heading(key), title(key)) == said
    assert kind_of(FigureKey("dynamic_power_w", rail="io", method=TRIMMED)) == "cross-check"
    assert heading(FigureKey("active_power_w", "infer", method=LITERAL)) == "By the text, phase infer"


def test_budget_adds_shared_parts_with_sign() -> None:
    parts = (Component("gain", 3.0, shared="g"), Component("gain", -3.0, shared="g"), Component("noise", 2.0))
    lines = {line.source: line for line in budget(Quantity(1.0, "W", parts))}
    assert lines["noise"].share == 1.0
    assert lines["gain"].u == 0.0
    assert sum(line.share for line in lines.values()) == pytest.approx(1.0)


def test_envelope_keeps_extremes_and_gaps() -> None:
    start = np.concatenate([np.arange(0.0, 400.0), np.arange(600.0, 1000.0)])
    watts = np.ones(800)
    watts[10], watts[500], watts[700] = 9.0, -3.0, np.nan
    x, least, mean, most = envelope(start, start + 1.0, watts, 100)
    assert x.shape == (100,)
    assert np.nanmax(most) == 9.0
    assert np.nanmin(least) == -3.0
    assert np.isnan(mean[45:55]).all()
    assert mean[20] == pytest.approx(1.0)


def latency(percentile: float) -> FigureKey:
    return FigureKey("latency_p{percentile}_s", percentile=percentile)


def gap(quantity: str, target: str, threshold: float = 0.0) -> FigureKey:
    return FigureKey(quantity, target=target, threshold=threshold)


EARLY = FigureKey("latency_p{percentile}_early_stopping_s", percentile=99)


@pytest.mark.parametrize(("key", "name", "kind", "text"), [
    (FigureKey("execution_time_p{percentile}_s", percentile=50), "execution_time_p50_s", "overall",
     "Execution time, median"),
    (latency(99.9), "latency_p99_9_s", "service", "Latency, 99.9th percentile"),
    (EARLY, "latency_p99_early_stopping_s", "service", "Latency, 99th percentile, early stopping"),
    (FigureKey("onset_latency_p{percentile}_s", percentile=90), "onset_latency_p90_s", "scene changes",
     "Time to recognise a new scene, 90th percentile"),
    (FigureKey("average_power_w", rail="vdd.core"), "rail.vdd.core.average_power_w", "average",
     "Average power, rail vdd.core"),
    (FigureKey("active_power_w", "inference", "core", TRIMMED),
     "trimmed.phase.inference.rail.core.active_power_w", "cross-check", "Active power"),
    (FigureKey("energy_per_inference_j", method=PEER, window=1), "peer.window.1.energy_per_inference_j", "peer",
     "Energy per inference, window 1"),
    (gap("gap_{target}_mean", "best_known"), "gap_best_known_mean", "solver",
     "Gap to the best known target, mean"),
    (gap("energy_to_gap_{target}_{threshold}_official_j", "official", 0.1), "energy_to_gap_official_0_1_official_j",
     "solver", "Energy to a gap of 10 % (official target), reached by all"),
])  # fmt: skip
def test_a_figure_has_a_key_and_a_title(key: FigureKey, name: str, kind: str, text: str) -> None:
    assert (str(key), kind_of(key), title(key)) == (name, kind, text)


@pytest.mark.parametrize(("key", "value", "text"), [
    (FigureKey("cost_mean"), 0.5, "0.5"),
    (FigureKey("gap_{target}_mean", target="official"), 1.5, "150 %"),
    (latency(50), 0.5, "500 ms"),
])  # fmt: skip
def test_shares_are_printed_in_percent(key: FigureKey, value: float, text: str) -> None:
    quantity = Quantity(value, entry_of(key).unit, bias=value)
    assert report_format.short_text(key, replace(quantity, bias=0.0)) == text
    assert headlines_and_tables.component_tables({key: quantity}, [key])[0]["rows"][0][1] == text


def grouped(*keys: FigureKey) -> list[Group]:
    return groups(dict.fromkeys(keys, Quantity(1.0, "1")))


def test_groups_are_sorted_and_service_figures_keep_their_order() -> None:
    names = ("duration_s", "average_power_w", "accuracy", "stream_accuracy", "slip_max_s")
    part, rail, both = (FigureKey("active_power_w", *of) for of in (("p",), ("", "io"), ("p", "io")))
    more = (rail, FigureKey("active_power_w", method=TRIMMED), both, part)
    found = grouped(FigureKey("energy_j", method=PEER), *more, latency(50), *map(FigureKey, names))
    assert [g.kind for g in found] == [
        "overall", "service", "arrivals", "scene changes", "average", "peer", "phase", "rail", "phase and rail",
        "cross-check",
    ]  # fmt: skip
    assert [str(key) for key, _ in found[1].entries] == ["latency_p50_s", "duration_s"]


def test_a_terminal_shows_only_the_main_figures() -> None:
    names = ("duration_s", "throughput_samples_hz", "throughput_inferences_hz", "latency_mean_s")
    keys = [*map(FigureKey, names), *map(latency, (50, 97, 99, 99.9)), EARLY]
    (service,) = grouped(*keys)
    short = [str(key) for key, _ in brief(service, scheduled=False).entries]
    assert short == ["throughput_samples_hz", "latency_p50_s", "latency_p99_s", "latency_p99_early_stopping_s"]
    assert len(brief(service, scheduled=True).entries) == len(keys) - 1


def test_a_terminal_prefers_gaps_to_the_official_target() -> None:
    mine, official = (gap("gap_{target}_mean", target) for target in ("mine", "official"))
    more = (gap("time_to_gap_{target}_{threshold}_s", "mine", 0.1), gap("gap_{target}_spread_solves", "official"))
    (solver,) = grouped(FigureKey("cost_mean"), official, mine, *more)
    assert [key for key, _ in brief(solver, False).entries] == [FigureKey("cost_mean"), official]
    assert len(brief(grouped(mine)[0], False).entries) == 1


def test_a_single_rail_shows_one_average() -> None:
    total, core, io = (FigureKey("average_power_w", rail=rail) for rail in ("", "core", "io"))
    (alone,) = grouped(total, core)
    assert [key for key, _ in brief(alone, True).entries] == [total]
    (both,) = grouped(total, core, io)
    assert len(brief(both, True).entries) == 3


def test_low_throughputs_are_in_samples_per_second() -> None:
    slow = Quantity(0.5, "Hz", (Component("scatter", 0.05),))

    assert parts_of(FigureKey("throughput_samples_hz"), slow) == ("0.500", "0.098", "samples/s")


def test_equal_energies_are_printed_once() -> None:
    key, other = FigureKey("energy_per_inference_j"), FigureKey("energy_per_inference_integrated_j")
    whole = Quantity(1.0, "J", (Component("gain", 0.01),))
    shown = [list(dict(g.entries)) for g in groups({key: whole, other: replace(whole, value=1.0000001)})]
    assert shown == [[key]]
    shown = [list(dict(g.entries)) for g in groups({key: whole, other: replace(whole, value=1.1)})]
    assert shown == [[key, other]]


@pytest.mark.parametrize(("right", "of", "text"), [
    (8, 8, "100 (63 to 100) %"), (8, 12, "66.7 (35 to 90) %"), (37, 40, "92.5 (80 to 98) %"),
    (900, 1000, "90.0 (88.0 to 91.8) %"), (8, 16, "50 ± 25 %"), (0, 4, "0 (0 to 60) %"),
])  # fmt: skip
def test_a_share_with_unequal_sides_shows_both_ends(right: int, of: int, text: str) -> None:
    assert quantity_text(proportion(right, of, "counted"), "percent") == text


def test_an_asymmetric_change_shows_both_ends() -> None:
    assert report_format.signed(Quantity(0.05, "1", limits=(-0.02, 0.08)), "percent") == "+5.0 (-2.0 to 8.0) %"
