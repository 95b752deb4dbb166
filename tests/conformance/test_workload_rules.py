"""What a workload must declare and contain before it is streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rig
from rig.errors import ConformanceError, UsageError
from tests.support.raised import raised

SAMPLES = [rig.Sample(f"s{k}", np.full(4, float(k)), label="ab"[k % 2]) for k in range(4)]
GOOD = rig.workload(SAMPLES, name="steps")


def fields(type_: str, value: object) -> Any:
    """Return a payload with one field of whole numbers, and one of another type."""
    payload = np.zeros(3, [("whole", "u1", 2), ("other", type_)])
    payload["other"] = value
    return payload


def test_a_payload_may_have_fields_of_numbers() -> None:
    assert "sample.finite" in rig.check_workload(rig.workload([rig.Sample("s", fields("f4", 1.0))], name="fields"))


def test_a_list_of_samples_is_a_workload_that_keeps_every_rule() -> None:
    assert "samples.steady" in rig.check_workload(GOOD)


@pytest.mark.parametrize("changed", [
    [*SAMPLES[:3], replace(SAMPLES[3], label="a")],
    [*SAMPLES[:3], replace(SAMPLES[3], payload=np.full(4, 3.5))],
    [*SAMPLES[:3], replace(SAMPLES[3], rate_hz=8000.0)],
    SAMPLES[::-1], SAMPLES[:3],
], ids=["label", "payload", "rate", "order", "count"])  # fmt: skip
def test_whatever_changes_what_is_streamed_or_scored_changes_the_digest(changed: list[rig.Sample]) -> None:
    assert rig.workload(changed, name="steps").digest_sha256 != GOOD.digest_sha256
    assert rig.workload(list(SAMPLES), name="steps").digest_sha256 == GOOD.digest_sha256


def test_its_labels_are_declared_with_those_that_no_sample_has() -> None:
    assert GOOD.details["classes"] == ["a", "b"]
    assert rig.workload(SAMPLES[:1], name="one", classes=["b", "c"]).details["classes"] == ["a", "b", "c"]
    assert not rig.workload([rig.Sample("s", np.zeros(3))], name="unlabelled").details


@pytest.mark.parametrize("label", [3, True, b"a"])
def test_a_label_that_is_no_text_is_refused_with_the_sample_that_has_it(label: Any) -> None:
    with pytest.raises(UsageError, match=r"s1.*Give a text, such as label="):
        rig.workload([SAMPLES[0], replace(SAMPLES[1], label=label)], name="numbers")


def test_labels_that_a_device_never_answers_fail_a_rule_with_both() -> None:
    assert "workload.labels" in rig.check_workload(GOOD, answers=["a", "b", "c"])
    with pytest.raises(ConformanceError, match=r"workload\.labels: found a, b; .* of left, right") as caught:
        rig.check_workload(GOOD, answers=["left", "right"])
    assert "rig check" in caught.value.remedy


def test_every_sample_that_is_held_in_memory_is_looked_at() -> None:
    late = [rig.Sample(f"s{k}", np.full(2, np.nan if k == 50 else 1.0)) for k in range(60)]
    raised(ConformanceError, rig.check_workload, rig.workload(late, name="late"), says="sample s50 holds NaN")


def test_what_is_not_a_sample_is_refused_by_its_type() -> None:
    raised(UsageError, rig.workload, [np.zeros(3)], says=r"ndarray.*rig\.Sample", name="bare")


@pytest.mark.parametrize(("break_it", "rule"), [
    (lambda w: replace(w, name=""), "workload.texts"),
    (lambda w: replace(w, digest_sha256="abc"), "workload.digest"),
    (lambda w: replace(w, details={"x": float("nan")}), "workload.details"),
    (lambda w: replace(w, samples=[]), "samples.count"),
    (lambda w: replace(w, samples=[SAMPLES[0], replace(SAMPLES[0])]), "samples.ids"),
    (lambda w: replace(w, samples=[np.zeros(3)]), "samples.type"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], id=0)]), "sample.id"),  # type: ignore[arg-type]
    (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=np.array(["text"]))]), "sample.payload"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=np.array([np.nan]))]), "sample.finite"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=fields("U2", "x"))]), "sample.payload"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=fields("f4", np.inf))]), "sample.finite"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=[1.0])]), "sample.payload"),  # type: ignore[arg-type]
    (lambda w: replace(w, samples=[replace(SAMPLES[0], label=3)]), "sample.label"),  # type: ignore[arg-type]
    (lambda w: replace(w, samples=[replace(SAMPLES[0], label=" a")]), "sample.label"),
    (lambda w: replace(w, samples=[replace(SAMPLES[0], inferences=2.5)]), "sample.numbers"),  # type: ignore[arg-type]
    (lambda w: replace(w, samples=[replace(SAMPLES[0], rate_hz=0.0)]), "sample.numbers"),
])  # fmt: skip
def test_a_workload_that_breaks_a_rule_fails_it(break_it: Callable[[rig.SampleSet], rig.SampleSet], rule: str) -> None:
    caught = raised(ConformanceError, rig.check_workload, break_it(GOOD))
    assert [failure.rule for failure in caught.failures] == [rule]


def test_a_list_in_place_of_a_workload_is_told_what_it_lacks() -> None:
    raised(ConformanceError, rig.check_workload, SAMPLES, says="an opened workload with name, task")
