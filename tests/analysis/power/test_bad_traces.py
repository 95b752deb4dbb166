"""For any trace, power is a finite figure or is refused with a remedy, in bounded memory."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.power.model.blocks import blocks_of
from rig.analysis.power.model.trace_model import fit
from rig.errors import RigError
from rig.recording.reader import open_run
from rig.types import Floats

MEBIBYTE = 1 << 20


def _values(change: Callable[[Floats], Floats]) -> Callable[[Lab], None]:
    def edit(lab: Lab) -> None:
        lab.raw = change

    return edit


def _two_readings(lab: Lab) -> None:
    lab.deliver = lambda n: np.array([0, n - 1])


def _all_span(lab: Lab) -> None:
    lab.spans_s = np.array([[0.0, lab.end_s]])
    lab.span_w, lab.label = lab.span_w[:1], lab.label[:1]


def _starts_in_the_first_gap(lab: Lab) -> None:
    lab.deliver = lambda n: np.arange(
        int(lab.spans_s[0, 1] / lab.end_s * n) + 1, int(lab.spans_s[1, 0] / lab.end_s * n)
    )


TRACES: dict[str, Callable[[Lab], None]] = {
    "nan": _values(lambda w: np.full_like(w, np.nan)),
    "infinite": _values(lambda w: np.full_like(w, np.inf)),
    "one number in ten": _values(lambda w: np.where(np.arange(len(w)) % 10, np.nan, w)),
    "zero": _values(np.zeros_like),
    "constant": _values(lambda w: np.full_like(w, 1.5e-3)),
    "rounded without noise": _values(lambda w: np.round(w / np.ptp(w) * 3.0)),
    "two readings": _two_readings,
    "all span": _all_span,
    "all gap": _starts_in_the_first_gap,
}


@pytest.mark.parametrize("name", TRACES)
def test_a_bad_trace_has_finite_figures_or_a_refusal_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    lab = plain_lab(4, "plain")
    TRACES[name](lab)
    write(lab, tmp_path / "run")
    try:
        result = evaluate(open_run(tmp_path / "run"))
    except RigError as error:
        assert error.remedy
        return
    assert all(math.isfinite(q.value) and math.isfinite(q.half_width()) for q in result.quantities.values())
    power = [str(key) for key in result.quantities if key.quantity == "dynamic_power_w"]
    assert power or (result.refusals and all(r.remedy for r in result.refusals))


@pytest.mark.parametrize("each", [1.0, 1e3])
def test_a_million_spans_and_a_billion_readings_are_fitted_in_little_memory(each: float) -> None:
    """A reading may represent a mean of many; the memory of the trace itself is not counted."""
    n = 1_000_000
    start = np.arange(2.0 * n)
    span, idle = np.arange(2 * n) % 2 == 1, np.arange(2 * n) < 1000
    watts = np.where(span & ~idle, 2.0, 1.0) + np.random.default_rng(1).normal(0.0, 1e-3, 2 * n)
    number = np.arange(2 * n) // 2
    stretches = [np.where(use, number, -1) for use in (idle, ~span & ~idle, span & ~idle)]
    many = np.full(2 * n, each)
    blocks = blocks_of((start, start + 1.0), watts, many, many, (np.where(idle, 0, -1), stretches[1], stretches[2]))
    tracemalloc.start()
    model = fit(blocks, np.diag(1e-6 / blocks.many))
    weight, _ = model.idle_under(np.column_stack([start[span & ~idle], start[span & ~idle] + 1.0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert float(weight @ watts) == pytest.approx(1.0, abs=1e-3)
    assert peak < 60 * MEBIBYTE + 4 * watts.nbytes
