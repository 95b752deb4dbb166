"""Flip bits: a changed bit in any file of a session outside ``derived/`` must be refused."""

import random
import tempfile
from pathlib import Path

from benchmarks.faults.outcome import rig
from benchmarks.faults.tally import Outcome, Tally, tried
from rig.recording.layout import DERIVED
from rig.recording.reader import open_run
from rig.recording.session_json import runs_in

WORDS = (
    "measure", "--device", "mock", "--simulate", "--option", "workload.samples=20", "--option", "idle_s=0.2",
)  # fmt: skip


def campaign(flips: int, seed: int) -> Tally:
    """Flip one bit of a session at a time, and read the session after each flip."""
    tally, rng = Tally("flipped bits"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session"
        rig([*WORDS, "--out", str(session)])
        files = sorted(f for f in session.rglob("*") if f.is_file() and DERIVED not in f.parts)
        content = {file: file.read_bytes() for file in files}
        where = [(file, len(data)) for file, data in content.items() if data]
        for _ in range(flips):
            file, length = rng.choices(where, [max(n, 2000) for _, n in where])[0]
            at, bit = rng.randrange(length), rng.randrange(8)
            data = bytearray(content[file])
            data[at] ^= 1 << bit
            file.write_bytes(data)
            tally.add(f"{file.relative_to(session)}, byte {at}, bit {bit}", *read(session))
            file.write_bytes(content[file])
    return tally


def read(session: Path) -> tuple[Outcome, str]:
    """Read a session as ``rig report`` does."""
    outcome, said = tried(lambda: [open_run(run) for run, _ in runs_in(session)])
    return (Outcome.UNNOTICED if outcome is Outcome.WHOLE else outcome), said
