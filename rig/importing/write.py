"""Write imported recordings as run directories, each whole or not at all.

An importer is a factory ``open_import(source, *, options...)`` in the group ``rig.importers``. It parses files and
returns an ``ImportedRun``, or a list of them. No figure is computed. Stamps, readings and windows go into the run as
they were recorded, but infinite readings become overloads, and idle windows are cut to the traces. The original files
are kept in the run with their digests.
"""

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rig.errors import DataError, StoreError, UnknownNameError, UsageError, closest, reason
from rig.importing.checks import Gaps, check_overlap, check_windows, checked, idle_within, out_of_range, undescribed
from rig.importing.imported import ImportedRun, ImportedTrace, not_an_import
from rig.recording.anonymise import without_place, without_places
from rig.recording.disk.decoding import declared_start, reference_windows
from rig.recording.events import IdleWindow, Note, Start
from rig.recording.layout import distinct, sha256_of
from rig.recording.records import Environment
from rig.recording.writer import Recorder
from rig.types import Reply, Sample, Span

KEPT = "artifacts/original"
Say = Callable[[str], object]


def run_import(
    format_: str,
    source: Path,
    out: Path,
    options: Sequence[str] = (),
    say: Say = lambda note: None,
    keep_identity: bool = False,
) -> list[Path]:
    """Import the recordings at ``source``: one run directory at ``out``, or a session there that binds several.

    ``format_`` is a name in the group ``rig.importers`` or ``path.py:function``; ``options`` are ``key=value``. ``say``
    gets each run's notes on its data, and then what a submission would lack. Home directories and absolute paths
    of the command line are left out unless ``keep_identity`` is set. Returns the run directories. Raises ``UsageError``
    for a missing option or source, ``DataError`` for files that are not of the format, ``SetupError`` for an importer
    that returns anything but recordings, ``StoreError`` as ``write``.
    """
    from rig.engine.record import environment_with
    from rig.factories import build, split_options, values_of
    from rig.plugins import digests_of, load
    from rig.recording.session_json import bind

    factory = load("importers", format_)
    try:
        given = split_options(list(options), {"importer": factory})["importer"]
    except UnknownNameError as error:
        error.message += f" of {format_}"
        error.remedy = closest(str(error.value), error.known, f"`rig list {format_}` shows its options")
        raise
    if not source.exists():
        raise UsageError(f"{source} does not exist", field="source", value=str(source), remedy="Name a file or folder")
    _check_regular(source)
    found = build(factory, {"source": source}, given)
    runs: list[ImportedRun] = list(found) if isinstance(found, (list, tuple)) else [found]
    if not runs:
        what = f"{source} holds no recording of the format {format_}"
        raise DataError(what, field="source", value=str(source), remedy="Check the folder and --format")
    for run in runs:
        if not isinstance(run, ImportedRun):
            raise not_an_import(format_, run, "an ImportedRun or a list of them")
    chosen = values_of(factory, given)
    # a column name, such as "P /W", is not a path
    kept = {k: v if keep_identity or not Path(str(v)).is_absolute() else without_place(v) for k, v in chosen.items()}
    about = {"format": format_ if keep_identity else without_place(format_), "source": source.name, "options": kept}
    argv = sys.argv if keep_identity else without_places(sys.argv)
    environment = environment_with(digests_of([format_]), keep_identity)
    write_one = partial(write, about=about, argv=argv, environment=environment, keep_identity=keep_identity)
    places = [out]
    if len(runs) == 1:
        write_one(runs[0], out, say=say)
    else:
        plain = ("".join(c if c.isalnum() or c in "-_." else "-" for c in run.name) for run in runs)
        names = distinct(name.strip(".-") or "run" for name in plain)
        with _replacing(out) as folder:
            for run, name in zip(runs, names, strict=True):
                write_one(run, folder / name, say=partial(lambda name, note: say(f"{name}: {note}"), name))
            bind(folder, [(name, "all") for name in names])
        places = [out / name for name in names]
    for lack in dict.fromkeys(text for run in runs for text in undescribed(run)):
        say(lack)
    return places


def _check_regular(source: Path) -> None:
    """Refuse a pipe, a socket or a device, which might never end. Raises ``UsageError``."""
    for path in (source, *source.rglob("*")) if source.is_dir() else (source,):
        if path.exists() and not (path.is_file() or path.is_dir()):
            what = f"{path} is neither a file nor a folder"
            raise UsageError(what, field="source", value=str(path), remedy="Name the files that were recorded")


def write(
    run: ImportedRun,
    out: Path,
    *,
    about: Mapping[str, Any] | None = None,
    argv: Sequence[str] = (),
    environment: Environment | None = None,
    say: Say = lambda note: None,
    keep_identity: bool = False,
) -> Path:
    """Write one recording into ``out``, whole or not at all, and read it back.

    Each defect of the files becomes a line of the type ``note``; ``say`` gets the notes after everything is written.
    Raises ``DataError`` for readings and windows that a run cannot hold, ``StoreError`` for a directory in use.
    """
    from rig.recording.reader import open_run

    check_windows(run)
    with _replacing(out) as folder:
        with Recorder(folder, keep_identity) as recorder:
            originals = {name: _keep(path, folder / KEPT, name) for name, path in run.originals.items()}
            imported = {**(about or {}), "recording": run.name, "originals": originals}
            recorder.event(_start(run, out.name, imported, argv, environment))
            notes = _record(run, recorder)
        open_run(folder)
    for note in notes:
        say(note)
    return out


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a directory beside ``out`` that becomes ``out`` if the block succeeds, and is removed otherwise."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        remedy = "Name a new directory; a recording is never overwritten"
        raise StoreError(f"{out} is not an empty directory", field="out", value=str(out), remedy=remedy)
    folder = out.parent / f".{out.name}.{secrets.token_hex(4)}.part"
    try:
        yield folder
        os.replace(folder, out)  # noqa: PTH105
    except OSError as error:
        what, remedy = f"cannot write {out}: {reason(error)}", "Free some space, or choose another --out"
        raise StoreError(what, field="out", value=str(out), remedy=remedy) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(
    run: ImportedRun, run_id: str, imported: Mapping[str, Any], argv: Sequence[str], environment: Environment | None
) -> Start:
    digests = "".join(kept["sha256"] for kept in imported["originals"].values())
    workload = {"name": run.name, "task": run.task, "version": "", "samples": len(run.spans), "details": run.details}
    workload["digest_sha256"] = hashlib.sha256(digests.encode()).hexdigest()
    return declared_start({
        "run_id": run_id, "t0_ns": run.t0_ns, "argv": list(argv), "environment": environment, "device": run.device,
        "meters": list(run.meters), "clocks": list(run.clocks().values()), "workload": workload, "imported": imported,
        "scenario": {"name": "import", "options": imported.get("options", {})},
    })  # fmt: skip


def _record(run: ImportedRun, recorder: Recorder) -> list[str]:
    """Write all lines after the start line; return the notes among them."""
    for clock, rows in run.brackets.items():
        # a clock with one bracket gets its rate from the arrival of its readings, which is not known here:
        # the same bracket twice leaves the rate at its declared tolerance
        recorder.brackets(clock, rows if len(rows) > 1 else [*rows, *rows], "imported")
    for peer in run.peers:
        recorder.event(reference_windows(peer))
    place = run.placing(run.span_clock)
    for k, span in enumerate(run.spans):
        name = span.sample_id or f"window-{k + 1}"
        recorder.sample(Sample(name, np.zeros(0, np.uint8), inferences=span.inferences))
        reply = Reply(name, None, (Span(span.phase, span.on_tick, span.off_tick, span.executions),))
        recorder.reply(k, reply, None, place(span.on_tick), place(span.off_tick), span.warmup)
    lacks: list[str] = []
    extents = {trace.rail: _record_trace(run, trace, recorder, lacks) for trace in run.traces}
    lacks += check_overlap(run, extents)
    idle, cut = idle_within(run, extents)
    for on, off in idle:
        recorder.event(IdleWindow(on_ns=on, off_ns=off))
    notes = [*(("files", text) for text in (*run.notes, *cut)), *(("trace", text) for text in lacks)]
    for about, text in notes:
        recorder.event(Note(about=about, text=text))
    recorder.stop(issues=len(run.spans), replies=len(run.spans))
    return [text for _, text in notes]


def _record_trace(run: ImportedRun, trace: ImportedTrace, recorder: Recorder, notes: list[str]) -> tuple[int, int]:
    """Record one trace, and return begin and end of its readings in host ns; defects are added to ``notes``."""
    meter, rail = run.rail(trace.rail)
    recorder.open_trace(meter, rail, trace.t0_tick)
    place = run.placing(meter.clock.name)
    first, last = trace.t0_tick, trace.t0_tick
    gaps = Gaps(rail, meter.clock.tick_hz, trace.t0_tick)
    for chunk in checked(trace, rail):
        if chunk.start_tick is not None and chunk.end_tick is not None:
            first = first if gaps.readings else int(chunk.start_tick[0])
            last = int(chunk.end_tick[-1])
        else:
            last = trace.t0_tick + round((gaps.readings + len(chunk.value)) * meter.clock.tick_hz / rail.rate_hz)
        gaps.count(chunk)
        recorder.chunk(chunk, place(last))
        recorder.flush()
    if gaps.readings < 2:
        what = f"the trace of rail {rail.name} holds {gaps.readings} readings"
        raise DataError(what, field=rail.name, value=gaps.readings, remedy="A trace needs at least two readings")
    gaps.check_counter(place)
    notes += gaps.notes(place)
    return place(first), place(last)


def _keep(path: Path, folder: Path, name: str) -> dict[str, Any]:
    """Copy an original into the run; return its digest and size."""
    target = folder / name
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise out_of_range("originals", "the name under which a file is kept is", name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        return {"sha256": sha256_of(target), "bytes": target.stat().st_size}
    except OSError as error:
        raise DataError(f"cannot keep {path}: {error}", field="source", value=str(path), remedy="Check it") from error
