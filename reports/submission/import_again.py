"""The check of imported runs by the rig's own code: the originals are imported again, and both runs are compared."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reports.audit.folder.reading import Run, walk
from rig.factories import build
from rig.importing.write import KEPT, write
from rig.plugins import load
from rig.recording.events import ChunkArrived
from rig.recording.reader import Run as Recorded, open_run
from rig.terminal import tell

OWN = ("run_id", "created_utc", "argv", "environment", "as_recorded")
"""Fields of the start line in which two imports of the same files may differ."""
FILES = ("windows/", "calibration/")
"""Folders of the originals, each with the file that the option of its name names."""
TABLES = ("samples", "replies", "progress", "activity")
BLOCK, CLOSE = 1 << 18, 1e-15
"""The number of readings that are compared together, and their largest relative difference: machines differ in the last
bit of a decimal number."""


def imported_again(run: Run) -> Iterator[str]:
    """Yield how an imported run differs from its originals.

    Raises ``RigError`` or ``OSError`` if these cannot be imported again. Code that is named by its path is not run.
    """
    about: Any = run.whole.start.imported
    folder, factory = run.path / KEPT, load("importers", about.format.replace(".py:", ".py "))
    kept = walk(folder)
    tell(f"importing {run.path.name} again, to compare it with its originals", dim=True)
    files = {name.partition("/")[0]: str(folder / name) for name in kept if name.startswith(FILES)}
    options = {key: files.get(key, str(value)) for key, value in about.options.items()}
    found = build(factory, {"source": folder / about.source if about.source in kept else folder}, options)
    one = replace(found[0] if isinstance(found, list) else found, name=about.recording)
    with tempfile.TemporaryDirectory(prefix="audit-") as place:
        named = "--keep-identity" in run.whole.start.argv
        made = open_run(write(one, Path(place, "run"), about=msgspec.to_builtins(about), keep_identity=named))
        for (what, there), (_, here) in zip(_parts(run.whole), _parts(made), strict=False):
            rows = slice(min(len(there), len(here)))
            close = there[rows] == here[rows]
            if close.ndim > 1:
                close = np.isclose(there[rows], here[rows], CLOSE, 0.0, equal_nan=True).all(axis=1)
            if not close.all():
                first = " instead of ".join(str(part[close.argmin()]).strip(" ,") for part in (there, here))
                yield f"{what} differs from the originals in {np.sum(~close)} lines, first {first}"


def _parts(run: Recorded) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield what a run states as lines of text, and the readings of each trace, of shape (n, 4), in blocks."""
    start = {key: value for key, value in msgspec.to_builtins(run.start).items() if key not in OWN}
    lines = [line for line in run.events if not isinstance(line, ChunkArrived)]
    rails = [(trace.rail, trace.clock, trace.meter, len(trace.value)) for trace in run.traces.values()]
    tables = [getattr(run, name).to_pylist() for name in TABLES]
    text = msgspec.json.format(msgspec.json.encode([start, *lines, run.complete, *rails, *tables]), indent=1)
    yield "what it states", np.array(text.decode().split("\n"), dtype=object)
    for name, trace in run.traces.items():
        for at in range(0, len(trace.value), BLOCK):
            part = trace.part(at, at + BLOCK)
            columns = [part.start_tick, part.end_tick, part.value, part.overload]
            yield f"the trace of {name} from row {at + 1} on", np.array(columns, dtype=np.float64).T
