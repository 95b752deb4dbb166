"""Hostile files for every importer: each file must give a typed error, or a run that can be read and evaluated.

    python -m benchmarks.fuzz_importers [--inputs 10000] [--only ppk2] [--seed 0]

Each input is a small recording, valid or with strange values, with up to three mutations. A mutation cuts a file off;
drops, doubles or swaps lines; flips bytes; makes numbers NaN, 1e308, negative or repeated; or changes headers or
options. Prints how many inputs were tried, how many became a run, and which errors the others raised. Any error other
than a ``RigError`` is a failure; the first three of each importer are printed with their seeds.
"""

import collections
import re
import shutil
import struct
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of
from benchmarks.import_cases import Case, cases
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import RigError
from rig.importing.imported import ImportedRun
from rig.importing.write import write
from rig.plugins import load
from rig.recording.reader import open_run

HOSTILE = (
    "nan", "inf", "-inf", "1e308", "-1e308", "1e400", "-1", "0", "", "x", "99999999999999999999", "1e-320", "-0.5",
)  # fmt: skip


def main() -> int:
    """Fuzz each importer; return the exit code: 1 if an input gave anything but a run or a typed error."""
    parser = parser_of(__doc__, seed=0)
    parser.add_argument("--inputs", type=int, default=10_000, help="per importer")
    parser.add_argument("--only", help="one importer")
    args = parser.parse_args()
    failed = 0
    for name, case in cases().items():
        if args.only in (None, name):
            failed += fuzz(name, case, args.inputs, args.seed)
    return 1 if failed else 0


def fuzz(name: str, case: Case, inputs: int, seed: int) -> int:
    """Try ``inputs`` mutated inputs of one case and print the counts. Return the number of failures."""
    tally: collections.Counter[str] = collections.Counter()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for k in range(inputs):
            try:
                tally[attempt(case, np.random.default_rng([seed, k]) if k else None, Path(folder) / "work")] += 1
            except Exception:
                tally["FAILED"] += 1
                if tally["FAILED"] <= 3:
                    print(f"{name}, seed {seed}, input {k}:\n{traceback.format_exc()}")
    took = time.perf_counter() - began
    parts = ", ".join(f"{count} {what}" for what, count in tally.most_common())
    print(f"{name}: {inputs} inputs in {took:.0f} s: {parts}", flush=True)
    return tally["FAILED"]


def attempt(case: Case, rng: np.random.Generator | None, work: Path) -> str:
    """Import, write, read back and evaluate one mutated case (without ``rng``, the case itself). Return the outcome.

    Errors other than ``RigError`` are raised. So are warnings, and errors for figures that are not finite numbers.
    """
    shutil.rmtree(work, ignore_errors=True)
    factory = load("importers", case.format)
    options = lay_out(case, work, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = factory(work / case.source, **options)
            runs: list[ImportedRun] = found if isinstance(found, list) else [found]
            for k, imported in enumerate(runs):
                recording = open_run(write(imported, work / "out" / str(k)))
                figures = recorder_figures(recording) | evaluate(recording).quantities
                assert all(np.isfinite(q.value) for q in figures.values()), "a figure that is no number"
        except RigError as error:
            return type(error).__name__
    return "valid runs"


def lay_out(case: Case, work: Path, rng: np.random.Generator | None) -> dict[str, Any]:
    """Write the files, mutated by ``rng``; return the options with complete paths."""
    files = dict(case.files)
    options = dict(case.options)
    if rng is not None:
        remade = case.remake is not None and rng.random() < 0.3
        if case.remake is not None and remade:
            files[case.source] = case.remake(rng)
        for _ in range(rng.integers(0 if remade else 1, 4)):
            name = str(rng.choice([n for n in sorted(files) if not remade or n != case.source]))
            files[name] = mutated(files[name], rng)
        if rng.random() < 0.05:
            del files[str(rng.choice(sorted(files)))]
        if rng.random() < 0.1 and options:
            options.pop(str(rng.choice(sorted(options))))
    for name, content in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    work.mkdir(exist_ok=True)
    return {k: str(work / v) if k == "windows" else v for k, v in options.items()}


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the data, text or bytes, with one mutation."""
    text = b"\0" not in data[:64]
    return TEXT[rng.integers(len(TEXT))](data, rng) if text else BINARY[rng.integers(len(BINARY))](data, rng)


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(len(data) + 1)]


def _flip(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        if out:
            out[rng.integers(len(out))] = rng.integers(256)
    return bytes(out)


def _numbers(data: bytes, rng: np.random.Generator) -> bytes:
    """Replace one number, or all numbers in a stretch, by a hostile number."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data))
    if not found:
        return data
    first = rng.integers(len(found))
    last = first + (rng.integers(1, 30) if rng.random() < 0.3 else 1)
    for match in reversed(found[first:last]):
        data = data[: match.start()] + str(rng.choice(HOSTILE)).encode() + data[match.end() :]
    return data


def _scale(data: bytes, rng: np.random.Generator) -> bytes:
    """Multiply one number by a power of ten, negate it, or repeat its neighbour."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data))
    if len(found) < 2:
        return data
    k = rng.integers(1, len(found))
    value = float(found[k][0]) * 10.0 ** rng.integers(-9, 10) * rng.choice([-1, 1])
    new = found[k - 1][0] if rng.random() < 0.3 else f"{value:.9g}".encode()
    return data[: found[k].start()] + new + data[found[k].end() :]


def _lines(data: bytes, rng: np.random.Generator) -> bytes:
    """Drop, double, swap or reverse lines, add a blank line, or add cells to a line."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    a, b = sorted(rng.integers(len(lines), size=2))
    what = rng.integers(6)
    if what == 0:
        del lines[a : b + 1]
    elif what == 1:
        lines[a:a] = lines[a : b + 1]
    elif what == 2:
        lines[a], lines[b] = lines[b], lines[a]
    elif what == 3:
        lines.insert(a, b"\n")
    elif what == 4:
        lines[a : b + 1] = lines[a : b + 1][::-1]
    else:
        lines[a] = lines[a].rstrip(b"\r\n") + b",1,2\n"
    return b"".join(lines)


def _header(data: bytes, rng: np.random.Generator) -> bytes:
    """Change separators, line ends, quotes, letters, digits or units, and sometimes add a byte-order mark."""
    swaps = [
        (b",", b";"), (b"\n", b"\r\n"), (b"\n", b"\r"), (b".", b","), (b"m", b"k"), (b"(", b"["), (b'"', b"'"),
        (b"u", "µ".encode()), (b"W", b"J"), (b"1", b"\xff"), (b"e", b"\0"), (b":", b" "), (b",", b",,"),
        (b"\n", b"\n\n"),
    ]  # fmt: skip
    old, new = swaps[rng.integers(len(swaps))]
    limit = 1 if rng.random() < 0.5 else -1
    data = data.replace(old, new, limit)
    return (b"\xef\xbb\xbf" + data) if rng.random() < 0.2 else data


def _empty(data: bytes, rng: np.random.Generator) -> bytes:
    return [b"", b"\n", b"\xef\xbb\xbf", b"\0" * 50, b"[" * 5000, data.splitlines(True)[0] if data else b""][
        rng.integers(6)
    ]


def _splice(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = sorted(rng.integers(len(data) + 1, size=2))
    return data[:a] + data[b:] if rng.random() < 0.5 else data[:b] + data[a:]


def _floats(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite a 4-byte group with a hostile float."""
    if len(data) < 8:
        return data
    at = 1 + 4 * int(rng.integers((len(data) - 1) // 4 or 1))
    value = float(rng.choice([np.nan, np.inf, -np.inf, 3e38, -1.0, 0.0, 1e-40, 1e30]))
    return data[:at] + struct.pack("<f", value) + data[at + 4 :]


TEXT = (_cut, _flip, _numbers, _numbers, _numbers, _scale, _scale, _lines, _lines, _header, _empty, _splice)
BINARY = (_cut, _flip, _flip, _floats, _floats, _splice)


if __name__ == "__main__":
    sys.exit(main())
