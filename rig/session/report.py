"""Read a run directory or session, verify and evaluate it, and write its report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.result import RESULTS, Result
from rig.analysis.sessions.part import Part
from rig.errors import DataError, StoreError, reason, refused
from rig.plugins import load
from rig.recording.disk.files import BROKEN, Folder
from rig.recording.layout import DERIVED, EVENTS
from rig.recording.read_events import altered
from rig.recording.reader import Run, open_run
from rig.recording.session_json import FILE as SESSION, REQUEST, Session, is_session, open_session

GO_ON = "Go on with `rig measure --resume`"


class Report(Struct, frozen=True):
    """The figures of a run, or of a session with its runs, and the files of the report.

    ``result`` is None for a session whose runs have no common figures; then only the runs have files.
    """

    path: Path
    result: Result | None
    folder: Path
    """The directory of the files."""
    files: tuple[str, ...] = ()
    runs: tuple[Report, ...] | None = None
    """The reports of a session's runs; None for a run."""

    @property
    def power_refused(self) -> bool:
        """Return whether a run has a meter but no active power."""
        if self.runs is not None:
            return any(run.power_refused for run in self.runs)
        return self.result is not None and self.result.power_refused

    @property
    def unfinished(self) -> bool:
        """Return whether this is an interrupted session that can be resumed."""
        return self.runs is not None and (self.path / REQUEST).is_file()

    @property
    def invalid(self) -> bool:
        """Return whether the verdict is INVALID, or this is an incomplete session."""
        validity = None if self.result is None else self.result.validity
        return self.unfinished or (validity is not None and not validity.valid)

    def to_json(self) -> dict[str, Any]:
        kind = "run" if self.runs is None else "session"
        document: dict[str, Any] = {kind: str(self.path)}
        if self.runs is not None:
            document["runs"] = [run.to_json() for run in self.runs]
        if self.result is not None:
            document |= {"files": list(self.files), "results": self.result.to_json()}
        return document

    def text(self) -> str:
        """Return ``to_json`` as one line of strict JSON in ASCII, with null for NaN and infinity."""
        text = msgspec.json.encode(self.to_json(), enc_hook=lambda value: value.tolist()).decode()
        return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def report(
    path: Path | str,
    out: Path | str | None = None,
    beside: Mapping[str, Any] | None = None,
    tell: Callable[[Result], object] | None = None,
    pages: bool = True,
) -> Report:
    """Compute the figures of a run directory or session, and write them as JSON, pages and pictures.

    Files are written to ``out``, by default the folder ``derived`` of the recording. Each run of a session gets its own
    report without pictures; for its pictures, report this run alone. ``beside`` is a table for the page of the session,
    or of a single run. ``tell`` is called with the result before any file is written, or with the result of each run of
    a session whose runs have no common figures. Without ``pages``, only the JSON is written, and other files of an
    earlier report stay. Raises a ``RigError`` for a recording that cannot be read or does not match its hashes,
    ``UsageError`` if ``out`` is a recording, and ``StoreError`` if the files cannot be written.

    Example::

        import rig

        found = rig.report("runs/first")
        print(found.result.quantities["execution_time_s"].value, found.folder / "report.html")
    """
    path, out = Path(path), None if out is None else Path(out)
    if out is not None and (is_session(out) or (out / EVENTS).is_file()):
        raise refused("out", str(out), "Name another folder, or leave --out out", f"{out} is a recording")
    session, parts, whole = _read(path)
    for result in [part.result for part in parts] if whole is None else [whole]:
        if tell is not None:
            tell(result)
    runs = list[Report]()
    for part in parts:
        own = None if out is None else out / part.run.path.name if session else out
        alone: dict[str, Any] = {"beside": beside} if session is None else {"pictures": False}
        runs.append(_written(part.run.folder, part.result, own, part.run, pages=pages, **alone))
    if session is None:
        return runs[0]
    if whole is None:
        return Report(path, None, out or path / DERIVED, (), tuple(runs))
    run = next(part.run for part in parts if part.result.run_digest == whole.run_digest)
    return _written(session.folder, whole, out, run, tuple(runs), beside=beside, pages=pages)


def _read(path: Path) -> tuple[Session | None, tuple[Part, ...], Result | None]:
    """Return the session, its runs, and its result; for a single run, the session is None."""
    session = open_session(path) if is_session(path) else None
    parts = tuple(parts_of(path, session))
    return session, parts, parts[0].result if session is None else session_result(session, parts)


def parts_of(path: Path, session: Session | None) -> Iterator[Part]:
    """Read and verify the runs of a session, or a single run, and then evaluate them.

    Raises a ``RigError`` for a recording that cannot be read or does not match its hashes.
    """
    if session is None:
        run = open_run(path)
        yield Part(path.name, "", run, evaluate(run))
        return
    from rig.session.evaluate_in_parallel import results_of  # a single run does without it

    runs = list[Run]()
    for (folder, _), digest in zip(session.runs, session.digests, strict=True):
        runs.append(open_run(session.folder.sub(folder.name)))
        if runs[-1].digest != digest:
            raise altered(folder, f"{EVENTS} is not the one whose hash is in {SESSION}")
    for (folder, purpose), run, result in zip(session.runs, runs, results_of(runs, evaluate), strict=True):
        yield Part(folder.name, purpose, run, result)


class Evaluated(Struct, frozen=True):
    """A session or a single run that is verified and evaluated, without files."""

    path: Path
    session: Session | None
    parts: tuple[Part, ...]
    result: Result

    @property
    def run(self) -> Run:
        """Return the run that the result describes; for a session, the run that its pictures show."""
        return next(part.run for part in self.parts if part.result.run_digest == self.result.run_digest)


def evaluated(path: Path | str) -> Evaluated:
    """Verify and evaluate a session or a single run.

    Raises a ``RigError`` for a recording that cannot be read or does not match its hashes, and ``DataError`` for a
    session whose runs have no common figures.

    Example::

        import rig

        found = rig.evaluated("runs/first")
        print(found.result.to_frame())
        for part in found.parts:
            print(part.name, part.purpose, sorted(part.result.frames()))
    """
    path = Path(path)
    session, parts, result = _read(path)
    if result is None:
        what, remedy = f"the runs of {path} give no figures of the session", "Name one of its runs"
        raise DataError(what, field="session", value=str(path), remedy=remedy)
    return Evaluated(path, session, parts, result)


def session_result(session: Session, parts: Sequence[Part]) -> Result | None:
    """Return the result of a session, or None if its runs have no common figures.

    A note names the recordings in its directory that are no part of the session. Raises ``StoreError`` for a session
    without runs.
    """
    if not parts:
        from rig.session.resumable_session import go_on  # only an interrupted session needs it

        what, remedy = f"no run of the session {session.path} has ended", f"Go on: {go_on(session.path)}"
        raise StoreError(what, field="session", value=str(session.path), remedy=remedy)
    from rig.analysis.sessions.summary import summarise  # a single run does without it

    unfinished = (session.path / REQUEST).is_file()
    probes = () if unfinished else session.probes  # an interrupted search has no result yet
    whole = summarise(session.path.resolve().name, parts, probes)
    if whole is None:
        return None
    bound = {path for path, _ in session.runs}
    torn = [p.name for p in sorted(session.path.iterdir()) if (p / EVENTS).is_file() and p not in bound]
    aside = {f"{BROKEN}/{p.name}" for p in (session.path / BROKEN).glob("*") if (p / EVENTS).is_file()}
    why = dict.fromkeys((*torn, *sorted(aside)), "it was broken off")
    why |= dict.fromkeys(session.repeated, "its run was recorded again")
    said = "; ".join(f"{name}, {reason}" for name, reason in why.items())
    notes = [f"Recordings that are no part of the session: {len(why)} ({said})"] if why else []
    found = _to_go_on(whole.findings, parts) if unfinished else whole.findings
    return replace(whole, session_digest=session.digest, findings=(*map(note, notes), *found))


def _to_go_on(findings: Iterable[Finding], parts: Sequence[Part]) -> Iterator[Finding]:
    """Yield the findings of an interrupted session; where the interruption causes a finding, its remedy is to go on."""
    ended = [part for part in parts if part.result.complete]
    kept = {refused for part in ended for refused in part.result.refusals}
    names = tuple(f"{part.name}: " for part in ended)
    for finding in findings:
        if not finding.remedy or finding in kept or finding.rule.startswith(names):
            yield finding
        else:
            why = f". {finding.remedy}" if finding.rule.endswith(": the run") else ""
            yield replace(finding, remedy=f"{GO_ON}{why}")


def _written(
    own: Folder,
    result: Result,
    out: Path | None,
    run: Run,
    runs: tuple[Report, ...] | None = None,
    *,
    pages: bool,
    **shown: Any,
) -> Report:
    target = out or own.path / DERIVED
    try:
        folder = own.sub(DERIVED, make=True) if out is None else Folder.at(out, make=True)
        files: Sequence[Path] = [folder.path / RESULTS]
        if pages:
            files = load("reports", "files")(result, folder, run, **shown)
        else:  # without the modules of the pages
            folder.write(RESULTS, result.text().encode())
    except OSError as error:
        what = f"cannot write {target}: {reason(error)}"
        raise StoreError(what, field="out", value=str(target), remedy="Choose another --out") from error
    return Report(own.path, result, target, tuple(str(file) for file in files), runs)
