"""Ends of an open-loop run: a device hangs, fails, or gives an answer that nobody requested; nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fixtures.bench.true_power import SimPlant, open_plant
from rig.errors import DeviceError, DeviceTimeoutError, Ended, Interrupted
from rig.recording.reader import Run
from rig.types import Issue, Reply
from tests.support.serving import Queue, S, bench, due, played, rows, samples, since_due


class Broken(Queue):
    """Raises an error in its ``poll`` after a given time."""

    def __init__(self, plant: SimPlant, after_s: float, error: BaseException) -> None:
        super().__init__(plant.clock, 0.3)
        self.until_ns, self.error = plant.clock.now_ns() + round(after_s * S), error

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        replies = super().poll(timeout_s)
        if self.clock.now_ns() >= self.until_ns and not replies:
            raise self.error
        return replies


def left_over(run: Run, at_s: Sequence[float]) -> None:
    """Every sample due until the end is recorded: first answered, then issued, then waiting ones."""
    table = run.replies.sort_by("issue").to_pylist()
    first_ns = table[0]["due_ns"]
    assert [row["issue"] for row in table] == list(range(len(table)))
    states = [(row["issued_ns"] is None, row["completed_ns"] is None) for row in table]
    assert states == sorted(states)
    assert {(False, False), (False, True), (True, True)} == set(states)
    ended_ns = max(t for row in table for t in (row["due_ns"], row["issued_ns"], row["completed_ns"]) if t is not None)
    assert len(table) >= sum(first_ns + round(t * S) <= ended_ns for t in at_s)
    assert [row["due_ns"] - first_ns for row in table] == [round(t * S) for t in at_s[: len(table)]]


@pytest.mark.parametrize("holds", [None, 2])
def test_a_device_that_hangs_ends_an_open_loop_run_with_every_sample_accounted_for(holds: int | None) -> None:
    at_s = [k * 0.25 for k in range(40)]
    plant, device = bench(0.2, lost=range(4, 99), holds=holds, timeout_s=1.0)
    with played(device, due(at_s), plant, raises=DeviceTimeoutError) as run:
        assert run.error is not None and run.error.exit_code == 21
        left_over(run, at_s)


@pytest.mark.parametrize(
    ("error", "becomes"), [(KeyboardInterrupt(), Interrupted), (OSError("the cable"), DeviceError)]
)
def test_what_ends_an_open_loop_run_leaves_every_sample_accounted_for(
    error: BaseException, becomes: type[Ended]
) -> None:
    plant = open_plant()
    at_s = [k * 0.1 for k in range(40)]
    with played(Broken(plant, 1.0, error), due(at_s), plant, raises=becomes) as run:
        left_over(run, at_s)


def test_a_device_that_works_through_what_it_holds_does_not_hang() -> None:
    plant, device = bench(1.0, holds=6, timeout_s=1.5)
    with played(device, due([0.0] * 6), plant) as run:
        assert since_due(run, "completed_ns") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_one_answer_that_is_lost_among_others_ends_the_run() -> None:
    plant, device = bench(0.1, holds=4, lost=[3], timeout_s=2.0)
    with played(device, due([k * 0.2 for k in range(30)]), plant, raises=DeviceTimeoutError) as run:
        assert [name for name, at in rows(run, "sample_id", "completed_ns") if at is None] == ["s3"]


@pytest.mark.parametrize("steps", [due([0.0]), [Issue(samples(1))], [Issue(samples(1)), Issue(samples(1))]])
def test_an_answer_after_the_declared_timeout_is_too_late_in_either_loop(steps: list[Any]) -> None:
    plant, device = bench(1.5, timeout_s=1.0)
    with played(device, steps, plant, raises=DeviceTimeoutError) as run:
        assert set(run.replies["completed_ns"].to_pylist()) == {None}


class Ghost(Queue):
    """Answers another sample than the requested one."""

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        return [Reply("ghost", None) for _ in super().poll(timeout_s)]


def test_an_answer_that_nobody_asked_for_ends_the_run_by_name() -> None:
    plant = open_plant()
    with played(Ghost(plant.clock), due([0.0, 0.05]), plant, raises=DeviceError) as run:
        assert run.error is not None and "'ghost', which was not issued" in run.error.message
        assert rows(run, "sample_id", "completed_ns") == [("s0", None), ("s1", None)]
