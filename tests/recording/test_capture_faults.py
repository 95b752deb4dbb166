"""A killed capture at the instruments' full rate can be read up to its last whole batch."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.capture import PATTERN, pattern
from rig.recording.events import ChunkArrived
from rig.recording.reader import Run, open_run

CAPTURE = """
import sys
from pathlib import Path
from benchmarks.capture import connected, recorded
from rig.errors import RigError
try:
    recorded(Path(sys.argv[1]), connected(2, 2_000_000)[0], 60.0)
except RigError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def check_readings(run: Run) -> None:
    """Check that each rail holds the sent readings, in order without a gap, and that no others were announced."""
    assert sorted(run.traces) == ["rail0", "rail1"]
    for k, (name, trace) in enumerate(sorted(run.traces.items())):
        sent = pattern(k + 1)[:PATTERN]
        value = np.asarray(trace.value)
        assert len(value) > 100_000
        np.testing.assert_array_equal(value, np.resize(sent, len(value)))
        assert 0 < sum(e.readings for e in run.of_type(ChunkArrived) if e.rail == name) <= len(value)


def test_killed_in_the_middle_it_reads_to_the_last_whole_batch_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run"
    trace, until_s = path / "traces" / "rail1.arrows", time.monotonic() + 180.0
    with subprocess.Popen([sys.executable, "-c", CAPTURE, str(path)]) as process:
        while not (trace.exists() and trace.stat().st_size > 4_000_000) and time.monotonic() < until_s:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    run = open_run(path)
    assert run.stop is None
    check_readings(run)
