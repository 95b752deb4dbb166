"""Recordings with valid hashes and malformed content.

Each case changes one to three fields of a recording: in its lines, the metadata of its traces, its columns or its
``session.json``. It recomputes the hashes; for some sessions, only those of the runs. Then it reads and evaluates the
recording as `rig report` does. Small recordings are used more often. A case depends only on the seed and on its number.
"""

import functools
import io
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.changes import CHANGES, change_session
from benchmarks.faults.forge import GOLDEN, bind_again, unpacked, workplace
from benchmarks.faults.tally import RIGHT, Outcome, Tally, spread, tried
from reports.audit.audit import Audit, audit
from reports.console import lines as console_lines
from reports.render import context
from rig.analysis.evaluate import evaluate
from rig.analysis.sessions.part import Part
from rig.recording.layout import DERIVED, EVENTS
from rig.recording.reader import open_run
from rig.recording.session_json import is_session, open_session, runs_in
from rig.session.report import report, session_result

PART = "hostile fields"
LARGEST_BYTES = 400_000
"""Recordings with a larger archive are left out, so that a case takes milliseconds."""
TERMINAL_SHARE, PAGE_SHARE, AUDIT_SHARE = 0.2, 0.01, 0.25
"""The shares of the cases that are also printed, whose page is also drawn, and that are also audited."""


def campaign(cases: int, seed: int, workers: int) -> Tally:
    """Report ``cases`` changed recordings."""
    with workplace() as place:
        bases = [unpacked(name, Path(place) / "bases") for name in recordings()]
        weights = [size_bytes(base) ** -1.0 for base in bases]
        return spread(PART, cases, workers, functools.partial(counted, bases, weights, seed))


def counted(bases: Sequence[Path], weights: Sequence[float], seed: int, numbers: range) -> Tally:
    """Run the cases of these numbers."""
    np.seterr(all="ignore")
    tally = Tally(PART)
    with tempfile.TemporaryDirectory(dir=bases[0].parents[1]) as place:
        for number in numbers:
            draw = random.Random(f"{seed}:{number}")
            (base,) = draw.choices(bases, weights)
            changed, outcome, said = one_case(base, Path(place) / "work", draw)
            tally.add(f"case {number} ({base.name}), {changed[:300]}", outcome, said)
    return tally


def one_case(base: Path, work: Path, draw: random.Random) -> tuple[str, Outcome, str]:
    """Change a copy of a recording; return what was changed and the outcome."""
    shutil.rmtree(work, ignore_errors=True)
    path = shutil.copytree(base, work / base.name)
    runs = sorted(p.parent for p in path.rglob(EVENTS))
    said = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if is_session(path) and draw.random() < 0.15:
            said.append(change_session(path, draw))
            continue
        weights, changes = zip(*CHANGES, strict=True)
        (made,) = draw.choices(changes, weights)
        try:
            said.append(made(draw.choice(runs), draw))
        except Exception as error:
            said.append(f"not made ({type(error).__name__})")  # an earlier change broke the file that this change needs
    if is_session(path) and draw.random() < 0.8:
        chain_again(path)
    how = draw.random()
    outcome, told = tried(lambda: reported(path, how))
    if outcome in RIGHT and draw.random() < AUDIT_SHARE:
        outcome, told = audited(path, outcome, told)
    return "; ".join(said), outcome, told


def audited(path: Path, outcome: Outcome, told: str) -> tuple[Outcome, str]:
    """Audit a reported recording. The audit must end too, and must not pass what the reader refuses."""
    found: list[Audit] = []
    audit_outcome, said = tried(lambda: found.append(audit(path)))
    if audit_outcome not in RIGHT:
        return audit_outcome, f"by the audit: {said}"
    unread = tried(lambda: [open_run(run) for run, _ in runs_in(path)])[0] is Outcome.REFUSED
    if unread and found and not found[0].failed:
        return Outcome.UNNOTICED, "the report refuses what passes the audit"
    return outcome, told


def chain_again(session: Path) -> None:
    """Seal the runs of a session as they are now, so that the reader gets as far as their content."""
    try:
        bind_again(session)
    except (TypeError, KeyError, ValueError, AttributeError, OSError, RecursionError):
        return


def recordings() -> list[str]:
    """Return the names of small recordings, except refused recordings and sweeps."""
    small = [f for f in sorted(GOLDEN.glob("*.tar.gz")) if f.stat().st_size <= LARGEST_BYTES]
    return [f.name.removesuffix(".tar.gz") for f in small if not f.name.startswith(("refused", "sweep"))]


def size_bytes(base: Path) -> int:
    return sum(file.stat().st_size for file in base.rglob("*") if file.is_file())


def reported(path: Path, how: float) -> None:
    """Do what `rig report` does. Each part is done if ``how`` is below its share.

    Raises ``AssertionError`` for a control character on the terminal, and for a file written outside ``derived/``.
    """
    before = {*path.parent.rglob("*")}
    if how < PAGE_SHARE:
        report(path)
    else:
        computed(path, how)
    outside = [f for f in {*path.parent.rglob("*")} - before if DERIVED not in f.parts or how >= PAGE_SHARE]
    assert not outside, f"written outside: {outside}"


def computed(path: Path, how: float) -> None:
    """Read and evaluate; if ``how`` is below ``TERMINAL_SHARE``, also print."""
    session = open_session(path) if is_session(path) else None
    parts = []
    for folder, purpose in session.runs if session is not None else ((path, ""),):
        run = open_run(folder)
        parts.append(Part(folder.name, purpose, run, evaluate(run)))
    results = [part.result for part in parts]
    if session is not None and (whole := session_result(session, parts)) is not None:
        results.append(whole)
    for result in results:
        json.dumps(result.to_json())
        if how < TERMINAL_SHARE:
            shown(result)
            context(parts[-1].run, result)


def shown(result: Any) -> None:
    """Print a result to a simulated terminal, and check the printed text."""
    from rich.console import Console

    file = io.StringIO()
    for verbose in (False, True):
        Console(file=file, highlight=False, width=100).print(console_lines(result, verbose))
    if bad := {c for c in file.getvalue() if not c.isprintable() and c != "\n"}:
        raise AssertionError(f"control characters on the terminal: {sorted(bad)!r}")
