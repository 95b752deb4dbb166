"""Two results differ if their uncertainties show it, and by more than a limit if a gate asks for one."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from fixtures.worlds.lab_recording import plain_lab, write
from reports.comparison import beside, print_comparisons
from reports.format import text_of
from rig.analysis.result.finding import refusal
from rig.analysis.result.proportion import independent, paired_difference, proportion
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.sessions.rate_probes import PEAK, SEED
from rig.analysis.sessions.speed import MOST
from rig.commands.shell.main import main
from rig.comparing import compare as module
from rig.comparing.compare import Difference, Subject, _subject, compare, compared, instruments_of
from rig.comparing.declared_differences import differing
from rig.comparing.gate import Judged, judged, limit_of
from rig.errors import NotDecidedError, UsageError, WorseError
from rig.recording.records import MeterRecord
from rig.session.report import Evaluated, evaluated
from rig.types import Accuracy, Calibration, Floats, Rail
from tests.support.figures import TIME
from tests.support.raised import Capture, Patch, raised
from tests.support.submissions import session, submitted

POWER, ACCURACY = FigureKey("active_power_w"), FigureKey("accuracy")
GAIN, NOISE = 0.01, 1e-6


def subject(figures: Mapping[FigureKey, Quantity], instrument: str = "", submitted: bool = False) -> Subject:
    """Return figures of one device, scenario and workload."""
    device, scenario = SimpleNamespace(name="d", mode="hardware"), SimpleNamespace(name="s", options={})
    workload = SimpleNamespace(name="w", digest_sha256="0")
    start = SimpleNamespace(device=device, scenario=scenario, workload=workload, rules=None, as_recorded={}, meters=())
    result: Any = SimpleNamespace(quantities=Figures(figures), start=start, validity=None, refusals=(), simulated=False)
    return Subject(Path(), "n" * 999, result, submitted, frozenset(), {"core": instrument} if instrument else {})


def power(watts: float) -> Quantity:
    """Return a power with the gain error of its instrument, the error of a clock's rate, and noise."""
    gain = Component("gain calibration", GAIN * watts, shared="gain:core")
    return Quantity(watts, "W", (gain, Component("rate", NOISE / 10, shared="rate:c"), Component("noise", NOISE)))


def difference(
    a: Quantity, b: Quantity, one: str = "", other: str = "", key: FigureKey = POWER, judged: bool = False
) -> Difference:
    (found,) = compared(subject({key: a}, one, judged), subject({key: b}, other, judged)).differences
    return found


def half(d: Any) -> float:
    return float(d.high - d.value)


def test_a_shared_gain_cancels() -> None:
    a, b = power(3e-3), power(3.01e-3)
    shared, own = difference(a, b, "meter 7", "meter 7"), difference(a, b, "meter 7", "meter 8")
    assert (shared.cancelled, shared.shown) == (True, True)
    assert (own.cancelled, own.shown) == (False, False)
    assert half(shared) < 0.1 * half(own)


@pytest.mark.parametrize(("key", "first", "second"), [
    (PEAK, Quantity(16.0, "Hz", (), 0.2), Quantity(13.0, "Hz", (), 0.2)),
    (FigureKey("average_power_w"), power(3.0e-3), power(3.1e-3)),
])  # fmt: skip
def test_two_draws_of_arrivals_are_not_compared(key: FigureKey, first: Quantity, second: Quantity) -> None:
    """The step of a search, or the error of a meter, does not say what another draw would give."""
    a, b = (subject({key: q}) for q in (first, second))
    assert compared(a, b).differences[0].said == "worse"
    b.result.start.scenario.options[SEED] = 2
    assert compared(a, b).differences[0].said == "no interval stated"


def meter(**more: Any) -> MeterRecord:
    """Return a meter of one rail, with its certificate."""
    rail = Rail("core", accuracy=Accuracy(1e-3, 0.0, source="certificate 12"))
    given: dict[str, Any] = {"name": "m", "serial_number": "7", "rails": [rail]}
    return MeterRecord(**(given | more))


def test_serial_number_and_calibration_identify_an_instrument() -> None:
    other = Rail("core", accuracy=Accuracy(1e-3, 0.0, source="certificate 13"))
    known = instruments_of([meter()])
    assert known == instruments_of([meter()]) and set(known) == {"core"}
    assert instruments_of([meter(serial_number="8")]) != known
    assert instruments_of([meter(rails=[other])]) != known
    assert instruments_of([meter(calibration=Calibration("14", "2026-01-01"))]) != known
    assert instruments_of([meter(serial_number=None)]) == {}
    assert instruments_of([meter(rails=[Rail("core")])]) == {}


def test_a_gain_is_identified_by_all_its_rails() -> None:
    def rails(limit: float) -> list[Rail]:
        named = {"core": Accuracy(limit, 0.0, "certificate 13"), "io": Accuracy(0.01, 0.0, "certificate 13")}
        return [Rail(name, accuracy=stated, gain_id="reference") for name, stated in named.items()]

    assert instruments_of([meter(rails=rails(0.02))]) != instruments_of([meter(rails=rails(0.03))])


def test_a_mean_over_two_instruments_has_no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(serial: str) -> Any:
        start = SimpleNamespace(meters=[meter(serial_number=serial)])
        return SimpleNamespace(purpose="accuracy", run=SimpleNamespace(start=start, digest=serial))

    monkeypatch.setattr("rig.comparing.compare._right", lambda _: {})
    trials: list[Any] = [SimpleNamespace(parts=[trial(s) for s in serials]) for serials in ("77", "78")]
    one, two = (_subject(Path(), "", cast(Any, None), [session], {}) for session in trials)
    assert (set(one.instruments), set(two.instruments)) == ({"core"}, set())


def test_errors_of_a_run_do_not_cancel_in_another() -> None:
    clock = Quantity(1.0, "s", (Component("rate", 1e-3, shared="rate:c"),))
    d = difference(clock, clock, "meter 7", "meter 7", FigureKey("execution_time_s"))
    assert half(d) == pytest.approx(1.96 * 2**0.5 * 1e-3, rel=1e-3)


def ran(
    of: Mapping[FigureKey, Quantity], times_s: Floats, watts: Any = 1, rest_s: Any = 0, first: int = 0, rounds: int = 1
) -> Subject:
    """Return a run of samples from the number ``first`` on, each executed ``rounds`` times in a row."""
    each = np.column_stack([times_s, watts * times_s, times_s + rest_s])
    sample, before = np.divmod(np.arange(len(each)), rounds)
    return replace(subject(of), executions=({("", ""): (MOST * (first + sample) + before, each)},))


def repeated(times_s: Floats, first: int = 0, rounds: int = 1) -> Subject:
    """Return a run whose mean time is certain to a millionth."""
    time = {TIME: Quantity(float(times_s.mean()), "s", (Component("rate", 1e-6),))}
    return ran(time, times_s, first=first, rounds=rounds)


def shares_shown(run: Callable[[np.random.Generator, bool], Subject], pairs: int, seed: int = 0) -> dict[str, float]:
    """Return for each figure the share of pairs that show a difference; ``run`` is told which run is the second."""
    rng = np.random.default_rng(seed)
    each = [compared(run(rng, False), run(rng, True)).differences for _ in range(pairs)]
    return {d.key.quantity: float(np.mean([of[k].shown for of in each])) for k, d in enumerate(each[0])}


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("n", "rounds"), [(3, 1), (5, 1), (5, 12), (20, 1)])
def test_of_runs_alike_one_in_twenty_differs_however_unlike_their_samples(n: int, rounds: int, same: bool) -> None:
    lengths = np.random.default_rng(n).lognormal(0.0, 1.0, n)

    def run(rng: np.random.Generator, second: bool) -> Subject:
        own = lengths if same else rng.lognormal(0.0, 1.0, n)
        times_s = np.repeat(own, rounds) * rng.lognormal(0.0, 0.1, n * rounds)
        return repeated(times_s, 0 if same else n * second, rounds)

    assert shares_shown(run, 600, n)["execution_time_s"] < 0.07


@pytest.mark.parametrize("same", [True, False])
def test_drifting_times_rarely_show_a_difference(same: bool) -> None:
    """Each execution keeps 0.9 of the delay of the one before, as on a chip that gets warm and cools."""

    def run(rng: np.random.Generator, second: bool) -> Subject:
        drift = list(accumulate(rng.standard_normal(800).tolist(), lambda last, step: 0.9 * last + 0.4 * step))[400:]
        return repeated(np.exp(0.05 * np.array(drift)), 0 if same else 400 * second)

    assert shares_shown(run, 200)["execution_time_s"] < 0.15


def lone(time_s: float, *more: Component) -> Subject:
    """Return a run of one execution, whose time is certain to a millionth."""
    time = Quantity(time_s, "s", (Component("rate", 1e-6), *more))
    figures = {FigureKey("execution_time_s"): time, POWER: power(3e-3)}
    return ran(figures, np.array([time_s]))


def test_one_execution_has_no_interval_of_time() -> None:
    found = compared(lone(1.0), lone(1.2))
    time, watts = found.differences
    assert (time.said, watts.said) == ("no interval stated", "no difference shown")
    raised(UsageError, judged, found, limit_of("execution_time_s > +5%"), says="single execution.*--trials")
    scatter = Component("scatter of trials", 0.01, 4.0)
    assert compared(lone(1.0, scatter), lone(1.2, scatter)).differences[0].said == "worse"


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize(("spread", "other_phase_w"), [(0.1, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("first", [0, 40], ids=["the same samples", "other samples"])
def test_power_scatters_as_far_as_executions_draw_it(
    noise: float, spread: float, other_phase_w: float, first: int
) -> None:
    """Executions differ in power, or by how long they stay in a phase of another power; readings are noisy too."""

    def run(rng: np.random.Generator, second: bool) -> Subject:
        other = np.arange(40) % 2
        times_s = np.where(other, rng.lognormal(0.0, 0.3, 40), 1.0)
        watts = (2.0 + other_phase_w * other) * rng.lognormal(0.0, spread, 40) + rng.normal(0.0, noise, 40)
        mean = Quantity(float(watts @ times_s / times_s.sum()), "W", (Component("white noise", noise / 6.3 + NOISE),))
        above = {FigureKey("dynamic_power_w"): replace(mean, value=mean.value - 1.5)}
        return ran({POWER: mean, **above}, times_s, watts, first=first * second)

    assert all((not first) * 0.01 <= share <= 0.09 for share in shares_shown(run, 300).values())


def test_noise_of_readings_counts_once_in_a_difference_of_powers() -> None:
    rng = np.random.default_rng(0)

    def run() -> Subject:
        watts = rng.normal(2.0, 0.05, 40)
        return ran({POWER: Quantity(2.0, "W", (Component("white noise", 0.05 / 40**0.5),))}, np.ones(40), watts)

    halves = [half(compared(run(), run()).differences[0]) for _ in range(40)]
    assert np.median(halves) == pytest.approx(1.96 * 0.05 * (2 / 40) ** 0.5, rel=0.15)


def test_a_device_whose_power_and_pauses_scatter_is_no_other_device_when_measured_again(tmp_path: Path) -> None:
    for k in range(2):
        rng, lab = np.random.default_rng(k), plain_lab(1, "plain")
        lab.span_w *= rng.lognormal(0.0, 0.05, len(lab.span_w))
        lab.spans_s -= 0.2 * np.diff(lab.spans_s) * rng.random((len(lab.span_w), 1))
        write(lab, tmp_path / str(k))
    (found,) = compare([tmp_path / "0", tmp_path / "1"])
    assert {d.said for d in found.differences if d.shown is not None} == {"no difference shown"}


@pytest.mark.parametrize(("scheduled", "idle_s"), [(False, 0.0), (False, 0.5), (False, 3.0), (True, 0.5), (True, 3.0)])
def test_energies_scatter_with_execution_times(scheduled: bool, idle_s: float) -> None:
    """Power is known exactly: 1 W, and 2 W more in executions. With a schedule, longer executions leave less idle."""

    def run(rng: np.random.Generator, second: bool) -> Subject:
        times_s, pauses_s = rng.lognormal(-0.08, 0.4, 20), idle_s * rng.lognormal(-0.02, 0.2, 20)
        time_s = times_s.mean()
        window_s = idle_s + 1.0 if scheduled else pauses_s.mean() + time_s
        figures = {
            "execution_time_s": time_s, "idle_power_w": 1.0, "average_power_w": 1.0 + 2.0 * time_s / window_s,
            "energy_per_inference_integrated_j": 3.0 * time_s, "energy_per_spike_j": 3.0 * time_s,
            "average_energy_per_sample_j": window_s + 2.0 * time_s, "throughput_inferences_hz": 1.0 / window_s,
            "active_power_w": 3.0,
        } | ({"dropped_share": 0.0} if scheduled else {})  # fmt: skip
        stated = {FigureKey(k): Quantity(float(x), "", (Component("noise", 1e-6 * x),)) for k, x in figures.items()}
        return ran(stated, times_s, 3.0, pauses_s)

    shares = shares_shown(run, 400)
    for name in ("energy_per_inference_integrated_j", "energy_per_spike_j", "average_energy_per_sample_j"):
        assert 0.01 <= shares[name] <= 0.09, name
    assert shares["average_power_w"] <= 0.09 and (idle_s or not shares["average_power_w"])


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.booleans())
def test_a_reversed_comparison_has_the_opposite_sign(a: float, b: float, same: bool) -> None:
    one, other = ("meter 7", "meter 7") if same else ("meter 7", "meter 8")
    d, turned = difference(power(a), power(b), one, other), difference(power(b), power(a), other, one)
    assert (d.value, d.shown) == (-turned.value, turned.shown)
    assert half(d) == pytest.approx(half(turned))


def test_accuracy_differences_match_newcombe() -> None:
    """In Newcombe's first example, with Wilson's limits, 56 of 70 and 48 of 80 differ by 0.0524 to 0.3339."""
    a = Quantity(48 / 80, "1", (Component("n", 0.05),), limits=(0.4905, 0.7003))
    b = Quantity(56 / 70, "1", (Component("n", 0.05),), limits=(0.6918, 0.8772))
    d = difference(a, b, key=ACCURACY)
    assert (d.low, d.high) == pytest.approx((0.0524, 0.3339), abs=2e-4)
    assert d.shown


def test_a_number_without_an_interval_shows_nothing() -> None:
    d = difference(Quantity(1.0, "W"), power(2.0))
    assert (d.shown, d.low) == (None, None)


@pytest.mark.parametrize(("key", "second", "kept"), [
    (POWER, 1.0499, True), (POWER, 1.0501, False), (POWER, 0.5, True), (ACCURACY, 0.9501, True),
    (ACCURACY, 0.9499, False), (FigureKey("active_power_w", rail="core"), 2.0, None),
    (FigureKey("backlog_max"), 2.0, None),
], ids=str)  # fmt: skip
def test_a_repetition_may_be_five_percent_worse(key: FigureKey, second: float, kept: bool | None) -> None:
    a, b = Quantity(1.0, "1"), Quantity(second, "1")
    assert difference(a, b, key=key, judged=True).kept is kept
    assert difference(a, b, key=key).kept is None


def test_figures_of_one_side_only_are_named() -> None:
    found = compared(subject({POWER: power(1.0)}), subject({ACCURACY: power(1.0)}))
    assert (found.differences, found.alone) == ((), (POWER, ACCURACY))


def railed(*watts: float, device: str = "d") -> Subject:
    """Return the powers of these rails and their total."""
    rails = {FigureKey("active_power_w", rail=f"rail{k}"): power(w) for k, w in enumerate(watts)}
    found = subject({**rails, POWER: power(sum(watts)), ACCURACY: proportion(9.0, 10.0, "")})
    cast(Any, found.result.start.device).name = device
    return found


def test_totals_over_other_rails_are_not_compared() -> None:
    """A rail that is left out is no power that was saved."""
    fewer = compared(railed(3e-3, 1e-3), railed(3e-3))
    assert fewer.unlike == ("rails in the totals: rail0, rail1 and rail0",)
    raised(UsageError, judged, fewer, limit_of("active_power_w > +5%"), says="rail0, rail1 and rail0")
    for limit in ("rail.rail0.active_power_w > +5%", "accuracy < -0.9"):
        assert judged(fewer, limit_of(limit)).outcome == "not worse"
    other = compared(railed(3e-3, 1e-3), railed(3e-3, device="e"))
    assert judged(other, limit_of("active_power_w > +5%")).outcome == "not worse"
    assert compared(railed(3e-3), subject({ACCURACY: proportion(9.0, 10.0, "")})).unlike == ()


def test_simulated_and_measured_power_are_not_compared() -> None:
    one, other = railed(3e-3), railed(3e-3)
    for side, mode in ((one, "hardware"), (other, "simulator")):
        cast(Any, side.result.start).meters = [meter(mode=mode)]
    found = compared(one, other)
    assert found.unlike == ("mode of the meters: hardware and simulator",)
    for figure in ("active_power_w", "rail.rail0.active_power_w"):
        raised(UsageError, judged, found, limit_of(f"{figure} > +5%"), says="hardware and simulator")
    assert judged(found, limit_of("accuracy < -0.9")).outcome == "not worse"


def test_an_instrument_without_calibration_is_named(capsys: Capture) -> None:
    sides = railed(3e-3), railed(3e-3)
    for side in sides:
        cast(Any, side.result.start).meters = [meter(rails=[Rail("core")])]
    print_comparisons([compared(*sides)], [()])
    assert "No calibration is stated for core" in " ".join(capsys.readouterr().out.split())


# ---- of recordings ------------------------------------------------------------------------


def test_sessions_and_submissions_can_be_compared(tmp_path: Path, capsys: Capture) -> None:
    a = session(tmp_path / "a", "meter.noise=1e-3")
    b = session(tmp_path / "b", "meter.noise=1e-3", "meter_seed=3", "inference_s=0.11")
    one, other = submitted(tmp_path / "one", a).path, submitted(tmp_path / "other", b).path

    (of_sessions,) = compare([a, b])
    by = {str(d.key): d for d in of_sessions.differences}
    assert by["execution_time_s"].shown is True
    assert by["execution_time_s"].value == pytest.approx(0.01, rel=0.01)
    assert by["active_power_w"].shown is False
    assert by["execution_time_s"].kept is None

    capsys.readouterr()
    assert main(["compare", str(one), str(other), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said["figures"]["execution_time_s"]["kept"] is False
    assert said["figures"]["active_power_w"]["kept"] is True
    assert said["unlike"] == []
    assert (said["verdict"], said["simulated"]) == (["INVALID"] * 2, [True] * 2)

    assert main(["compare", str(one), str(one)]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # a narrow terminal breaks lines
    assert "no difference shown" in printed and "kept within 5 %" in printed
    assert "the second does not repeat the first: recordings: some are in both" in printed
    assert printed.count(", SIMULATED, INVALID") == 2
    assert replace(of_sessions, alone=()).to_json()["alone"] == []


def test_differing_answers_of_sessions_make_no_pairs(tmp_path: Path) -> None:
    """If networks are trained anew or a chip has noise, counts of one session say nothing about the mean of several."""
    sides = []
    for side in range(2):
        seeds = (f"device_seed={10 * side + k}" for k in range(2))
        some = [session(tmp_path / f"{side}{k}", "samples=12", "hit_rate=0.6", seed) for k, seed in enumerate(seeds)]
        sides.append(submitted(tmp_path / str(side), *some).path)
    (found,) = compare(sides)
    (d,) = (d for d in found.differences if d.key == FigureKey("accuracy"))
    assert d.paired is None and d.low is not None and d.low < d.value < (d.high or 0.0)


# ---- accuracy on the same samples ---------------------------------------------------------


def answered(right: Mapping[str, bool]) -> Subject:
    """Return a subject that answered these samples rightly or wrongly; names that agree up to a colon share a datum."""
    data = [name.partition(":")[0] for name in right]
    accuracy = proportion(*independent(list(right.values()), data), "")
    known = {("d", name, datum): ok for (name, ok), datum in zip(right.items(), data, strict=True)}
    return replace(subject({ACCURACY: accuracy}), right=known)


def accuracy_of(first: Subject, second: Subject) -> Difference:
    (found,) = compared(first, second).differences
    return found


def test_accuracy_on_the_same_samples_is_compared_in_pairs() -> None:
    first = {f"s{k}": k < 60 for k in range(100)}
    found = accuracy_of(answered(first), answered(first | {"s0": False, "s99": True, "s98": True}))
    assert (found.paired, found.value) == ((1, 2), pytest.approx(0.01))
    assert (found.low, found.high) == pytest.approx(paired_difference(1, 2, 100))
    assert found.to_json()["right_in_one_only"] == [1, 2]


def test_copied_samples_do_not_narrow_an_accuracy_difference() -> None:
    first = {f"s{k}:{c}": k < 6 for k in range(10) for c in "abcde"}
    other = first | {f"s{k}:{c}": True for k in (6, 7) for c in "abcde"}
    found = accuracy_of(answered(first), answered(other))
    assert (found.paired, found.value, found.first.n) == ((0, 10), pytest.approx(0.2), 10)
    assert (found.low, found.high) == pytest.approx(paired_difference(0, 2, 10))


def test_accuracy_on_other_samples_is_compared_by_counts() -> None:
    first, other = ({f"{name}{k}": k < 60 for k in range(100)} for name in "ab")
    found = accuracy_of(answered(first), answered(other))
    assert found.paired is None and found.high is not None and found.high > 0.1


def test_accuracy_with_unpaired_answers_is_not_paired() -> None:
    first = {f"s{k}": k < 60 for k in range(100)}
    more = replace(answered(first), right={("d", "s0", "s0"): True})
    assert accuracy_of(more, more).paired is None


@pytest.fixture(scope="module")
def folds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of two devices, with two folds each: runs over two sets of samples."""
    root = tmp_path_factory.mktemp("folds")
    for device, rate in (("first", "1.0"), ("second", "0.5")):
        for fold in ("2000", "2100"):
            session(root / device / fold, f"sample_seed={fold}", f"hit_rate={rate}", mode="together")
    return root


def test_folders_of_runs_are_compared_as_folds(folds: Path) -> None:
    (found,) = compare([folds / "first", folds / "second"])
    (accuracy,) = (d for d in found.differences if d.key == ACCURACY)
    assert (accuracy.first.n, accuracy.second.n) == (12, 12)
    assert accuracy.paired is not None
    assert accuracy.value == pytest.approx((accuracy.paired[1] - accuracy.paired[0]) / 12)


def test_runs_of_the_same_samples_are_no_folds(folds: Path) -> None:
    same = folds / "same"
    same.mkdir()
    for device in ("first", "second"):
        (same / device).symlink_to(folds / device / "2000")
    raised(UsageError, compare, [folds / "first", same], says="no folds")


def test_folds_that_share_samples_are_no_folds(tmp_path: Path) -> None:
    """One run has the samples of the other and two more, so their workloads differ in their digests."""
    for count in ("4", "6"):
        session(tmp_path / "shared" / count, f"samples={count}", mode="together")
    with pytest.raises(UsageError, match="4 of their 10 samples are in more than one run"):
        compare([tmp_path / "shared", tmp_path / "shared"])


def test_folds_of_two_devices_are_no_folds(folds: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module, "evaluated", lambda path: another_device(evaluated(path), path.name))
    raised(UsageError, compare, [folds / "first", folds / "second"], says=r"2 devices: 2000 .*, 2100 ")


def another_device(found: Evaluated, name: str) -> Evaluated:
    start = found.result.start
    renamed = replace(start, device=replace(start.device, name=name))
    return replace(found, result=replace(found.result, start=renamed))


def test_a_report_can_show_another_recording(folds: Path, tmp_path: Path, capsys: Capture) -> None:
    first, second = folds / "first" / "2000", folds / "second" / "2000"
    assert main(["report", str(second), "--beside", str(first), "--out", str(tmp_path), "--allow-invalid"]) == 0
    (found,) = compare([first, second])
    (accuracy,) = (d for d in found.differences if d.key == ACCURACY)
    for name in ("report.html", "report.md"):
        page = (tmp_path / name).read_text()
        assert "Beside another recording" in page
        assert "2000 is SIMULATED and INVALID." in page
        assert f"{100 * accuracy.value:.2g}"[:3] in page
    assert main(["report", str(second), "--out", str(tmp_path / "alone"), "--allow-invalid"]) == 0
    assert "Beside another" not in (tmp_path / "alone" / "report.md").read_text()
    assert main(["report", str(second), "--out", str(first)]) == UsageError.exit_code
    assert f"{first} is a recording" in capsys.readouterr().err


def test_a_report_notes_the_unseen_part_of_a_slow_meter(tmp_path: Path) -> None:
    slow = ("rate_hz=5", "aperture=0.6", "samples=1", "repeat=200")
    for name, options in (("fast", slow[2:]), ("slow", slow)):
        session(tmp_path / name, *options, mode="together")
    (found,) = compare([tmp_path / "fast", tmp_path / "slow"])
    table = beside(found)
    labels, firsts, seconds = list(zip(*table["rows"], strict=True))[:3]
    at = labels.index("Energy per inference")
    power = FigureKey("energy_per_inference_j")
    shown = [text_of(power, subject.result.quantities[power]) for subject in (found.first, found.second)]
    assert [firsts[at], seconds[at]] == shown
    assert "rail core was read every 0.2 s, and measured during 60 % of the time" in table["note"]
    assert table["note"].count("was not seen") == 1


def test_options_are_compared_by_value_only() -> None:
    def start(count: int, *typed: str) -> Any:
        argv = [word for text in typed for word in ("--option", text)]
        return SimpleNamespace(as_recorded={"argv": argv, "workload": {"options": {"count": count}}})

    assert not differing(start(40, "count=40"), start(40))
    assert not differing(start(40, "workload.count=40"), start(40))
    assert differing(start(40, "count=40"), start(30)) == {"workload.options.count": (40, 30)}
    assert differing(start(40, "device.count=40"), start(40)) == {"option.device.count": ("40", None)}


def test_the_meter_of_another_bench_comes_before_the_versions_that_an_upgrade_changes() -> None:
    lines = ({"environment": {"commit": x}, "meters": [{"name": x}]} for x in "ab")
    starts: list[Any] = [SimpleNamespace(as_recorded=line) for line in lines]
    assert list(differing(*starts)) == ["meter.name", "version.commit"]


# ---- a gate: is the second worse by more than a limit, or what would decide it? ---------------

ENERGY = FigureKey("energy_per_inference_j")


def energy(value: float, own: float = 0.0, gain: float = 0.0, n: int = 100) -> Quantity:
    """Return an energy with noise of ``own`` joules, and a gain error that is a share of it."""
    parts = (Component("white noise", own), Component("gain calibration", gain * value, shared="gain:core"))
    return Quantity(value, "J", parts, 0.0, n)


def gate(a: Quantity, b: Quantity, limit: str, one: str = "", other: str = "") -> Judged:
    return judged(compared(subject({ENERGY: a}, one), subject({ENERGY: b}, other)), limit_of(limit))


@pytest.mark.parametrize(("second", "outcome"), [
    (1.08, "worse"), (1.06, "not decided"), (1.05, "not decided"), (1.04, "not decided"), (1.02, "not worse"),
])  # fmt: skip
def test_a_gate_answers_worse_not_worse_or_undecided(second: float, outcome: str) -> None:
    assert gate(energy(1.0, 0.007), energy(second, 0.007), "energy_per_inference_j > +5%").outcome == outcome


def test_a_limit_may_be_in_the_unit_of_the_figure() -> None:
    a, b = energy(1.0, 0.001), energy(0.9, 0.001)
    for limit in ("energy_per_inference_j < -5%", "energy_per_inference_j<-0.05", " energy_per_inference_j  <  -5 % "):
        assert gate(a, b, limit).outcome == "worse"
    assert gate(a, b, "energy_per_inference_j > 5%").outcome == "not worse"


def test_a_change_has_an_interval_in_limit_units() -> None:
    found = gate(energy(2.0, 0.02), energy(2.2, 0.02), "energy_per_inference_j > +5%")
    assert (found.change, found.low < 0.1 < found.high) == (pytest.approx(0.1), True)
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.hypot(1.05 * 0.01, 0.01), rel=1e-3)


def test_a_shared_gain_does_not_hide_a_change() -> None:
    a, b, limit = energy(1.0, 1e-3, gain=0.02), energy(1.08, 1e-3, gain=0.02), "energy_per_inference_j > +5%"
    assert gate(a, b, limit, "meter 7", "meter 7").outcome == "worse"
    assert gate(a, b, limit, "meter 7", "meter 8").outcome == "not decided"


def test_an_undecided_gate_states_the_samples_needed() -> None:
    a, b = energy(1.0, 0.02), energy(1.08, 0.02)
    found = gate(a, b, "energy_per_inference_j > +5%")
    assert found.samples_more is not None and found.samples_more > 0
    more = 1.0 + found.samples_more / 100
    for times, outcome in ((more, "worse"), (0.4 * more, "not decided")):
        a, b = (energy(value, 0.02 / math.sqrt(times)) for value in (1.0, 1.08))
        assert gate(a, b, "energy_per_inference_j > +5%").outcome == outcome


@pytest.mark.parametrize("origin", ["gain:core", "busy level:core", "resolution, busy level:core", "1/f:core", ""])
def test_no_number_of_samples_averages_a_bias_or_what_all_samples_of_a_run_share(origin: str) -> None:
    parts, bias = ((Component("error", 0.02, shared=origin),), 0.0) if origin else ((), 0.02)
    a, b = (replace(energy(joules), components=parts, bias=bias) for joules in (1.0, 1.08))
    found = gate(a, b, "energy_per_inference_j > +5%")
    assert (found.outcome, found.samples_more) == ("not decided", None)


def test_accuracy_on_the_same_samples_is_judged_in_pairs() -> None:
    first = {f"s{k}": k < 60 for k in range(100)}
    second = first | {f"s{k}": False for k in range(10)}
    comparison = compared(answered(first), answered(second))
    assert judged(comparison, limit_of("accuracy < -2%")).outcome == "worse"
    assert judged(comparison, limit_of("accuracy < -0.3")).outcome == "not worse"


@pytest.mark.parametrize(("right", "said"), [(90, False), (60, True)])
def test_energy_saved_at_lower_accuracy_is_noted(right: int, said: bool, capsys: Capture) -> None:
    sides = [
        subject({ENERGY: energy(joules, 1e-3), ACCURACY: proportion(count, 100, "")})
        for joules, count in ((1.0, 92), (0.77, right))
    ]
    found = compared(*sides)
    print_comparisons([found], [[judged(found, limit_of("energy_per_inference_j > +5%"))]])
    line = " ".join(capsys.readouterr().out.split())
    assert ("NOT WORSE" in line, "but accuracy is worse" in line, "n" * 500 in line) == (True, said, False)


def test_a_share_that_multiplied_is_as_uncertain_as_its_multiple() -> None:
    """For shares that have trebled, a limit of +200 % says "worse" no more often than chance allows."""
    rng, dropped, outcomes = np.random.default_rng(1), FigureKey("dropped_share"), Counter[str]()
    for _ in range(600):
        one, other = (subject({dropped: proportion(rng.binomial(100, p), 100, "")}) for p in (0.1, 0.3))
        outcomes[judged(compared(one, other), limit_of("dropped_share > +200%")).outcome] += 1
    assert outcomes["worse"] + outcomes["not worse"] < 0.05 * 600


@pytest.mark.parametrize("text", ["energy", "energy > five", "energy > 5 W", "> 5%", "energy => 5%", "energy > 1e400%"])
def test_an_unreadable_limit_is_refused_with_an_example(text: str) -> None:
    raised(UsageError, limit_of, text, says=r"energy_per_inference_j > \+5%")


@pytest.mark.parametrize(("first", "limit", "says"), [
    (energy(1.0, 0.1), "energy_per_inferences_j > +5%", "Did you mean energy_per_inference_j"),
    (energy(1e-3, 1e-5), "energy_per_inference_j > +0.05", r"more than the figure itself, 0\.001 J"),
    (Quantity(1.0, "J"), "energy_per_inference_j > +5%", "no uncertainty"),
    (energy(0.0, 0.1), "energy_per_inference_j > +5%", "is 0"),
])  # fmt: skip
def test_an_unsuitable_limit_or_figure_is_refused(first: Quantity, limit: str, says: str) -> None:
    raised(UsageError, gate, first, energy(1.2 * first.value, 0.1), limit, says=says)


def test_a_missing_figure_is_refused_with_its_remedy() -> None:
    found = refusal("power", "no span is longer than a reading", "Add --repeat 20")
    first = subject({ENERGY: energy(1.0, 0.1)})
    second = subject({})
    result: Any = second.result
    result.refusals = (found,)
    with pytest.raises(UsageError, match=r"no span is longer than a reading.*Add --repeat 20"):
        judged(compared(first, second), limit_of("energy_per_inference_j > +5%"))


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
def test_the_worst_limit_sets_the_exit_code(pair: Path, limits: list[str], code: int) -> None:
    assert run(pair, "a", "b", *(word for limit in limits for word in ("--fail-if", limit))) == code


def test_each_limit_has_a_line_of_findings(pair: Path, capsys: Capture) -> None:
    run(pair, "a", "b", "--fail-if", "active_power_w > +9.8%", "--fail-if", "active_power_w > +5%")
    said = capsys.readouterr().out
    assert "NOT DECIDED  active_power_w > +9.8%" in said and "samples more" in said
    assert "WORSE        active_power_w > +5%" in said
    run(pair, "a", "b", "--json", "--fail-if", "active_power_w > +5%")
    (found,) = json.loads(capsys.readouterr().out)
    (one,) = found["gates"]
    assert (one["limit"], one["outcome"]) == ("active_power_w > +5%", "worse")
    assert one["low"] < one["change"] < one["high"]


def test_unequal_workloads_are_refused(pair: Path, capsys: Capture) -> None:
    gated = ("--fail-if", "active_power_w > +5%")
    assert run(pair, "a", "c") == 0
    assert run(pair, "a", "c", *gated) == UsageError.exit_code
    assert "data of the workload" in capsys.readouterr().err
    assert run(pair, "a", "a", *gated) == UsageError.exit_code


def test_an_invalid_result_passes_no_gate(tmp_path: Path, capsys: Capture) -> None:
    for name in "ab":
        session(tmp_path / name, "idle_s=0.5")
    assert run(tmp_path, "a", "b", "--fail-if", "active_power_w > +20%") == UsageError.exit_code
    assert "INVALID" in capsys.readouterr().err


def test_a_changed_declaration_is_named_with_its_path(pair: Path, capsys: Capture) -> None:
    run(pair, "a", "b", "--json")
    (found,) = json.loads(capsys.readouterr().out)
    assert found["differs"]["device.details.power_profile.phase_w.inference.core"] == [0.003, 0.0033]
    assert not [place for place in found["differs"] if place.startswith(("host.", "version.", "workload."))]
    run(pair, "a", "b")
    assert "differs: device.details.power_profile.phase_w.inference.core: 0.003 and 0.0033" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "said"), [
    ("map", "better"), ("session_accuracy_mean", "better"), ("latency_mean_s", "worse"), ("duration_s", "differs"),
])  # fmt: skip
def test_each_figure_states_its_better_direction(name: str, said: str) -> None:
    less, more = Quantity(1.0, ""), Quantity(2.0, "")
    assert Difference(FigureKey(name), less, more, 1.0, 0.5, 1.5, False, None).said == said
