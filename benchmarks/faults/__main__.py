"""What happens to recordings if something around them fails? Counts the outcomes of each kind of fault.

    python -m benchmarks.faults --fields 4000 --inputs 1000 --flips 3000 --drivers 100 --disks 50 --kills 200
    python -m benchmarks.faults --fields 0 --inputs 0 --flips 0 --drivers 0 --disks 0 --kills 0 --forged 0 --captures 20

A part with 0 cases is left out. Each case must end in one of four ways: complete; kept up to its last whole batch and
not VALID; refused with a typed error; or ended before anything was recorded. Prints a table and, last, one JSON line.
Exits 1 if any case ends otherwise, and lists the first such cases of each part.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator

from benchmarks.command_line import parser_of
from benchmarks.faults import bits, captures, drivers, fields, kills, parsers, physics, starved
from benchmarks.faults.tally import Outcome, Tally


def main() -> int:
    parser = parser_of(__doc__, seed=1, workers=2)
    parser.add_argument("--fields", type=int, default=4000, help="recordings with hostile fields")
    parser.add_argument("--inputs", type=int, default=1000, help="hostile inputs for each parser; fewer for slow ones")
    parser.add_argument("--flips", type=int, default=3000, help="flipped bits")
    parser.add_argument("--drivers", type=int, default=100, help="faulty drivers")
    parser.add_argument("--disks", type=int, default=50, help="sizes of a disk that is too small")
    parser.add_argument("--kills", type=int, default=200, help="kills and signals")
    parser.add_argument("--captures", type=int, default=20, help="kills at 2 MS/s, and half as many full disks")
    parser.add_argument("--forged", type=int, default=300, help="forged recordings that the audit must see")
    args = parser.parse_args()
    began_s = time.monotonic()
    parts: list[Tally] = []
    for part in _parts(args):
        parts.append(part)
        cells = [f"{part.counts[outcome]} {outcome}" for outcome in Outcome if part.counts[outcome]]
        print(f"{part.part} ({part.counts.total()}): {', '.join(cells)}", flush=True)
    print("\n".join(line for part in parts for line in part.defects))
    defects = sum(part.defective for part in parts)
    print(f"{defects} defects; {time.monotonic() - began_s:.0f} s")
    counts = {part.part: {str(o): n for o, n in part.counts.items()} for part in parts}
    print(json.dumps({"benchmark": "faults", "counts": counts, "defects": defects, "pass": not defects}))
    return 1 if defects else 0


def _parts(args: argparse.Namespace) -> Iterator[Tally]:
    if args.fields:
        yield fields.campaign(args.fields, args.seed, args.workers)
    if args.inputs:
        yield from parsers.campaign(args.inputs, args.seed, args.workers)
    if args.flips:
        yield bits.campaign(args.flips, args.seed)
    if args.drivers:
        yield drivers.campaign(args.drivers, args.workers)
    if args.disks:
        yield starved.campaign(args.disks, args.workers)
    if args.kills:
        yield kills.campaign(args.kills, args.seed, args.workers)
    if args.forged:
        yield physics.campaign(args.forged, args.seed, args.workers)
    if args.captures:
        yield captures.campaign(args.captures, args.seed)


if __name__ == "__main__":
    sys.exit(main())
