"""``blocking``: one function becomes a device: timed, in order, and abandoned if it hangs."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rig.engine.blocking_device import BlockingDevice, blocking
from rig.errors import DeviceError
from rig.types import DeviceInfo, Reply, Sample
from tests.support.processes import python
from tests.support.raised import raised

pytestmark = pytest.mark.real_time

PATIENT_S = 60.0
"""Far longer than anything takes here; only a broken device makes a test wait for it."""


def sample(name: str) -> Sample:
    return Sample(name, np.zeros(2), label=name.upper())


def fetch(device: BlockingDevice, count: int) -> list[Reply]:
    replies: list[Reply] = []
    while len(replies) < count and (got := device.poll(PATIENT_S)):
        replies += got
    return replies


def ask(device: BlockingDevice, *names: str) -> list[Reply]:
    device.submit([sample(name) for name in names], None)
    return fetch(device, len(names))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed during the test, so that a function that waits for it hangs; opened afterwards."""
    event = threading.Event()
    yield event
    event.set()


def test_an_output_alone_of_a_device_with_phases_has_no_span() -> None:
    info = DeviceInfo("phased", "hardware", phases=("preprocess", "inference"))
    (reply,) = ask(blocking(lambda s: {"label": "A"}, info), "a")

    assert (reply.output, reply.spans) == ({"label": "A"}, ())


def test_the_span_of_a_reply_is_the_call_alone() -> None:
    inside: list[int] = []

    def run(s: Sample) -> str | None:
        inside.extend([time.monotonic_ns(), time.monotonic_ns()])
        return s.label

    device = blocking(run, DeviceInfo("mine", "hardware", phases=("solve",)))
    before_ns = time.monotonic_ns()
    (reply,) = ask(device, "a")
    after_ns = time.monotonic_ns()

    (span,) = reply.spans
    assert (reply.sample_id, reply.output) == ("a", "A")
    assert (span.phase, span.executions) == ("solve", 1)
    assert before_ns <= span.on_tick <= inside[0] <= inside[1] <= span.off_tick <= after_ns
    assert device.info().clock is None


def test_submit_and_poll_return_during_a_call(gate: threading.Event) -> None:
    device = blocking(lambda s: gate.wait())
    device.submit([sample("a")], None)
    device.submit([sample("b")], None)

    before = time.monotonic()
    assert device.poll(0.02) == []
    assert 0.02 <= time.monotonic() - before < PATIENT_S
    gate.set()
    assert [r.sample_id for r in fetch(device, 2)] == ["a", "b"]


@pytest.mark.parametrize(("run", "batches", "error", "says"), [
    (lambda s: Reply("b", None), False, DeviceError, "replied to 'b' when given 'a'"),
    (lambda s: dict[str, str]()["gone"], False, KeyError, "gone"),
    (lambda s: sys.exit(3), False, DeviceError, "ended with SystemExit on sample a"),
    (lambda samples, times: [], True, DeviceError, "gave 0 outputs for 1 samples"),
])  # fmt: skip
def test_an_invalid_function_raises_at_the_next_poll(
    run: Callable[..., Any], batches: bool, error: type[Exception], says: str
) -> None:
    raised(error, ask, blocking(run, batches=batches), "a", says=says)


def test_replies_before_an_exception_are_handed_out_first(gate: threading.Event) -> None:
    raised = threading.Event()

    def run(s: Sample) -> str | None:
        gate.wait()
        if s.id == "c":
            raised.set()
            raise OSError("unplugged")
        return s.label

    device = blocking(run)
    device.submit([sample(name) for name in "abc"], None)
    gate.set()
    raised.wait(PATIENT_S)

    assert [r.sample_id for r in fetch(device, 2)] == ["a", "b"]
    with pytest.raises(OSError, match="unplugged"):
        device.poll(PATIENT_S)


def test_the_device_goes_on_after_an_exception() -> None:
    device = blocking(lambda s: 1 / (s.id != "a"))
    raised(ZeroDivisionError, ask, device, "a")

    assert [r.output for r in ask(device, "b")] == [1.0]


def test_samples_are_loaded_before_they_are_asked() -> None:
    seen: list[str] = []
    device = blocking(lambda s: seen.append(f"ran {s.id}"), load=lambda ss: seen.extend(f"loaded {s.id}" for s in ss))

    device.stage([sample("a")])
    ask(device, "a")

    assert seen == ["loaded a", "ran a"]


def test_the_function_names_the_device() -> None:
    def my_board(s: Sample) -> None: ...

    assert blocking(my_board).info() == DeviceInfo(name="my_board", mode="hardware")


def test_closing_twice_is_harmless_and_ends_the_worker() -> None:
    device = blocking(lambda s: threading.current_thread())
    (reply,) = ask(device, "a")

    device.close()
    device.close()

    reply.output.join(PATIENT_S)
    assert not reply.output.is_alive()


def test_a_hanging_call_does_not_keep_the_process_alive() -> None:
    program = """
import threading
from rig.engine.blocking_device import blocking
from rig.types import Sample
started = threading.Event()
device = blocking(lambda s: (started.set(), threading.Event().wait()))
device.submit([Sample("a", None)], None)
started.wait()
assert device.poll(0.01) == []
device.close()
"""
    done = python(program)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_function_of_batches_gets_all_samples_of_an_issue() -> None:
    given: list[tuple[list[str], int]] = []

    def together(samples: list[Sample], times: int) -> list[str | None]:
        given.append(([s.id for s in samples], times))
        return [s.label for s in samples]

    device = blocking(together, DeviceInfo("batched", "hardware", max_batch=3), batches=True)
    replies = ask(device, "a", "b", "c")
    assert given == [(["a", "b", "c"], 1)]
    assert [(reply.sample_id, reply.output) for reply in replies] == [("a", "A"), ("b", "B"), ("c", "C")]
    assert len({reply.spans for reply in replies}) == 1
    device.submit_repeated([sample("a"), sample("b")], 5, None, None)
    assert [reply.spans[0].executions for reply in fetch(device, 2)] == [5, 5] and given[-1] == (["a", "b"], 5)
