"""``rig sweep``: a grid of measurements, resumable after any interruption. Imports what it needs when it runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.errors import RigError, SetupError, UsageError

if TYPE_CHECKING:
    from rig.sweep.grid import Asked, Cell
    from rig.sweep.loop import Means
    from rig.sweep.store import Frozen
    from rig.sweep.table import Table

FIGURE = "sweep.svg"
GRID = ("device", "scenario", "workload", "rules", "mode", "simulate", "meter", "data", "option", "vary")
REPEATED = ("repetitions", "repetition_seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rig sweep` takes. Nothing of the grid has a default here, so that a file and it can be told apart."""
    add = parser.add_argument
    add("path", nargs="?", type=Path, metavar="FILE|DIR", help="a grid in TOML; or a sweep, to go on with it")
    add("--device", nargs="+", action="extend", metavar="NAME", help="names from `rig list`, or path.py:function")
    add("--scenario", help="default: single-stream")
    add("--workload", help="default: asc; of scenario optimization, qubo-mis")
    add("--vary", action="append", metavar="KEY=V1,V2,...", help="an option and its values; repeatable: every product")
    add("--option", action="append", metavar="KEY=VALUE", help="an option that all cells share")
    add("--data", metavar="DIR", help="the workload's data set")
    add("--repetitions", type=int, metavar="N", help="each cell N times; default: 1")
    add(
        "--repetition-seed", action="append", metavar="KEY",
        help="an option that repetition k raises by k; default: every seed of device, plant and meters; `none`",
    )  # fmt: skip
    add("--rules", metavar="SET", help="what makes a cell valid; default: quick")
    add("--mode", help="as of `rig measure`; default: together")
    add("--simulate", action="store_true", default=None, help="use the devices' simulators")
    add("--meter", action="append", metavar="NAME", help="default: the device's own; `none` for none; repeatable")
    add("--out", type=Path, metavar="DIR", help="where the sweep stands, or is to stand")
    add("--extend", action="store_true", help="add the cells of another grid to a sweep")
    add("--retry-failed", action="store_true", help="try failed cells again")
    add("--jobs", type=int, metavar="N", help="cells at once; default: cores for simulators, 1 otherwise; 0: no worker")
    add("--scheduler", metavar="ADDRESS", help="spread simulated cells over a Dask cluster")
    add("--scheduler-timeout", type=float, default=10.0, metavar="SECONDS", help="default: %(default)s")
    add("--no-wait", action="store_true", help="an error, not a wait, when another process measures the device")
    add("--table", action="store_true", help="only rebuild table and picture from what is there")
    add("--fresh", action="store_true", help="compute every figure anew, and verify every hash")
    add("--all-columns", action="store_true", help="also quantities by phase and rail")
    add("--plot", metavar="QUANTITY", help="what the picture shows")
    add("--against", metavar="KEY|QUANTITY", help="and against which varied key, or quantity")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code is 0, or that of the first failed cell's error. Raises a ``RigError``."""
    from rig.sweep.loop import work_off

    folder, asked = _target(args)
    means = _means(args)
    if args.table:
        return _show(args, folder, _tabled(args, folder, means))
    grids = _grids(args, folder, asked)
    try:
        work_off(folder, grids, means, _cores())
    except RigError:
        with suppress(RigError):
            _written(args, folder, grids)
        raise
    if args.fresh:
        _tabled(args, folder, means)
    return _show(args, folder, grids)


def _target(args: argparse.Namespace) -> tuple[Path, Asked | None]:
    """The sweep's directory, and the grid that was asked for; None to go on with what is frozen there."""
    from rig.sweep.grid import from_file

    given = [f"--{n.replace('_', '-')}" for n in (*GRID, *REPEATED) if getattr(args, n) is not None]
    path: Path | None = args.path
    if path is not None and given:
        raise UsageError(
            f"{given[0]} beside {path}", field="path", value=str(path),
            remedy="Name the grid either by a file or by arguments; a sweep that is there goes on with its own",
        )  # fmt: skip
    if path is not None and not path.is_dir():
        if not path.is_file():
            raise UsageError(
                f"{path} is not there", field="path", value=str(path), remedy="Name a TOML file or a sweep"
            )
        return _out(args), from_file(path)
    if path is not None:
        if args.out is not None and args.out != path:
            raise UsageError("--out beside a sweep", field="out", value=str(args.out), remedy="Leave one of them out")
        return path, None
    return _out(args), _asked(args) if given else None


def _out(args: argparse.Namespace) -> Path:
    if args.out is None:
        raise UsageError("a sweep needs a directory", field="out", value=None, remedy="Name one with --out")
    out: Path = args.out
    return out


def _asked(args: argparse.Namespace) -> Asked:
    import msgspec

    from rig.sweep.grid import Asked, from_texts, values_in, with_workload

    if not args.device:
        raise UsageError("a grid needs a device", field="device", value=None, remedy="Name one with --device")
    options = from_texts(args.option or [], "option") | ({"workload.data": args.data} if args.data else {})
    given = {"devices": args.device, "meters": args.meter, "options": options, "repetition_seeds": args.repetition_seed}
    given["vary"] = {key: values_in(key, text) for key, text in from_texts(args.vary or [], "vary").items()}
    given |= {
        name: getattr(args, name) for name in ("scenario", "workload", "rules", "mode", "simulate", "repetitions")
    }
    return msgspec.convert(with_workload({name: value for name, value in given.items() if value is not None}), Asked)


def _means(args: argparse.Namespace) -> Means:
    from rig.sweep.loop import Means

    if args.jobs is not None and args.jobs < 0:
        raise UsageError(f"{args.jobs} jobs", field="jobs", value=args.jobs, remedy="Give 0 or more")
    if not args.scheduler_timeout > 0:
        raise UsageError(
            f"a timeout of {args.scheduler_timeout} s", field="scheduler_timeout", value=args.scheduler_timeout,
            remedy="Give a positive number",
        )  # fmt: skip
    return Means(args.jobs, args.scheduler, args.scheduler_timeout, not args.no_wait, args.retry_failed)


def _grids(args: argparse.Namespace, folder: Path, asked: Asked | None) -> Sequence[Frozen]:
    """The grids to work off: those frozen in the directory, with that which was asked for among them."""
    from rig.sweep.check import checked
    from rig.sweep.grid import difference
    from rig.sweep.store import check_empty, freeze, frozen, is_sweep

    if asked is None:
        return frozen(folder)
    grids = frozen(folder) if is_sweep(folder) else ()
    if any(entry.grid.asked == asked for entry in grids):
        return grids
    if grids and not args.extend:
        differs = difference(grids[-1].grid.asked, asked)
        raise UsageError(
            f"{folder} holds another grid: {'; '.join(differs)}", field="grid", value=str(folder),
            remedy="Add its cells with --extend, or name another --out",
        )  # fmt: skip
    if not grids:
        check_empty(folder)
    grid = checked(asked, not args.no_wait, _say)
    return freeze(folder, grid, sys.argv)


def _tabled(args: argparse.Namespace, folder: Path, means: Means) -> Sequence[Frozen]:
    from rig.sweep.grid import cells_of
    from rig.sweep.loop import compute_rows
    from rig.sweep.pool import Brake
    from rig.sweep.rows import row_path
    from rig.sweep.store import frozen, place_of

    grids = frozen(folder)
    cells = cells_of(entry.grid for entry in grids)
    if args.fresh:
        for cell in cells:
            row_path(place_of(folder, cell)).unlink(missing_ok=True)
    jobs = _cores() if means.jobs is None else means.jobs
    compute_rows(folder, cells, jobs, Brake(), _say, mend=False)
    return grids


def _written(args: argparse.Namespace, folder: Path, grids: Sequence[Frozen]) -> tuple[list[Cell], Table, list[Path]]:
    """Write the table and the picture of what is there."""
    from rig.plugins import load, names
    from rig.sweep.grid import cells_of
    from rig.sweep.store import write_whole
    from rig.sweep.table import table_of, write

    cells = cells_of(entry.grid for entry in grids)
    table = table_of(folder, cells, [entry.grid for entry in grids], args.all_columns)
    files = write(folder, table)
    asked = args.plot is not None or args.against is not None
    if asked or "sweep" in names("reports"):
        picture = load("reports", "sweep")(table.rows, table.varied, table.figures, args.plot, args.against)
        if picture is not None:
            write_whole(folder / FIGURE, picture)
            files.append(folder / FIGURE)
    return cells, table, files


def _show(args: argparse.Namespace, folder: Path, grids: Sequence[Frozen]) -> int:
    from rig.sweep.store import error_of, failure_of

    cells, table, files = _written(args, folder, grids)
    states = [str(row["state"]) for row in table.rows]
    count = {state: states.count(state) for state in ("done", "failed", "open")}
    failed = [(cell.key, error_of(folder, cell)) for cell, s in zip(cells, states, strict=True) if s == "failed"]
    if args.json:
        document: dict[str, Any] = {
            "sweep": str(folder),
            "cells": len(cells),
            **count,
            "files": [str(f) for f in files],
        }
        document["failures"] = [{"cell": key, **error} for key, error in failed]
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        sys.stdout.write(f"sweep   {folder}\ncells   {', '.join(f'{n} {state}' for state, n in count.items())}\n")
        sys.stdout.writelines(f"wrote   {file}\n" for file in files)
        for key, error in failed[:5]:
            sys.stdout.write(f"failed  {key}: {error.get('message')}\n")
        if failed:
            where = failure_of(folder, cells[0]).parent
            sys.stdout.write(
                f"        {len(failed)} in all, see {where}; try again with: rig sweep {folder} --retry-failed\n"
            )
    return int(failed[0][1].get("exit_code") or SetupError.exit_code) if failed else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _cores() -> int:
    return len(os.sched_getaffinity(0))
