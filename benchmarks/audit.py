"""Does the auditor agree with correct estimators, and does it notice wrong ones?

    python -m benchmarks.audit --plants 300 --seed 1000     agreement over random plants
    python -m benchmarks.audit --plants 200 --short          the same for recordings of one to six spans
    python -m benchmarks.audit --bugs                        bugs planted in the estimators, one at a time
    python -m benchmarks.audit --flips 2000 FOLDER           one flipped bit at each of 2000 positions of a folder

A bug changes one line in a copy of the sources. The copy reports golden recordings (the recordings kept with the
tests), and the unchanged auditor audits them. Prints a table and, last, one JSON line. Exits 1 if something disagrees
or is missed.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of
from fixtures.worlds.random_draw import Draw, draw, measured
from reports.audit.audit import audit
from reports.audit.evidence import Compared
from rig.analysis.evaluate import evaluate
from rig.errors import StoreError
from rig.recording.reader import open_run

HERE = Path(__file__).parents[1]
KEYS = (
    "idle_power_w", "dynamic_power_w", "active_power_w", "average_power_w", "energy_per_inference_j",
    "execution_time_s",
)  # fmt: skip
BUGS = (
    ("a unit: a volt counts as 1.011 V", "current-burden", "rig/recording/traces/conversion.py",
     "return raw * conversion.supply_v", "return raw * 1.001 * 1.01 * conversion.supply_v"),
    ("a sign: the loss in the shunt is added", "current-burden", "rig/recording/traces/conversion.py",
     "conversion.supply_v - raw * raw", "conversion.supply_v + raw * raw"),
    ("a window edge: busy time ends a reading late", "by-hand-example", "rig/analysis/power/estimators.py",
     "merged(windows_s[member])), r.start_s", "merged(windows_s[member] + [0.0, r.period_s])), r.start_s"),
    ("busy time is 0.5 % too long", "single-session", "rig/analysis/power/estimators.py",
     "    busy = float(z @ fill)\n", "    busy = float(z @ fill) * 1.005\n"),
    ("a rail is left out of the total", "two-rails", "rig/analysis/power/figures.py",
     "totals(figures, [r.rail.name for r in readings],", "totals(figures, [r.rail.name for r in readings][:1],"),
    ("a clock rate: nominal plus 1e-3", "two-rails", "rig/analysis/timing/timebase.py",
     "x, y, h = quick_reads(clock, brackets, t0_ns).T",
     "x, y, h = quick_reads(clock, brackets, t0_ns).T * np.array([[1.0], [1.001], [1.0]])"),
    ("a percentile: one rank too low", "server-together", "rig/analysis/result/order_statistics.py",
     "len(ordered) * percentile), 1)) - 1]", "len(ordered) * percentile), 1)) - 2]"),
    ("latency from the issue, not from the due time", "server-together", "rig/analysis/service/queries.py",
     "np.where(np.isnan(self.due_s), self.issued_s, self.due_s)", "self.issued_s"),
    ("energy of dynamic power by the wrong time", "single-session", "rig/analysis/power/energy.py",
     'above = product(dynamic, time_s, "J"', 'above = product(dynamic, active, "J"'),
    ("execution time over one sample too few", "single-session", "rig/analysis/timing/execution_time.py",
     "busy.seconds / max(busy.n, 1)", "busy.seconds / max(busy.n - 1, 1)"),
    ("idle leaves out its first window", "truth-14", "rig/analysis/power/estimators.py",
     "    idle, idle_u_w = under\n",
     "    idle, idle_u_w = under\n"
     "    idle = np.where(model.middle_s > model.middle_s.mean(), idle, 0.0)\n    idle /= idle.sum()\n"),
)  # fmt: skip
"""Each bug: its description, the golden recording that reveals it, the file, the line, and the changed line."""

BEYOND = ("idle leaves out its first window",)
"""Bugs that change no figure. If idle does not drift, as here, half of its readings give the same level."""


def shortened(d: Draw, seed: int) -> Draw:
    """Return the same plant with one to six spans, and idle windows of at least 0.05 s."""
    chance = np.random.default_rng([seed, 77])
    windows, idle_s = int(chance.integers(1, 7)), float(np.exp(chance.uniform(np.log(0.05), np.log(2.0))))
    return replace(d, windows=windows, idle_s=min(d.idle_s, idle_s))


def agreement(count: int, seed: int, short: bool) -> list[dict[str, Any]]:
    """Compare the estimators with the auditor's plain methods over random plants; return a row for each figure."""
    rows = []
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            measured(shortened(draw(number), number) if short else draw(number), run)
            (run / "derived").mkdir(exist_ok=True)
            (run / "derived" / "results.json").write_text(json.dumps(evaluate(open_run(run)).to_json()))
            rows += [_row(number, one) for one in audit(run).compared if one.key in KEYS or not one.ok]
    return rows


def _row(number: int, one: Compared) -> dict[str, Any]:
    scale = abs(one.plain) or 1.0
    apart, bound = abs(one.claimed - one.plain) / scale, one.bound / scale
    return {"plant": number, "key": one.key, "apart": apart, "bound": bound, "sharp": one.sharp, "ok": one.ok}


def caught(sources: Path, name: str) -> list[str]:
    """Report a golden recording with these sources, audit it, and name the figures that disagree."""
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(HERE / "tests" / "golden" / f"{name}.tar.gz") as archive:
            archive.extractall(place, filter="data")
        own = os.environ | {"PYTHONPATH": str(sources), "OPENBLAS_NUM_THREADS": "1"}
        code = "import sys; from rig.commands.shell.main import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "report", f"{place}/{name}"]
        subprocess.run(command, env=own, cwd=sources, capture_output=True, check=False)
        found = audit(Path(place) / name)
        return [c.key for c in found.compared if not c.ok] + ["no claim at all"] * (not found.compared)


def bugs() -> dict[str, list[str]]:
    """Plant each bug in a copy of the sources, and name the figures that then disagree; "" is the unchanged copy."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in ("rig", "reports", "scenarios", "drivers", "fixtures"):
            shutil.copytree(HERE / part, Path(folder) / part, ignore=shutil.ignore_patterns("__pycache__"))
        found[""] = [key for name in sorted({bug[1] for bug in BUGS}) for key in caught(Path(folder), name)]
        for what, name, file, old, new in BUGS:
            place = Path(folder) / file
            text = place.read_text()
            if old not in text:
                raise SystemExit(f"{what}: {file} has no line {old!r}")
            place.write_text(text.replace(old, new))
            found[what] = caught(Path(folder), name)
            place.write_text(text)
            print(
                f"{what:55} " + (f"caught: {', '.join(found[what][:3])}" if found[what] else "NOT caught"), flush=True
            )
    return found


def flips(folder: Path, count: int, seed: int) -> list[str]:
    """Flip one bit at each of ``count`` places of a folder, and name the flips that no check noticed."""
    chance, missed = random.Random(seed), []
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "derived" not in p.parts)
    sizes = np.array([p.stat().st_size for p in files], dtype=np.int64)
    ends = np.cumsum(sizes)
    for _ in range(count):
        at = chance.randrange(int(ends[-1]))
        which = int(np.searchsorted(ends, at, "right"))
        place, offset = files[which], at - int(ends[which] - sizes[which])
        before = place.read_bytes()
        content = bytearray(before)
        content[offset] ^= 1 << chance.randrange(8)
        place.write_bytes(content)
        try:
            if all(c.number not in (1, 2, 3) for c in audit(folder, quick=True).failed):
                missed.append(f"{place.relative_to(folder)} at {offset}")
        except StoreError:
            pass
        finally:
            place.write_bytes(before)
    return missed


def main() -> int:
    parser = parser_of(__doc__, plants=0, seed=1000, flips=0)
    parser.add_argument("--short", action="store_true", help="plants of few spans")
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("folder", type=Path, nargs="?")
    args = parser.parse_args()
    told: dict[str, Any] = {}
    if args.plants:
        rows = agreement(args.plants, args.seed, args.short)
        for key in KEYS:
            mine = [r for r in rows if r["key"] == key]
            apart = np.array([r["apart"] for r in mine])
            agree, sharp = sum(r["ok"] for r in mine), sum(r["sharp"] for r in mine)
            far = f"median {np.median(apart):.4%}, p99 {np.percentile(apart, 99):.3%}"
            print(f"{key:26} {len(mine):4} plants, {agree:4} agree, {sharp:4} known to 0.2 %, apart: {far}")
            told[key] = {"plants": len(mine), "agree": agree, "sharp": sharp, "p99": float(np.percentile(apart, 99))}
        told["apart"] = [r for r in rows if not r["ok"]]
        for row in told["apart"]:
            print(f"plant {row['plant']}: {row['key']} {row['apart']:.3%} apart, bound {row['bound']:.3%}")
    if args.bugs:
        told["bugs"] = {what: len(noticed) for what, noticed in bugs().items()}
        print(f"without a bug {told['bugs']['']} figures disagree")
    if args.flips:
        told["flips"], told["missed"] = args.flips, flips(args.folder, args.flips, args.seed)
        print(f"{args.flips} bits flipped, {len(told['missed'])} not noticed: {told['missed'][:5]}")
    print(json.dumps(told, default=float))
    missed = [what for what, n in told.get("bugs", {}).items() if bool(what) != bool(n) and what not in BEYOND]
    return int(bool(told.get("apart") or told.get("missed") or missed))


if __name__ == "__main__":
    sys.exit(main())
