"""A device that breaks a rule of ``rig.conformance.device`` is told the rule, the finding and the requirement.

Every driver of this repository that can be opened here keeps the rules."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.mock_meter import open_meter as open_mock_meter
from fixtures.bench.true_power import VirtualClock, open_plant
from rig.conformance import rule_failures
from rig.conformance.device import ConformanceError, check_device, check_meter
from rig.engine.blocking_device import blocking
from rig.errors import UsageError
from rig.network.description import Layer, NetworkInfo
from rig.plugins import names
from rig.types import MARK_PHASE, Bracket, Budget, Clock, ClockInfo, DeviceInfo, Reply, Sample, Span
from tests.support.paths import ROOT
from tests.support.raised import raised
from tests.support.serving import Queue

SAMPLES = [Sample(f"s{k}", np.zeros(4), label="ab"[k % 2]) for k in range(3)]


NETWORK = NetworkInfo((Layer("cells", 4),), (), ())
ACTIVITY = {"cells": {"active": np.array([2, 4])}}


class GoodDevice(Queue):
    """Keeps every rule, in virtual time; each test below breaks one."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.described = DeviceInfo("good", "simulator", clock=ClockInfo("chip", 1e6), phases=("solve", "inference"))
        self.described = replace(self.described, timeout_s=0.5, network=NETWORK)
        self.answers: Callable[[Reply, int], list[Reply]] = lambda reply, times: [reply]

    def info(self) -> DeviceInfo:
        return self.described

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        if phase is not None and phase not in self.described.phases:
            raise UsageError(f"no phase {phase}")
        for sample in samples:
            spans, at = [], max(self.clock.now_ns(), self.free_ns)
            for name in (phase,) if phase else ("solve", "inference"):
                spans.append(Span(name, at // 1000, at // 1000 + 40_000 * times, times))
                at += 40_000_000 * times
            self.free_ns = at
            reply = Reply(sample.id, {"label": "a"}, tuple(spans), activity=ACTIVITY)
            self.held += [(at, r) for r in self.answers(reply, times)]

    def timer(self) -> int:
        return self.clock.now_ns() // 1000

    def pulse(self, seconds: float) -> Span:
        on_ns = self.clock.now_ns()
        self.clock.sleep_until(on_ns + round(seconds * 1e9))
        return Span(MARK_PHASE, on_ns // 1000, self.clock.now_ns() // 1000)


Spoil = Callable[[Any], object]


def says(**changes: Any) -> Spoil:
    return lambda d: setattr(d, "described", replace(d.described, **changes))


def ticking(**changes: Any) -> Spoil:
    return lambda d: says(clock=replace(d.described.clock, **changes))(d)


def does(name: str, make: Callable[[Any], Any]) -> Spoil:
    return lambda d: setattr(d, name, make(d))


def answers(change: Callable[[Reply], list[Reply]], times: int = 1) -> Spoil:
    return does("answers", lambda d: lambda reply, n: change(reply) if n == times else [reply])


def replying(**changes: Any) -> Spoil:
    return answers(lambda reply: [structs.replace(reply, **changes)])


def changed(span: Span, changes: dict[str, Callable[[Span], Any]]) -> Span:
    return structs.replace(span, **{name: change(span) for name, change in changes.items()})


def spans(times: int = 1, **changes: Callable[[Span], Any]) -> Spoil:
    """Change some fields of the last span of each reply."""

    def change(reply: Reply) -> list[Reply]:
        *head, last = reply.spans
        return [structs.replace(reply, spans=(*head, changed(last, changes)))]

    return answers(change, times)


def slow(name: str) -> Spoil:
    def make(d: GoodDevice) -> Any:
        own = getattr(d, name)

        def method(*given: Any) -> Any:
            d.clock.sleep_until(d.clock.now_ns() + 200_000_000)
            return own(*given)

        return method

    return does(name, make)


def going_back(d: GoodDevice) -> Any:
    ticks = count(10**6, -10)
    return lambda reply, times: [structs.replace(reply, spans=(Span("solve", next(ticks), 10**6),))]


def restless(d: Any) -> Any:
    calls = count()
    return lambda: replace(d.described, details={"calls": next(calls)})


def refuse(*_: object) -> None:
    raise OSError("no")


def pulse(**changes: Callable[[Span], Any]) -> Spoil:
    def make(d: GoodDevice) -> Any:
        own = d.pulse
        return lambda seconds: changed(own(seconds), changes)

    return does("pulse", make)


def any_phase(d: GoodDevice) -> Any:
    own = d.submit_repeated
    return lambda samples, times, phase, *more: own(samples, times, None if phase == "no-such-phase" else phase, *more)


def counts(number: float, network: NetworkInfo | None = NETWORK) -> Spoil:
    """Let a device declare a network, and count this number of active neurons in one execution of each sample."""

    def spoil(d: GoodDevice) -> None:
        says(network=network)(d)
        activity: Any = {"cells": {"active": np.array([number] if number % 1 else [int(number)])}}
        answers(lambda reply: [structs.replace(reply, activity=activity)])(d)

    return spoil


EITHER: list[tuple[str, Spoil]] = [
    ("info.name", says(name="")),
    ("info.mode", says(mode="imagined")),
    ("info.details", says(details=None)),
    ("info.json", says(details={"gain": float("nan")})),
    ("info.json", says(versions="1.2")),
    ("info.steady", does("info", restless)),
    ("clock.name", ticking(name="host")),
    ("timer.whole", does("timer", lambda d: lambda: d.clock.now_ns() / 1000)),
    ("timer.whole", does("timer", lambda d: lambda: Bracket(1, 2, 3))),
    ("timer.monotone", does("timer", lambda d: count(10**15, -1).__next__)),
    ("timer.rate", ticking(tick_hz=1.1e6)),
    ("close.twice", does("close", lambda d: refuse)),
]
"""Faults that devices and meters may both have: the broken rule, and the change that breaks it."""
SPOILT: list[tuple[str, Spoil]] = [
    *EITHER,
    ("info.phases", says(phases=())), ("info.phases", says(phases=("solve", "solve"))),
    ("info.timeout", says(timeout_s=0.0)), ("info.timeout", says(timeout_s=float("nan"))),
    ("info.batch", says(max_batch=0)), ("info.batch", says(max_pending=0)),
    ("clock.rate", ticking(tick_hz=0.0)), ("clock.rate", ticking(tolerance=0.6)),
    ("submit.returns", slow("submit")),
    ("poll.returns", slow("poll")),
    ("poll.replies", does("poll", lambda d: lambda seconds, own=d.poll: iter(own(seconds)))),
    ("sample.kept", does("stage", lambda d: lambda samples: samples[0].payload.__iadd__(1))),
    ("calls", does("stage", lambda d: refuse)), ("calls", does("timer", lambda d: refuse)),
    ("replies.once", answers(lambda reply: [])),
    ("replies.in_time", answers(lambda reply: [])),
    ("replies.once", answers(lambda reply: [reply, reply])), ("replies.once", replying(sample_id="other")),
    ("reply.json", replying(output={1, 2})), ("reply.json", replying(output=float("nan"))),
    ("reply.label", replying(output={"label": "a\n"})), ("reply.label", replying(output={"lable": "a"})),
    ("reply.label", replying(output=None)),
    ("reply.counters", replying(output={"synaptic_operations": 1.5})),
    ("reply.counters", replying(output={"spikes": [3, -1]})),
    ("reply.spans", replying(spans=())),
    ("span.phase", spans(phase=lambda s: "thought")),
    ("span.executions", spans(executions=lambda s: 0)),
    ("span.order", spans(off_tick=lambda s: s.on_tick - 1)),
    ("span.overlap", spans(on_tick=lambda s: s.on_tick - 20_000)),
    ("span.clock", spans(off_tick=lambda s: s.off_tick + 20_000)),
    ("span.monotone", does("answers", going_back)),
    ("repeat.spans", answers(lambda r: [structs.replace(r, spans=r.spans * 2)], times=3)),
    ("repeat.executions", spans(times=3, executions=lambda s: 1)),
    ("repeat.length", spans(times=3, off_tick=lambda s: s.on_tick + 45_000)),
    ("repeat.unknown", does("submit_repeated", any_phase)),
    ("pulse.phase", pulse(phase=lambda s: "solve")),
    ("pulse.length", pulse(off_tick=lambda s: s.on_tick)),
    ("pulse.clock", pulse(on_tick=lambda s: s.on_tick - 20_000)),
    ("info.network", says(network=replace(NETWORK, layers=()))),
    ("reply.activity", counts(0, network=None)), ("reply.activity", counts(5)), ("reply.activity", counts(0.5)),
    ("methods", lambda driver: setattr(driver, "poll", None)),
]  # fmt: skip


def broken(device: Any, clock: Clock) -> set[str]:
    caught = raised(ConformanceError, check_device, device, SAMPLES, clock=clock, labels="ab")
    return {failure.rule for failure in caught.failures}


@pytest.mark.parametrize(("rule", "spoil"), SPOILT, ids=[rule for rule, _ in SPOILT])
def test_a_device_that_breaks_a_rule_fails(rule: str, spoil: Spoil) -> None:
    device = GoodDevice(VirtualClock())
    spoil(device)

    assert rule in broken(device, device.clock)


def test_every_device_rule_has_a_breaking_driver() -> None:
    device = GoodDevice(VirtualClock())

    assert {*check_device(device, SAMPLES, clock=device.clock, labels="ab"), "calls"} == {rule for rule, _ in SPOILT}


def test_optional_protocols_are_not_required_of_a_device() -> None:
    whole = blocking(lambda sample: 1)
    bare = SimpleNamespace(**{name: getattr(whole, name) for name in ("info", "stage", "submit", "poll", "close")})
    checked = check_device(bare, SAMPLES, prompt_s=5.0)

    assert not [rule for rule in checked if rule.startswith(("timer", "repeat", "pulse"))]


def test_a_function_that_stamps_two_phases_keeps_every_rule() -> None:
    """The docs' example loops unchanged, and cannot run one phase alone."""

    def classify(sample: Sample) -> Reply:
        stamps_ns = [time.monotonic_ns()]
        for _ in range(2):
            time.sleep(0.002)
            stamps_ns.append(time.monotonic_ns())
        begin_ns, ready_ns, end_ns = stamps_ns
        return Reply(sample.id, "a", (Span("preprocess", begin_ns, ready_ns), Span("inference", ready_ns, end_ns)))

    info = DeviceInfo("two", "hardware", phases=("preprocess", "inference"), timeout_s=5.0)

    assert {"repeat.spans", "repeat.length"} <= set(check_device(blocking(classify, info), SAMPLES, prompt_s=5.0))


def test_a_device_that_never_answers_is_asked_once() -> None:
    device = GoodDevice(VirtualClock())
    answers(lambda reply: [])(device)
    began_ns = device.clock.now_ns()

    with pytest.raises(ConformanceError, match=r"replies\.in_time: found no answer to s0 within 0\.5 s of submit\(\)"):
        check_device(device, SAMPLES, clock=device.clock)
    assert device.clock.now_ns() - began_ns < 1_000_000_000


@pytest.mark.parametrize("name", ["submit", "poll"])
def test_a_hanging_call_is_named_with_its_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_failures, "HANGS_S", 0.5)
    device: Any = blocking(lambda sample: 1)
    setattr(device, name, lambda *given: threading.Event().wait(20.0))

    caught = raised(ConformanceError, check_device, device, SAMPLES)

    (failure,) = [f for f in caught.failures if f.rule == "calls"]
    told = rf"{name}\(\) of device <lambda> has not returned for [\d.]+ s\. Check its power and link"
    assert re.search(told, failure.found)
    assert "recorded" not in failure.found


def test_a_check_needs_samples() -> None:
    raised(UsageError, check_device, blocking(lambda sample: 1), [], says="no samples")


# ---- drivers that keep every rule --------------------------------------------------------------


def imported(module: str, text: str) -> bool:
    package, _, name = map(re.escape, module.rpartition("."))
    return bool(re.search(rf"from {re.escape(module)} import |from {package} import .*\b{name}\b", text))


def test_every_registered_driver_has_a_check_in_tests() -> None:
    tests = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    tests.append(f"check_meter( {(ROOT / 'tests/support/instruments.py').read_text()}")  # of test_every_meter
    checked = "\n".join(text for text in tests if "check_device(" in text or "check_meter(" in text)
    modules = {entry.module for group in ("devices", "meters") for entry in names(group).values()}
    assert not [module for module in modules if not imported(module, checked)]


@pytest.mark.parametrize("faults", [
    {}, {"marks": False}, {"preprocess_s": 0.05, "rails": 3}, {"span_spread": 0.05, "stamp_jitter_s": 2e-5},
    {"device_latch_s": 1e-3, "device_wander": 1e-6, "device_drift_ppm": 400.0},
    {"device_forward_s": 0.0, "device_back_s": 0.0, "device_jitter_s": 0.0},
], ids=lambda faults: "-".join(faults) or "plain")  # fmt: skip
def test_the_mock_device_keeps_every_rule(faults: dict[str, Any]) -> None:
    plant = open_plant()

    checked = check_device(open_mock_device(plant, **faults), SAMPLES, clock=plant.clock)

    assert ("pulse.length" in checked) == faults.get("marks", True)
    assert {"timer.rate", "repeat.unknown", "replies.once"} <= set(checked)


@pytest.mark.parametrize("faults", [
    {}, {"drop": 0.2}, {"noise": 0.1, "flicker": 0.01, "hum": 0.1}, {"rate_hz": 3.0, "stated": False},
    {"supply_v": 1.8, "burden_ohm": 1.0, "resolution": 1e-3, "clip": 0.5},
    {"rate_hz": 5e4, "meter_wander": 1e-6, "meter_drift_ppm": -300.0},
    {"meter_forward_s": 5e-3, "meter_latch_s": 1e-3, "filter_tau_s": 0.01, "aperture": 0.3},
], ids=lambda faults: "-".join(faults) or "plain")  # fmt: skip
def test_the_mock_meter_keeps_every_rule_with_any_fault(faults: dict[str, Any]) -> None:
    plant = open_plant()
    open_mock_device(plant, rails=2)

    checked = check_meter(open_mock_meter(plant, **faults), clock=plant.clock)

    assert ("chunk.grow" if "drop" in faults else "read.count") in checked


@pytest.mark.parametrize("batch", [1, 2])
def test_a_blocking_function_keeps_every_rule(batch: int) -> None:
    device = blocking(lambda sample: sample.label, DeviceInfo("function", "hardware", max_batch=batch))

    assert "span.clock" in check_device(device, SAMPLES, prompt_s=5.0)
