"""``rig measure``: record a session of runs, then report it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rig.errors import Interrupted, RigError, StoreError, refused
from rig.terminal import command, say, usable_streams, width, wrapped

if TYPE_CHECKING:
    from rig.bench.request import Request

_BESIDE = ("resume", "json", "quiet", "verbose", "allow_invalid", "trust")
_OWN = (
    *_BESIDE, "like", "device", "bench", "meter", "workload", "simulate", "data", "option", "speed", "keep_identity",
    "out",
)  # fmt: skip
"""Arguments that are allowed beside ``--like``."""


RARE = (
    "like", "amortise", "per_phase", "mode", "compliance", "configuration", "find_peak", "find_size", "speed",
    "keep_identity", "quiet", "allow_invalid", "trust",
)  # fmt: skip
"""Options that only ``--help-all`` shows."""


_COPIED = (
    "out", "rules", "mode", "trials", "compliance", "find_peak", "find_size", "configuration", "keep_identity",
)  # fmt: skip
"""Arguments that a request has under the same name."""


class _HelpAll(argparse.Action):
    """Prints the help with the rarely used options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Exit with code 0."""
        for action in parser._actions:
            action.help = vars(action).get("rare_help", action.help)
        parser.print_help()
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--help-all", action=_HelpAll, nargs=0, help="also show the options that are rarely used, and exit")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--device", help="a device of `rig list` or of the bench file, or path.py:function")
    what.add_argument("--resume", type=Path, metavar="DIR", help="go on with a session that was broken off")
    add(
        "--like", type=Path, metavar="PATH",
        help="repeat a submission, session or run of others: its scenario, its rules, and the options of its workload",
    )  # fmt: skip
    add_bench_arguments(parser)
    add("--amortise", type=float, metavar="SECONDS", help="measure power and execution time on sequences this long")
    add("--repeat", type=int, metavar="N", help="loop each sample N times inside one span")
    add("--per-phase", "--apart", action="store_true", help="issue each phase by itself, and measure its power")
    add("--rules", default="quick", metavar="SET", help="rules that decide whether a result is valid; default: quick")
    add(
        "--mode", default="session", metavar="MODE",
        help="session: performance, accuracy and power in separate runs; together: all in one run; "
        "performance, accuracy or power: only that run; default: %(default)s",
    )  # fmt: skip
    add("--trials", type=int, metavar="N", help="repeat performance and power runs N times; default: as the rules ask")
    add("--compliance", action="store_true", help="add a run that repeats samples, to find caches and shortcuts")
    named = "name of the device's configuration, such as performance or efficiency"
    add("--configuration", default="", metavar="NAME", help=named)
    add("--find-peak", action="store_true", help="first search for the highest valid rate (scenario server)")
    add("--find-size", action="store_true", help="first search for the largest problem that the solver solves")
    add("--speed", type=float, metavar="X", help="simulated seconds in one real second; 0 means as fast as possible")
    add("--keep-identity", action="store_true", help="also record home directories and absolute paths")
    add("--quiet", action="store_true", help="show no progress on standard error")
    add("--verbose", action="store_true", help="print every figure and every note")
    add("--allow-invalid", action="store_true", help="exit with 0 also if the verdict is INVALID")
    add("--out", type=Path, metavar="DIR", help="the new directory for the recording; default: runs/NAME")
    parser.set_defaults(kept=kept)
    for action in (action for action in parser._actions if action.dest in RARE):
        vars(action)["rare_help"], action.help = action.help, argparse.SUPPRESS


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name the parts of a bench besides the device, and their options."""
    add = parser.add_argument
    add("--bench", type=Path, metavar="FILE", help="bench file of this lab; default: $RIG_BENCH, or ./bench.toml")
    add(
        "--meter", action="append",
        help="a meter of `rig list` or of the bench file, or `none`; may be repeated; default: those of the device",
    )  # fmt: skip
    add("--scenario", help="a scenario of `rig list`; default: single-stream, or optimization for qubo and qubo-mis")
    add("--workload", help="a workload of `rig list`; default: asc; for optimization qubo-mis, or qubo with --data")
    add("--simulate", action="store_true", help="use the device's simulator; results say SIMULATED")
    add("--data", metavar="PATH", help="the data of the workload: a folder, or a file; default: synthetic samples")
    of = "set an option that `rig list NAME` shows; may be repeated"
    add("--option", action="append", default=[], metavar="KEY=VALUE", help=of)
    add("--trust", action="store_true", help="run code whose path is in a file that others wrote")


def log_of(args: argparse.Namespace) -> Path:
    """Return the file for drivers' output, next to the recording; this also decides the recording's name."""
    if args.device is None and args.resume is None:
        _show_what_could_be_meant()
        args.parser.error("one of --device and --resume is required")
    if args.out is None and args.resume is None:
        from rig.bench.request import scenario_for
        from rig.session.default_out import default_out

        args.out = default_out(args.device, scenario_for(args.workload, args.scenario))
    place: Path = args.resume or args.out
    return place.absolute().parent / f"{place.absolute().name}.log"


def kept(args: argparse.Namespace) -> str:
    """Return the end of the error message after a driver ended this process.

    It is the command that continues the session, or that reports what was recorded.
    """
    from rig.recording.session_json import REQUEST
    from rig.session.resumable_session import go_on

    place: Path = args.resume or args.out
    if (place / REQUEST).is_file():
        return f". Go on with: {go_on(place)}"
    return f": {command('report', place)}" if place.is_dir() else ""


def _show_what_could_be_meant() -> None:
    """Print the sessions that can be resumed, newest first, and the devices."""
    from rig.commands.shell.completion import named_in_bench
    from rig.plugins import names
    from rig.session.find_recordings import MOST, ago, unfinished_in
    from rig.session.resumable_session import go_on

    rows = [f"{go_on(path)}  (of {ago(path)})" for path in unfinished_in()[:MOST]]
    rows += [f"{command('measure', '--device', name)}  (of the bench file)" for name in named_in_bench("devices")]
    say(*rows, *wrapped(f"devices: {', '.join(names('devices'))}", width()), error=True)


def run(args: argparse.Namespace) -> int:
    """Record, report and print. Raises a ``RigError`` if a measurement is impossible."""
    from rig.commands.report import show, teller
    from rig.commands.shell.main import keep_memory
    from rig.recording.session_json import FILE, REQUEST
    from rig.session.measure import measure
    from rig.session.resumable_session import go_on, request_in

    if args.resume is None:
        request = _request(args)
    else:
        _check_alone(args, _BESIDE, "--resume", "a session continues with its first options")
        request = request_in(args.resume, args.trust)
    quiet = args.quiet or (args.json and sys.stderr.isatty())  # a terminal shows both streams: print only the document
    begun = request.out is not None and (request.out / REQUEST).is_file()
    try:
        path = measure(request, quiet=quiet, resume=args.resume is not None)
    except RigError as error:
        if not begun and request.out is not None and (request.out / REQUEST).is_file():
            error.remedy = f"{error.remedy}. Go on with: {go_on(request.out)}"
        raise
    except KeyboardInterrupt as error:
        if request.out is None or not (request.out / REQUEST).is_file():
            raise
        told = f". What is recorded: {command('report', request.out)}" if (request.out / FILE).is_file() else ""
        raise Interrupted("interrupted", remedy=f"Go on with: {go_on(request.out)}{told}") from error
    if usable_streams():
        say(f"a driver closed a standard stream; the recording is kept: {command('report', path)}", error=True)
    keep_memory()
    compute_on_one_thread()
    try:
        from rig.session.report import report  # not earlier: 35 MB that recording does not need

        found = report(path, tell=teller(args.json, args.verbose))
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted", remedy=f"The recording is complete: {command('report', path)}") from error
    except StoreError as error:
        if error.field == "out":
            then = command("report", path)
            error.remedy = f"The recording is kept. Make room or correct the permissions, then: {then}"
        raise
    return show(found, args.json, args.allow_invalid)


def compute_on_one_thread() -> None:
    """Have the library below numpy compute on one thread, as in `rig report`. The device may have used more until now.

    More threads add in another order, which changes the last digits.
    """
    import ctypes

    from numpy.linalg import _umath_linalg

    library, setter = ctypes.CDLL(_umath_linalg.__file__), "openblas_set_num_threads"
    for name in (f"scipy_{setter}64_", f"{setter}64_", setter, "MKL_Set_Num_Threads"):
        with suppress(AttributeError):
            library[name](1)


def _check_alone(args: argparse.Namespace, allowed: Sequence[str], beside: str, why: str) -> None:
    """Refuse arguments outside ``allowed`` beside ``--like`` or ``--resume``, which take them from a recording."""
    plain = argparse.ArgumentParser()
    add_arguments(plain)
    for name, default in vars(plain.parse_args(["--resume", "."])).items():
        if name not in allowed and getattr(args, name) != default:
            what = f"--{name.replace('_', '-')} is given beside {beside}"
            raise refused(name, getattr(args, name), f"Leave it out; {why}", what)


def _repeated(args: argparse.Namespace) -> Request:
    """Set the arguments that ``--like`` takes from the recording, and print them."""
    from rig.session.like import TAKEN, check_own, like, lines_of

    _check_alone(args, _OWN, "--like", "it is taken from the recording")
    taken, left = like(args.like, args.workload)
    check_own(args.option, taken)
    for name in TAKEN:
        setattr(args, name.removesuffix("_s"), getattr(taken, name))
    say(*lines_of(taken, left), error=args.json)
    return taken


def bench_request(args: argparse.Namespace) -> Request:
    """Return the part of a request that names the bench, from ``--device`` and the arguments beside it."""
    from rig.bench.bench_file import find_bench, request_of
    from rig.bench.request import scenario_for, workload_for

    chosen = request_of(find_bench(args.bench), args.device, tuple(args.meter or ()), tuple(args.option), args.trust)
    scenario = scenario_for(args.workload, args.scenario)
    workload = workload_for(scenario, args.workload, args.data)
    named = {"scenario": scenario, "workload": workload, "simulate": args.simulate, "data": args.data}
    return replace(chosen, **named, exclusive=True)


def _request(args: argparse.Namespace) -> Request:
    taken = None if args.like is None else _repeated(args)
    asked = bench_request(args)
    options = asked.options + (() if taken is None else taken.options)
    options += (f"scenario.repeat={args.repeat}",) if args.repeat is not None else ()
    options += ("scenario.apart=true",) if args.per_phase else ()
    options += (f"bench.speed={args.speed}",) if args.speed is not None else ()
    copied = {name: getattr(args, name) for name in _COPIED} | {"amortise_s": args.amortise, "argv": tuple(sys.argv)}
    return replace(asked, **copied, options=options, repeats_sha256="" if taken is None else taken.repeats_sha256)
