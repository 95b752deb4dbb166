"""Kill recordings of 2,000,000 readings a second on two rails, or let their disk fill up.

The instruments are the simulated Joulescopes of ``benchmarks.capture``. The rig opens them by its own driver.
"""

import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.capture import PATTERN, Timed, connected, pattern
from benchmarks.faults.kills import killed, wait_for
from benchmarks.faults.outcome import Case, ended, judged, started
from benchmarks.faults.starved import full_disk
from benchmarks.faults.tally import Outcome, Tally
from rig.recording.layout import SEAL
from rig.recording.reader import Run
from rig.types import Device

RAILS, RATE_HZ, SAMPLES = 2, 2_000_000, 200
OPTIONS = (
    f"workload.samples={SAMPLES}", "idle_s=0.3",
    *(f"meter{k or ''}.{text}" for k in range(RAILS) for text in (f"name=m{k}", f"rail=rail{k}", f"rate_hz={RATE_HZ}")),
)  # fmt: skip
WORDS = (
    "measure", "--device", f"{__file__}:open_device", *["--meter", "joulescope"] * RAILS, "--mode", "together",
    *(word for option in OPTIONS for word in ("--option", option)),
)  # fmt: skip


def open_device() -> Device:
    """Make a device that answers after 2 ms, and connect the instruments."""
    connected(0, RATE_HZ)
    return Timed()


def unlike_sent(run: Run) -> str:
    """Say which rail's readings differ from the first readings that its instrument sent; "" if none do."""
    for name, trace in run.traces.items():
        value = np.asarray(trace.value)
        sent = pattern(1 + int(name.removeprefix("rail")))[:PATTERN]
        if not np.array_equal(value, np.resize(sent, len(value))):
            return f"{name} holds readings that were not sent"
    return ""


CAPTURE = Case("capture", WORDS, SAMPLES, unlike_sent, power=False)


def campaign(kills: int, seed: int) -> Tally:
    """Kill recordings at ``kills`` random moments, and fill disks of ``kills / 2`` sizes, one recording at a time."""
    tally, draw = Tally("captures at full rate"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        lasted_s, size = undisturbed(Path(name) / "whole", tally)
        for _ in range(kills):
            tally.add(*killed(Path(name), CAPTURE, signal.SIGKILL, draw.uniform(0.0, lasted_s)))
        for k in range(kills // 2):
            tally.add(*full_disk(CAPTURE, round(size * (k + 0.5) / (kills // 2))))
    return tally


def undisturbed(out: Path, tally: Tally) -> tuple[float, int]:
    """Record without a fault until the seal is written; return the time (s) and the bytes of the traces."""
    with tempfile.NamedTemporaryFile() as err:
        process = started([*WORDS, "--out", str(out)], err.name)
        wait_for(out, process)
        began_s = time.monotonic()
        wait_for(out / SEAL, process)
        lasted_s = time.monotonic() - began_s
        said = ended(process, err.name, 0.0).err
    outcome, why = judged(out, CAPTURE)
    tally.add("capture without a fault", outcome if outcome is Outcome.WHOLE else Outcome.TRACEBACK, why + said)
    return lasted_s, sum(f.stat().st_size for f in (out / "traces").iterdir())
