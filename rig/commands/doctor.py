"""``rig doctor``: open each device and meter of the bench file, and name each fault with its remedy.

    rig doctor [NAME...] [--bench FILE] [--seconds S]

The exit code is 0, or the largest exit code of the errors found. A doubtful finding is not an error.
"""

import argparse
from contextlib import closing
from pathlib import Path

from rig.bench.bench_file import find_bench
from rig.bench.bench_file_fields import DOCTOR_PATIENCE_S
from rig.doctor.examination import Settings, diagnose
from rig.doctor.findings import Finding, exit_code, summary
from rig.errors import refused
from rig.status_line import StatusLine
from rig.terminal import answer, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, longest = parser.add_argument, f"default: {DOCTOR_PATIENCE_S:g}, or patience_s of the bench file"
    add("name", nargs="*", help="a device or meter of the bench file, or a driver; default: all of the bench file")
    add("--bench", type=Path, metavar="FILE", help="bench file; default: $RIG_BENCH, or ./bench.toml")
    add("--seconds", type=float, default=1.0, metavar="S", help="length of each measurement; default: 1")
    add("--timeout", type=float, metavar="S", help=f"longest time for each item, besides its measurements; {longest}")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of a driver that is named here")
    add("--simulate", action="store_true", help="open the simulators of devices that have one")
    add("--trust", action="store_true", help="run code whose path is in a bench file that others wrote")


def run(args: argparse.Namespace) -> int:
    """Print each finding as it comes, then a summary; with ``--json``, one document at the end."""
    for name, value in (("seconds", args.seconds), ("timeout", args.timeout)):
        if value is not None and not 0.0 < value < 3600.0:
            raise refused(name, value, "Give seconds above 0 and below 3600", f"--{name} is {value}")
    live = StatusLine(args.json)

    def show(text: str) -> None:
        live.clear()
        if not args.json:
            say(text)

    settings = Settings(
        args.seconds, args.timeout, args.simulate, args.trust, tuple(args.option),
        lambda item, step: live.show(f"... {item}: {step}"),
    )  # fmt: skip
    found: list[Finding] = []
    try:
        with closing(diagnose(args.name, find_bench(args.bench), settings)) as findings:
            for finding in findings:
                found.append(finding)
                show(finding.line())
    finally:
        live.clear()
        if found:
            show(summary(found))
    code = exit_code(found)
    if args.json:
        answer({"findings": [f.to_json() for f in found], "summary": summary(found), "exit_code": code})
    return code
