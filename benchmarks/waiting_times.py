"""How long does a person wait for the rig? Each row is measured in turn with its peer or reference, in one run.

    pip install mlcommons-loadgen
    python -m benchmarks.waiting_times [ROW ...] [--times 5] [--readings 1e8 1e9] [--folder /tmp] [--priority]

start     `rig --help` and `rig list`, compared with an interpreter that does nothing
report    `rig report` of the README's session, and `--json` of its run with power, compared with importing numpy,
          scipy.stats, pandas and matplotlib.pyplot
measure   `rig measure` of the README: from its start until it records, from the last reading to the printed figures
single    a device that answers at once, compared with the leanest system that LoadGen takes; and the peak memory
arrivals  Poisson arrivals at 2,000/s and 20,000/s, compared with LoadGen: how late samples are issued, and their gaps
long      only with --readings: a report of a simulated trace, compared with reading and hashing its bytes

Rows with `CPU` are processor time of whole processes, which other programs on the machine affect less. With
`--priority`, both sides of `single` and `arrivals` have real-time priority, which Linux limits to 0.95 s per second. So
keep the runs of `arrivals` shorter: `--seconds 0.6`. Prints a table (less is better) and, last, one JSON line.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks import long_trace_time_and_memory
from benchmarks.harness import reading
from benchmarks.harness.load import FIRST
from benchmarks.harness.runs import child
from fixtures.worlds.lab_recording import write
from rig.analysis.result.order_statistics import nearest_rank

RIG = [sys.executable, "-c", "from rig.commands.start import main; import sys; sys.exit(main())"]
NOTHING = [sys.executable, "-c", "pass"]
IMPORTS = [sys.executable, "-c", "import numpy, scipy.stats, pandas, matplotlib.pyplot"]
README = ["measure", "--device", "xylo", "--scenario", "single-stream", "--simulate", "--quiet", "--out"]
NO_PEER = "LoadGen is not installed: pip install mlcommons-loadgen"


@dataclass(frozen=True)
class Row:
    """The values of each turn, ours and the peer's; ``asked`` limits the ratio or, without a peer, our value."""

    what: str
    unit: str
    ours: list[float]
    theirs: list[float]
    asked: float

    @property
    def ratio(self) -> float | None:
        """Return the median, over the turns, of our value divided by the peer's."""
        pairs = zip(self.ours, self.theirs, strict=True) if self.theirs else ()
        return statistics.median([one / other for one, other in pairs]) if self.theirs else None

    def __str__(self) -> str:
        cells = [f"{min(s):.4g} / {statistics.median(s):.4g}" if s else "" for s in (self.ours, self.theirs)]
        found = statistics.median(self.ours) if self.ratio is None else self.ratio
        shown = "" if self.ratio is None else f"{self.ratio:.3g}"
        reached = "yes" if found <= self.asked else "no"
        return f"{self.what:44} {self.unit:5} {cells[0]:>20} {cells[1]:>20} {shown:>7} {self.asked:7g}  {reached}"


class Skipped(Exception):
    """The reason why a row cannot be measured here."""


def installed() -> dict[str, str]:
    """Return the environment in which Python keeps bytecode, as for an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cpu_s(argv: list[str]) -> float:
    """Return a process's seconds of processor time. Raises ``Skipped`` with its message if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=installed()
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Skipped(done.stderr.strip().splitlines()[-1])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_turn(times: int, commands: Mapping[str, list[str]]) -> dict[str, list[float]]:
    """Return the processor time (s) of each command in each of ``times`` turns, after one turn of warm-up."""
    turns = [{name: cpu_s(argv) for name, argv in commands.items()} for _ in range(times + 1)][1:]
    return {name: [turn[name] for turn in turns] for name in commands}


def start(a: argparse.Namespace, _: Path) -> Iterator[Row]:
    """Time the commands that a user waits for first: help and list."""
    found = in_turn(a.times, {"pass": NOTHING, "help": [*RIG, "--help"], "list": [*RIG, "list"]})
    yield Row("rig --help / python -c pass", "s CPU", found["help"], found["pass"], 2.0)
    yield Row("rig list / python -c pass", "s CPU", found["list"], found["pass"], 2.5)


def report(a: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Time the reports of the README's session, which is measured first."""
    cpu_s([*RIG, *README, str(folder / "session")])
    whole, one = [*RIG, "report", str(folder / "session")], [*RIG, "report", str(folder / "session/power"), "--json"]
    found = in_turn(a.times, {"imports": IMPORTS, "whole": whole, "one": one})
    yield Row("rig report SESSION / imports", "s CPU", found["whole"], found["imports"], 1.3)
    yield Row("rig report SESSION/power --json / imports", "s CPU", found["one"], found["imports"], 0.6)


def measure(a: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Time the README's measurement in wall time."""
    turns = [_measured(folder / f"measured-{k}") for k in range(a.times)]
    yield Row("rig measure, until it records", "s", [turn[0] for turn in turns], [], 1.2)
    yield Row("rig measure, last reading to figures", "s", [turn[1] for turn in turns], [], 1.0)


def _measured(out: Path) -> tuple[float, float]:
    began, first = time.time(), out / "accuracy" / "events.jsonl"
    argv = [*RIG, *README, str(out)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=installed()) as process:
        assert process.stdout is not None and process.stderr is not None
        while process.poll() is None and not first.exists():
            time.sleep(0.005)
        records = time.time()
        said = process.stdout.readline()
        figures = time.time()
        process.stdout.read()
        if not said:
            raise Skipped(process.stderr.read().decode().strip().splitlines()[-1])
    return records - began, figures - (out / "power" / "events.jsonl").stat().st_mtime


def single(a: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure the rig's time between two queries, and its memory."""
    _check_peer()
    ours, theirs = list[dict[str, float]](), list[dict[str, float]]()
    for k in range(a.times):
        given = ["single", "--queries", str(a.queries), "--out"]
        for side, found, more in (("ours", ours, []), ("peer", theirs, ["--sut", "lean"])):
            out = folder / f"single-{side}-{k}"
            cost = child(side, [*given, str(out), *more])
            if side == "ours":
                played = reading.recorded(out)
                n, run_s = len(played), float(played.done_ns[-1] - played.issued_ns[0]) * 1e-9
                p50 = nearest_rank(np.sort(played.latency_ns).astype(float), 0.5)
            else:
                said = reading.detail(out)
                n = int(said["result_query_count"])
                run_s, p50 = n / said["result_qps_with_loadgen_overhead"], reading.percentile_ns(said, 0.5)
            found.append({"run": 1e6 * run_s / n, "cpu": 1e6 * cost["cpu_s"] / n, "p50": 1e-3 * p50} | cost)
            shutil.rmtree(out)
    pairs = {key: ([row[key] for row in ours], [row[key] for row in theirs]) for key in ours[0]}
    yield Row("single-stream, a query / LoadGen lean", "us", *pairs["run"], 1 / 1.5)
    yield Row("single-stream, a query / LoadGen lean", "usCPU", *pairs["cpu"], 1 / 1.5)
    yield Row("single-stream, p50 latency / LoadGen lean", "us", *pairs["p50"], 0.5)
    yield Row("single-stream, most memory", "MiB", [b / 2**20 for b in pairs["peak_b"][0]], [], 50.0)


def arrivals(a: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure how well a schedule is kept."""
    _check_peer()
    for rate_hz, most in ((2000.0, 0.01), (20000.0, 0.25)):
        found = {side: list[tuple[float, float]]() for side in ("ours", "peer")}
        for seed in range(1, a.times + 1):
            for side, (more, read) in {"ours": ([], reading.recorded), "peer": (["--trace"], reading.traced)}.items():
                out = folder / f"arrivals-{side}-{seed}"
                given = ["--rate", f"{rate_hz:g}", "--seconds", str(a.seconds), "--seed", str(seed), "--out", str(out)]
                child(side, ["server", *given, *more])
                played = read(out)
                slip_s = nearest_rank(np.sort(played.slip_ns) * 1e-9, 0.99)
                found[side].append((1e6 * slip_s, reading.gaps(played, rate_hz)["kept"]))
                shutil.rmtree(out)
        (slips, gaps), (their_slips, their_gaps) = (map(list, zip(*found[side], strict=True)) for side in found)
        yield Row(f"arrivals at {rate_hz:g}/s, p99 slip / LoadGen", "us", slips, their_slips, 0.5)
        beside, told = (their_gaps, " / LoadGen") if rate_hz > 2000.0 else ([], "")
        yield Row(f"arrivals at {rate_hz:g}/s, distance of gaps{told}", "", gaps, beside, most)


def long(a: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Time a report of a trace. Its file needs 4 bytes per reading on the disk; 2 more are kept in reserve."""
    if not a.readings:
        raise Skipped("give --readings 1e8; 1e9 take 4 GB of disk")
    for readings in map(int, a.readings):
        if shutil.disk_usage(folder).free < 6 * readings:
            raise Skipped(f"{readings:g} readings need {6e-9 * readings:.1f} GB; {folder} has less free")
        lab = long_trace_time_and_memory.long_lab(readings, 50_000)
        run = folder / f"long-{readings}"
        write(lab, run, long_trace_time_and_memory.BLOCK)
        whole, raw = list[float](), list[float]()
        for _ in range(a.times):
            hashed = -time.process_time()
            long_trace_time_and_memory.read_and_hashed_s(run / "traces" / "core.arrows")
            raw.append(hashed + time.process_time())
            alone: dict[str, float] = {}
            long_trace_time_and_memory.alone_s(run, alone)
            whole.append(alone["processor_s"])
        shutil.rmtree(run)
        asked = 5.0 if readings < 5e8 else 2.5
        yield Row(f"report of {readings:.0e} readings / their bytes", "s CPU", whole, raw, asked)


def _check_peer() -> None:
    if find_spec("mlperf_loadgen") is None:
        raise Skipped(NO_PEER)


ROWS: dict[str, Callable[[argparse.Namespace, Path], Iterator[Row]]] = {
    "start": start, "report": report, "measure": measure, "single": single, "arrivals": arrivals, "long": long,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.waiting_times",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--times", type=int, default=5, help="turns")
    parser.add_argument("--readings", type=float, nargs="+", default=[], help="long: how many, such as 1e8 1e9")
    parser.add_argument("--queries", type=int, default=1_000_000, help="single: a multiple of 1,000")
    parser.add_argument("--seconds", type=float, default=5.0, help="arrivals: length of a run")
    parser.add_argument("--priority", action="store_true", help="single, arrivals: real-time priority for both sides")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where recordings go")
    a = parser.parse_args()
    if unknown := set(a.rows) - set(ROWS):
        parser.error(f"unknown ROW {', '.join(sorted(unknown))}. Known: {', '.join(ROWS)}")
    if a.priority:
        os.environ[FIRST] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; minimum / median of {a.times}")
    print(f"{'':44} {'unit':5} {'ours':>20} {'beside it':>20} {'ratio':>7} {'asked':>7}  reached", flush=True)
    found, skipped = list[Row](), dict[str, str]()
    for name in a.rows or ROWS:
        with tempfile.TemporaryDirectory(dir=a.folder) as folder:
            try:
                for row in ROWS[name](a, Path(folder)):
                    found.append(row)
                    print(row, flush=True)
            except Skipped as why:
                skipped[name] = str(why)
                print(f"{name} is skipped: {why}", flush=True)
    rows = [asdict(row) | {"ratio": row.ratio} for row in found]
    print(json.dumps({"benchmark": "waiting_times", "rows": rows, "skipped": skipped}))


if __name__ == "__main__":
    main()
