"""``check_device`` checks a device by calling it, as ``check_meter`` does a meter. For the tests of driver authors:

    check_device(open_device(), samples)
    check_meter(open_meter(), clock=bench.clock)

Both raise ``ConformanceError`` with the first failure of each broken rule, or return the names of all checked rules.
Rules of an optional protocol (``Clocked``, ``Marks``, ``Repeats``) are checked only if the driver implements it, and
rules of a network only if the driver declares one.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rig.conformance.meter import check_meter, meter_info_rules
from rig.conformance.rule_failures import Checks, clock_info, close, identity, raised, rate, read_timer
from rig.conformance.workload import check_workload
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.errors import ConformanceError, RigError, RuleFailure, UsageError, said
from rig.network.description import MOST, Activity, NetworkInfo, activity_faults, activity_rows, network_faults
from rig.recording.columns.rows import as_list
from rig.types import (
    MARK_PHASE,
    UNSTAMPED,
    Bracket,
    Clock,
    Clocked,
    Device,
    DeviceInfo,
    Marks,
    Repeats,
    Reply,
    Sample,
    Span,
    Workload,
)

__all__ = ["ConformanceError", "RuleFailure", "check_device", "check_meter"]

Judge = Callable[[Sample, str], float]
PULSE_S = 0.05
TIMES = 3
_NO_PHASE = "no-such-phase"
_POLL_S = 0.02
_LONGER = 1.2
"""A loop lasts longer than one execution by more than this factor, which chance alone does not reach."""
_STILL_POLLS = 1000
_COUNTERS = ("spikes", "synaptic_operations", "synaptic_operations_ne15")
"""Counters that a reply's output may have; each is a number, or a list with a number for each class."""


def check_device(
    device: Device,
    samples: Sequence[Sample],
    *,
    clock: Clock | None = None,
    prompt_s: float = 0.1,
    labels: Iterable[str] = (),
    judge: Judge | None = None,
) -> tuple[str, ...]:
    """Call the methods of an opened device, and close it. The device must be able to complete ``samples``.

    ``clock`` is the host's unless the device is part of a simulated bench. ``prompt_s`` is the longest duration of a
    call that must not wait. ``labels`` are the possible right answers, if they are known. ``judge`` is for a solver: it
    returns the cost of a solution of a sample. Raises ``ConformanceError``, and ``UsageError`` without samples.

    Example::

        import numpy as np
        import rig

        device = rig.blocking(lambda sample: float(np.mean(sample.payload)))
        rig.check_device(device, [rig.Sample("ones", np.ones(16)), rig.Sample("zeros", np.zeros(16))])
    """
    if not samples:
        raise UsageError("no samples to check the device with", field="samples", value=0, remedy="Give one or more")
    c = Checks(clock or HostClock(), prompt_s, "device")
    if not c.complete(device, Device):
        return c.verdict()
    with c.calling("info()"):
        run = _DeviceRun(c, device, c.call("info()", device.info), tuple(labels), judge)
        if device_info_rules(c, run.info, device.info()):
            _use(run, samples)
    close(c, device)
    return c.verdict()


SURE_NS = 20_000_000


@dataclass
class _DeviceRun:
    """A device under check; ``lengths`` has the fewest ticks of each phase, as a busy host lengthens some spans."""

    c: Checks
    device: Device
    info: DeviceInfo
    labels: tuple[str, ...] = ()
    judge: Judge | None = None
    last_on: int | None = None
    lengths: dict[str, int] = field(default_factory=dict)
    silent: bool = False
    """Whether the device left a sample unanswered; then no more samples are issued."""
    answers: list[object] = field(default_factory=list)

    def stamp(self) -> Bracket | None:
        """Read the device's clock; None if that is impossible."""
        if self.info.clock is None:
            now_ns = self.c.clock.now_ns()
            return Bracket(now_ns, now_ns, now_ns)
        return read_timer(self.c, self.device) if isinstance(self.device, Clocked) else None


def _use(run: _DeviceRun, samples: Sequence[Sample]) -> None:
    c, device = run.c, run.device
    before = [np.asarray(s.payload).tobytes() for s in samples]
    with c.calling("stage(), submit() and poll()"):
        _singles(run, samples)
    changed = [s.id for s, was in zip(samples, before, strict=True) if np.asarray(s.payload).tobytes() != was]
    c.rule("sample.kept", not changed, f"another payload of {changed}", "samples that the device only reads")
    if run.silent:
        return
    if isinstance(device, Repeats) and run.lengths:
        with c.calling("submit_repeated()"):
            _repeats(run, device, samples[0])
    if isinstance(device, Marks):
        with c.calling("pulse()"):
            _pulse(run, device)


def device_info_rules(c: Checks, info: DeviceInfo, again: DeviceInfo) -> bool:
    """Check the info of a device; return whether the other checks can go on."""
    identity(c, info, again)
    phases, batch, timeout_s = info.phases, info.max_batch, info.timeout_s
    named = all(isinstance(p, str) and p.strip() for p in phases) and len(set(phases)) == len(phases) > 0
    c.rule("info.phases", named, repr(phases), "one phase or more, each with a name of its own")
    timed = c.rule("info.timeout", 0 < timeout_s < math.inf, f"timeout_s {timeout_s}", "finite seconds above zero")
    held = 1 if info.max_pending is None else info.max_pending
    whole = all(isinstance(most, int) and most >= 1 for most in (batch, held))
    c.rule("info.batch", whole, f"max_batch {batch!r}, max_pending {info.max_pending!r}", "whole numbers, 1 or more")
    if info.network is not None:
        faults = list(network_faults(info.network))
        c.rule("info.network", not faults, "; ".join(faults), "a network that does not contradict itself")
    ticks = info.clock is None or clock_info(c, info.clock)
    return named and timed and whole and ticks


def _singles(run: _DeviceRun, samples: Sequence[Sample]) -> None:
    """Issue every sample in batches, then the first again, as a repetition or a warm-up does."""
    from rig.analysis.scores.answers import answer_in  # 26 MB that recording does not need

    size = run.info.max_batch
    batches = [list(samples[k : k + size]) for k in range(0, len(samples), size)]
    for batch in [*batches, [samples[0]]]:
        run.c.call("stage()", partial(run.device.stage, batch))
        replies = _exchange(run, batch, partial(run.device.submit, batch, None), 1)
        if run.silent:
            return
        run.answers += [answer_in(reply.output) for reply in replies]
        _judged(run, batch, replies)
        for phase, ticks in (lengths(replies[0]) if replies else {}).items():
            run.lengths[phase] = min(ticks, run.lengths.get(phase, ticks))
    if run.labels:
        told = [answer for answer in run.answers if answer is not None]
        odd = [answer for answer in told if not (isinstance(answer, str) and answer in run.labels)]
        found = repr(odd[0]) if odd else f"null, {len(run.answers)} times"
        asked = f"one of {', '.join(run.labels)}, or null for a sample without an answer"
        run.c.rule("reply.label", bool(told) and not odd, found, asked)


def _judged(run: _DeviceRun, batch: Sequence[Sample], replies: Sequence[Reply]) -> None:
    """Check that a solver gives solutions and states their true costs."""
    by_id = {sample.id: sample for sample in batch}
    for reply in replies if run.judge is not None else ():
        said = reply.output if isinstance(reply.output, dict) else {}
        stated = isinstance(said.get("solution"), str) and isinstance(said.get("cost"), (int, float))
        asked = 'a solution and its cost: {"cost": c, "solution": digits}, as rig.solver gives them'
        if run.c.rule("reply.solution", stated, repr(reply.output)[:60], asked) and reply.sample_id in by_id:
            assert run.judge is not None
            try:
                cost, found = run.judge(by_id[reply.sample_id], said["solution"]), ""
            except RigError as error:
                cost, found = math.nan, str(error)
            true = math.isclose(cost, said["cost"], rel_tol=1e-9, abs_tol=1e-12)
            run.c.rule("reply.cost", true, found or f"{said['cost']} for a cost of {cost}", "the cost of the solution")


def _repeats(run: _DeviceRun, device: Repeats, sample: Sample) -> None:
    c, once = run.c, run.lengths
    wanted: list[tuple[str | None, list[str]]] = [(None, list(once)), *((phase, [phase]) for phase in once)]
    for phase, phases in wanted:
        try:
            replies = _exchange(run, [sample], partial(device.submit_repeated, [sample], TIMES, phase, None), TIMES)
        except UsageError as refusal:
            if phase is None or len(once) == 1 or refusal.field != "phase":
                raise
            break  # the device runs its phases only together
        for reply in replies:
            _repeated(run, reply, phases)
    error = raised(lambda: _unknown_phase(run, device, sample))
    found = "no error" if error is None else said(error)
    c.rule("repeat.unknown", isinstance(error, RigError), f"{found} for an unknown phase", "a RigError")


def _repeated(run: _DeviceRun, reply: Reply, phases: list[str]) -> None:
    """Check a reply of ``TIMES`` executions: each phase has one span for all of them, or one for each of them."""
    c, once = run.c, run.lengths
    own, counts = [s.phase for s in reply.spans], [s.executions for s in reply.spans]
    each = phases * TIMES
    asked = f"one span for each of {phases}, or {TIMES} such sets of spans"
    c.rule("repeat.spans", own in (phases, each), f"spans of {own}", asked)
    times = 1 if own == each else TIMES
    c.rule("repeat.executions", set(counts) <= {times}, f"executions {counts}", f"{TIMES}, as requested, or 1 in each")
    # on the clock of a busy host, a call of some milliseconds varies by more than its own length
    sure = {p for p, ticks in once.items() if run.info.clock is not None or ticks >= SURE_NS}
    short = [p for p, ticks in lengths(reply).items() if p in sure and ticks <= _LONGER * once[p]]
    c.rule("repeat.length", not short, f"{short} hardly longer than once", f"the length of {TIMES} executions")


def _unknown_phase(run: _DeviceRun, device: Repeats, sample: Sample) -> None:
    device.submit_repeated([sample], 1, _NO_PHASE, None)
    run.device.poll(run.info.timeout_s)


def _pulse(run: _DeviceRun, device: Marks) -> None:
    c = run.c
    before, span, after = run.stamp(), device.pulse(PULSE_S), run.stamp()
    c.rule("pulse.phase", span.phase == MARK_PHASE, f"phase {span.phase!r}", repr(MARK_PHASE))
    lasted_s = (span.off_tick - span.on_tick) / (run.info.clock.tick_hz if run.info.clock is not None else 1e9)
    near = 0.5 * PULSE_S <= lasted_s <= 2.0 * PULSE_S
    c.rule("pulse.length", near, f"{lasted_s:.3g} s", f"about the {PULSE_S} s requested")
    inside(c, "pulse.clock", span, before, after)


def _exchange(run: _DeviceRun, batch: Sequence[Sample], send: Callable[[], None], times: int) -> list[Reply]:
    """Issue a batch, poll until it is completed, and check the replies."""
    c, timeout_s = run.c, run.info.timeout_s * times
    before = run.stamp()
    c.promptly("submit.returns", send)
    deadline_ns = c.clock.now_ns() + round(timeout_s * 1e9)
    replies: list[Reply] = []
    waits_s, still = 0.0, 0
    while len(replies) < len(batch) and still < _STILL_POLLS:
        now_ns = c.clock.now_ns()
        got = c.promptly("poll.returns", partial(run.device.poll, waits_s), waits_s)
        c.rule("poll.replies", isinstance(got, Sequence), f"a {type(got).__name__}", "a list or tuple of replies")
        replies += (got := list(got))
        still = 0 if got or c.clock.now_ns() > now_ns else still + 1
        waits_s = min(_POLL_S, timeout_s)
        if now_ns > deadline_ns:
            break
    replies += c.promptly("poll.returns", lambda: run.device.poll(1e-3), 1e-3)
    after = run.stamp()
    issued, completed = sorted(s.id for s in batch), sorted(str(r.sample_id) for r in replies)
    lacking = [name for name in issued if name not in completed]
    run.silent = bool(lacking)
    found = f"no answer to {', '.join(lacking)} within {timeout_s:g} s of submit()"
    asked = "an answer in the timeout_s that info() declares; declare a short one to be told sooner"
    c.rule("replies.in_time", not lacking, found, asked)
    c.rule("replies.once", completed == issued, f"replies to {completed}", f"one reply to each of {issued}")
    for reply in replies:
        reply_rules(c, run.info, reply, run.last_on, before, after)
    run.last_on = max([s.on_tick for r in replies for s in r.spans], default=run.last_on)
    if run.info.clock is not None and before is not None and after is not None:
        rate(c, run.info.clock, before, after)
    return replies


# ---- what the parts of a bench declare, before the first run --------------------------------


def check_declared(bench: Bench, workload: Workload) -> None:
    """Check the infos of the device and the meters, and the samples: all that are in memory, else the first.

    Nothing is staged, issued or started. Raises ``ConformanceError`` for the first part that fails rules.
    """
    _check_info(bench, bench.device, device_info_rules)
    check_workload(workload, answers=answers_of(bench), looked_at=1)
    for meter in bench.meters:
        _check_info(bench, meter, meter_info_rules)


def answers_of(bench: Bench) -> Sequence[str]:
    """Return the answers that the device declares in its details as ``classes`` or ``labels``; none if unknown.

    This function reports no bad info; ``device_info_rules`` does.
    """
    c = Checks(bench.clock, prompt_s=0.1, kind="device")
    with c.calling("info()"):
        details = c.call("info()", bench.device.info).details
        declared = details.get("classes") or details.get("labels") or ()
        return [str(name) for name in declared] if isinstance(declared, list | tuple) else ()
    return ()


def _check_info(bench: Bench, driver: Any, rules: Callable[[Checks, Any, Any], object]) -> None:
    c = Checks(bench.clock, prompt_s=0.1)
    with c.calling("info()"):
        rules(c, *(c.call("info()", driver.info) for _ in range(2)))
    c.verdict()


# ---- what a reply says -------------------------------------------------------------------


def reply_rules(
    c: Checks, info: DeviceInfo, reply: Reply, last_on: int | None, before: Bracket | None, after: Bracket | None
) -> None:
    """Check a reply between two readings of the device's clock; ``last_on`` is the latest begin of earlier spans."""
    spans = reply.spans
    error = raised(lambda: json.dumps(reply.output, default=as_list, allow_nan=False))
    c.rule("reply.json", error is None, f"an output that raises {error}", "an output that JSON can hold, no NaN")
    stated = reply.output if isinstance(reply.output, dict) else {}
    odd = {name: stated[name] for name in _COUNTERS if name in stated and not _counts(stated[name])}
    c.rule("reply.counters", not odd, f"{odd}", "whole numbers, 0 or more")
    network = reply.network or info.network
    if reply.network is not None:
        faults = list(network_faults(reply.network))
        c.rule("reply.network", not faults, "; ".join(faults), "a network that does not contradict itself")
    if reply.activity is not None:
        faults = _activity_faults(network, reply.activity)
        c.rule("reply.activity", not faults, "; ".join(faults), "integers that fit the network that is declared")
    asked = f"a span of each phase that ran, of {', '.join(info.phases)}"
    c.rule("reply.spans", bool(spans) or len(info.phases) == 1, "no span", asked)
    for span in spans:
        known = span.phase in info.phases
        c.rule("span.phase", known, repr(span.phase), f"a declared phase: {', '.join(info.phases)}")
        whole = isinstance(span.executions, int) and span.executions >= 1
        c.rule("span.executions", whole, f"executions {span.executions!r}", "a whole number, 1 or more")
        c.rule("span.order", span.off_tick >= span.on_tick, f"off {span.off_tick - span.on_tick:+d} ticks", "off >= on")
        inside(c, "span.clock", span, before, after)
    lag = min((b.on_tick - a.off_tick + _slack(a, b) for a, b in pairwise(spans)), default=0)
    c.rule("span.overlap", lag >= 0, f"a span {-lag} ticks too early", "one span after another")
    first = spans[0].on_tick if spans else None
    if first is not None and last_on is not None:
        c.rule("span.monotone", first >= last_on, f"{first} after {last_on}", "ticks that only grow")


def _counts(value: object) -> bool:
    each = value if isinstance(value, (list, tuple)) else [value]
    return all(type(n) is int and 0 <= n <= MOST for n in each)


def _activity_faults(network: NetworkInfo | None, activity: Activity) -> list[str]:
    if network is None:
        return ["neither info() nor the answer declares a network"]
    error = raised(lambda: activity_rows(activity))
    return [str(error)] if error is not None else list(activity_faults(network, activity))


def inside(c: Checks, rule: str, span: Span, before: Bracket | None, after: Bracket | None) -> None:
    """Check that a span is between two readings of its clock; nothing is checked without readings or stamps."""
    if before is None or after is None or span.on_tick == UNSTAMPED:
        return
    slack = _slack(span)
    ok = span.on_tick >= before.tick - slack and span.off_tick <= after.tick + slack
    found = f"ticks {span.on_tick} to {span.off_tick}, its clock at {before.tick} before and {after.tick} after"
    c.rule(rule, ok, found, "a span between these two readings of its clock")


def _slack(*spans: Span) -> int:
    """Return the allowed jitter in ticks: two, plus a hundredth of the shortest span."""
    return 2 + max(0, min(s.off_tick - s.on_tick for s in spans)) // 100


def lengths(reply: Reply) -> dict[str, int]:
    """Return the ticks of each phase of a reply."""
    lasted: dict[str, int] = {}
    for s in reply.spans:
        lasted[s.phase] = lasted.get(s.phase, 0) + s.off_tick - s.on_tick
    return lasted
