"""``rig measure``: record a session of runs, then report it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig measure --device NAME ...``."""
    add = parser.add_argument
    add("--device", required=True, help="a name from `rig list` or bench.toml, or path.py:function")
    add("--bench", type=Path, metavar="FILE", help="names of this lab; default: $RIG_BENCH, ./bench.toml")
    add("--meter", action="append", help="default: the device's own; `none` for none; repeatable")
    add("--scenario", default="single-stream", help="default: %(default)s")
    add("--workload", help="default: asc; of scenario optimization, qubo-mis")
    add("--simulate", action="store_true", help="use the device's simulator; results say SIMULATED")
    add("--data", metavar="DIR", help="the workload's data set; without it, synthetic samples")
    add("--amortise", type=float, metavar="SECONDS", help="power on longer sequences, in a second run")
    add("--repeat", type=int, metavar="N", help="loop each sample N times inside one span")
    add("--per-phase", "--apart", action="store_true", help="issue and power each phase on its own")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="see `rig list NAME`")
    add("--rules", default="quick", metavar="SET", help="the rules of a valid result; default: %(default)s")
    add(
        "--mode", default="session", metavar="MODE",
        help="session (performance, accuracy and power in turn, bound), together (all in one run), or one of them",
    )  # fmt: skip
    add("--trials", type=int, metavar="N", help="performance and power N times; default: as in the rules")
    add("--compliance", action="store_true", help="also one sample again and again, against a cache")
    add("--find-peak", action="store_true", help="search the highest valid rate of a server first")
    add("--find-size", action="store_true", help="search the largest problem that a solver takes")
    add("--speed", type=float, metavar="X", help="simulated time against the wall's; 0: as fast as possible")
    add("--keep-identity", action="store_true", help="record home directories and absolute paths too")
    add("--verbose", action="store_true", help="print every figure and every note")
    add("--out", type=Path, metavar="DIR", help="the new directory; default: runs/NAME")


def run(args: argparse.Namespace) -> int:
    """Record, report and print. Raises a ``RigError`` for what cannot be measured."""
    from rig.bench.station import find_bench, request_of
    from rig.commands.report import show
    from rig.session.measure import measure
    from rig.session.report import report
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
        + (("scenario.apart=true",) if args.per_phase else ())
        + ((f"plant.speed={args.speed}",) if args.speed is not None else ()),
        out=args.out,
        argv=tuple(sys.argv),
        rules=args.rules,
        mode=args.mode,
        trials=args.trials,
        compliance=args.compliance,
        find_peak=args.find_peak,
        find_size=args.find_size,
        keep_identity=args.keep_identity,
    )
    return show(report(measure(request, quiet=args.json)), args.json, args.verbose)
