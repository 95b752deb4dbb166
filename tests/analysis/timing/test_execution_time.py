"""The time of an inference covers only its own spans, also on two cores or with nested phases. Power times the time in
which the device was busy is the energy, and the auditor agrees."""

from collections.abc import Iterator
from functools import partial
from itertools import accumulate, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import ORIGIN_NS, SimPlant
from fixtures.worlds.random_draw import BlankWorkload
from reports.audit.audit import audit
from rig.analysis.evaluate import _power_in, _recorded
from rig.analysis.power.stamp_uncertainty import stamps_u_s
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.execution_time import spread
from rig.commands.shell.main import main
from rig.recording.traces.traces import AT_ONCE
from rig.types import Budget, DeviceInfo, Reply, Sample, Span, Step
from scenarios.offline import offline
from scenarios.rules import quick
from scenarios.server import server
from tests.support.figures import held
from tests.support.plants import OnPlant, on_plant

Stages = tuple[tuple[str, int, int], ...]
"""Phases of an inference, with their begin and end in ms."""
ONE: Stages = (("inference", 0, 100),)


class Cores:
    """The mock device on several cores: a core takes a batch at a time, and stamps the same spans for all of it.

    Batches take turns to have the phases of ``turns``.
    """

    def __init__(self, plant: SimPlant, device: MockDevice, turns: tuple[Stages, ...], cores: int, batch: int) -> None:
        self.device, self.plant, self.turns, self.batch = device, plant, cycle(turns), batch
        self.phases = tuple(dict.fromkeys(phase for stages in turns for phase, _, _ in stages))
        self.free_ns = [0] * cores
        self.poll, self.stage, self.close, self.timer = device.poll, device.stage, device.close, device.timer

    def info(self) -> DeviceInfo:
        clock, most = self.device.info().clock, 64 if len(self.free_ns) > 1 else None
        return DeviceInfo("cores", "simulator", "Cores", clock, self.phases, self.batch, most)

    def submit(self, samples: list[Sample], budget: Budget | None) -> None:
        core = self.free_ns.index(min(self.free_ns))
        begin_ns, spans, stages = max(self.plant.clock.now_ns() + 20_000, self.free_ns[core]), [], next(self.turns)
        for phase, *ends in stages:
            on_ns, off_ns = (begin_ns + ms * 1_000_000 for ms in ends)
            self.plant.occupy(phase, on_ns, off_ns)
            on, off = (self.device._clock.tick_at((ns - ORIGIN_NS) * 1e-9) for ns in (on_ns, off_ns))
            spans.append(Span(phase, on, off))
        self.free_ns[core] = begin_ns + max(end for *_, end in stages) * 1_000_000
        self.device._pending += [(self.free_ns[core], Reply(s.id, {"label": s.label}, tuple(spans))) for s in samples]


def served(path: Path, *turns: Stages, arrival_hz: float = 5.0, cores: int = 1, batch: int = 1) -> OnPlant:
    def play(work: BlankWorkload) -> Iterator[Step]:
        if not arrival_hz:
            return offline(work, quick("offline"), idle_s=1.0)
        return server(work, quick("server"), arrival_hz=arrival_hz, duration_s=20.0, idle_s=1.0)

    found = on_plant(
        path,
        play,
        device={"marks": False, "preprocess_s": 0.01}, meter={"noise": 0.002}, samples=40,
        driver=partial(Cores, turns=turns or (ONE,), cores=cores, batch=batch),
    )  # fmt: skip
    main(["report", str(path)])
    checked = audit(path)
    assert [c.key for c in checked.compared if not c.ok] == []
    assert {"execution_time_s", "energy_per_inference_j"} <= {c.key for c in checked.compared}
    assert {one.outcome for one in checked.checks if one.name.startswith("energy is power times time")} == {"passed"}
    return found


@pytest.mark.parametrize(("arrival_hz", "cores", "batch"), [(5.0, 2, 1), (14.0, 2, 1), (0.0, 2, 1), (60.0, 1, 8)])
def test_concurrent_inferences_keep_their_own_time(tmp_path: Path, arrival_hz: float, cores: int, batch: int) -> None:
    """Two cores take 0.1 s for each sample at any load, even if both begin at once; only a batch shares a span."""
    found = served(tmp_path / "run", arrival_hz=arrival_hz, cores=cores, batch=batch)
    q, table = found.result.quantities, [row for row in found.run.replies.to_pylist() if not row["warmup"]]
    n = len(table)
    batches = n if batch == 1 else len({row["on_tick"] for row in table})
    assert batches == n or batches < 0.5 * n
    assert len(found.result.series.executions["inference"]) == batches  # a batch counts once
    assert q["execution_time_s"].value == pytest.approx(0.1 * batches / n, 1e-4)
    assert q["execution_time_s"].half_width() < 1e-3 * q["execution_time_s"].value
    p50 = q["phase.inference.execution_time_p50_s"]
    assert (q["execution_time_s"].n, p50.n) == (n, batches)
    assert ("over means" in p50.method) == (batches < n)
    windows_s = found.result.series.phase_windows_s["inference"]
    busy_s = float((merged(windows_s)[:, 1] - merged(windows_s)[:, 0]).sum()) / n
    assert held(q["dynamic_energy_per_inference_j"], 0.1 * batches / n * 2e-3, 0.999)
    assert ("busy_time_per_inference_s" in {str(key) for key in q}) == (cores > 1)
    if cores > 1:
        assert q["busy_time_per_inference_s"].value == pytest.approx(busy_s)
        assert q["energy_per_inference_j"].value == pytest.approx(q["active_power_w"].value * busy_s)
        assert busy_s < 0.99 * q["execution_time_s"].value


def test_a_nested_phase_adds_no_time(tmp_path: Path) -> None:
    """Of 100 ms, 40 ms are a phase inside; 2 mW above idle for the whole, and 1 mW for the phase inside."""
    q = served(tmp_path / "run", (("inference", 0, 100), ("preprocess", 30, 70))).result.quantities
    assert q["execution_time_s"].value == pytest.approx(0.1, 1e-4)
    assert q["execution_time_p99_s"].value == pytest.approx(0.1, 1e-4)
    assert [q[f"phase.{name}.execution_time_s"].value for name in ("inference", "preprocess")] == pytest.approx(
        [0.1, 0.04], 1e-4
    )
    assert "busy_time_per_inference_s" not in {str(key) for key in q}
    assert held(q["energy_per_inference_j"], 0.1 * 3e-3 + 0.04 * 1e-3, 0.999)
    assert q["energy_per_inference_j"].value == pytest.approx(q["active_power_w"].value * 0.1, 1e-4)


HEARD: Stages = (("preprocess", 0, 20), ("inference", 20, 120))


@pytest.mark.parametrize("turns", [
    (HEARD, HEARD[:1], HEARD[:1]),  # a cascade: the network runs only where the detector heard something
    (HEARD[1:], HEARD[:1], HEARD[:1]),  # a small and a large network: each sample runs one of them
])  # fmt: skip
def test_an_inference_may_lack_a_phase(tmp_path: Path, turns: tuple[Stages, ...]) -> None:
    found = served(tmp_path / "run", *turns)
    q, rows = found.result.quantities, [row for row in found.run.replies.to_pylist() if not row["warmup"]]
    n, heard = len({row["issue"] for row in rows}), [row["phase"] for row in rows].count("inference")
    detected = len(rows) - heard
    assert 0 < heard < 0.5 * n
    assert q["execution_time_s"].value == pytest.approx((0.1 * heard + 0.02 * detected) / n, 1e-4)
    assert q["phase.inference.execution_time_s"].value == pytest.approx(0.1, 1e-4)
    assert held(q["energy_per_inference_j"], (0.1 * heard * 3e-3 + 0.02 * detected * 2e-3) / n, 0.999)
    assert q["average_power_w"].value > 0.0
    assert q["accuracy"].method.startswith(f"{n} outputs")


def test_power_of_the_first_part_of_spans_is_measured_separately(tmp_path: Path) -> None:
    """Such a part is a solve until it reaches a gap: 4 mW in the first 40 ms of spans, and 3 mW in the other 60 ms."""
    run = served(tmp_path / "run", (("inference", 0, 100), ("preprocess", 0, 40))).run
    told = _recorded(run, AT_ONCE)
    windows_s = merged(told.activity.busy_windows_s())
    windows_s[:, 1] = windows_s[:, 0] + 0.04
    power = _power_in(told, stamps_u_s(run, told.activity, told.device), windows_s)
    assert power is not None and held(power, 4e-3, 0.999)
    assert power.half_width() < 0.05 * power.value


def test_intervals_of_drifting_times_cover_their_correlation() -> None:
    """A chip that gets warm: successive times differ little."""
    held, clock = 0, cast(Any, SimpleNamespace(step_s=1e-9, rate_sigma=0.0))
    for seed in range(100):
        steps = np.random.default_rng(seed).standard_normal(2000)
        drift = np.round(list(accumulate(steps.tolist(), lambda last, step: 0.9 * last + 0.19**0.5 * step))[1000:], 1)
        rough = drift + 1e-14 * steps[1000:]  # equal times differ by rounding
        one, other = (spread(1.0 + 0.1 * x, clock)["execution_time_p50_s"].interval() for x in (drift, rough))
        held += one[0] <= 1.0 <= one[1] and other == pytest.approx(one)
    assert held > 88
