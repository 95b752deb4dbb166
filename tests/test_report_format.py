"""Numbers and names for people, and traces thinned for a picture."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.format import budget, clean, groups, quantity_text, si, split_name, title
from reports.trace_figure import envelope
from rig.quantity import Component, Quantity


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Quantity(341.2e-6, "W", bias=3.1e-6), "341.2 ± 3.1 µW"),
        (Quantity(0.875, "1", bias=0.012), "87.5 ± 1.2 %"),
        (Quantity(12.5, "1", bias=0.25), "12.50 ± 0.25"),
        (Quantity(math.nan, "W", bias=1.0), "n/a"),
        (Quantity(math.inf, "W"), "n/a"),
        (Quantity(0.875, "1"), "87.5 % (no uncertainty stated)"),
        (Quantity(0.0, "W"), "0 W (no uncertainty stated)"),
        (Quantity(0.0, "W", bias=2e-6), "0.0 ± 2.0 µW"),
        (Quantity(-1e-9, "W", bias=2e-6), "0.0 ± 2.0 µW"),
        (Quantity(0.9996, "s", bias=0.0996), "1000 ± 100 ms"),
        (Quantity(612.3, "s", bias=0.61), "612.30 ± 0.61 s"),
        (Quantity(0.01, "W", bias=5.0), "0.0 ± 5.0 W"),
        (Quantity(4.2, "W", bias=math.inf), "4.2 ± unknown W"),
        (Quantity(3e-9, "J", bias=1.2e-10), "3.00 ± 0.12 nJ"),
        (Quantity(12.0, "widgets", bias=1.5), "12.0 ± 1.5 widgets"),
        (Quantity(1e30, "W", bias=1e28), "1.000e+06 ± 1.0e+04 YW"),
        (Quantity(1e30, "widgets", bias=1e28), "1.000e+30 ± 1.0e+28 widgets"),
        (Quantity(2.5e-6, "J/step", bias=1e-7), "2.50 ± 0.10 µJ/step"),
    ],
)
def test_quantities_read_well(quantity: Quantity, text: str) -> None:
    assert quantity_text(quantity) == text


def test_plain_numbers_read_well() -> None:
    assert si(1280.0, "Hz") == "1.28 kHz"
    assert si(None, "s") == "not stated"
    assert si(math.nan, "s") == "n/a"
    assert si(90.0, "s") == "90 s"


def test_names_are_taken_apart() -> None:
    assert split_name("phase.inference.rail.vdd.core.idle_power_w")[:2] == (
        "phase and rail",
        "Phase inference, rail vdd.core",
    )
    assert split_name("trimmed.rail.io.dynamic_power_w").kind == "cross-check"
    assert split_name("what.is.this").kind == "other"
    assert split_name("").kind == "other"
    assert title("rail.io.dynamic_power_w") == "Dynamic power"
    assert title("time_to_solution_s") == "Time to solution"
    names = ("x.y.z", "rail.io.a", "trimmed.a", "phase.p.rail.io.a", "accuracy", "phase.p.a")
    kinds = [g.kind for g in groups(dict.fromkeys(names, Quantity(1.0, "W")))]
    assert kinds == ["overall", "phase", "rail", "phase and rail", "cross-check", "other"]


def test_budget_adds_what_is_shared_with_its_sign() -> None:
    parts = (Component("gain", 3.0, shared="g"), Component("gain", -3.0, shared="g"), Component("noise", 2.0))
    lines = {line.source: line for line in budget(Quantity(1.0, "W", parts))}
    assert lines["noise"].share == 1.0
    assert lines["gain"].u == 0.0
    assert sum(line.share for line in lines.values()) == pytest.approx(1.0)


def test_clean_leaves_letters_alone() -> None:
    assert clean("Größe µW 功率\n") == "Größe µW 功率 "


def test_envelope_keeps_extremes_and_gaps() -> None:
    start = np.concatenate([np.arange(0.0, 400.0), np.arange(600.0, 1000.0)])
    watts = np.ones(800)
    watts[10], watts[500], watts[700] = 9.0, -3.0, np.nan
    x, least, mean, most = envelope(start, start + 1.0, watts, 100)
    assert x.shape == (100,)
    assert np.nanmax(most) == 9.0
    assert np.nanmin(least) == -3.0
    assert np.isnan(mean[45:55]).all()
    assert mean[20] == pytest.approx(1.0)
