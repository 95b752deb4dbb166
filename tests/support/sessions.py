"""Sessions whose runs hold only a start line and a stop line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig.recording.session_json import bind
from rig.recording.writer import Recorder
from tests.support.start_lines import start


def bound(folder: Path, runs: Sequence[tuple[str, str]], **fields: Any) -> Path:
    """Return a session in ``folder`` of runs, each with a name and a purpose, and these fields in its start line."""
    for name, purpose in runs:
        with Recorder(folder / name) as recorder:
            recorder.event(start(run_id=name, purpose=purpose, **fields))
            recorder.stop()
    bind(folder, runs)
    return folder
