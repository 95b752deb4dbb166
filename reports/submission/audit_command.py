"""Check a run, session or submission by separate code that recomputes its figures."""

import argparse
import sys
from pathlib import Path

from rig.errors import AuditFailedError, RigError, StoreError, UsageError, refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig audit PATH...``."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a run, session, submission, or its archive"
    )
    parser.add_argument("--quick", action="store_true", help="check hashes, rules and declarations only")
    parser.add_argument("--signers", type=Path, metavar="FILE", help="allowed signers, in the format of ssh-keygen")
    parser.add_argument("--root", action="append", default=[], metavar="HASH", help="a root hash that was published")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write audit.json and audit.html")


def run(args: argparse.Namespace) -> int:
    """Audit every path; return 0 if each was read and no check failed. For one path, raises what ``audit`` raises."""
    from reports.audit.audit import Audit, audit
    from reports.audit.folder.reading import clean
    from reports.submission.archive import unpacked
    from reports.submission.audit_again import imported_again, with_pages
    from reports.submission.audit_page import document, html, text
    from rig.recording.disk.files import Folder
    from rig.terminal import width, wrapped

    if args.out is not None:
        _check_out(args.out, args.paths)
    signers = None if args.signers is None else _signers(args.signers)
    roots = [root.strip().lower() for root in args.root]
    done: list[Audit] = []
    unread: RigError | None = None
    for path in args.paths:
        try:
            with unpacked(path) as folder:
                one = audit(folder, signers=signers, roots=roots, quick=args.quick, again=imported_again)
                done.append(with_pages(one, folder))
        except StoreError as error:
            if len(args.paths) == 1:
                raise
            unread = error
            sys.stderr.write(f"rig: {clean(path.name)}: {clean(error)}\n")
        else:
            if not args.json:
                lines = text(done[-1])
                if sys.stdout.isatty():
                    lines = [part for line in lines for part in wrapped(line, width(), " " * 12)]
                sys.stdout.write("\n" * (len(done) > 1) + "\n".join([*lines, ""]))
    if args.json:
        sys.stdout.write(document(done))
    if args.out is not None:
        written = Folder.at(args.out, make=True)
        for name, content in (("audit.json", document(done)), ("audit.html", html(done))):
            written.write(name, content.encode())
    bad = [one for one in done if one.failed]
    if bad and len(args.paths) > 1 and not args.json:
        sys.stdout.write(f"\nFAILED  {len(bad)} of {len(args.paths)}: {', '.join(one.name for one in bad)}\n")
    if bad:
        return AuditFailedError.exit_code
    return unread.exit_code if unread is not None else 0


def _signers(path: Path) -> str:
    from reports.audit.folder.reading import read_bytes

    if not path.is_file():
        remedy = "Name a file of allowed signers, in the format of ssh-keygen"
        raise refused("signers", str(path), remedy, f"--signers names {path}, which is not a file")
    return read_bytes(path, 1 << 20).decode("utf-8", "replace")


def _check_out(out: Path, paths: list[Path]) -> None:
    """Refuse to write inside the audited paths, except into a folder ``derived``, which no hash covers."""
    whole = out.resolve()
    for path in paths:
        if whole.is_relative_to(path.resolve()) and "derived" not in whole.relative_to(path.resolve()).parts:
            what = f"--out {out} lies inside the audited folder"
            raise UsageError(what, field="out", value=str(out), remedy="Name another folder, or PATH/derived")
