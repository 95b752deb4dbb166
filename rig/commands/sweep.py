"""``rig sweep``: a grid of measurements, resumable after any interruption."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from rig.commands.shell.completion import named_in_bench
from rig.errors import Ended, RigError, UnknownNameError, UsageError, refused
from rig.plugins import load
from rig.session.trusted_requests import check_continued
from rig.sweep.dask import check_address
from rig.sweep.grid import Cell, GridSpec, cells_of, from_texts, values_in, with_defaults
from rig.sweep.grid_checks import grids_for
from rig.sweep.loop import Means, changed_in, compute_rows, work_off
from rig.sweep.pool import Brake
from rig.sweep.sweep_folder import FILE, Frozen, exit_code_of, failure_of, frozen, keep, outcome_of
from rig.sweep.table import Table, table_of, write
from rig.terminal import answer, command, say, tell

GRID = ("device", "scenario", "workload", "rules", "mode", "simulate", "meter", "data", "option", "vary")
REPEATED = ("repetitions", "repetition_seed")
FIGURE = "sweep.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; those of the grid are None if the user did not give them."""
    add = parser.add_argument
    add("path", nargs="?", type=Path, metavar="DIR", help="the directory of a sweep to continue")
    add("--device", nargs="+", action="extend", metavar="NAME", help="devices of `rig list`, or path.py:function")
    add_shared_arguments(parser)
    add("--vary", action="append", metavar="KEY=V1,V2,...", help="an option and its values; may be repeated")
    add("--option", action="append", metavar="KEY=VALUE", help="an option that all cells share; may be repeated")
    add("--repetitions", type=int, metavar="N", help="measure each cell N times; default: 1")
    add(
        "--repetition-seed", action="append", metavar="KEY",
        help="an option to which repetition k adds k, or `none`; default: every seed of device, "
        "simulated bench and meters",
    )  # fmt: skip
    add("--simulate", action="store_true", default=None, help="use the devices' simulators")
    add(
        "--meter", action="append", metavar="NAME",
        help="a meter of `rig list`, or `none`; may be repeated; default: the device's own meter",
    )  # fmt: skip
    add("--out", type=Path, metavar="DIR", help="the directory of the sweep, new or existing")
    add("--scheduler", metavar="ADDRESS", help="spread simulated cells over a Dask cluster")
    add("--trust", action="store_true", help="run code and programs named in a directory that others wrote")
    add("--table", action="store_true", help="only rebuild the table and the picture, and measure nothing")
    add("--all-columns", action="store_true", help="add the figures by phase and rail to the table")
    add("--plot", metavar="QUANTITY", help="the quantity that the picture shows")
    add("--against", metavar="KEY|QUANTITY", help="the varied key or the quantity on the horizontal axis")


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `rig sweep` and `rig tracks` have in common."""
    add = parser.add_argument
    add("--scenario", help="a scenario of `rig list`; default: as in `rig measure`")
    add("--workload", help="a workload of `rig list`; default: asc, or qubo-mis for the scenario optimization")
    add("--data", metavar="DIR", help="folder with the data set of the workload")
    add("--rules", metavar="SET", help="set of rules that decides whether a run is valid; default: quick")
    add("--mode", help="a mode of `rig measure`; default: together")
    add("--extend", action="store_true", help="add the cells of another grid to the directory")
    add("--retry-failed", action="store_true", help="try failed cells again")
    add(
        "--jobs", type=int, metavar="N",
        help="simulated cells at the same time; default: one for each core; 0 means in this process only",
    )  # fmt: skip
    add("--no-wait", action="store_true", help="end with an error, instead of waiting, while others use a device")


def run(args: argparse.Namespace) -> int:
    """Record a sweep or write its table; return 0, or the exit code of the first failed cell. Raises a ``RigError``."""
    if args.scheduler is not None:
        check_address(args.scheduler, args.trust)
    folder, spec = _target(args)
    means = Means(args.jobs, args.scheduler, not args.no_wait, args.retry_failed)
    if args.table:
        grids: Sequence[Frozen] = frozen(folder)
        cells = cells_of(entry.grid for entry in grids)
        compute_rows(folder, cells, means.row_jobs, Brake(), tell, mend=False)
        return _show(args, folder, grids)
    try:
        grids = frozen(folder) if spec is None else grids_for(folder, spec, args.extend, means.wait, tell)
    except UnknownNameError as error:
        if error.value in (*named_in_bench("devices"), *named_in_bench("meters")):
            error.remedy = "The bench file has this name: name its driver instead, and give its options with --option"
        raise
    typed = [] if spec is None else spec.code()
    for entry in grids:
        code = [name for name in entry.grid.code() if name not in typed]
        check_continued(code, folder / FILE, entry.grid_sha256.encode(), args.trust)
    try:
        work_off(folder, grids, means)
    except (RigError, KeyboardInterrupt) as error:
        with suppress(RigError):
            _write(args, folder, grids)
        if args.trust and isinstance(error, Ended):
            again = command("sweep", folder)
            error.remedy = error.remedy.replace(again, f"{again} --trust")
        raise
    return _show(args, folder, grids)


def _target(args: argparse.Namespace) -> tuple[Path, GridSpec | None]:
    """Return the sweep's directory and the given grid, or None to continue the sweep's own grids."""
    given = [f"--{n.replace('_', '-')}" for n in (*GRID, *REPEATED) if getattr(args, n) is not None]
    path: Path | None = args.path
    if path is None:
        if args.out is None:
            remedy = "Name a new one with --out, or continue a sweep with `rig sweep DIR`"
            raise UsageError("a sweep needs a directory", field="out", value="", remedy=remedy)
        return args.out, _spec(args) if given else None
    if given:
        remedy = "Leave one of them out: a sweep continues with its own grid. Separate values of --vary by commas only"
        raise refused("path", str(path), remedy, f"{given[0]} beside {path}")
    if not path.is_dir():
        raise refused("path", str(path), "Name the directory of a sweep", f"{path} is not a directory")
    if args.out not in (None, path):
        what = f"--out {args.out} is given together with the sweep {path}"
        raise UsageError(what, field="out", value=str(args.out), remedy="Omit --out")
    return path, None


def _spec(args: argparse.Namespace) -> GridSpec:
    if not args.device:
        raise UsageError("a grid needs a device", field="device", value=None, remedy="Name one with --device")
    options = from_texts(args.option or [], "option") | ({"workload.data": args.data} if args.data else {})
    given = {"devices": args.device, "meters": args.meter, "options": options, "repetition_seeds": args.repetition_seed}
    given["vary"] = {key: values_in(key, text) for key, text in from_texts(args.vary or [], "vary").items()}
    plain = ("scenario", "workload", "rules", "mode", "simulate", "repetitions")
    given |= {name: getattr(args, name) for name in plain}
    known = {name: value for name, value in given.items() if value is not None}
    return msgspec.convert(with_defaults(known), GridSpec)


def _write(args: argparse.Namespace, folder: Path, grids: Sequence[Frozen]) -> tuple[list[Cell], Table, list[Path]]:
    """Write the table and the figure; return the cells, the table and the files written."""
    cells = cells_of(entry.grid for entry in grids)
    table = table_of(folder, cells, [entry.grid for entry in grids], args.all_columns)
    files = write(folder, table)
    figure = load("reports", "sweep")(table.rows, table.varied, table.figures, args.plot, args.against)
    if figure is not None:
        keep(folder, folder / FIGURE, figure)
        files.append(folder / FIGURE)
    return cells, table, files


def _show(args: argparse.Namespace, folder: Path, grids: Sequence[Frozen]) -> int:
    """Write table and figure, print the state of the cells, and return the exit code."""
    cells, table, files = _write(args, folder, grids)
    count, failed = outcome_of(folder, cells)
    if mixed := changed_in(folder, cells):
        what = f"the table mixes versions of {', '.join(mixed)}"
        say(f"{what}. Begin a new sweep if the change concerns the measured work", error=True)
    if args.json:
        document: dict[str, Any] = {"sweep": str(folder), "cells": len(cells), **count, "files": [*map(str, files)]}
        document["failures"] = [{"cell": key, **error} for key, error in failed.items()]
        answer(document)
    else:
        say(f"sweep   {folder}", f"cells   {', '.join(f'{n} {state}' for state, n in count.items())}")
        say(*(f"wrote   {file}" for file in files))
        load("reports", "sweep-table")(table.rows, table.varied, table.figures)
        say(*(f"failed  {key}: {error.get('message')}" for key, error in list(failed.items())[:5]))
        if failed:
            again = command("sweep", folder, "--retry-failed", *(["--trust"] if args.trust else []))
            where = failure_of(folder, cells[0]).parent
            say(f"        {len(failed)} in all, see {where}; try again with: {again}")
    return exit_code_of(failed)
