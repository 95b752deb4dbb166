"""Can the rig record an instrument at its full rate, without losing a reading or delaying the issue of a sample?

    python -m benchmarks.capture [--seconds 60] [--rate-hz 2000000] [--rails 2] [--folder /tmp]

Three runs in one process, through the engine to disk, with samples on a schedule: first without a meter, then with a
Joulescope for each rail, then without a meter again. The Joulescopes are simulations of ``pyjoulescope_driver``, each
with a thread that delivers blocks made in advance. Every reading on disk is compared with the sent reading.
``waiting_s`` is the longest backlog for the disk, ``cpu_share`` is the load that the meters add, in cores, and
``verify_s`` is the time to check all hashes. Prints the rows and, last, one JSON line. Exits 0 if no reading is lost or
changed, the rate is sustained, and 99 of 100 samples are issued at most ``SLIP_S`` later than without a meter.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import concluded, parser_of
from drivers.meters.joulescope.meter import open_meter
from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.joulescope_driver import BASE_HZ, FakeDriver
from fixtures.worlds.random_draw import blank
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.errors import RigError
from rig.recording.events import ChunkArrived
from rig.recording.layout import trace_path
from rig.recording.reader import Run, open_run
from rig.types import Budget, DeviceInfo, Floats, Issue, Meter, Reply, Sample, Span, Step
from scenarios.idle_and_warmup import framed

BLOCK = 16_240
"""Number of float32 readings in a full block of the package: 64 KiB less a header and one USB frame."""
PATTERN = 3_000_017
"""Readings until the simulation repeats itself: a prime, so that a lost or doubled block is noticed."""
PERIOD_S, SPAN_S, IDLE_S = 10e-3, 2e-3, 0.5
SLIP_S = 1e-3
BESIDE_S = 60.0
"""The longest run without a meter (s)."""


def pattern(seed: int) -> Floats:
    """Return watts like a Joulescope's (idle, bursts, converter noise; float32), with one block repeated at the end."""
    rng = np.random.default_rng(seed)
    busy = (np.arange(PATTERN) % 20_000) < 4_000
    codes = np.round(np.where(busy, 12_000.0, 4_000.0) + rng.normal(0.0, 12.0, PATTERN))
    watts = ((codes * 5e-6 + 1.3e-5) * 1.0007).astype(np.float32)
    return np.concatenate([watts, watts[:BLOCK]])


class Replayed(FakeDriver):
    """A Joulescope that sends prepared readings. ``sent`` counts them; ``every`` lists all opened instruments."""

    every: list[Replayed]
    paths = ("u/js110/000123",)  # the model that streams 2,000,000 readings a second

    def __init__(self, timeout: Any = None) -> None:
        super().__init__(timeout)
        self.sent = 0
        self.every.append(self)
        self.pattern = pattern(len(self.every))

    def _stream(self, signal: str, halt: threading.Event) -> None:
        hz, began_s, self.sent = self.state[f"{self.path}/h/fs"], time.monotonic(), 0
        while not halt.wait(BLOCK / hz / 2):
            while (self.sent + BLOCK) / hz <= time.monotonic() - began_s:
                at = self.sent % PATTERN
                self._send(signal, self.sent, BASE_HZ // hz, self.pattern[at : at + BLOCK])
                self.sent += BLOCK


class Timed:
    """A device on the host's clock that is busy for ``SPAN_S``."""

    def __init__(self) -> None:
        self._sample, self._on_ns = "", 0

    def info(self) -> DeviceInfo:
        return DeviceInfo("timed", mode="simulator", phases=("inference",))

    def stage(self, samples: Sequence[Sample]) -> None:
        pass

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self._sample, self._on_ns = samples[0].id, time.monotonic_ns()

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        if not self._sample:
            return ()
        left_s = SPAN_S - (time.monotonic_ns() - self._on_ns) * 1e-9
        time.sleep(max(0.0, min(left_s, timeout_s)))
        if left_s > timeout_s:
            return ()
        name, self._sample = self._sample, ""
        return [Reply(name, None, (Span("inference", self._on_ns, time.monotonic_ns()),))]

    def close(self) -> None:
        pass


def steps(seconds: float) -> Iterator[Step]:
    for k in range(round(seconds / PERIOD_S)):
        yield Issue([blank(1).samples[0]], due_ns=round(k * PERIOD_S * 1e9))


def recorded(path: Path, meters: Sequence[Meter], seconds: float) -> None:
    """Record one run on the host's clock. Raises whatever ``record`` raises."""
    bench, work = Bench(Timed(), tuple(meters), HostClock()), blank(1)
    played = framed(steps(seconds), work, IDLE_S, 0)
    record(path, bench, work, played, scenario={"name": "capture"}, argv=[])


def run(path: Path, meters: Sequence[Meter], seconds: float) -> dict[str, Any]:
    """Record one run. Return its times, the longest backlog, the delays of issued samples, and the error, if any."""
    row: dict[str, Any] = {"error": None}
    began_s, cpu_s = time.monotonic(), time.process_time()
    try:
        recorded(path, meters, seconds)
    except RigError as error:
        row["error"] = f"{type(error).__name__}: {error.message}"
    row |= {"seconds": time.monotonic() - began_s, "cpu_s": time.process_time() - cpu_s}
    row["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began_s = time.monotonic()
    recording = open_run(path)
    row["verify_s"] = time.monotonic() - began_s
    replies = recording.replies
    slip_s = 1e-9 * (replies["issued_ns"].to_numpy() - replies["due_ns"].to_numpy()).astype(float)
    row |= {"issues": len(slip_s), "captured_s": _captured_s(recording)}
    for name, share in (("median", 0.5), ("p99", 0.99), ("p999", 0.999), ("most", 1.0)):
        row[f"slip_{name}_s"] = float(np.quantile(slip_s, share))
    row["waiting_s"] = max((line.waiting_s or 0.0 for line in recording.of_type(ChunkArrived)), default=0.0)
    return row


def _captured_s(recording: Run) -> float:
    arrived = [line.arrived_ns for line in recording.of_type(ChunkArrived)]
    return (max(arrived) - recording.start.t0_ns) * 1e-9 if arrived else 0.0


def compared(file: Path, sent: Replayed) -> dict[str, Any]:
    """Compare readings on disk with the sent readings; also return the bytes per reading."""
    count = wrong = missing = 0
    with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            for at in range(0, batch.num_rows, BLOCK):
                value = batch["value"].slice(at, BLOCK).to_numpy()
                first = count % PATTERN
                gone = np.isnan(value)
                missing += int(gone.sum())
                wrong += int(np.sum((value != sent.pattern[first : first + len(value)]) & ~gone))
                count += len(value)
    row = {"readings": count, "sent": sent.sent, "changed": wrong, "lost": missing + sent.sent - count}
    return row | {"bytes_per_reading": file.stat().st_size / max(count, 1)}


def connected(rails: int, rate_hz: int) -> tuple[list[Meter], list[Replayed]]:
    """Open one Joulescope for each rail (``rail0``, ``rail1`` ...); return the meters and the simulated instruments."""
    driver, every = ModuleType("pyjoulescope_driver"), list[Replayed]()
    driver.Driver = type("Driver", (Replayed,), {"plant": LivePlant(), "every": every})  # type: ignore[attr-defined]
    sys.modules["pyjoulescope_driver"] = driver
    return [open_meter(name=f"meter{k}", rail=f"rail{k}", rate_hz=rate_hz) for k in range(rails)], every


def main() -> int:
    a = parser_of(__doc__, seconds=60.0, rate_hz=2_000_000, rails=2, folder=Path(tempfile.gettempdir())).parse_args()
    needed = 5.0 * a.seconds * a.rate_hz * a.rails
    if shutil.disk_usage(a.folder).free < needed:
        print(f"{a.folder} has no room for {needed / 1e9:.1f} GB")
        return 1
    with tempfile.TemporaryDirectory(dir=a.folder) as text:
        folder = Path(text)
        before = run(folder / "before", [], min(a.seconds, BESIDE_S))
        meters, instruments = connected(a.rails, a.rate_hz)
        row = run(folder / "with", meters, a.seconds)
        for meter in meters:
            meter.close()
        rails = [compared(folder / "with" / trace_path(f"rail{k}"), sent) for k, sent in enumerate(instruments)]
        after = run(folder / "after", [], min(a.seconds, BESIDE_S))
    row |= {key: sum(r[key] for r in rails) for key in ("readings", "sent", "changed", "lost")}
    row["bytes_per_reading"] = max(r["bytes_per_reading"] for r in rails)
    row["readings_per_s"] = row["readings"] / max(row["captured_s"], 1e-9)
    row["cpu_share"] = row["cpu_s"] / row["seconds"] - before["cpu_s"] / before["seconds"]
    rows = {"no meter, before": before, "with meters": row, "no meter, after": after}
    for name, r in rows.items():
        print(name, *(f"  {k}: {v:.6g}" if isinstance(v, float) else f"  {k}: {v}" for k, v in r.items()), sep="\n")
    goals = {
        "nothing lost or changed": row["error"] is None and row["lost"] == row["changed"] == 0,
        "sustained": row["readings_per_s"] >= 0.98 * a.rate_hz * a.rails,
        "slip": row["slip_p99_s"] - max(before["slip_p99_s"], after["slip_p99_s"]) <= SLIP_S,
    }
    passed = all(goals.values())
    return concluded({"benchmark": "capture", "runs": rows, "goals": goals, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
