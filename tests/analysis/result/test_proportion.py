"""Shares of counts have the interval of Clopper and Pearson. A network measured on its training data is reported."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from scipy.stats import binom, multinomial

from reports.audit.folder.reading import read_run
from reports.audit.rules import judge_run
from reports.audit.scores import accuracy as accuracy_by_the_auditor
from rig.analysis.result.proportion import clopper_pearson, independent, mean_proportion, paired_difference, proportion
from rig.analysis.result.quantity import from_json
from rig.analysis.scores.accuracy import accuracy_figures, answer_checks, seen_checks, session_figures, span_checks
from rig.analysis.scores.answers import answers_of
from rig.recording.reader import Run, open_run
from rig.recording.writer import Recorder
from rig.types import Reply, Sample, Span
from tests.support.serving import Asked, recording
from tests.support.start_lines import start


@given(st.integers(1, 400), st.data())
def test_clopper_pearson_limits_leave_one_fortieth_in_each_tail(n: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, n))
    low, high = clopper_pearson(count, n)
    assert (low == 0.0) if count == 0 else (binom.sf(count - 1, n, low) == pytest.approx(0.025, rel=1e-6))
    assert (high == 1.0) if count == n else (binom.cdf(count, n, high) == pytest.approx(0.025, rel=1e-6))


@pytest.mark.parametrize(("count", "n"), [(0.999, 1), (9.999, 10), (0.001, 1), (1e-16, 5)])
def test_limits_are_continuous_near_zero_and_full_counts(count: float, n: int) -> None:
    """Such a mean results if one of many answers to the same sample differs from the others."""
    found, near = clopper_pearson(count, n), clopper_pearson(round(count), n)

    assert found == pytest.approx(near, abs=1e-2)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_balanced_accuracy_intervals_hold(share: float) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        low, high = mean_proportion([(float(c), 10) for c in rng.binomial(10, share, 4)], "").interval()
        assert 0.0 <= low <= high <= 1.0
        held += low <= share <= high
    assert held >= 0.94 * 400


@given(st.integers(0, 50), st.integers(1, 50))
def test_a_share_survives_the_round_trip_through_json(count: int, n: int) -> None:
    q = proportion(min(count, n), n, "a")
    again = from_json(json.loads(json.dumps(q.to_json())))
    assert (again.to_json(), again.interval()) == (q.to_json(), q.interval())


# ---- accuracy ------------------------------------------------------------------------------


def answered(folder: Path, outputs: list[Any], rounds: int = 1, **more: Any) -> Run:
    """Record samples s0, s1, ... labelled x and y in turn, all issued in each round, with the same answers."""
    n = len(outputs)
    known = [Sample(f"s{k}", np.full(1, k, np.float32), "xy"[k % 2]) for k in range(n)]
    asked = [Asked(None, 0.1 * k, 0.1 * k + 0.05, known[k % n].id, output=outputs[k % n]) for k in range(rounds * n)]
    return recording(folder / "run", asked, known=known, **more)


def test_repeated_samples_do_not_narrow_accuracy(tmp_path: Path) -> None:
    outputs = ["x", "y", "x", "x", "x", "y"]
    runs = [answered(tmp_path / str(r), outputs, r) for r in (1, 50)]
    once, often = (accuracy_figures(run, answers_of(run))["accuracy"] for run in runs)
    assert once.value == often.value == pytest.approx(5 / 6)
    assert once.interval() == often.interval()


def copied(path: Path, copies: Sequence[int], right: Sequence[bool], silent: int = 0, cut: bool = False) -> Run:
    """Return a run with ``copies[k]`` samples of datum k, and ``silent`` further samples without a label.

    With ``cut``, the copies are parts of one clip instead.
    """
    known = [
        Sample(f"s{k}-{c}", np.array([k, c * cut]), "x", cut_from=f"clip {k}" if cut else None)
        for k, n in enumerate(copies)
        for c in range(n)
    ]
    known += [Sample(f"none-{k}", np.full(1, -k - 1.0)) for k in range(silent)]
    ok = [o for n, o in zip(copies, right, strict=True) for _ in range(n)] + [True] * silent
    return recording(
        path,
        [Asked(None, k, k + 0.5, s.id, "yx"[o]) for k, (s, o) in enumerate(zip(known, ok, strict=True))],
        known=known,
    )


@pytest.mark.parametrize("cut", [False, True])
def test_copied_or_cut_samples_do_not_narrow_accuracy(tmp_path: Path, cut: bool) -> None:
    right = [True, False, True, True]
    runs = [copied(tmp_path / str(n), [n] * 4, right, cut=cut) for n in (1, 10)]
    assert all(independent([1.0] * n, ["same"] * n) == (1.0, 1.0) for n in range(1, 100))
    for key in ("accuracy", "balanced_accuracy"):
        once, often = (accuracy_figures(run, answers_of(run))[key] for run in runs)
        assert (often.n, often.value, often.interval()) == (once.n, once.value, once.interval())
    assert "40 samples of 4 distinct clips or data" in accuracy_figures(runs[1], answers_of(runs[1]))["accuracy"].method


def test_many_copies_of_one_sample_count_little_in_the_interval(tmp_path: Path) -> None:
    """The share counts all of 90 copies and 10 others; its interval is that of 100 / (0.9 * 90 + 0.1) samples."""
    run = copied(tmp_path, [90] + [1] * 10, [False] + [True] * 10)
    found = accuracy_figures(run, answers_of(run))["accuracy"]
    assert found.value == pytest.approx(0.1)
    assert found.interval() == pytest.approx(clopper_pearson(0.1 * 100 / 81.1, 100 / 81.1))


def in_sessions(path: Path, asked: Sequence[Sequence[bool]]) -> Run:
    """Return a run whose sessions ask the same clips in order, and some perhaps more; True is a right answer."""
    ok = {f"{s:02d}/old/{k}": right for s, own in enumerate(asked) for k, right in enumerate(own)}
    known = [Sample(name, np.full(1, float(name.split("/")[2])), "x") for name in ok]
    issues = [Asked(None, k, k + 0.5, name, "yx"[ok[name]]) for k, name in enumerate(ok)]
    return recording(path, issues, known=known, details={"incremental": len(asked)})


def test_sessions_with_the_same_clips_do_not_narrow_the_mean(tmp_path: Path) -> None:
    right = [True, False, True, True]
    runs = [in_sessions(tmp_path / str(n), [right] * n) for n in (1, 11)]
    once, often = (session_figures(run, answers_of(run))["session_accuracy_mean"] for run in runs)
    assert (often.n, often.value) == (once.n, once.value) == (4, 0.75)
    assert often.interval() == pytest.approx(once.interval())


def test_a_clip_is_weighted_by_its_share_of_each_session(tmp_path: Path) -> None:
    """Each of two clips is 1/2 of one session and 1/4 of the other: 3/8 of the mean. Two others are 1/8 each."""
    run = in_sessions(tmp_path, [[True, False], [True, False, True, True]])
    found = session_figures(run, answers_of(run))["session_accuracy_mean"]
    assert found.value == pytest.approx(5 / 8)
    assert found.interval() == pytest.approx(clopper_pearson(5 / 8 * 3.2, 3.2))  # 1 / (2 * (3/8)^2 + 2 * (1/8)^2)


def test_sessions_without_an_answer_have_no_figure(tmp_path: Path) -> None:
    run = recording(tmp_path / "run", [Asked(None, 0.0, None)], details={"incremental": 1})
    assert not session_figures(run, answers_of(run))


def test_a_mean_over_old_and_new_clips_holds_the_truth() -> None:
    """A network that learns nothing gives each clip one answer: 100 old clips, and ten new in each of ten sessions."""
    sessions = [range(100 + 10 * s) for s in range(11)]
    data = [str(clip) for session in sessions for clip in session]
    weights = [1.0 / len(session) for session in sessions for _ in session]
    rng, held = np.random.default_rng(1), 0
    for _ in range(300):
        right = rng.random(200) < 0.8
        low, high = proportion(*independent([float(right[int(k)]) for k in data], data, weights), "").interval()
        held += low <= 0.8 <= high
    assert 0.93 * 300 <= held < 300


def test_samples_without_a_label_are_reported(tmp_path: Path) -> None:
    run = copied(tmp_path, [1] * 3, [True] * 3, silent=2)
    found = accuracy_figures(run, answers_of(run))["accuracy"]
    assert (found.n, found.value) == (3, 1.0)
    assert "without 2 samples that have no label" in found.method


@pytest.mark.parametrize(("outputs", "classes", "said"), [
    (["x", "x", "x", "y"], None, []),
    (["x", "z", "x", "y"], None, ['1 of 4, such as "z"']),
    (["x\n", "y\n"], None, ['2 of 2, such as "x\\n"']),
    (["x", {"lable": "y"}], None, ['1 of 2, such as {"lable": "y"}, which is no text']),
    (["x", {"label": None}], None, []),
    (["x", "z", None, "y"], ["x", "y", "z"], []),
    (["x", "w", "x", "w"], ["x", "y", "z"], ['2 of 4, such as "w"']),
    (["x", 1, "x", "y"], None, ["1 of 4, such as 1, which is no text"]),
    (["x", [0.1, 0.9], "x", "y"], ["x", "y"], ["1 of 4, such as [0.1, 0.9], which is no text"]),
])  # fmt: skip
def test_answers_outside_the_labels_fail_a_check(
    outputs: list[Any], classes: list[str] | None, said: list[str], tmp_path: Path
) -> None:
    run = answered(tmp_path, outputs, details={} if classes is None else {"classes": classes})
    checks = [c for c in answer_checks(run, answers_of(run)) if c.effect == "check"]
    assert [c.found for c in checks] == said
    assert all(not c.ok and c.rule == "answers that are no label of the workload" for c in checks)


def test_a_device_that_never_answers_is_reported(tmp_path: Path) -> None:
    run = answered(tmp_path, [None, {"label": None}])
    checks = list(answer_checks(run, answers_of(run)))
    told = ("samples that the device answered", "0 of 2: each answer is null", False)
    assert [(c.rule, c.found, c.ok) for c in checks] == [told]


def test_lost_answers_are_reported(tmp_path: Path) -> None:
    run = answered(tmp_path, ["x", None, "x"])
    (told,) = answer_checks(run, answers_of(run))
    assert told.effect == "note" and told.found.startswith("1 of 3 answers are null")


def test_a_completed_reply_without_output_is_reported(tmp_path: Path) -> None:
    run = answered(tmp_path, ["x", "x"])
    at = run.replies.column_names.index("output")
    blank = replace(run, replies=run.replies.set_column(at, "output", [['"x"', None]]))
    (told,) = answer_checks(blank, answers_of(blank))
    assert told.found.startswith("1 completed requests have no output")


# ---- devices with phases -------------------------------------------------------------------

PRE, INF = ("preprocess",), ("inference",)
BOTH = PRE + INF


@pytest.mark.parametrize(("spans", "outputs", "accuracy", "said"), [
    ([BOTH] * 4, "xyxy", 1.0, {}),
    ([BOTH, (), BOTH, BOTH], ["x", None, "x", "y"], 0.75, {"answers without a span": "1 of 4"}),
    ([()] * 4, ["z"] * 4, 0.0, {"answers that are no label of the workload": '4 of 4, such as "z"'}),
    ([PRE] * 4, "xyxy", 1.0, {"phases that ran": "preprocess"}),
    ([INF] * 4, "xyxy", 1.0, {"phases that ran": "inference"}),
    ([(*BOTH, "decode")] * 4, "xyxy", 1.0, {"phases that ran": "preprocess, inference, decode"}),
    ([BOTH, PRE, BOTH, PRE], ["x", "x", "x", "x"], 0.5, {}),
    ([PRE, PRE, INF, INF], [None, None, "x", "y"], 1.0, {}),
    ([PRE, BOTH, INF, BOTH], ["x", "y", "x", "x"], 0.75, {}),
])  # fmt: skip
def test_accuracy_counts_answers_regardless_of_the_phases_run(
    spans: Sequence[tuple[str, ...]], outputs: Sequence[Any], accuracy: float, said: dict[str, str], tmp_path: Path
) -> None:
    """If every sample runs each phase in an issue of its own, only the issues of the last phase count."""
    run = phased(tmp_path, spans, outputs)
    assert accuracy_figures(run, answers_of(run))["accuracy"].value == accuracy
    found = (*answer_checks(run, answers_of(run)), *span_checks(run))
    assert {c.rule: c.found for c in found if c.effect == "check"} == said
    assert audited(run.path) == (accuracy, set(said))


def phased(folder: Path, spans: Sequence[tuple[str, ...]], outputs: Sequence[Any]) -> Run:
    """Record samples labelled x and y in turn, answered with spans of these phases in sequence.

    If each phase runs by itself, the same samples are played for each.
    """
    of = len(spans) // 2 if {PRE, INF} <= set(spans) else len(spans)
    known = [Sample(f"s{k % of}", np.zeros(1, np.float32), "xy"[k % 2]) for k in range(len(spans))]
    device = {"name": "hand", "mode": "hardware", "clock": None, "phases": list(BOTH)}
    with Recorder(folder / "run") as r:
        r.event(start(run_id="run", device=device, meters=[], purpose="compliance"))
        for k, (sample, phases, output) in enumerate(zip(known, spans, outputs, strict=True)):
            r.sample(sample)
            at = 1000 * k
            stamped = tuple(Span(p, at + 10 * j, at + 10 * j + 9) for j, p in enumerate(phases))
            r.reply(k, Reply(sample.id, output, stamped), None, at, at + 999, False)
        r.stop(None)
    return open_run(folder / "run")


def audited(path: Path) -> tuple[float, set[str]]:
    """Return the auditor's accuracy, and the rules that it finds broken."""
    run = read_run(path)
    broken = {rule.rule for rule in judge_run(run, defaultdict(lambda: None)) if not rule.ok}
    return float(accuracy_by_the_auditor(run)["accuracy"].value), broken


# ---- two that answered the same samples ---------------------------------------------------


@given(st.integers(1, 300), st.data())
def test_the_interval_of_reversed_pairs_has_the_opposite_sign(n: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, n))
    won = data.draw(st.integers(0, n - lost))
    low, high = paired_difference(lost, won, n)
    assert -1.0 <= low <= (won - lost) / n <= high <= 1.0
    assert paired_difference(won, lost, n) == pytest.approx((-high, -low))


def test_mostly_agreeing_pairs_give_a_narrower_difference() -> None:
    """By Newcombe's method 10 (Statistics in Medicine 17 (1998) 2635), 20, 12, 2, 16 give 0.0562 to 0.3292."""
    low, high = paired_difference(2, 12, 50)
    assert (low, high) == (pytest.approx(0.0562, abs=0.02), pytest.approx(0.3292, abs=0.025))
    assert low <= 0.0562 and high >= 0.3292


@pytest.mark.parametrize("n", [10, 20, 40])
def test_paired_intervals_hold(n: int) -> None:
    """Over all outcomes, the interval contains the true difference as often as it claims."""
    lost, won = np.divmod(np.arange((n + 1) ** 2), n + 1)
    lost, won = lost[lost + won <= n], won[lost + won <= n]
    low, high = np.array([paired_difference(int(a), int(b), n) for a, b in zip(lost, won, strict=True)]).T
    for down in (0.001, 0.01, 0.05, 0.2, 0.4):
        for up in (0.001, 0.01, 0.05, 0.2, 0.5):
            chance = multinomial.pmf(np.column_stack([lost, won, n - lost - won]), n, [down, up, 1 - down - up])
            assert chance[(low <= up - down) & (up - down <= high)].sum() >= 0.94, (down, up)


# ---- samples that the network was trained on ---------------------------------------------------

FOLDER = {"source": "folder", "listing_sha256": "a"}


@pytest.mark.parametrize(("trained_on", "own", "apart"), [
    ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test", "fold": "1/4"}, [True]),
    ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test", "fold": "2/4"}, [False]),
    ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "train", "fold": "1/4"}, [False]),
    ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test"}, [False]),
    ({**FOLDER, "split": "train"}, {**FOLDER, "split": "test"}, [False]),
    ({**FOLDER, "split": "train"}, {**FOLDER, "split": "test", "listing_sha256": "b"}, []),
    ({"source": "synthetic", "split": "train"}, {"source": "synthetic", "split": "test"}, [True]),
    ({"source": "synthetic", "split": "train"}, {"source": "synthetic", "split": "train"}, [False]),
    ({"split": "train"}, {"split": "train"}, []),
    ("by hand", {"source": "synthetic", "split": "train"}, []),
    (None, {"source": "synthetic", "split": "train"}, []),
])  # fmt: skip
def test_training_data_is_reported(trained_on: Any, own: dict[str, Any], apart: list[bool], tmp_path: Path) -> None:
    checks = list(seen_checks(recording(tmp_path / "run", (), details=own, training=trained_on)))
    assert [c.ok for c in checks] == apart
