"""``rig tracks``: compare the operations of a network with the joules that devices need for it."""

import argparse
from pathlib import Path

from rig.commands.sweep import add_shared_arguments
from rig.errors import Ended
from rig.plugins import load
from rig.sweep.grid import with_defaults
from rig.sweep.loop import Means, work_off
from rig.sweep.sweep_folder import exit_code_of, keep, outcome_of
from rig.sweep.table import table_of, write
from rig.sweep.tracks import Asked, grids_of, tracks_of
from rig.terminal import answer, command, say, tell

PAGE = "tracks.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("network", nargs="+", metavar="NETWORK", help="a network file; energy per operation is fitted to five or more")
    add("--devices", required=True, metavar="NAME,...", help="devices of `rig list`, or path.py:function")
    add("--simulate", action="store_true", help="use the simulators of devices that have one; results say SIMULATED")
    add_shared_arguments(parser)
    add(
        "--meter", action="append", default=[], metavar="[DEVICE=]NAME",
        help="a meter, for all devices or one; may be repeated; default: the device's own meter, if it has one",
    )  # fmt: skip
    add(
        "--option", action="append", default=[], metavar="[DEVICE.]KEY=VALUE",
        help="an option, for the devices that have it or for one; may be repeated",
    )  # fmt: skip
    add("--out", type=Path, required=True, metavar="DIR", help="the directory, new or to continue; it is a sweep")


def run(args: argparse.Namespace) -> int:
    """Measure open cells, write page and table; return 0, or the first failure's code. Raises a ``RigError``."""
    means = Means(args.jobs, wait=not args.no_wait, retry_failed=args.retry_failed)
    names = {name: getattr(args, name) for name in ("scenario", "workload", "rules", "mode")}
    others = with_defaults({name: value for name, value in names.items() if value is not None})
    options = (*args.option, *([f"workload.data={args.data}"] if args.data else []))
    devices = tuple(name.strip() for name in args.devices.split(",") if name.strip())
    asked = Asked(tuple(args.network), devices, options, tuple(args.meter), args.simulate, others)
    grids, refusals = grids_of(args.out, asked, args.extend, means.wait, tell)
    try:
        cells = work_off(args.out, grids, means)
    except Ended as error:
        error.remedy = error.remedy.replace(command("sweep", args.out), "the same command")
        raise
    files = write(args.out, table_of(args.out, cells, [entry.grid for entry in grids]))
    found = tracks_of(args.out, grids, refusals)
    keep(args.out, args.out / PAGE, load("reports", "tracks")(found))
    files = [args.out / PAGE, *files]
    count, failed = outcome_of(args.out, cells)
    if args.json:
        answer({"tracks": str(args.out), **count, **found.to_json(), "files": [*map(str, files)]})
    else:
        load("reports", "tracks-table")(found)
        say(*(f"wrote   {file}" for file in files))
        say(*(f"failed  {track.device} with {track.network}: {track.error}" for track in found.tracks if track.error))
    return exit_code_of(failed)
