"""``rig submit``: make one folder of sessions that a reviewer can read and a program can check."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rig.errors import StoreError, UsageError
from rig.terminal import answer, say

if TYPE_CHECKING:
    from rig.submission.configurations import Row
    from rig.submission.folder import Submitted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", nargs="+", type=Path, metavar="SESSION", help="a session, or a run by itself")
    about = Path("submission.toml")
    add(
        "--about", type=Path, default=about, metavar="FILE",
        help="file of what no recording states, such as whom to ask; default: %(default)s",
    )  # fmt: skip
    add("--init", action="store_true", help="write --about with what the recordings state, for you to complete")
    add("--out", type=Path, metavar="DIR", help="the new folder of the submission")
    add("--archive", type=Path, metavar="FILE", help="also pack the folder into this file, named *.tar.gz")
    add("--sign", type=Path, metavar="KEY", help="sign with this Ed25519 key of OpenSSH")


def run(args: argparse.Namespace) -> int:
    """Write the template or the submission, and print its content. Raises a ``RigError``."""
    return _init(args) if args.init else _submit(args)


def _init(args: argparse.Namespace) -> int:
    from rig.recording.read_events import read_log
    from rig.recording.session_json import runs_in
    from rig.session.resumable_session import go_on
    from rig.submission.submission_toml import write_template

    runs = {path: runs_in(path) for path in args.session}
    if unended := [path for path, found in runs.items() if not found]:
        what, remedy = f"no run of the session {unended[0]} has ended", f"Go on: {go_on(unended[0])}"
        raise StoreError(what, field="session", value=str(unended[0]), remedy=remedy)
    starts = [read_log(run).start for found in runs.values() for run, _ in found]
    left = write_template(args.about, starts)
    lines = f"wrote   {args.about}", f"fill in {', '.join(left)}"
    return answer({"about": str(args.about), "missing": left}, *lines, as_json=args.json)


def _submit(args: argparse.Namespace) -> int:
    from rig.submission.folder import submit

    if args.out is None:
        raise UsageError("no folder is named", field="out", remedy="Name a new folder with --out DIR")
    made = submit(args.session, args.about, args.out, args.archive, args.sign)
    if args.json:
        rows = [{"name": c.name, "class": c.class_, "verdict": c.verdict} for c in made.document.configurations]
        document = {"submission": str(made.path), "root": made.root, "configurations": rows}
        return answer(document | {"missing": made.missing, "left_out": made.left_out})
    for row in made.document.configurations:
        sessions = f"{len(row.sessions)} session{'' if len(row.sessions) == 1 else 's'}"
        say(f"row     {row.name}: {row.class_}, {row.verdict or 'no rules'}, {sessions}")
    say(*(f"left    {file}: no hash of the recording covers it" for file in made.left_out))
    say(f"folder  {made.path}", f"page    {made.path / 'report.html'}")
    if args.archive is not None:
        say(f"archive {args.archive}")
    say(f"root    {made.root}", *_findings(made, args.about))
    return 0


def _findings(made: Submitted, about: Path) -> Iterator[str]:
    """Yield the likely objections of a reviewer, each with its remedy; the worst is last."""
    yield "Publish the root hash in a second place: it shows whether any byte of the submission changed"
    if made.missing:
        yield f"missing {', '.join(made.missing)}: an audit fails until {about} has them; fill them in and submit again"
    rows = [row for row in made.rows if row.configuration.class_ != "imported"]
    unfit = [row for row in rows if row.result.validity is None or not row.result.validity.submittable]
    if simulated := [row for row in unfit if row.result.simulated]:
        what = "simulated, and rules for submission take hardware only; measure the hardware by neurobench-1.0"
        yield f"NEVER SUBMITTABLE {_first(simulated)}: {what}"
    if unfit := [row for row in unfit if not row.result.simulated]:
        sets = ", ".join(sorted({row.configuration.rules or "no rules" for row in unfit}))
        yield f"NEVER SUBMITTABLE {_first(unfit)}: judged by {sets}; measure with --rules neurobench-1.0"
    if invalid := [row for row in rows if row.configuration.verdict == "INVALID"]:
        yield f"INVALID {_first(invalid)}: `rig report` names the rules it breaks; keep them, and measure again"


def _first(rows: Sequence[Row]) -> str:
    return rows[0].configuration.name + (f" and {len(rows) - 1} more" if rows[1:] else "")
