"""``rig init``: find what is connected to this computer, and write a bench file for you to complete.

rig init [--address VISA ...] [--out FILE]
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rig.bench.bench_file_fields import FILE
from rig.bench.connected import Found, find
from rig.errors import StoreError, reason
from rig.status_line import StatusLine
from rig.terminal import answer

HEAD = """\
# The devices and meters of this bench. Lines that begin with # do nothing: complete those that apply, and remove the #.
#
#     rig doctor                       opens everything and reports what is wrong
#     rig measure --device board       measures it with the meters that see it
#
# lab = "Room 12"
# operator = "A. Person"

# [devices.board]                      # the system under test
# driver = "my_device.py:open_device"  # a name from `rig list`, or path.py:function
# rails = ["core"]
"""
WIRING = """\
# sees = "board"     # the device whose supply it measures
# rail = "core"
# supply_v = 3.3     # the voltage before the meter
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--address", action="append", default=[], metavar="VISA",
        help="also ask the instrument at this address, such as TCPIP::192.0.2.7::5025::SOCKET; may be repeated",
    )  # fmt: skip
    add("--out", type=Path, default=Path(FILE), metavar="FILE", help="the file to write; default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Search, write the file, and print what was found. Raises ``StoreError`` if it exists or cannot be written."""
    if args.out.exists():
        remedy = "Name another with --out, or move it away; a bench file is never overwritten"
        raise StoreError(f"{args.out} is there already", field="out", value=str(args.out), remedy=remedy)
    live = StatusLine(args.json)
    live.show("... looking for instruments and boards")
    found = list(find(args.address))
    live.clear()
    try:
        with args.out.open("x", encoding="utf-8") as file:
            file.write(bench_text(found))
    except OSError as error:
        what, remedy = f"{args.out} cannot be written: {reason(error)}", "Name a file in a folder that you can write to"
        raise StoreError(what, field="out", value=str(args.out), remedy=remedy) from error
    document = {"file": str(args.out), "found": [asdict(each) for each in found]}
    done = f"wrote {args.out}: complete it, then run `rig doctor`"
    return answer(document, *_lines(found), done, as_json=args.json)


def bench_text(found: list[Found]) -> str:
    """Return a bench file with an entry for each instrument found; an entry that is not sure is commented out."""
    entries = []
    for each in found:
        for k, item in enumerate(each.items):
            name = each.driver if k == 0 else f"{each.driver}-{k + 1}"
            options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in item.options.items())
            lines = [f"[{each.group}.{name}]  # {' '.join(item.what.split())}", f"driver = {json.dumps(each.driver)}"]
            lines.append(f"options = {{ {options} }}")
            text = "".join(f"{line}\n" if item.sure else f"# {line}\n" for line in lines)
            entries.append(text + (WIRING if each.group == "meters" else ""))
    return "\n".join([HEAD, *entries])


def _lines(found: list[Found]) -> list[str]:
    there = [f"  {each.driver:14} {item.what}" for each in found for item in each.items]
    unable: dict[str, list[str]] = {}
    for each in found:
        if each.problem:
            unable.setdefault(each.problem, []).append(each.driver)
    told = [f"  {', '.join(drivers):14} search incomplete: {problem}" for problem, drivers in unable.items()]
    return [*(there or ["  nothing was found"]), *told]
