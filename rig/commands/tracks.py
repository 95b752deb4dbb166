"""``rig tracks``: compare the operations of a network with the joules that devices need for it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rig.errors import Ended, RigError, SetupError
from rig.plugins import load
from rig.sweep.grid import cells_of, with_workload
from rig.sweep.loop import Means, work_off
from rig.sweep.store import error_of, keep, state_of
from rig.sweep.table import table_of, write
from rig.sweep.tracks import Asked, grids_of, tracks_of
from rig.terminal import answer, command, say, tell

PAGE = "tracks.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig tracks NETWORK ... --devices NAME,NAME``."""
    add = parser.add_argument
    add("network", nargs="+", metavar="NETWORK", help="a network file; energy per operation is fitted to five or more")
    add("--devices", required=True, metavar="NAME,...", help="devices of `rig list`, or path.py:function")
    add("--simulate", action="store_true", help="use the simulators of devices that have one; results say SIMULATED")
    add("--workload", help="a workload of `rig list`, for all devices; default: asc")
    add("--data", metavar="DIR", help="folder with the data set of the workload")
    add("--scenario", help="a scenario of `rig list`; default: single-stream")
    add("--rules", metavar="SET", help="set of rules that decides whether a run is valid; default: quick")
    add("--mode", help="a mode of `rig measure`; default: together")
    add(
        "--meter", action="append", default=[], metavar="[DEVICE=]NAME",
        help="a meter, for all devices or one; may be repeated; default: the device's own meter, if it has one",
    )  # fmt: skip
    add(
        "--option", action="append", default=[], metavar="[DEVICE.]KEY=VALUE",
        help="an option, for the devices that have it or for one; may be repeated",
    )  # fmt: skip
    add("--out", type=Path, required=True, metavar="DIR", help="the directory, new or to continue; it is a sweep")
    add("--jobs", type=int, metavar="N", help="simulated runs at the same time; 0 means in this process only")
    add("--extend", action="store_true", help="add the runs of another command to the directory")
    add("--retry-failed", action="store_true", help="try failed runs again")
    add("--no-wait", action="store_true", help="end with an error when another process uses a device")


def run(args: argparse.Namespace) -> int:
    """Measure open cells, write page and table; return 0, or the first failure's code. Raises a ``RigError``."""
    means = Means(args.jobs, wait=not args.no_wait, retry_failed=args.retry_failed)
    names = {name: getattr(args, name) for name in ("scenario", "workload", "rules", "mode")}
    others = with_workload({name: value for name, value in names.items() if value is not None})
    options = (*args.option, *([f"workload.data={args.data}"] if args.data else []))
    devices = tuple(name.strip() for name in args.devices.split(",") if name.strip())
    asked = Asked(tuple(args.network), devices, options, tuple(args.meter), args.simulate, others)
    grids, refusals = grids_of(args.out, asked, args.extend, means.wait, tell)
    try:
        cells = work_off(args.out, grids, means)
    except (RigError, KeyboardInterrupt) as error:
        if isinstance(error, Ended):
            error.remedy = error.remedy.replace(command("sweep", args.out), "the same command")
        raise
    files = write(args.out, table_of(args.out, cells, [entry.grid for entry in grids]))
    found = tracks_of(args.out, grids, refusals)
    keep(args.out, args.out / PAGE, load("reports", "tracks")(found))
    files = [args.out / PAGE, *files]
    states = [state_of(args.out, cell) for cell in cells_of(entry.grid for entry in grids)]
    if args.json:
        count = {state: states.count(state) for state in ("done", "failed", "open")}
        answer({"tracks": str(args.out), **count, **found.to_json(), "files": [*map(str, files)]})
    else:
        load("reports", "tracks-table")(found)
        say(*(f"wrote   {file}" for file in files))
        say(*(f"failed  {track.device} with {track.network}: {track.error}" for track in found.tracks if track.error))
    failed = [error_of(args.out, cell) for cell, state in zip(cells, states, strict=True) if state == "failed"]
    return int(failed[0].get("exit_code") or SetupError.exit_code) if failed else 0
