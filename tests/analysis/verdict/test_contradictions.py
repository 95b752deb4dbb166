"""A named rule makes a contradictory recording INVALID, and a live run whose readings contradict their arrival
times."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from benchmarks.faults.forge import hash_again
from fixtures.worlds.lab_recording import write
from reports.audit.audit import audit
from reports.audit.folder.reading import read_run
from reports.audit.rules import judge_run, known_values
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.verdict.recording_faults import contradictions_of
from rig.commands.shell.main import main
from rig.recording.events import ChunkArrived, HostGap
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from rig.types import Chunk, ClockInfo, MeterInfo, Rail, Reply, Span
from scenarios.rules import quick
from tests.support.figures import POWER
from tests.support.labs import lab_of
from tests.support.plants import on_plant
from tests.support.serving import S, samples
from tests.support.start_lines import start
from tests.support.waiting import until

MS = 1_000_000


def broken(path: Path) -> list[Finding]:
    return [found for found in evaluate(open_run(path)).findings if found.effect == "check" and not found.ok]


def failed(
    path: Path, spans: Sequence[tuple[int, int]], more: Callable[[Recorder], object] = lambda r: None
) -> list[Finding]:
    """Return the failed checks of a run of spans in ms; sample k is issued at 10 k and answered at 10 k + 8 ms."""
    rules: Any = {"name": "r", "scenario": "s", "source": "x", "submittable": False}
    with Recorder(path) as recorder:
        recorder.event(start(device={"name": "hand", "mode": "hardware", "clock": None}, rules=rules))
        for k, (on, off) in enumerate(spans):
            recorder.sample(samples(k + 1)[k])
            span = Span("inference", (10 * k + on) * MS, (10 * k + off) * MS)
            recorder.reply(k, Reply(f"s{k}", "x", (span,)), None, 10 * k * MS, (10 * k + 8) * MS)
        more(recorder)
        recorder.stop()
    return broken(path)


SPANS = {
    "spans that begin before they were issued": [(1, 7), (-2, 7), (1, 7)],
    "spans that end after their answer arrived": [(1, 7), (1, 9), (1, 7)],
    "spans that overlap on a device that holds one sample": [(1, 8), (-3, 7), (1, 7)],
    "spans of one tick or less": [(1, 1), (2, 2), (1, 7)],
}


@pytest.mark.parametrize(("kind", "trip_s"), [("plain", 0.02), ("clocks_and_idle_wander_under_unlike_requests", 1e-4)])
def test_spans_outside_host_stamps_are_reported_beyond_clock_error(tmp_path: Path, kind: str, trip_s: float) -> None:
    lab = lab_of(kind, 25000)
    lab.bracket_s = trip_s
    write(lab, tmp_path / "run")
    run = open_run(tmp_path / "run")
    where, early_ns = run.replies.column_names.index("completed_ns"), pc.subtract(run.replies["completed_ns"], S)
    early = replace(run, replies=run.replies.set_column(where, "completed_ns", early_ns))
    assert contradictions_of(*on_device_clock(run)) == ()
    assert [c.rule for c in contradictions_of(*on_device_clock(early))] == ["spans that end after their answer arrived"]
    audited = judge_run(read_run(tmp_path / "run"), known_values("quick", "offline")[0])
    assert [rule.ok for rule in audited if rule.rule in SPANS] == [True] * 2


@pytest.mark.parametrize("rule", SPANS)
def test_impossible_spans_are_reported(tmp_path: Path, rule: str) -> None:
    assert rule in [check.rule for check in failed(tmp_path / "run", SPANS[rule])]


def test_overlapping_spans_on_a_serial_device_count_in_full(tmp_path: Path) -> None:
    """Only the stamps overlap; the time of one sample does not become shorter by the error of the other's stamp."""
    failed(tmp_path / "run", SPANS["spans that overlap on a device that holds one sample"])
    main(["report", str(tmp_path / "run"), "--json"])
    claims = {c.key: c for c in audit(tmp_path / "run").compared}
    assert claims["execution_time_s"].claimed == pytest.approx((7 + 10 + 6) * 1e-3 / 3)
    assert claims["execution_time_s"].ok
    assert "busy_time_per_inference_s" not in map(str, evaluate(open_run(tmp_path / "run")).quantities)


@pytest.mark.parametrize("doubled", [False, True])
def test_a_chunk_that_is_doubled_or_missing_is_named(tmp_path: Path, doubled: bool) -> None:
    def meter(recorder: Recorder) -> None:
        rail = Rail("pin", kind="edges")
        recorder.open_trace(MeterInfo("m", "hardware", ClockInfo("host", 1e9), (rail,)), rail, 0)
        ticks = np.arange(3, dtype=np.int64)
        recorder.chunk(Chunk("pin", np.array([0, 1, 0], np.uint8), ticks, ticks), 5)
        if doubled:
            recorder.event(ChunkArrived(rail="pin", readings=3, arrived_ns=6))

    found = failed(tmp_path / "run", [(0, 8)] * 5, meter)
    assert [c.rule for c in found] == (["readings of rail pin on disk"] if doubled else [])


def test_a_cut_file_in_a_complete_run_is_reported(tmp_path: Path) -> None:
    """A crash cuts files and leaves no stop line; a stop line lists completely written files."""
    assert failed(tmp_path / "run", [(0, 8)] * 5) == []
    replies = tmp_path / "run" / "replies.arrows"
    replies.write_bytes(replies.read_bytes()[:-20])
    hash_again(tmp_path / "run")
    found = [(check.rule, check.found) for check in broken(tmp_path / "run")]
    assert ("files that were written to their end", "all but replies.arrows") in found


def test_a_gap_in_the_hosts_heartbeat_is_named(tmp_path: Path) -> None:
    found = failed(tmp_path / "run", [(0, 8)] * 5, lambda r: r.event(HostGap(on_ns=S, off_ns=4 * S)))
    assert [(c.rule, c.found) for c in found] == [("gaps in the host's heartbeat", "1, the longest 3 s")]


STOPPED = """
import sys, time
from pathlib import Path
import numpy as np
from rig.engine.acquisition import Bench
from rig.engine.blocking_device import blocking
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.types import Idle, Issue, Sample, SampleSet

one = Sample("s0", np.zeros(1))
bench = Bench(blocking(lambda sample: 1), (), HostClock())
work = SampleSet("blank", "none", "1", "0" * 64, [one])
record(Path(sys.argv[1]), bench, work, [Issue([one]), Idle(4.0), Issue([one])], scenario={"name": "s"}, argv=[])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
def test_a_stopped_process_records_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "run"
    running = subprocess.Popen([sys.executable, "-c", STOPPED, str(path)], stdout=subprocess.DEVNULL)
    try:
        until((path / "events.jsonl").exists)
        time.sleep(0.4)  # the watch has begun, and the idle of 4 s lasts
        os.kill(running.pid, signal.SIGSTOP)
        time.sleep(1.8)
        os.kill(running.pid, signal.SIGCONT)
        running.wait(60.0)
    finally:
        running.kill()
    assert any(gap.off_ns - gap.on_ns > 1.5 * S for gap in open_run(path).of_type(HostGap))


# ---- readings against their times of arrival ---------------------------------------------------

POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w", "average_power_w", "energy_per_inference_j")
TRUE_W = {"idle_power_w": 1e-3, "active_power_w": 3e-3, "dynamic_power_w": 2e-3}


def measured(path: Path, inference_s: float, **meter: Any) -> Result:
    rules = quick("single-stream")
    device = {"inference_s": inference_s}
    return on_plant(path / "run", device=device, meter=meter, stream={"idle_s": None}, rules=rules).result


def contradicted(result: Result) -> bool:
    """Return whether a check of the readings fails, and power is refused for that reason or corrected to the truth."""
    assert result.validity is not None
    failed = [c for c in result.validity.checks if not c.ok]
    if failed and POWER in result.quantities:
        for name, watts in TRUE_W.items():
            q = result.quantities[FigureKey(name)]
            assert abs(q.value - watts) <= 1.5 * q.half_width()
    elif failed:
        assert not any(FigureKey(name) in result.quantities for name in POWERS)
        assert all(any(c.rule in r.reason for r in result.refusals) for c in failed)
    return bool(failed) and all("rail core" in c.rule for c in failed)


@pytest.mark.parametrize(("fault", "rate_hz"), [
    ({"deliveries": 2}, 1e3), *(({"rate_error": e}, hz) for e, hz in ((0.01, 200.0), (-0.01, 20e3), (-0.5, 1e3))),
], ids=["twice", "faster than declared", "slower than declared", "half the rate"])  # fmt: skip
def test_a_live_run_with_a_wrong_rate_is_invalid(tmp_path: Path, fault: dict[str, float], rate_hz: float) -> None:
    assert contradicted(measured(tmp_path, 0.05, rate_hz=rate_hz, **fault))


@pytest.mark.parametrize("honest", [
    {}, {"meter_forward_s": 0.05, "meter_back_s": 0.05}, {"meter_jitter_s": 0.02}, {"drop": 0.3}, {"rate_hz": 20.0},
], ids=["plain", "slow link", "jitter", "lost readings with stamps", "slow meter"])  # fmt: skip
def test_an_honest_meter_contradicts_nothing(tmp_path: Path, honest: dict[str, float]) -> None:
    validity = measured(tmp_path, 0.3, **honest).validity
    assert validity is not None and validity.valid
