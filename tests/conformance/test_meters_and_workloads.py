"""A meter or a workload that breaks a rule of ``rig.conformance`` is told the rule, the finding and the requirement."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import rig
from fixtures.bench.true_power import VirtualClock
from rig.conformance.device import check_meter
from rig.errors import ConformanceError, MeterError, UsageError
from rig.types import Accuracy, Bracket, Chunk, ClockInfo, Conversion, MeterInfo, Rail
from tests.conformance.test_conformance_devices import EITHER, Spoil, does, refuse, says, slow, ticking
from tests.support.raised import raised

PERIOD_TICKS = 1000


class GoodMeter:
    """Keeps every rule, in virtual time: one rail on a grid and one with ticks. Each test breaks a rule."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.origin_ns, self.sent, self.running = clock, 0, 0, False
        rails = (Rail("grid", rate_hz=1000.0), Rail("ticked"))
        self.described = MeterInfo("good", "simulator", ClockInfo("meter", 1e6), rails)
        self.gives: Callable[[list[Chunk]], Sequence[Chunk]] = lambda chunks: chunks

    def info(self) -> MeterInfo:
        return self.described

    def start(self) -> Bracket:
        self.origin_ns, self.sent, self.running = self.clock.now_ns(), 0, True
        return Bracket(self.origin_ns, self.timer(), self.clock.now_ns())

    def timer(self) -> int:
        return self.clock.now_ns() // 1000

    def read(self) -> Sequence[Chunk]:
        if not self.running:
            raise MeterError("not started")
        ready = (self.clock.now_ns() - self.origin_ns) // 1_000_000
        start = self.origin_ns // 1000 + np.arange(self.sent, ready) * PERIOD_TICKS
        self.sent = ready
        value = np.ones(len(start))
        return self.gives([Chunk("grid", value), Chunk("ticked", value, start, start + PERIOD_TICKS)])

    def stop(self) -> Sequence[Chunk]:
        rest = self.read()
        self.running = False
        return rest

    def close(self) -> None: ...


def rail(**changes: Any) -> Spoil:
    return says(rails=(replace(Rail("grid", rate_hz=1000.0), **changes), Rail("ticked")))


def gives(name: str, change: Callable[[Chunk], Chunk]) -> Spoil:
    """Let a meter change the chunks of one rail."""
    return lambda m: setattr(m, "gives", lambda chunks: [change(c) if c.rail == name else c for c in chunks])


def silent(name: str) -> Spoil:
    return lambda m: setattr(m, "gives", lambda chunks: [c for c in chunks if c.rail != name])


def other_types() -> Callable[[Chunk], Chunk]:
    kinds = count()
    return lambda c: replace(c, value=c.value.astype(("f8", "f4")[next(kinds) % 2]))


def wrong(value: Any) -> Any:
    """Return a value as ``Any``, so that type checkers do not see its type."""
    return value


def starts_once(m: GoodMeter) -> Any:
    own, starts = m.start, count()

    def start() -> Bracket:
        if next(starts):
            raise OSError("already open")
        return own()

    return start


SPOILT: list[tuple[str, Spoil]] = [
    *EITHER,
    ("info.rails", says(rails=(Rail("ticked"), Rail("ticked")))), ("info.rails", says(rails=())),
    ("info.buffer", says(buffer_s=0.0)),
    ("clock.rate", ticking(tick_hz=-1.0)), ("clock.rate", ticking(tolerance=-1e-3)),
    ("rail.kind", rail(kind="median")),
    ("rail.numbers", rail(resolution=-1e-6)), ("rail.numbers", rail(range_max=float("nan"))),
    ("rail.numbers", rail(accuracy=Accuracy(-1e-3, 0.0))),
    ("rail.unit", rail(conversion=Conversion("A"))), ("rail.unit", rail(kind="cumulative")),
    ("rail.rate", rail(rate_hz=0.0)),
    ("calls", does("stop", lambda m: refuse)),
    ("start.bracket", does("start", lambda m: lambda own=m.start: replace(own(), before_ns=1, after_ns=0))),
    ("start.bracket", does("start", lambda m: lambda own=m.start: replace(own(), tick=wrong(0.5 + m.timer())))),
    ("start.again", does("start", starts_once)),
    ("read.returns", slow("read")),
    ("read.some", silent("ticked")),
    ("read.count", gives("grid", lambda c: replace(c, value=c.value[::2]))),
    ("chunk.rail", gives("ticked", lambda c: replace(c, rail="other"))),
    ("chunk.value", gives("grid", lambda c: replace(c, value=c.value[:, None]))),
    ("chunk.value", gives("grid", lambda c: replace(c, value=c.value.astype(str)))),
    ("chunk.value", gives("grid", lambda c: replace(c, value=wrong(list(c.value))))),
    ("chunk.value", gives("grid", lambda c: replace(c, value=c.value.astype(">f8")))),
    ("chunk.clock", gives("ticked", lambda c: replace(c, start_tick=wrong(c.start_tick) - 10**9))),
    ("chunk.ticks", gives("ticked", lambda c: replace(c, end_tick=None))),
    ("chunk.beside", gives("ticked", lambda c: replace(c, end_tick=wrong(c.value * 1.5)))),
    ("chunk.beside", gives("grid", lambda c: replace(c, flags=np.zeros(1, np.uint8)))),
    ("chunk.steady", gives("grid", other_types())),
    ("chunk.grow", gives("ticked", lambda c: replace(c, start_tick=wrong(c.start_tick) * 0))),
    ("chunk.order", gives("ticked", lambda c: replace(c, end_tick=wrong(c.start_tick) - 1))),
    ("stop.rest", does("stop", lambda m: m.read)),
    ("methods", lambda driver: setattr(driver, "read", None)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil"), SPOILT, ids=[rule for rule, _ in SPOILT])
def test_a_meter_that_breaks_a_rule_fails(rule: str, spoil: Spoil) -> None:
    meter = GoodMeter(VirtualClock())
    spoil(meter)

    caught = raised(ConformanceError, check_meter, meter, clock=meter.clock)

    assert rule in {failure.rule for failure in caught.failures}


def test_every_meter_rule_has_a_breaking_driver() -> None:
    meter = GoodMeter(VirtualClock())

    assert {*check_meter(meter, clock=meter.clock), "calls"} == {rule for rule, _ in SPOILT}


def test_late_readings_are_not_missing() -> None:
    """A multimeter's memory gives a reading 0.25 s after it was taken, and loses the rest when it stops."""
    meter, held = GoodMeter(VirtualClock()), list[float]()

    def late(chunk: Chunk) -> Chunk:
        held.extend(chunk.value)
        given, held[:] = held[:-250], held[-250:]
        return replace(chunk, value=np.array(given))

    gives("grid", late)(meter)

    assert "read.count" in check_meter(meter, clock=meter.clock)


def test_a_meter_is_closed_after_a_failed_start() -> None:
    meter, closed = GoodMeter(VirtualClock()), []
    does("start", lambda m: refuse)(meter)
    does("close", lambda m: lambda: closed.append(True))(meter)

    with pytest.raises(ConformanceError, match=r"OSError from start\(\), read\(\) and stop\(\): no"):
        check_meter(meter, clock=meter.clock)

    assert closed


def test_a_slow_meter_is_watched_for_twenty_readings() -> None:
    meter = GoodMeter(VirtualClock())
    begun_ns = meter.clock.now_ns()
    says(rails=(Rail("grid", rate_hz=1000.0), Rail("ticked", rate_hz=2.0)))(meter)

    check_meter(meter, clock=meter.clock)

    assert (meter.clock.now_ns() - begun_ns) * 1e-9 >= 20.0


# ---- workloads ---------------------------------------------------------------------------------

SAMPLES = [rig.Sample(f"s{k}", np.full(4, float(k)), label="ab"[k % 2]) for k in range(4)]
GOOD = rig.workload(SAMPLES, name="steps")


def fields(type_: str, value: object) -> Any:
    """Return a payload with one field of whole numbers, and one of another type."""
    payload = np.zeros(3, [("whole", "u1", 2), ("other", type_)])
    payload["other"] = value
    return payload


def test_a_list_of_samples_is_a_workload_that_keeps_every_rule_and_payloads_may_have_fields_of_numbers() -> None:
    assert "sample.finite" in rig.check_workload(rig.workload([rig.Sample("s", fields("f4", 1.0))], name="fields"))
    assert "samples.steady" in rig.check_workload(GOOD)


@pytest.mark.parametrize("changed", [
    [*SAMPLES[:3], replace(SAMPLES[3], label="a")],
    [*SAMPLES[:3], replace(SAMPLES[3], payload=np.full(4, 3.5))],
    [*SAMPLES[:3], replace(SAMPLES[3], rate_hz=8000.0)],
    SAMPLES[::-1], SAMPLES[:3],
], ids=["label", "payload", "rate", "order", "count"])  # fmt: skip
def test_the_digest_follows_all_streamed_and_scored_data(changed: list[rig.Sample]) -> None:
    assert rig.workload(changed, name="steps").digest_sha256 != GOOD.digest_sha256
    assert rig.workload(list(SAMPLES), name="steps").digest_sha256 == GOOD.digest_sha256


def test_declared_labels_include_those_without_a_sample() -> None:
    assert GOOD.details["classes"] == ["a", "b"]
    assert rig.workload(SAMPLES[:1], name="one", classes=["b", "c"]).details["classes"] == ["a", "b", "c"]
    assert not rig.workload([rig.Sample("s", np.zeros(3))], name="unlabelled").details


@pytest.mark.parametrize("label", [3, True, b"a"])
def test_a_label_other_than_text_is_refused(label: Any) -> None:
    with pytest.raises(UsageError, match=r"s1.*Give a text, such as label="):
        rig.workload([SAMPLES[0], replace(SAMPLES[1], label=label)], name="numbers")


def test_labels_outside_the_device_answers_fail() -> None:
    assert "workload.labels" in rig.check_workload(GOOD, answers=["a", "b", "c"])
    with pytest.raises(ConformanceError, match=r"workload\.labels: found a, b; .* of left, right") as caught:
        rig.check_workload(GOOD, answers=["left", "right"])
    assert "rig check" in caught.value.remedy


def test_every_sample_in_memory_is_checked() -> None:
    late = [rig.Sample(f"s{k}", np.full(2, np.nan if k == 50 else 1.0)) for k in range(60)]
    raised(ConformanceError, rig.check_workload, rig.workload(late, name="late"), says="sample s50 holds NaN")


def test_an_object_other_than_a_sample_is_refused() -> None:
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


def test_a_list_is_no_workload() -> None:
    raised(ConformanceError, rig.check_workload, SAMPLES, says="an opened workload with name, task")
