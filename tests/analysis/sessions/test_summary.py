"""A session as one result: the figures that each run contributes, the mean of trials, and rules over several runs."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from scipy.stats import norm, t

import rig
from rig.analysis.evaluate import evaluate
from rig.analysis.result.order_statistics import percentile
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity, linear
from rig.analysis.result.result import Result
from rig.analysis.result.series import Solve
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.speed import APART, CERTAIN, paired
from rig.analysis.sessions.summary import ROUNDING, _mean, _of_other_mix, over_trials, summarise
from rig.analysis.solving.solves import solving_figures
from rig.errors import DeviceError
from rig.recording.reader import Run, open_run
from rig.recording.writer import Recorder
from rig.types import Reply, Rules, Span
from tests.support.figures import TIME
from tests.support.serving import Asked, recording, samples

LOOSE = Rules("test", "single-stream", "a test", submittable=False)
Played = tuple[str, str, list[Asked]]
Summarise = Callable[..., Result]


@pytest.fixture
def summary(tmp_path: Path) -> Summarise:
    """Return the result of a session of hand-made runs: (name, purpose, queries)."""

    def make(*played: Played, rules: Rules = LOOSE, **about: Any) -> Result:
        runs = []
        for number, (name, purpose, asked) in enumerate(played):
            given_: dict[str, Any] = {"size": 4, "known": samples(4), "options": {}} | about
            later = [at_another_time(a, number) for a in asked]
            run = recording(tmp_path / name, later, rules=rules, purpose=purpose, **given_)
            runs.append((name, purpose, run))
        return whole_of(*runs)

    return make


def whole_of(*runs: tuple[str, str, Run]) -> Result:
    """Return the result of a session of these runs, each by its name and purpose."""
    whole = summarise("session", [Part(name, purpose, run, evaluate(run)) for name, purpose, run in runs])
    assert whole is not None
    return whole


def asked(
    seconds: float | Sequence[float] = 0.1, said: Sequence[Any] = ("x",) * 4, ids: Sequence[int] = range(4)
) -> list[Asked]:
    """Return one query a second, each answered after its ``seconds``."""
    each = [seconds] * len(ids) if isinstance(seconds, float) else seconds
    rows = zip(np.arange(5.0, 5.0 + len(ids)).tolist(), ids, each, said, strict=True)
    return [Asked(None, at_s, at_s + s, f"s{i}", o) for at_s, i, s, o in rows]


def at_another_time(a: Asked, by_s: float) -> Asked:
    """Return the query some seconds later: no two runs are recorded at the same time."""
    return dataclasses.replace(
        a, **{name: t + by_s for name in ("due", "at", "done") if (t := getattr(a, name)) is not None}
    )


def failed(result: Result) -> list[tuple[str, str]]:
    assert result.validity is not None
    return [(c.rule, c.found) for c in result.validity.checks if not c.ok and c.rule != "runs for power"]


# ---- what is taken from which run ----------------------------------------------------------


def test_times_come_from_performance_and_scores_from_accuracy_runs(summary: Summarise) -> None:
    found = summary(
        ("accuracy", "accuracy", asked(0.5, ["x", "x", "x", "no"])),
        ("performance", "performance", asked(0.2, ["x", "x", "no", "no"])),
    )
    assert found.quantities["accuracy"].value == 0.75
    assert found.quantities["latency_p50_s"].value == pytest.approx(0.2)
    assert found.quantities["execution_time_s"].value == pytest.approx(0.2)


def test_a_different_pace_of_power_runs_is_noted(summary: Summarise) -> None:
    paused = [dataclasses.replace(a, at=10.0 + 2.0 * k, done=10.1 + 2.0 * k) for k, a in enumerate(asked())]
    notes = summary(("performance", "performance", asked()), ("power", "power", paused)).notes
    assert any("power runs answered 0.6557 samples a second" in note for note in notes)


def test_session_accuracies_come_from_the_accuracy_run(summary: Summarise) -> None:
    known = [rig.Sample(name, np.full(1, k, np.float32), "x") for k, name in enumerate(("00/old/x/0", "01/new/x/1"))]

    def asks(*said: str) -> list[Asked]:
        return [Asked(None, 5.0 + k, 5.2 + k, s.id, a) for k, (s, a) in enumerate(zip(known, said, strict=True))]

    runs = ("accuracy", "accuracy", asks("x", "x")), ("performance", "performance", asks("x", "no"))
    found = summary(*runs, known=known, size=2, details={"incremental": 1}).quantities
    assert found["accuracy"].value == found["session_accuracy_mean"].value == 1.0
    assert found["sample.session 01.session_accuracy_new"].value == 1.0


def test_one_simulated_or_broken_run_marks_the_session(summary: Summarise, tmp_path: Path) -> None:
    runs = []
    for name, error, mode in (("performance", None, "hardware"), ("power", DeviceError("broke"), "simulator")):
        how: dict[str, Any] = {"error": error, "mode": mode, "size": 4, "known": samples(4)}
        runs.append((name, name, recording(tmp_path / name, asked(), rules=LOOSE, purpose=name, **how)))
    both, one = whole_of(*runs), whole_of(*runs[:1])
    assert (both.complete, both.simulated, one.complete, one.simulated) == (False, True, True, False)
    assert ("power: the run", "broken off") in failed(both)


def test_broken_rules_name_their_run_and_exclude_probes(summary: Summarise) -> None:
    late = [
        ("probe-01", "probe", asked()[:1]),
        ("performance-1", "performance", asked()),
        ("performance-2", "performance", asked()[:2]),
    ]
    found = summary(*late, rules=Rules("test", "x", "a test", submittable=False, min_queries=3))
    lost = ("samples that not every run holds", "2 of 4 not in performance-2")
    assert failed(found) == [("performance-2: queries", "2"), lost]


def test_a_session_of_probes_alone_has_no_result(tmp_path: Path) -> None:
    run = recording(tmp_path / "run", asked(), rules=LOOSE, purpose="probe", size=4)
    assert summarise("session", [Part("probe-01", "probe", run, evaluate(run))]) is None


# ---- trials --------------------------------------------------------------------------------


def trials(*seconds: float) -> list[Played]:
    return [(f"performance-{k}", "performance", asked(s)) for k, s in enumerate(seconds, 1)]


def test_the_mean_of_trials_has_their_scatter_as_uncertainty(summary: Summarise) -> None:
    q = summary(*trials(0.1, 0.2, 0.3)).quantities["latency_mean_s"]
    assert q.value == pytest.approx(0.2)
    assert {c.source for c in q.components} == {"scatter of trials"}
    assert np.log(q.interval()[1] / 0.2) == pytest.approx(0.5 * 4.30265 / np.sqrt(3), rel=1e-4)  # Student's t
    assert q.interval()[0] > 0.0
    assert "mean of 3 trials" in q.method


quantities = st.builds(
    lambda value, u, shared: Quantity(value, "s", (Component("one", u, 5.0), Component("two", shared, shared="gain"))),
    st.floats(-1e3, 1e3),
    st.floats(0.0, 1e2).map(lambda x: round(x, 9)),
    st.floats(-1e2, 1e2).map(lambda x: round(x, 9)),
)  # fmt: skip


@given(st.lists(quantities, min_size=2, max_size=6))
def test_the_uncertainty_of_a_mean_covers_scatter_and_shared_error(values: list[Quantity]) -> None:
    mean, each = _mean(values), [q.value for q in values]
    slack = 1e-9 * max(map(abs, each)) + 1e-300
    assert min(each) - slack <= mean.value <= max(each) + slack
    scatter = t.ppf(0.975, len(each) - 1) / norm.ppf(0.975) * float(np.std(each, ddof=1)) / np.sqrt(len(each))
    scatter = scatter if np.ptp(each) > ROUNDING * max(map(abs, each)) else 0.0
    shared = abs(sum(c.u for q in values for c in q.components if c.shared)) / len(values)
    assert mean.u >= max(scatter, shared) * (1.0 - 1e-9)
    assert mean.u <= np.hypot(scatter, max(q.u for q in values)) * (1.0 + 1e-9) + 1e-12


def test_a_shared_error_does_not_hide_trial_scatter() -> None:
    """Two sessions on one instrument: the gain cancels in their difference, and the scatter of trials must stay."""
    gain, noise = Component("gain", 5e-3, shared="gain:core"), Component("noise", 1e-4)
    mean = _mean([Quantity(value, "W", (gain, noise)) for value in (0.998, 1.0, 1.002)])
    difference = linear([(1.0, mean), (-1.0, mean)], "W", "")
    of_three = 4.30265 * 2e-3 / np.sqrt(3.0)
    assert mean.half_width() == pytest.approx(np.hypot(1.96 * 5e-3, of_three), rel=1e-4)
    assert difference.half_width() == pytest.approx(np.sqrt(2.0) * of_three, rel=1e-4)


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("scatter", [0.0, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_of_few_trials_holds_the_truth(n: int, scatter: float, shared: float) -> None:
    """Each trial states its own noise, 1, and a calibration error that all share, but not how far trials scatter."""
    draw, held = np.random.default_rng(n), 0
    parts = (Component("noise", 1.0), Component("gain", shared, shared="gain:core"))[: 1 + bool(shared)]
    for _ in range(1000):
        each = shared * draw.standard_normal() + np.hypot(1.0, scatter) * draw.standard_normal(n)
        low, high = _mean([Quantity(float(value), "W", parts) for value in each]).interval()
        held += low <= 0.0 <= high
    assert held > 930


def test_rounding_differences_are_no_scatter_of_trials() -> None:
    rates = [Quantity(0.9187486723846254 + k * 1.1e-16, "Hz") for k in (-1, 0, 0, 1, 2)]
    assert len({q.value for q in rates}) == 4
    assert not _mean(rates).stated
    gain = Component("gain", 1e-3)
    assert _mean([replace(q, components=(gain,)) for q in rates]).components == (replace(gain, u=2e-4),) * 5
    assert _mean([Quantity(0.1, "s"), Quantity(0.1 + 1e-9, "s")]).u == pytest.approx(5e-10 * 12.7062 / 1.96, rel=1e-4)


def test_trials_of_the_same_samples_do_not_narrow_the_interval() -> None:
    one = proportion(0, 119, "frames in time")
    assert _mean([one] * 5).interval() == pytest.approx(one.interval())  # no share below zero
    assert _mean([proportion(8, 119, ""), proportion(10, 119, "")]).value == pytest.approx(9 / 119)
    mean = _mean([Quantity(1.0, "s", (Component("finite sample", 0.1, 9.0), Component("gain", 0.1)))] * 4)
    assert mean.u == pytest.approx(np.hypot(0.1, 0.1 / 2.0))


def test_trials_of_the_same_problems_do_not_narrow_the_interval() -> None:
    solves = [
        Solve(name, 1.0, 1.0, c, c, 0, True, np.array([0.1]), np.array([c]), {"best_known": -60.0})
        for name, c in (("p", -40.0), ("q", -42.0), ("r", -47.0))
    ]
    one, key = solving_figures(solves, True), FigureKey("gap_{target}_mean", target="best_known")
    assert over_trials([one] * 5)[key].interval() == pytest.approx(one[key].interval())


def test_session_energy_weights_phases_by_their_executions() -> None:
    """``a`` and ``b`` take 1 J each. ``b`` runs in 4 of 10 inferences: 1.4 J on average; if it ran in all, 2 J."""
    key = FigureKey("energy_per_inference_j")
    energies = Figures({replace(key, phase=p): Quantity(j, "J") for p, j in (("", 1.4), ("a", 1.0), ("b", 1.0))})
    for n_b, mix_j in ((4, 0.0), (10, 0.6 / 3.0**0.5)):
        n = {"": 10, "a": 10, "b": n_b}
        times = Figures({FigureKey("execution_time_s", p): Quantity(1.0, "s", n=k) for p, k in n.items()})
        assert abs(_of_other_mix(energies, times, "ab")[key].u) == pytest.approx(mix_j, abs=1e-12)


def test_an_extreme_over_trials_is_not_averaged() -> None:
    key, best = FigureKey("overrun_max_s"), FigureKey("cost_best")
    stated = ((1.0, -4.0), (2.0, -5.0))
    found = over_trials([Figures({key: Quantity(s, "s"), best: Quantity(cost, "1")}) for s, cost in stated])
    assert (found[key].value, found[best].value) == (2.0, -5.0)


def of_times(count: int, longest_s: float) -> Quantity:
    """Return the 99th percentile of these times."""
    return percentile(np.append(np.linspace(0.1, 0.2, count - 1), longest_s), 0.99)


@pytest.mark.parametrize("counts", [(20, 20), (2000, 20), (20, 2000)])
def test_trials_do_not_bound_an_unbounded_percentile(counts: tuple[int, int]) -> None:
    """Trials repeat the same samples, so their scatter shows nothing about other samples."""
    values = [of_times(count, 0.3 + k) for k, count in enumerate(counts)]
    assert any(not q.stated for q in values)
    mean = _mean(values)
    assert not mean.stated
    assert mean.value == pytest.approx(sum(q.value for q in values) / 2)
    assert mean.method.endswith("too few to bound it; mean of 2 trials")


def test_a_bounded_percentile_includes_the_scatter_of_trials() -> None:
    first = of_times(2000, 0.3)
    mean = _mean([first, replace(first, value=first.value + 1.0)])
    assert {c.source for c in mean.components} == {"finite sample", "scatter of trials"}
    assert mean.interval()[1] > mean.value + 12.706 * 0.5  # Student's t of two trials


@pytest.mark.parametrize(("last_s", "worst"), [(0.107, []), (0.12, ["12.500%"])])
def test_a_trial_far_from_the_mean_is_named(summary: Summarise, last_s: float, worst: list[str]) -> None:
    rules = Rules("test", "x", "a test", submittable=True, trial_tolerance=0.05)
    found = summary(*trials(0.1, 0.1, last_s), rules=rules)
    assert failed(found) == [("execution_time_s of each trial from the mean", w) for w in worst]


def test_times_and_figures_of_every_trial_are_kept(summary: Summarise) -> None:
    """The picture's lines are means over trials; a percentile of one trial's times may be different."""
    found = summary(*trials(0.1, 0.11, 0.12))
    kept, times = found.series.trials[TIME], found.series.execution_times_s
    assert [q.value for q in kept] == pytest.approx([0.1, 0.11, 0.12])
    assert sorted(set(times.round(3))) == [0.1, 0.11, 0.12]
    assert times.mean() == pytest.approx(found.quantities[TIME].value)


def test_a_single_run_has_no_trials(summary: Summarise) -> None:
    assert summary(*trials(0.1)).series.trials == {}


def test_one_recording_under_two_names_is_one_trial(tmp_path: Path) -> None:
    given: dict[str, Any] = {"rules": LOOSE, "purpose": "performance", "size": 4}
    once, again = (recording(tmp_path / name, asked(), **given) for name in ("first", "again"))
    assert once.digest != again.digest  # the name is in the log
    whole = whole_of(("first", "performance", once), ("again", "performance", again))
    assert failed(whole) == [("runs that share a recording", "first and again hold the same stamps")]


# ---- one operating point -------------------------------------------------------------------

SPEED = "execution time of the {} runs, against the performance runs"
WITHIN = Rules("test", "single-stream", "a test", submittable=True, trial_tolerance=0.05)
UNLIKE_S = np.array([0.01, 0.04, 0.15, 0.2])
"""Times of samples, in seconds, which scatter by nearly as much as their mean."""


def of_speed(result: Result, purpose: str = "power") -> list[str]:
    return [found for rule, found in failed(result) if rule == SPEED.format(purpose)]


@pytest.mark.parametrize("rules", [WITHIN, LOOSE], ids=["a tolerance", "no tolerance"])
@pytest.mark.parametrize("purpose", ["power", "accuracy"])
@pytest.mark.parametrize(("part", "apart"), [(1.0, False), (1.04, False), (4.0, True), (0.9, True), (1.08, True)])
def test_a_speed_change_is_reported(summary: Summarise, part: float, apart: bool, purpose: str, rules: Rules) -> None:
    """Otherwise energy would be the power of a slow clock times the time of a quick one."""
    quick = [(f"performance-{k}", "performance", asked(UNLIKE_S.tolist())) for k in (1, 2)]
    found = of_speed(summary(*quick, (purpose, purpose, asked((part * UNLIKE_S).tolist())), rules=rules), purpose)
    said = f"{part - 1.0:+.3%} in {purpose}, sample by sample: {abs(part - 1.0):.3%} beyond chance and clocks"
    assert found == ([said] if apart else [])


def test_a_difference_that_rounds_to_zero_has_no_minus_sign(summary: Summarise) -> None:
    validity = summary(*trials(0.1), ("power", "power", asked(0.1 - 1e-9)), rules=WITHIN).validity
    assert validity is not None
    (found,) = [check.found for check in validity.checks if check.rule == SPEED.format("power")]
    assert found.startswith("+0.000% in power")


def test_one_slow_power_run_is_not_hidden_among_quick_ones(summary: Summarise) -> None:
    powered = [(f"power-{k}", "power", asked(0.4 if k == 2 else 0.1)) for k in (1, 2, 3)]
    (found,) = of_speed(summary(*trials(0.1), *powered, rules=WITHIN))
    assert found.startswith("+300.000% in power-2")


def test_a_single_repeated_sample_is_compared_too(summary: Summarise) -> None:
    runs = [(name, name, asked(s, "x" * 8, [0] * 8)) for name, s in (("performance", 0.1), ("power", 0.112))]
    assert len(of_speed(summary(*runs))) == 1


@pytest.mark.parametrize("jitter", [0.003, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("count", [2, 3, 10, 40])
def test_an_honest_session_passes_despite_jitter(count: int, jitter: float) -> None:
    draw, false = np.random.default_rng(count), 0
    for _ in range(1000):
        took = draw.lognormal(0.0, 1.0, count) * np.exp(jitter * draw.standard_normal((2, count)))
        own, speed = ((np.arange(count), np.column_stack(3 * [each])) for each in took)
        ratio = paired(own, speed)
        assert ratio is not None
        false += abs(ratio.value - 1.0) - ratio.half_width(CERTAIN) > APART
    assert false <= 5


# ---- the same answers ----------------------------------------------------------------------

OTHERWISE = "samples answered otherwise for {} than for accuracy"


@pytest.mark.parametrize(("purpose", "accurate", "other", "differ"), [
    ("speed", "wxyz", "wxyz", 0), ("speed", "wxyz", "waaa", 3), ("speed", "wxyz", "aaaa", 4),
    ("power", "wxyz", "wwww", 3),  # a device that skips the work uses little power
    ("speed", [{"label": "a", "p": 0.9}] * 4, [{"label": "a", "p": 0.8}] * 4, 0),  # only the decision matters
    ("speed", [{"label": "a"}] * 4, [{"label": "b"}] * 4, 4),
    # four answers in 100 that become right may be chance, ten are not
    ("power", "x" * 96 + "y" * 4, "x" * 100, 0), ("power", "x" * 90 + "y" * 10, "x" * 100, 10),
    # both runs have equally many wrong answers, but to different samples: 8 of 40 may differ by chance, 10 may not
    ("power", "y" * 2 + "x" * 38, "x" * 38 + "y" * 2, 0), ("power", "y" * 4 + "x" * 36, "x" * 36 + "y" * 4, 0),
    ("power", "y" * 5 + "x" * 35, "x" * 35 + "y" * 5, 10),
])  # fmt: skip
def test_answers_that_differ_from_accuracy_runs_are_reported(
    summary: Summarise, purpose: str, accurate: Sequence[Any], other: Sequence[Any], differ: int
) -> None:
    name, n, rule = purpose.replace("speed", "performance"), len(accurate), OTHERWISE.format(purpose)
    answered = [(name, name, asked(ids=range(n), said=said)) for name, said in (("accuracy", accurate), (name, other))]
    found = failed(summary(*answered, size=n, known=samples(n)))
    assert [f for f in found if f[0] == rule] == ([(rule, f"{differ} of {n}")] if differ else [])


def test_samples_missing_from_the_accuracy_run_are_not_compared(summary: Summarise) -> None:
    found = summary(
        ("accuracy", "accuracy", asked(ids=[0, 1], said="xx")),
        ("performance", "performance", asked(ids=[2, 3], said="ab")),
        size=2,
    )
    assert OTHERWISE.format("speed") not in dict(failed(found))


def test_an_answer_without_a_label_is_not_compared(summary: Summarise, tmp_path: Path) -> None:
    """If pre-processing is issued alone, its answer has no label."""
    accurate = recording(tmp_path / "a", asked(), rules=LOOSE, purpose="accuracy", size=4, known=samples(4))
    device = replace(accurate.start.device, phases=["hear", "think"])
    with Recorder(tmp_path / "p") as r:
        r.event(replace(accurate.start, purpose="performance", device=device))
        r.sample(samples(1)[0])
        for k, (phase, said) in enumerate((("hear", {"label": None}), ("think", "x"))):
            r.reply(k, Reply("s0", said, (Span(phase, 10 * k, 10 * k + 9),)), None, 10 * k, 10 * k + 9)
        r.stop()
    alone = open_run(tmp_path / "p")
    assert failed(whole_of(("accuracy", "accuracy", accurate), ("performance", "performance", alone))) == []


# ---- caches --------------------------------------------------------------------------------


def again(seconds: float) -> Played:
    return ("repeated", "compliance", asked([0.1] + [seconds] * 9, "x" * 10, [2] * 10))


@pytest.mark.parametrize(("seconds", "ratio"), [(0.1, None), (0.091, None), (0.3, None), (0.02, "0.200")])
def test_a_cached_repeated_answer_is_reported(summary: Summarise, seconds: float, ratio: str | None) -> None:
    found = summary(("performance", "performance", asked(0.1)), again(seconds))
    rule = "time of sample s2 repeated, against its time among others"
    assert failed(found) == ([(rule, ratio)] if ratio else [])


def test_a_slow_first_answer_does_not_suggest_a_cache(summary: Summarise) -> None:
    first = ("accuracy", "accuracy", asked([0.9, 0.1, 0.1, 0.1]))
    assert failed(summary(first, ("performance", "performance", asked(0.1)), again(0.1))) == []


def test_a_cache_check_of_streams_uses_the_accuracy_run(summary: Summarise) -> None:
    heard = ("performance", "performance", asked(ids=[0, 1], said="xx"))
    found = summary(("accuracy", "accuracy", asked(0.1, "xx", [2, 3])), heard, again(0.02), size=2)
    assert failed(found) == [("time of sample s2 repeated, against its time among others", "0.200")]
