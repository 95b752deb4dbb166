"""A gate decides whether a second result is worse than a first by more than a limit, or what would decide it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.finding import refusal
from rig.analysis.result.quantity import Component, Quantity
from rig.commands.shell.main import main
from rig.errors import NotDecidedError, UsageError, WorseError
from rig.submission.compare import compared
from rig.submission.gate import Judged, judged, limit_of
from tests.submission.test_compare import answered, subject
from tests.support.submissions import session

ENERGY = FigureKey("energy_per_inference_j")


def energy(value: float, own: float = 0.0, gain: float = 0.0, bias: float = 0.0, n: int = 100) -> Quantity:
    """Return an energy with its own uncertainty and one of the instrument, both of 1."""
    parts = (Component("white noise", own), Component("gain calibration", gain * value, shared="gain:core"))
    return Quantity(value, "J", parts, bias, n)


def gate(a: Quantity, b: Quantity, limit: str, one: str = "", other: str = "") -> Judged:
    return judged(compared(subject({ENERGY: a}, one), subject({ENERGY: b}, other)), limit_of(limit))


@pytest.mark.parametrize(("second", "outcome"), [
    (1.08, "worse"), (1.06, "not decided"), (1.05, "not decided"), (1.04, "not decided"), (1.02, "not worse"),
])  # fmt: skip
def test_the_interval_of_the_change_lies_above_the_limit_or_below_it_or_over_it(second: float, outcome: str) -> None:
    assert gate(energy(1.0, 0.007), energy(second, 0.007), "energy_per_inference_j > +5%").outcome == outcome


def test_a_limit_may_be_a_loss_and_may_be_in_the_unit_of_the_figure() -> None:
    a, b = energy(1.0, 0.001), energy(0.9, 0.001)
    for limit in ("energy_per_inference_j < -5%", "energy_per_inference_j<-0.05", " energy_per_inference_j  <  -5 % "):
        assert gate(a, b, limit).outcome == "worse"
    assert gate(a, b, "energy_per_inference_j > 5%").outcome == "not worse"


def test_a_change_has_its_interval_in_the_unit_of_the_limit() -> None:
    found = gate(energy(2.0, 0.02), energy(2.2, 0.02), "energy_per_inference_j > +5%")
    assert (found.change, found.low < 0.1 < found.high) == (pytest.approx(0.1), True)
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.hypot(1.05 * 0.01, 0.01), rel=1e-3)


def test_the_gain_that_both_share_decides_nothing_against_a_change() -> None:
    a, b, limit = energy(1.0, 1e-3, gain=0.02), energy(1.08, 1e-3, gain=0.02), "energy_per_inference_j > +5%"
    assert gate(a, b, limit, "meter 7", "meter 7").outcome == "worse"
    assert gate(a, b, limit, "meter 7", "meter 8").outcome == "not decided"


def test_what_is_not_decided_says_how_many_samples_more_of_each_would_decide() -> None:
    a, b = energy(1.0, 0.02), energy(1.08, 0.02)
    found = gate(a, b, "energy_per_inference_j > +5%")
    assert found.samples_more is not None and found.samples_more > 0
    more = 1.0 + found.samples_more / 100
    again = [energy(value, 0.02 / math.sqrt(more)) for value in (1.0, 1.08)]
    assert gate(again[0], again[1], "energy_per_inference_j > +5%").outcome == "worse"
    few = [energy(value, 0.02 / math.sqrt(0.4 * more)) for value in (1.0, 1.08)]
    assert gate(few[0], few[1], "energy_per_inference_j > +5%").outcome == "not decided"


@pytest.mark.parametrize(("gain", "bias"), [(0.02, 0.0), (0.0, 0.02)])
def test_no_number_of_samples_averages_a_calibration_or_a_bias(gain: float, bias: float) -> None:
    found = gate(energy(1.0, 1e-3, gain, bias), energy(1.08, 1e-3, gain, bias), "energy_per_inference_j > +5%")
    assert (found.outcome, found.samples_more) == ("not decided", None)


def test_accuracy_on_the_same_samples_is_judged_in_pairs() -> None:
    first = {f"s{k}": k < 60 for k in range(100)}
    second = first | {f"s{k}": False for k in range(10)}
    comparison = compared(answered(first), answered(second))
    assert judged(comparison, limit_of("accuracy < -2%")).outcome == "worse"
    assert judged(comparison, limit_of("accuracy < -0.3")).outcome == "not worse"


@pytest.mark.parametrize("text", ["energy", "energy > five", "energy > 5 W", "> 5%", "energy => 5%", "energy > nan%"])
def test_a_limit_that_cannot_be_read_shows_one_that_can(text: str) -> None:
    with pytest.raises(UsageError, match=r"energy_per_inference_j > \+5%"):
        limit_of(text)


def test_a_figure_that_is_not_in_both_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean energy_per_inference_j"):
        gate(energy(1.0, 0.1), energy(1.0, 0.1), "energy_per_inferences_j > +5%")


def test_a_limit_beyond_the_figure_itself_is_a_percentage_whose_sign_was_lost() -> None:
    with pytest.raises(UsageError, match=r"more than the figure itself, 0\.001 J"):
        gate(energy(1e-3, 1e-5), energy(1.2e-3, 1e-5), "energy_per_inference_j > +0.05")


def test_a_figure_that_one_of_them_refuses_is_refused_with_its_remedy() -> None:
    found = refusal("power", "no span is longer than a reading", "Add --repeat 20")
    first = subject({ENERGY: energy(1.0, 0.1)})
    second = subject({})
    vars(second.result)["refusals"] = (found,)
    with pytest.raises(UsageError, match=r"no span is longer than a reading.*Add --repeat 20"):
        judged(compared(first, second), limit_of("energy_per_inference_j > +5%"))


def test_a_figure_without_an_interval_is_refused() -> None:
    with pytest.raises(UsageError, match="no uncertainty"):
        gate(Quantity(1.0, "J"), energy(1.0, 0.1), "energy_per_inference_j > +5%")
    with pytest.raises(UsageError, match="is 0"):
        gate(energy(0.0, 0.1), energy(1.0, 0.1), "energy_per_inference_j > +5%")


# ---- from the command line ----------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of a device, of a worse one, and of one on other data."""
    root = tmp_path_factory.mktemp("pair")
    sure = ("idle_s=2", "gain_limit=0", "offset_limit=0")
    session(root / "a", *sure, "meter_seed=3")
    session(root / "b", *sure, "meter_seed=4", "inference_w=3.3e-3")
    session(root / "c", *sure, "meter_seed=5", "sample_seed=2100")
    return root


def run(root: Path, *words: str) -> int:
    return main(["compare", *(str(root / w) if w in "abc" else w for w in words)])


@pytest.mark.parametrize(("limits", "code"), [
    (["active_power_w > +20%"], 0),
    (["active_power_w > +20%", "active_power_w > +10%"], NotDecidedError.exit_code),
    (["active_power_w > +10%", "active_power_w > +5%", "execution_time_s > +5%"], WorseError.exit_code),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_worst_limit(pair: Path, limits: list[str], code: int) -> None:
    assert run(pair, "a", "b", *(word for limit in limits for word in ("--fail-if", limit))) == code


def test_each_limit_has_a_line_that_says_what_was_found(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(pair, "a", "b", "--fail-if", "active_power_w > +9.8%", "--fail-if", "active_power_w > +5%")
    said = capsys.readouterr().out
    assert "NOT DECIDED  active_power_w > +9.8%" in said and "samples more" in said
    assert "WORSE        active_power_w > +5%" in said
    run(pair, "a", "b", "--json", "--fail-if", "active_power_w > +5%")
    (found,) = json.loads(capsys.readouterr().out)
    (one,) = found["gates"]
    assert (one["limit"], one["outcome"]) == ("active_power_w > +5%", "worse")
    assert one["low"] < one["change"] < one["high"]


def test_what_cannot_be_compared_is_refused(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gated = ("--fail-if", "active_power_w > +5%")
    assert run(pair, "a", "c") == 0
    assert run(pair, "a", "c", *gated) == UsageError.exit_code
    assert "data of the workload" in capsys.readouterr().err
    assert run(pair, "a", "a", *gated) == UsageError.exit_code


def test_an_invalid_result_passes_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        session(tmp_path / name, "idle_s=0.5")
    assert run(tmp_path, "a", "b", "--fail-if", "active_power_w > +20%") == UsageError.exit_code
    assert "INVALID" in capsys.readouterr().err


def test_what_both_declare_differently_is_named_in_its_place(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(pair, "a", "b", "--json")
    (found,) = json.loads(capsys.readouterr().out)
    assert found["differs"]["device.details.power_profile.phase_w.inference.core"] == [0.003, 0.0033]
    assert not [place for place in found["differs"] if place.startswith(("host.", "version.", "workload."))]
    run(pair, "a", "b")
    assert "differs: device.details.power_profile.phase_w.inference.core: 0.003 and 0.0033" in capsys.readouterr().out
