"""Onset latency and stream accuracy of hand-made streams: sustained, flickering, never, up to the scene's end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.analysis.result.series import Stream
from rig.analysis.service.change_detection import (
    change_figures,
    change_latencies_s,
    stream_accuracy,
    stream_of,
    time_right,
)
from rig.analysis.service.queries import queries_of
from rig.types import Sample
from tests.support.serving import Asked, recording


def stream(said: str, scenes: str = "ab", scene_s: float = 10.0, begin_s: float = 1.0, every_s: float = 1.0) -> Stream:
    """One letter of ``said`` every ``every_s`` from ``begin_s``; ``-`` means no answer."""
    at = [(begin_s + k * every_s, c) for k, c in enumerate(said) if c != "-"]
    onset_s = np.arange(len(scenes)) * scene_s
    return Stream(
        np.array([t for t, _ in at]), tuple(c for _, c in at), tuple(sorted(set(said + scenes) - {"-"})),
        np.zeros((len(at), 1)), onset_s, tuple(scenes), begin_s, begin_s + (len(said) - 1) * every_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "latency_s"),
    [
        ("aaaaaaaaa" "aaabbbbbbb", 3.0),  # sustained from the fourth second on
        ("aaaaaaaaa" "bbbbbbbbbb", 0.0),  # right at once
        ("aaaaaaaaa" "aabbabbabbb", 8.0),  # two in a row are a flicker, three are not
        ("aaaaaaaaa" "aaaaaaaaaa", np.inf),  # never
        ("aaaaaaaaa" "abababababa", np.inf),  # flickering until the end
        ("aaaaaaaaa" "aaaaaaaabb", 8.0),  # right until the end of the scene, though for less than three
        ("aaaaaaaaa" "aaaaaaaaab", 9.0),
        ("aaaaaaaaa" "----------", np.inf),  # no answer
        ("aaaaaaaaa" "b---b---b-", 0.0),  # dropped frames are no answers
        ("bbbbbbbbb" "bbbbbbbbbb", 0.0),  # the first scene is no change
        ("aaaaaaaaa" "aabbbbbbbb", 2.0),  # a slow device answers a frame of the old scene when the new one is heard
    ],
)  # fmt: skip
def test_onset_latency_is_to_the_first_right_answer_that_stays(said: str, latency_s: float) -> None:
    assert change_latencies_s(stream(said)).tolist() == [latency_s]


def test_the_next_scene_ends_the_wait_for_the_one_before() -> None:
    late = stream("aaaaaaaaaaaaaaaaaaabbbbbbbccc", "abc")  # right about b when c is already heard
    assert change_latencies_s(late).tolist() == [np.inf, 7.0]


def test_what_was_never_reached_is_a_share_and_enters_no_latency() -> None:
    found = change_figures(stream("aaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbaaaaaa", "abca"))
    assert found["onset_never_share"].value == pytest.approx(1 / 3)
    assert found["onset_latency_mean_s"].value == 3.0  # 2 s and 4 s
    assert (found["onset_latency_mean_s"].n, found["onset_never_share"].n) == (2, 3)


def test_a_stream_of_one_scene_has_no_onset() -> None:
    found = change_figures(stream("aaaa", "a"))
    assert [name for name in found if name.quantity != "stream_accuracy"] == []
    assert found["stream_accuracy"].value == 1.0


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ("aaaaaaaaa" "bbbbbbbbbbb", 1.0),
        ("bbbbbbbbb" "aaaaaaaaaaa", 0.0),
        ("aaaaaaaaa" "aabbbbbbbbb", 17 / 19),  # two of nineteen seconds wrong
        ("---------" "bbbbbbbbbbb", 10 / 19),  # before the first answer, none is right
        ("aaaaaaaaa" "a---------b", 9 / 19),  # the last answer is valid until another comes
        ("aaaaaaaaa" "a----------", 9 / 19),  # also until the end of the stream
    ],
)  # fmt: skip
def test_stream_accuracy_is_the_share_of_time_in_which_the_last_answer_is_right(said: str, share: float) -> None:
    assert time_right(stream(said)) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("answers", "lag_s"), [(120, 0.1), (240, 0.7)])
def test_the_interval_of_stream_accuracy_holds_what_a_long_stream_shows(answers: int, lag_s: float) -> None:
    """Frames of half a second, scenes of 5 s, nine of ten answers right, each ``lag_s`` late."""

    def drawn(count: int, rng: np.random.Generator) -> Stream:
        due_s = 0.5 * np.arange(count)
        scene, right = (due_s // 5.0).astype(int), rng.random(count) < 0.9
        said = tuple("ab"[k % 2] if ok else "-" for k, ok in zip(scene, right, strict=True))
        onset_s = 5.0 * np.arange(scene[-1] + 1)
        names = tuple("ab"[k % 2] for k in range(len(onset_s)))
        return Stream(due_s + lag_s, said, ("a", "b"), np.zeros((count, 2)), onset_s, names, 0.0, 0.5 * count)

    real = time_right(drawn(100_000, np.random.default_rng(0)))
    found = [stream_accuracy(drawn(answers, np.random.default_rng(k))) for k in range(1, 101)]
    assert sum(low <= real <= high for low, high in (q.interval() for q in found)) >= 92
    assert max(q.half_width() for q in found) < 0.2


# ---- from a recording ----------------------------------------------------------------------


def frames(count: int, stride_s: float, scene_s: float, window_s: float = 1.0) -> tuple[list[Sample], list[str]]:
    """Frames of a stream with scenes called a, b, a, b, ... and the name of each frame's scene."""
    known = []
    for k in range(count):
        end_s = window_s + k * stride_s
        scene = int(np.ceil(end_s / scene_s - 1e-9)) - 1
        known.append(Sample(f"f{k}", np.zeros(1, np.float32), "ab"[scene % 2], label_age_s=end_s - scene * scene_s))
    return known, [str(sample.label) for sample in known]


def heard(path: Path, known: Sequence[Sample], asked: Sequence[Asked]) -> Stream | None:
    run = recording(path, asked, known=known)
    return stream_of(run, queries_of(run))


def test_scenes_are_found_in_the_ages_of_the_labels(tmp_path: Path) -> None:
    known, labels = frames(30, 0.5, 4.0)
    asked = [Asked(k * 0.5, k * 0.5, k * 0.5 + 0.1, f"f{k}", labels[k]) for k in range(30)]
    found = heard(tmp_path / "run", known, asked)
    assert found is not None
    assert found.onset_s.tolist() == [-1.0, 3.0, 7.0, 11.0]  # the stream began one window before the first frame
    assert found.scene == ("a", "b", "a", "b")
    assert change_latencies_s(found) == pytest.approx([0.6, 0.6, 0.6])  # a frame that ends at a change is old


def test_dropped_frames_tell_of_scenes_and_answers_come_in_their_own_order(tmp_path: Path) -> None:
    known, labels = frames(12, 1.0, 4.0)
    asked = [
        Asked(k, None, None, f"f{k}") if 3 <= k < 7 else Asked(k, k, k + (3.5 if k == 8 else 0.1), f"f{k}", labels[k])
        for k in range(12)
    ]
    found = heard(tmp_path / "run", known, asked)
    assert found is not None and found.scene == ("a", "b", "a")
    assert found.at_s.tolist() == sorted(found.at_s.tolist())
    assert len(found.at_s) == 8


@pytest.mark.parametrize(
    ("output", "said"),
    [("a", "a"), ({"label": "a"}, "a"), ({"label": "a", "probability": {"a": 0.6, "b": 0.4}}, "a"), (None, "None"),
     ({"label": None}, "None"), (3, "3")],
)  # fmt: skip
def test_an_answer_is_a_label_or_holds_one(tmp_path: Path, output: Any, said: str) -> None:
    known, _ = frames(3, 1.0, 2.0)
    found = heard(tmp_path / "run", known, [Asked(k, k, k + 0.1, f"f{k}", output) for k in range(3)])
    assert found is not None and found.said == (said,) * 3
    assert found.probability.shape == (3, len(found.classes))


def test_samples_that_are_no_frames_make_no_stream(tmp_path: Path) -> None:
    assert heard(tmp_path / "a", [Sample("s0", np.zeros(1))], [Asked(0.0, 0.0, 1.0)]) is None
    known, _ = frames(2, 1.0, 2.0)
    assert heard(tmp_path / "b", known, [Asked(None, 0.0, 1.0, "f0")]) is None
