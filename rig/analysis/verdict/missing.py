"""Refusals of figures that a whole recording cannot support: no trace, no span, or no finite number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from rig.analysis.result.finding import Finding, refusal
from rig.analysis.result.quantity import Figures
from rig.recording.reader import Run


def without_spans(run: Run) -> Finding:
    """Return the refusal of everything that needs a span."""
    remedy = "Let the device return spans with its replies"
    if run.start.device.spans_on_pin:
        remedy = "Wire the pin that marks the spans to a logic input of the meter, and declare it there (`pin`)"
    elif not run.complete:
        remedy = "Measure again; the run ended too early"
    return refusal("time and power", "no span was recorded", remedy)


def without_number(figures: Figures) -> Iterator[Finding]:
    """Yield a refusal for each figure whose value or interval is not a finite number."""
    remedy = "Look at the readings and the spans for what is too large, too short or missing, and measure again"
    for key, q in figures.items():
        if q.value == math.inf and key.quantity.startswith("latency_"):
            yield refusal(key, "a sample without an answer is never served", "Let the device answer each sample")
        elif not all(map(math.isfinite, (q.value, q.bias, *q.interval(), *(c.u for c in q.components)))):
            yield refusal(key, "the recording gives no finite number for it", remedy)


def as_imported(finding: Finding, run: Run) -> Finding:
    """Return a finding of an imported run, with a remedy for its importer in place of options of ``rig measure``."""
    if run.start.imported is None or "--" not in finding.remedy or finding.effect != "refusal":
        return finding
    options = run.start.imported.options
    if "idle_s" not in finding.remedy:
        remedy = "Record longer windows, or with a faster meter"
    elif "idle" in options:
        remedy = (
            "State when the device was idle, in seconds of the trace, and import again (--option idle=START:END,...)"
        )
        if options.get("sync_s"):
            remedy = "State longer idle windows, or a smaller sync_s, which is cut from both ends, and import again"
    elif "idle_guard_s" in options:
        remedy = "Count less time around the run as work, and import again (--option idle_guard_s=SECONDS)"
    else:
        remedy = "The trace must also hold readings while the device was idle"
    return replace(finding, remedy=remedy)
