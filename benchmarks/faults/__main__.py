"""What becomes of recordings when something around them fails? Counts of each outcome, by kind of fault.

    python -m benchmarks.faults --kills 200 --disks 50 --drivers 100 --flips 3000

Each case ends whole, kept up to its last whole batch and not VALID, or refused by type. Prints a table and, last, one
JSON line; exits 1 when anything else came of a case, and lists those cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from benchmarks.faults import bits, drivers, kills, starved
from benchmarks.faults.outcome import Outcome, Tally


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--disks", type=int, default=50, help="sizes of a disk that is too small")
    parser.add_argument("--drivers", type=int, default=100)
    parser.add_argument("--flips", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    began_s = time.monotonic()
    parts: list[Tally] = []
    campaigns: tuple[tuple[int, Callable[[], Tally]], ...] = (
        (args.flips, lambda: bits.campaign(args.flips, args.seed)),
        (args.drivers, lambda: drivers.campaign(args.drivers, args.workers)),
        (args.disks, lambda: starved.campaign(args.disks, args.workers)),
        (args.kills, lambda: kills.campaign(args.kills, args.seed, args.workers)),
    )
    for _, campaign in (c for c in campaigns if c[0]):  # a part of no cases is left out
        parts.append(campaign())
        print(_row(parts[-1]), flush=True)
    defects = [line for part in parts for line in part.defects]
    print("\n".join(defects))
    print(f"{len(defects)} defects; {time.monotonic() - began_s:.0f} s")
    counts = {part.part: {str(o): n for o, n in part.counts.items()} for part in parts}
    print(json.dumps({"benchmark": "faults", "counts": counts, "defects": len(defects), "pass": not defects}))
    return 1 if defects else 0


def _row(part: Tally) -> str:
    cells = [f"{part.counts[o]} {o}" for o in Outcome if part.counts[o]]
    return f"{part.part} ({part.counts.total()}): {', '.join(cells)}"


if __name__ == "__main__":
    sys.exit(main())
