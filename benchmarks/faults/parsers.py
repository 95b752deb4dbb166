"""Give hostile text and bytes to every parser of foreign input: users' files, recordings, and instruments' data.

Each input is a small valid input, most with one to three mutations. The parser must read it, or refuse it with a typed
error.
"""

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.forge import unpacked, workplace
from benchmarks.faults.hostile import MARK, change, hostile, with_raw
from benchmarks.faults.tally import Outcome, Tally, spread, tried
from benchmarks.fuzz_importers import lay_out, mutated
from benchmarks.import_cases import Case, cases
from drivers.devices.xylo.networks.network import SHIPPED, load_network
from drivers.importers import windows as importer_windows
from drivers.meters.lpm01a.stream import Stream
from drivers.meters.ppk2.words import TYPICAL, modifiers_of
from drivers.meters.serial_text.lines import layout_of
from rig.bench import bench_file, calibration
from rig.factories import split_options
from rig.plugins import load
from rig.recording.columns.stored import batches_of
from rig.recording.columns.table_reading import read_table
from rig.recording.columns.tables import TABLES
from rig.recording.disk.decoding import decode
from rig.recording.disk.files import Folder, Opened
from rig.recording.session_json import open_session
from rig.recording.traces import traces

EXAMPLES = Path("examples")


@dataclass(frozen=True)
class Parser:
    """Valid inputs to mutate. ``read`` reads a file with a mutated input; the files ``beside`` lie next to it."""

    name: str
    valid: tuple[bytes, ...]
    read: Callable[[Path], object]
    file: str = "input"
    beside: tuple[tuple[str, bytes], ...] = ()
    share: float = 1.0
    """The share of the inputs that are tried; smaller if one input takes long."""


def parsers(golden: Path) -> Iterator[Parser]:
    """Yield every parser except the importers; ``golden`` contains unpacked recordings."""
    run, session = golden / "single-two-phases-repeat", golden / "single-session"
    bench, limits = (EXAMPLES / "bench.toml").read_bytes(), (EXAMPLES / "calibration.toml").read_bytes()
    lines = tuple(line for events in sorted(golden.rglob("events.jsonl")) for line in events.read_bytes().splitlines())
    yield Parser("line of events.jsonl", lines, lambda f: _decoded(f.read_bytes()))
    named = (("calibration.toml", limits), *((f.name, f.read_bytes()) for f in sorted(EXAMPLES.glob("*.py"))))
    yield Parser("bench.toml", (bench,), _bench, "bench.toml", named, 0.1)
    yield Parser("calibration", (limits,), calibration.load, "calibration.toml")
    yield Parser("session.json", ((session / "session.json").read_bytes(),), lambda f: open_session(f.parent),
                 "session.json")  # fmt: skip
    table = b"start,end,phase,inferences\n0,0.05,idle,\n0.06,0.1,inference,3\n0.11,0.15,inference,3\n"
    yield Parser("windows of an import", (table,), importer_windows.read_windows, "windows.csv")
    yield Parser("trace", tuple(f.read_bytes() for f in sorted((run / "traces").iterdir())),
                 _trace)  # fmt: skip
    for name in TABLES:
        if (file := run / f"{name}.arrows").is_file():
            yield Parser(f"table {name}", (file.read_bytes(),), partial(_table, name))
    yield Parser("network of Xylo", (SHIPPED.read_bytes(),), load_network, share=0.05)
    typical = {key: value if isinstance(value, tuple) else (value,) * 5 for key, value in TYPICAL.items()}
    calibrated = "".join(f"{key}{k}: {value}\n" for key, own in typical.items() for k, value in enumerate(own))
    yield Parser("calibration of a PPK2", (calibrated.encode() + b"END",),
                 lambda f: modifiers_of(f.read_bytes().decode("latin-1")))  # fmt: skip
    layout = layout_of("n:count,t:us,core:mA,io:mW", ",")
    yield Parser("line of a serial meter", (b"17,1234567,3.25,-0.5",),
                 lambda f: layout.row(f.read_bytes().decode("latin-1")))  # fmt: skip
    words = bytes([0xF0, 0xF3, 0, 0, 0, 1, 0, 0xFF, 0xFF]) + bytes(range(0x40, 0x70)) + b"\xf0\xf2"
    yield Parser("words of an LPM01A", (words,), lambda f: Stream().feed(f.read_bytes()))
    taker: dict[str, Any] = {"device": load("devices", "mock"), "meter": load("meters", "mock")}
    yield Parser("options", (b"inference_s=0.02\ndevice.timeout_s=3\nrate_hz=500",),
                 lambda f: split_options(f.read_bytes().decode("latin-1").splitlines(), taker))  # fmt: skip


def _decoded(line: bytes) -> object:
    kind = re.search(rb'"type": ?"(\w+)"', line)
    return decode(line, kind[1].decode() if kind else "chunk", 1)


def _table(name: str, file: Path) -> object:
    return read_table(Opened(Folder.at(file.parent), file.name), name, [])


def _bench(file: Path) -> object:
    found, problems = bench_file.examine(file)
    for problem in problems:
        raise problem.error
    return found


def _trace(file: Path) -> object:
    batches = batches_of(Opened(Folder.at(file.parent), file.name), [])
    return None if batches is None else traces.read_trace(batches, {"meter": 1e6}, traces.AT_ONCE)


def spoilt(data: bytes, seed: Sequence[int]) -> bytes:
    """Return ``data`` with one or two changed fields in seven of ten JSON texts, else with one to three mutations.

    The last number of ``seed`` is the number of the input; number 0 is the valid input.
    """
    if not seed[-1]:
        return data
    rng = np.random.default_rng(seed)
    if data[:1] == b"{" and rng.random() < 0.7:
        draw = random.Random(str(seed))
        document = json.loads(data)
        for _ in range(int(rng.integers(1, 3))):
            change(document, draw, MARK if draw.random() < 0.2 else hostile(draw))
        try:
            return with_raw(document, draw)
        except RecursionError:  # a deep list inside a deep list
            return b"[" * 3000
    for _ in range(int(rng.integers(1, 4))):
        data = mutated(data, rng)
    return data


def campaign(inputs: int, seed: int, workers: int) -> Iterator[Tally]:
    """Try ``inputs`` mutated inputs of each parser and importer; slow ones get fewer."""
    with workplace() as place:
        golden = Path(place) / "golden"
        for archive in ("single-two-phases-repeat", "single-session", "qubo-cpu-sa", "import-plain-csv"):
            unpacked(archive, golden)
        importers = {f"import {name}": 0.02 if name == "joulescope-jls" else 0.1 for name in cases()}
        for name, share in ({p.name: p.share for p in parsers(golden)} | importers).items():
            yield spread(name, round(share * inputs), workers, partial(counted, name, golden, seed))


def counted(name: str, golden: Path, seed: int, numbers: range) -> Tally:
    """Try the inputs with these numbers on one parser or importer."""
    tally = Tally(name)
    with tempfile.TemporaryDirectory(dir=golden.parent) as place:
        attempt = _attempt(name, golden, Path(place), seed)
        for number in numbers:
            tally.add(f"input {number}", *attempt(number))
    return tally


def _attempt(name: str, golden: Path, place: Path, seed: int) -> Callable[[int], tuple[Outcome, str]]:
    if name.startswith("import "):
        case = cases()[name.removeprefix("import ")]
        return lambda number: tried(lambda: _imported(case, place / "work", np.random.default_rng([seed, number])))
    parser = next(p for p in parsers(golden) if p.name == name)
    if parser.file == "session.json":
        shutil.copytree(golden / "single-session", place, dirs_exist_ok=True)
        (place / "session.json.sha256").unlink(missing_ok=True)
    for other, content in parser.beside:
        (place / other).write_bytes(content)
    file = place / parser.file

    def one(number: int) -> tuple[Outcome, str]:
        file.write_bytes(spoilt(parser.valid[number % len(parser.valid)], (seed, number)))
        outcome, said = tried(lambda: parser.read(file))
        if not number and outcome is not Outcome.WHOLE:
            return Outcome.NOT_TRIED, f"the valid input is not read: {said}"
        return outcome, said

    return one


def _imported(case: Case, work: Path, rng: np.random.Generator) -> object:
    shutil.rmtree(work, ignore_errors=True)
    options = lay_out(case, work, rng)
    return load("importers", case.format)(work / case.source, **options)
