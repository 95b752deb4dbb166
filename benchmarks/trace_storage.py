"""In which form should a trace be stored? Compares bytes per reading, speeds, and the readings left by a killed writer.

    python -m benchmarks.trace_storage [--readings 20000000] [--folder /tmp]

Each form stores the same float32 readings: those of ``--trace``, or simulated ones of a Joulescope, with bursts, noise
and the steps of its converter. They are written in blocks of a quarter of a second. If the form only appends to its
file, the file is hashed while it is written. The blocks are read back from the page cache. ``after kill`` is the share
of the readings that a file still gives when it is cut inside its last block. ``random`` (JSON only) tells whether one
block can be read without the blocks before it. Each time is the best of three, on one core. Prints a table and, last,
one JSON line.
"""

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.command_line import concluded, parser_of
from rig.types import Floats

RATE_HZ, BLOCK = 2_000_000, 500_000
ROUNDS = 3
"""Each time is the best of this many attempts."""


class Hashed:
    """A file whose SHA-256 is computed while it is written."""

    def __init__(self, path: Path) -> None:
        self._file, self._sha256, self.closed = path.open("wb", buffering=0), hashlib.sha256(), False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        return self._file.write(view)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()
        self.closed = True


@dataclass(frozen=True)
class Form:
    """A way to store a trace. ``read`` yields its blocks in order, up to the first that cannot be read."""

    write: Callable[[Path, list[Floats]], None]
    read: Callable[[Path], Iterator[Floats]]
    random: bool
    hashed: bool = True


def readings(n: int, seed: int = 1) -> Floats:
    """Return watts with a burst every 10 ms, from converter codes, noise, gain and offset; float32, shape (n,)."""
    rng = np.random.default_rng(seed)
    k = np.arange(n)
    level = np.where(k % 20_000 < 4_000, 12_000.0, 4_000.0) + 200.0 * np.sin(2.0 * np.pi * 100.0 * k / RATE_HZ)
    current = np.round(level + rng.normal(0.0, 12.0, n)) * 2.44e-6 * 1.0007 + 1.3e-6
    volts = np.round(3.3 / 2e-4 + rng.normal(0.0, 3.0, n)) * 2e-4
    return (current.astype(np.float32) * volts.astype(np.float32)).astype(np.float32)


# ---- the forms ----------------------------------------------------------------------------


def write_raw(path: Path, blocks: list[Floats]) -> None:
    file = Hashed(path)
    for block in blocks:
        file.write(block)
    file.close()


def read_raw(path: Path) -> Iterator[Floats]:
    with path.open("rb", buffering=0) as file:
        while len(data := file.read(4 * BLOCK)) >= 4:
            yield np.frombuffer(data[: len(data) // 4 * 4], np.float32)


def write_arrow(path: Path, blocks: list[Floats], codec: str | None, split: bool = False) -> None:
    file, options = Hashed(path), pa.ipc.IpcWriteOptions(compression=codec)
    names = [f"byte{k}" for k in range(4)] if split else ["value"]
    type_ = pa.uint8() if split else pa.float32()
    with pa.ipc.new_stream(file, pa.schema([(name, type_) for name in names]), options=options) as writer:
        for block in blocks:
            parts = block.view(np.uint8).reshape(-1, 4).T if split else [block]
            writer.write_batch(pa.record_batch([pa.array(np.ascontiguousarray(part)) for part in parts], names))
    file.close()


def read_arrow(path: Path) -> Iterator[Floats]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            columns = [column.to_numpy() for column in batch.columns]
            yield columns[0] if len(columns) == 1 else np.stack(columns, axis=1).view(np.float32).ravel()


def write_parquet(path: Path, blocks: list[Floats], codec: str) -> None:
    schema = pa.schema([("value", pa.float32())])
    split = {"use_dictionary": False, "column_encoding": {"value": "BYTE_STREAM_SPLIT"}, "compression": codec}
    with pq.ParquetWriter(path, schema, write_statistics=False, **split) as writer:
        for block in blocks:
            writer.write_batch(pa.record_batch([pa.array(block)], schema=schema))


def read_parquet(path: Path) -> Iterator[Floats]:
    with pq.ParquetFile(path) as file:
        for k in range(file.num_row_groups):
            yield file.read_row_group(k, use_threads=False)["value"].to_numpy()


def write_jls(path: Path, blocks: list[Floats]) -> None:
    from pyjls import DataType, SignalType, Writer

    with Writer(str(path)) as writer:
        writer.source_def(source_id=1, name="bench", vendor="", model="", version="", serial_number="")
        writer.signal_def(
            1, source_id=1, signal_type=SignalType.FSR, data_type=DataType.F32, sample_rate=RATE_HZ, name="power",
            units="W",
        )  # fmt: skip
        for k, block in enumerate(blocks):
            writer.fsr_f32(1, k * BLOCK, block)


def read_jls(path: Path) -> Iterator[Floats]:
    from pyjls import Reader

    with Reader(str(path)) as reader:
        length = reader.signals[1].length
        for at in range(0, length, BLOCK):
            yield reader.fsr(1, at, min(BLOCK, length - at))


FORMS = {
    "raw": Form(write_raw, read_raw, True),
    "Arrow": Form(partial(write_arrow, codec=None), read_arrow, True),
    "Arrow LZ4": Form(partial(write_arrow, codec="lz4"), read_arrow, True),
    "Arrow ZSTD": Form(partial(write_arrow, codec="zstd"), read_arrow, True),
    "Arrow LZ4, bytes split": Form(partial(write_arrow, codec="lz4", split=True), read_arrow, True),
    "Arrow ZSTD, bytes split": Form(partial(write_arrow, codec="zstd", split=True), read_arrow, True),
    "Parquet LZ4, BYTE_STREAM_SPLIT": Form(partial(write_parquet, codec="lz4"), read_parquet, True, False),
    "Parquet ZSTD, BYTE_STREAM_SPLIT": Form(partial(write_parquet, codec="zstd"), read_parquet, True, False),
    "JLS": Form(write_jls, read_jls, True, False),
}


# ---- measured -----------------------------------------------------------------------------


def measured(name: str, path: Path, blocks: list[Floats]) -> dict[str, Any]:
    """Measure bytes per reading, megabytes of float32 written and read per second, and the readings in a cut file."""
    form, n = FORMS[name], sum(map(len, blocks))
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        path.unlink(missing_ok=True)
        for what, call in (("write", partial(form.write, path, blocks)), ("read", partial(total, form, path))):
            began_s = time.process_time()
            call()
            times[what] = min(times.get(what, 1e9), time.process_time() - began_s)
    same = all(np.array_equal(a, b) for a, b in zip(_blocks_of(form, path), blocks, strict=True))
    row = {"bytes_per_reading": path.stat().st_size / n, "same": same}
    row |= {f"{what}_mb_per_s": 4e-6 * n / seconds for what, seconds in times.items()}
    os.truncate(path, int(path.stat().st_size * (1.0 - 0.3 / len(blocks))))
    return row | {"after_a_kill": survived(name, path) / n, "random": form.random, "hashed_as_written": form.hashed}


def total(form: Form, path: Path) -> float:
    return sum(float(block.sum(dtype=np.float64)) for block in form.read(path))


def _blocks_of(form: Form, path: Path) -> Iterator[Floats]:
    held = np.concatenate([*form.read(path)])
    return iter(np.split(held, range(BLOCK, len(held), BLOCK)))


def survived(name: str, path: Path) -> int:
    """Return the number of readings in a cut file; 0 if reading it ends the process."""
    with ProcessPoolExecutor(1) as pool:
        try:
            return pool.submit(_read_before_the_cut, name, path).result()
        except BrokenExecutor:
            return 0


def _read_before_the_cut(name: str, path: Path) -> int:
    found = 0
    with suppress(Exception):
        for block in FORMS[name].read(path):
            found += len(block)
    return found


def main() -> int:
    parser = parser_of(__doc__, readings=20_000_000, folder=Path(tempfile.gettempdir()))
    parser.add_argument("--trace", type=Path, help="float32, little-endian, instead of simulated readings")
    a = parser.parse_args()
    pa.set_cpu_count(1)
    value = readings(a.readings) if a.trace is None else np.fromfile(a.trace, np.float32, a.readings)
    blocks = [value[at : at + BLOCK] for at in range(0, len(value), BLOCK)]
    rows = {}
    print(f"{'form':34}{'B/reading':>10}{'write MB/s':>12}{'read MB/s':>12}{'after kill':>12}{'hashed':>8}")
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        for name in FORMS:
            row = rows[name] = measured(name, Path(folder) / "trace", blocks)
            cells = [f"{row['bytes_per_reading']:10.3f}{row['write_mb_per_s']:12.0f}{row['read_mb_per_s']:12.0f}"]
            cells.append(f"{row['after_a_kill']:12.1%}{row['hashed_as_written']!s:>8}")
            print(f"{name:34}" + "".join(cells))
    same = all(row["same"] for row in rows.values())
    return concluded({"benchmark": "trace_storage", "readings": len(value), "forms": rows, "pass": same}, same)


if __name__ == "__main__":
    sys.exit(main())
