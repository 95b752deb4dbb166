"""What a workload must say and hold before it is streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rig
from rig.errors import ConformanceError, UsageError

SAMPLES = [rig.Sample(f"s{k}", np.full(4, float(k)), label="ab"[k % 2]) for k in range(4)]
GOOD = rig.workload(SAMPLES, name="steps")


def fields(type_: str, value: object) -> Any:
    """A payload with one field of whole numbers, and one of another type."""
    payload = np.zeros(3, [("whole", "u1", 2), ("other", type_)])
    payload["other"] = value
    return payload


def test_a_payload_may_have_fields_of_numbers() -> None:
    assert "sample.finite" in rig.check_workload(rig.workload([rig.Sample("s", fields("f4", 1.0))], name="fields"))


def test_a_list_of_samples_is_a_workload_that_keeps_every_rule() -> None:
    assert "samples.steady" in rig.check_workload(GOOD)


@pytest.mark.parametrize(
    "changed",
    [
        [*SAMPLES[:3], replace(SAMPLES[3], label="a")],
        [*SAMPLES[:3], replace(SAMPLES[3], payload=np.full(4, 3.5))],
        [*SAMPLES[:3], replace(SAMPLES[3], rate_hz=8000.0)],
        SAMPLES[::-1],
        SAMPLES[:3],
    ],
    ids=["label", "payload", "rate", "order", "count"],
)
def test_whatever_changes_what_is_streamed_or_scored_changes_the_digest(changed: list[rig.Sample]) -> None:
    assert rig.workload(changed, name="steps").digest_sha256 != GOOD.digest_sha256
    assert rig.workload(list(SAMPLES), name="steps").digest_sha256 == GOOD.digest_sha256


def test_what_is_not_a_sample_is_refused_by_its_type() -> None:
    with pytest.raises(UsageError, match=r"ndarray.*rig\.Sample"):
        rig.workload([np.zeros(3)], name="bare")  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (lambda w: replace(w, name=""), "workload.texts"),
        (lambda w: replace(w, digest_sha256="abc"), "workload.digest"),
        (lambda w: replace(w, details={"x": float("nan")}), "workload.details"),
        (lambda w: replace(w, samples=[]), "samples.count"),
        (lambda w: replace(w, samples=[SAMPLES[0], replace(SAMPLES[1], id="s0")]), "samples.ids"),
        (lambda w: replace(w, samples=[np.zeros(3)]), "samples.type"),
        (lambda w: replace(w, samples=[replace(SAMPLES[0], id=0)]), "sample.id"),  # type: ignore[arg-type]
        (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=np.array(["text"]))]), "sample.payload"),
        (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=np.array([np.nan]))]), "sample.finite"),
        (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=fields("U2", "x"))]), "sample.payload"),
        (lambda w: replace(w, samples=[replace(SAMPLES[0], payload=fields("f4", np.inf))]), "sample.finite"),
        (lambda w: replace(w, samples=[replace(SAMPLES[0], label=3)]), "sample.label"),  # type: ignore[arg-type]
        (lambda w: replace(w, samples=[replace(SAMPLES[0], rate_hz=0.0)]), "sample.numbers"),
    ],
)
def test_each_rule_is_failed_by_a_workload_that_breaks_it(
    break_it: Callable[[rig.SampleSet], rig.SampleSet], rule: str
) -> None:
    with pytest.raises(ConformanceError) as caught:
        rig.check_workload(break_it(GOOD))
    assert [failure.rule for failure in caught.value.failures] == [rule]


def test_a_list_in_place_of_a_workload_is_told_what_it_lacks() -> None:
    with pytest.raises(ConformanceError, match="an opened workload with name, task"):
        rig.check_workload(SAMPLES)  # type: ignore[arg-type]
