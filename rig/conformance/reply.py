"""The rules of a reply: its output can be recorded, and its clock can have stamped the spans."""

from __future__ import annotations

import json
from itertools import pairwise

from rig.conformance.rule_failures import Checks, raised
from rig.network.description import MOST, Activity, NetworkInfo, activity_faults, activity_rows, network_faults
from rig.recording.columns.rows import as_list
from rig.types import UNSTAMPED, Bracket, DeviceInfo, Reply, Span

_COUNTERS = ("spikes", "synaptic_operations", "synaptic_operations_ne15")
"""Counters that a reply's output may have; each is a number, or a list with a number for each class."""


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
    c.rule("span.overlap", lag >= 0, f"a span {-lag} ticks before the last one's end", "one span after another")
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
