"""The command line. Imports what a command needs when it is named."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.errors import MeasurementRefusedError, RigError, StoreError

if TYPE_CHECKING:
    from rig.analysis.result import Result


OTHERS = {
    "doctor": (
        "rig.commands.doctor",
        "add_arguments",
        "run",
        "open every device and meter, and say what is wrong",
    ),
    "import": (
        "rig.commands.import_trace",
        "add_arguments",
        "run",
        "make a run directory of a trace that others recorded",
    ),
    "reduce": ("rig.commands.reduce", "add_arguments", "run", "sum a long trace over windows, in bounded memory"),
    "sweep": ("rig.commands.sweep", "add_arguments", "run", "measure a grid, resumable after any interruption"),
    "targets": ("rig.commands.problems", "add_targets_arguments", "targets", "compute and verify best known costs"),
    "workload": (
        "rig.commands.problems",
        "add_workload_arguments",
        "export",
        "write a problem of a workload to a file",
    ),
}
"""Commands that stand in modules of their own: module, its arguments, its body, what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, that of a ``RigError``, or that of ``MeasurementRefusedError``."""
    # Arrow's own allocators set 4 MB aside for what needs a few kilobytes here
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parser(given[0] if given else "").parse_args(given)
    except RigError as error:  # of an argument that a command reads by itself
        return _failed(error, "--json" in given)
    try:
        return int(args.run(args))
    except RigError as error:
        return _failed(error, args.json)
    except KeyboardInterrupt:
        from rig.errors import Interrupted

        return _failed(Interrupted("interrupted"), args.json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser(command: str = "") -> argparse.ArgumentParser:
    """The argument parser of every command; those in other modules know their arguments when they are ``command``."""
    top = argparse.ArgumentParser(
        prog="rig", description="Measure latency, power and energy of neuromorphic systems, with stated uncertainty."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    measure = _command(commands, "measure", "play a scenario to a device while a meter watches, then report", _measure)
    measure.add_argument("--device", required=True, help="a name from `rig list` or bench.toml, or path.py:function")
    measure.add_argument(
        "--bench", type=Path, metavar="FILE", help="names of this lab; default: $RIG_BENCH, ./bench.toml"
    )
    measure.add_argument("--meter", action="append", help="default: the device's own; `none` for none; repeatable")
    measure.add_argument("--scenario", default="single-stream", help="default: %(default)s")
    measure.add_argument("--workload", help="default: asc; of scenario optimization, qubo-mis")
    measure.add_argument("--simulate", action="store_true", help="use the device's simulator; results say SIMULATED")
    measure.add_argument("--data", metavar="DIR", help="the workload's data set; without it, synthetic samples")
    measure.add_argument("--amortise", type=float, metavar="SECONDS", help="power on longer sequences, in a second run")
    measure.add_argument("--repeat", type=int, metavar="N", help="loop each sample N times inside one span")
    measure.add_argument("--apart", action="store_true", help="issue and power each phase on its own")
    measure.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="see `rig list NAME`")
    measure.add_argument("--rules", default="quick", metavar="SET", help="what makes it valid; default: %(default)s")
    measure.add_argument(
        "--mode", default="session", metavar="MODE",
        help="session (performance, accuracy and power in turn, bound), together (all in one run), or one of them",
    )  # fmt: skip
    measure.add_argument("--trials", type=int, metavar="N", help="performance and power N times; default: as the rules")
    measure.add_argument("--compliance", action="store_true", help="also one sample again and again, against a cache")
    measure.add_argument("--find-peak", action="store_true", help="search the highest valid rate of a server first")
    measure.add_argument("--find-size", action="store_true", help="search the largest problem that a solver takes")
    measure.add_argument("--speed", type=float, metavar="X", help="of a plant's time against the wall's; 0: at once")
    measure.add_argument("--out", type=Path, metavar="DIR", help="the new directory; default: runs/NAME")
    report = _command(commands, "report", "compute and render the figures of a run directory or session", _report)
    report.add_argument("path", type=Path, metavar="DIR")
    report.add_argument("--out", type=Path, metavar="DIR", help="where to write; default: DIR/derived")
    listing = _command(commands, "list", "name every device, meter, scenario and workload", _list)
    listing.add_argument("name", nargs="?", help="show the options of one of them")
    for name, (module, arguments, body, text) in OTHERS.items():
        own = importlib.import_module(module) if name == command else None
        other = _command(commands, name, text, None if own is None else getattr(own, body))
        if own is not None:
            getattr(own, arguments)(other)
    return top


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    command.set_defaults(run=run)
    return command


def _measure(args: argparse.Namespace) -> int:
    from rig.bench.station import find_bench, request_of
    from rig.session.measure import measure
    from rig.session.setup import Request, workload_for

    chosen = request_of(find_bench(args.bench), args.device, tuple(args.meter or ()), tuple(args.option))
    request = Request(
        device=chosen.device,
        meters=chosen.meters,
        artifacts=chosen.artifacts,
        places=chosen.places,
        exclusive=True,
        scenario=args.scenario,
        workload=workload_for(args.scenario, args.workload),
        simulate=args.simulate,
        data=args.data,
        amortise_s=args.amortise,
        options=chosen.options
        + ((f"scenario.repeat={args.repeat}",) if args.repeat is not None else ())
        + (("scenario.apart=true",) if args.apart else ())
        + ((f"plant.speed={args.speed}",) if args.speed is not None else ()),
        out=args.out,
        argv=tuple(sys.argv),
        rules=args.rules,
        mode=args.mode,
        trials=args.trials,
        compliance=args.compliance,
        find_peak=args.find_peak,
        find_size=args.find_size,
    )
    return _show(measure(request, quiet=args.json), args.json, None)


def _report(args: argparse.Namespace) -> int:
    return _show(args.path, args.json, args.out)


def _show(path: Path, as_json: bool, out: Path | None) -> int:
    """Read back from disk, evaluate, render; a session makes a report of each run and one of itself."""
    from rig.analysis.evaluate import evaluate
    from rig.analysis.memory import check_recording
    from rig.analysis.summary import Part, summarise
    from rig.recording.reader import open_run
    from rig.recording.session import is_session, runs_in, tried_in
    from rig.recording.writer import DERIVED

    parts = []
    session = is_session(path)
    documents = []
    for folder, purpose in runs_in(path):
        check_recording(folder)
        run = open_run(folder)
        result = evaluate(run)
        parts.append(Part(folder.name, purpose, run, result))
        target = folder / DERIVED if out is None else (out / folder.name if session else out)
        files = _written(result, target, run)
        documents.append({"run": str(folder), "files": files, "results": result.to_json()})
        if not (as_json or session):
            _printed(result, "run", folder, target)
    document: dict[str, Any] = documents[0]
    if session:
        document = {"session": str(path), "runs": documents}
        whole = summarise(path.resolve().name, parts, tried_in(path))
        if whole is not None:
            target = out or path / DERIVED
            run = next(part.run for part in parts if part.result.run_digest == whole.run_digest)
            document |= {"files": _written(whole, target, run), "results": whole.to_json()}
            if not as_json:
                _printed(whole, "session", path, target)
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    return MeasurementRefusedError.exit_code if any(_power_refused(part.result) for part in parts) else 0


def _written(result: Result, target: Path, run: Any) -> list[str]:
    from rig.plugins import load

    try:
        return [str(file) for file in load("reports", "files")(result, target, run)]
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror}", field="out", value=str(target), remedy="Choose another --out"
        ) from error


def _printed(result: Result, kind: str, path: Path, target: Path) -> None:
    from rig.plugins import load

    load("reports", "console")(result)
    sys.stdout.write(f"{kind:7} {path}\nreport  {target / 'report.html'}\n")


def _power_refused(result: Result) -> bool:
    """A meter watched and yet there is no active power."""
    return bool(result.start["meters"]) and not any(key.quantity == "active_power_w" for key in result.quantities)


def _list(args: argparse.Namespace) -> int:
    from rig.bench.registered import describe
    from rig.commands.listing import options_text, table

    if args.name:
        sys.stdout.write(options_text(args.name, args.json))
        return 0
    rows = describe()
    sys.stdout.write(json.dumps(rows) + "\n" if args.json else table(rows))
    return 0


def _failed(error: RigError, as_json: bool) -> int:
    sys.stderr.write(f"rig: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps(error.to_json()) + "\n")
    return error.exit_code
