"""The search finds the highest valid rate, records every probe, and refuses if no rate is valid."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

import rig
from fixtures.bench.mock_device import SETTLE_S
from reports.headlines_and_tables import cards, key_figures
from reports.render import render
from rig.analysis.sessions.rate_probes import PEAK, _of_draw, peak_rate
from rig.comparing.compare import compare
from rig.errors import MeasurementRefusedError
from rig.recording.records import DeviceRecord
from rig.recording.session_json import runs_in
from rig.session.rate_and_size_search import CLOSE, find_largest, find_peak
from rig.types import Floats
from scenarios.rules import quick
from scenarios.server import server
from tests.support.serving import Blank

pytestmark = pytest.mark.pictures

# ---- the search by itself ------------------------------------------------------------------


@given(limit_hz=st.floats(0.1, 1e5), start_hz=st.floats(1.0, 100.0))
def test_the_highest_valid_rate_is_found_within_the_resolution(limit_hz: float, start_hz: float) -> None:
    tried: list[float] = []

    def holds(rate_hz: float) -> bool:
        tried.append(rate_hz)
        return rate_hz <= limit_hz

    found = find_peak(holds, start_hz)
    assert limit_hz / CLOSE <= found <= limit_hz
    assert found == max(rate_hz for rate_hz in tried if rate_hz <= limit_hz)
    assert len(tried) <= 8 + abs(math.log2(limit_hz / start_hz)) + 1
    assert len(set(tried)) == len(tried)


def test_a_search_without_a_valid_rate_gives_up_early() -> None:
    """At a thousandth of the rate a probe takes a thousand times as long."""
    tried: list[float] = []

    def holds(rate_hz: float) -> bool:
        tried.append(rate_hz)
        return False

    with pytest.raises(MeasurementRefusedError, match="no rate from 100 down to") as caught:
        find_peak(holds, 100.0)
    assert (caught.value.exit_code, caught.value.field) == (30, "arrival_hz")
    assert min(tried) >= 100.0 / 1024.0
    assert "latency_bound_s" in caught.value.remedy


@given(largest=st.integers(2, 10**6), start=st.integers(2, 10**4))
def test_the_largest_valid_size_is_found_closely(largest: int, start: int) -> None:
    tried: list[int] = []

    def holds(size: int) -> bool:
        tried.append(size)
        return size <= largest

    found = find_largest(holds, start)
    assert found <= largest <= max(1.05 * found, found + 1)
    assert len(set(tried)) == len(tried)


def test_a_search_for_a_size_that_nothing_holds_states_none() -> None:
    assert find_largest(lambda _: False, 100) == 0


# ---- a search on the plant -----------------------------------------------------------------

BOUND_S, SERVICE_S, SECONDS = 0.3, 0.05 + SETTLE_S, 20.0
DETERMINISTIC = (
    "samples=4", "audio_hz=1000", "inference_s=0.05", "device_forward_s=0", "device_back_s=0", "device_jitter_s=0",
    "marks=false", f"latency_bound_s={BOUND_S}", f"duration_s={SECONDS}", "arrival_hz=10", "hit_rate=1",
)  # fmt: skip


def request(out: Path, *options: str) -> rig.Request:
    return rig.Request(device="mock", meters=("none",), scenario="server", options=options, out=out, find_peak=True)


def p99_s(rate_hz: float, seed: int = 1) -> float:
    """Return the 99th percentile of a deterministic server's latencies (Lindley), for the scenario's arrivals."""
    rules = dataclasses.replace(quick("server"), warmup=0)
    steps = server(Blank(4), rules, arrival_hz=rate_hz, duration_s=SECONDS, arrival_seed=seed)
    free_s, latency_s = 0.0, []
    for due_s in [s.due_ns * 1e-9 for s in steps if isinstance(s, rig.Issue) and s.due_ns is not None]:
        free_s = max(free_s, due_s) + SERVICE_S
        latency_s.append(free_s - due_s)
    return float(np.sort(latency_s)[math.ceil(len(latency_s) * 0.99) - 1])


def test_the_peak_of_a_deterministic_server_is_the_analytic_one(tmp_path: Path) -> None:
    folder = rig.measure(request(tmp_path / "peak", *DETERMINISTIC), quiet=True)
    result = rig.evaluated(folder).result
    tried = {probe.rate_hz: probe.held for probe in result.series.probes}
    for probe in result.series.probes:
        assert probe.latency is not None and probe.latency.value == pytest.approx(p99_s(probe.rate_hz), abs=2e-9)
        assert probe.held is (probe.latency.value <= BOUND_S)
    peak_hz = max(hz for hz, held in tried.items() if held)
    failed_hz = min(hz for hz, held in tried.items() if not held)
    assert failed_hz <= CLOSE * peak_hz
    assert p99_s(peak_hz) <= BOUND_S < p99_s(CLOSE * peak_hz)
    assert 10.0 < peak_hz < 1.0 / SERVICE_S
    peak = result.quantities["peak_rate_hz"]
    assert (peak.value, peak.value + peak.bias, peak.n) == (peak_hz, pytest.approx(failed_hz), len(tried))

    runs = [(why, rig.open_run(path).start.scenario.options["arrival_hz"]) for path, why in runs_in(folder)]
    assert {hz for why, hz in runs if why == "probe"} == set(tried)
    assert {hz for why, hz in runs if why != "probe"} == {peak_hz}
    assert "figures/peak.svg" in render(None, result)
    assert "Highest rate within the rules" in [card["title"] for card in cards(result, key_figures(result))]


def test_the_peak_interval_covers_another_draw_of_arrivals(tmp_path: Path) -> None:
    """Two searches with other arrivals show no difference of one device; the same arrivals show a slower one."""

    def peak_hz(seed: int) -> float:
        return find_peak(lambda hz: p99_s(hz, seed) <= BOUND_S, 10.0)

    peaks_hz = [*map(peak_hz, range(1, 41))]
    low = 1 + int(np.argmin(peaks_hz[:8]))
    ways = {"first": "arrival_seed=1", "other": f"arrival_seed={low}", "slower": "inference_s=0.055"}
    for name, option in ways.items():
        rig.measure(request(tmp_path / name, *DETERMINISTIC, option), quiet=True)
    found = rig.evaluated(tmp_path / "first")
    peak = peak_rate(found.parts)[PEAK]
    assert 0.7 < peak.u / np.std(peaks_hz, ddof=1) < 1.4
    said = [d.said for c in compare([tmp_path / name for name in ways]) for d in c.differences if d.key == PEAK]
    assert said == ["no difference shown", "worse"]

    several = [replace(part.result.start, device=DeviceRecord(max_batch=2)) for part in found.parts]
    parts = [replace(p, result=replace(p.result, start=start)) for p, start in zip(found.parts, several, strict=True)]
    assert not peak_rate(parts)[PEAK].stated
    assert "nothing shows what another draw of arrivals gives" in peak_rate(parts)[PEAK].method


@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_searches_with_the_same_arrivals_share_their_draw(sigma: float) -> None:
    def drawn(arrivals: int, services: int) -> tuple[Floats, Floats]:
        each_s = SERVICE_S * np.random.default_rng(services).lognormal(0.0, sigma, 3000)
        return np.cumsum(np.random.default_rng(arrivals).exponential(size=3000)), each_s

    def served(rate_hz: float, at: Floats, each_s: Floats) -> tuple[Floats, Floats]:
        due_s = at[: np.searchsorted(at, SECONDS * rate_hz) + 1] / rate_hz
        early_s = due_s - np.cumsum(each_s)[: len(due_s)] + each_s[: len(due_s)]
        return due_s, np.maximum.accumulate(early_s) - early_s + each_s[: len(due_s)]

    def peak_hz(arrivals: int, services: int) -> float:
        return find_peak(lambda hz: bool(np.quantile(served(hz, *drawn(arrivals, services))[1], 0.99) <= BOUND_S), 10.0)

    peaks_hz = np.array([[peak_hz(arrivals, 100 + services) for services in range(8)] for arrivals in range(8)])
    device = SimpleNamespace(holds_one=True)
    scenario = SimpleNamespace(latency_bound_s=BOUND_S, duration_s=SECONDS, options={"arrival_seed": 1})
    rules = SimpleNamespace(percentile=0.99, min_queries=1, min_duration_s=None, early_stopping=False)
    parts = []
    for k in range(8):
        due_s, latency_s = served(peaks_hz[k, k], *drawn(k, 100 + k))
        series = SimpleNamespace(requested_s=due_s, latency_s=latency_s)
        start = SimpleNamespace(rules=rules, scenario=scenario, device=device)
        parts.append(_of_draw(cast(Any, SimpleNamespace(start=start, series=series)), peaks_hz[k, k]))
    own = np.array([sum(c.u**2 for c in each if c.shared is None) for each in parts])
    every = np.array([sum(c.u**2 for c in each) for each in parts])
    of_services = np.mean(np.var(peaks_hz, axis=1, ddof=1))
    assert (own.mean() == 0.0) if sigma == 0.0 else 0.6 < own.mean() / of_services < 1.6
    assert 0.5 < every.mean() / np.var(peaks_hz, ddof=1) < 2.0


def test_a_bound_below_the_service_time_is_refused(tmp_path: Path) -> None:
    options = [o for o in DETERMINISTIC if not o.startswith("latency_bound_s")]
    with pytest.raises(MeasurementRefusedError, match="keeps every rule"):
        rig.measure(request(tmp_path / "peak", *options, "latency_bound_s=0.04"), quiet=True)
    runs = runs_in(tmp_path / "peak")
    assert {purpose for _, purpose in runs} == {"probe"}
    assert [path.name for path, _ in runs] == [f"probe-{k:02d}" for k in range(1, len(runs) + 1)]
    assert len(json.loads((tmp_path / "peak" / "session.json").read_text())["runs"]) == len(runs) >= 5
