"""One small valid recording for every importer; ``fuzz_importers.py`` and the tests start from it."""

import importlib.util
import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rig.types import Bools, Floats

Files = dict[str, bytes]
WINDOWS = b"start,end,phase,inferences\n0,0.05,idle,\n0.06,0.1,inference,3\n0.11,0.15,inference,3\n0.16,0.2,idle,\n"
N = 200


@dataclass(frozen=True)
class Case:
    """One importer: a valid recording, the path of its source, and the options for the import.

    ``remake`` returns a source with strange but well-formed content.
    """

    format: str
    files: Files
    source: str
    options: dict[str, Any] = field(default_factory=dict)
    remake: Callable[[np.random.Generator], bytes] | None = None


def cases() -> dict[str, Case]:
    """Return one small valid recording per importer, by name. Without pyjls, there is none in JLS."""
    t = np.arange(N) * 1e-3
    busy, watts = _trace(t)
    given = {"windows": "windows.csv"}
    aside = {"windows.csv": WINDOWS}
    marked = rows("Timestamp(ms),Current(uA),D0", t * 1e3, watts / 3.0 * 1e6, busy)
    plain = rows("t,p,v", t, watts, 3.0 + 0.0 * t)
    watch = b"\xef\xbb\xbfIntel(R) SoC Watch\n\nPackage Power\n" + rows(
        "Sample Time (ms),Package (mW),Core (mW)", t * 1e3, watts * 1e3, watts * 500
    )
    summary = b"\nSummary\nComponent,Average Rate (mW),Total (mJ)\n---,---,---\nPackage,2.0,0.4\n"
    statistics = _statistics(t)
    found = {
        "energyrunner": Case("energyrunner", _energyrunner(watts), "."),
        "mlperf-power": Case("mlperf-power", _mlperf(), "."),
        "joulescope-csv": Case("joulescope-csv", aside | {"a.csv": statistics}, "a.csv", given),
        "ppk2": Case("ppk2", {"a.csv": marked}, "a.csv",
                     {"supply_v": 3.0, "window_channel": "D0", "idle": "0:0.05,0.16:0.2", "inferences": 3}),
        "otii": Case("otii", aside | {
            "o/Main current - Arc.csv": rows("Timestamp,Value", t, watts / 3.0),
            "o/Main voltage - Arc.csv": rows("Timestamp,Value", t, 3.0 + 0.0 * t)}, "o", given),
        "socwatch": Case("socwatch", aside | {"a.csv": watch + summary}, "a.csv", given | {"rails": "Package"}),
        "plain-csv": Case("plain-csv", aside | {"a.csv": plain}, "a.csv", given | {"time": "t:s", "power": "p:W"}),
        "raw-numbers": Case("raw-numbers", aside | {"a.f32": watts.astype("<f4").tobytes()}, "a.f32",
                            given | {"rate_hz": 1e3}),
    }  # fmt: skip
    if importlib.util.find_spec("pyjls"):
        found["joulescope-jls"] = Case("joulescope-jls", aside | {"a.jls": _jls()}, "a.jls", given, _jls)
    return found


def _trace(begin_s: Floats) -> tuple[Bools, Floats]:
    """Return whether the device is busy, and mean watts, in readings of 1 ms that begin at these times."""
    busy = ((begin_s >= 0.06) & (begin_s < 0.1)) | ((begin_s >= 0.11) & (begin_s < 0.15))
    return busy, 1e-3 + 2e-3 * busy + np.random.default_rng(1).normal(0.0, 1e-5, N)


def _statistics(end_s: Floats) -> bytes:
    """Return rows with the means up to the row's time, and the charge and energy since the first row's time."""
    _, watts = _trace(np.round(end_s - 1e-3, 9))
    since_j = np.cumsum(watts * 1e-3) - watts[0] * 1e-3
    head = "#time,current,voltage,power,charge,energy"
    return rows(head, end_s, watts / 3.0, 3.0 + 0.0 * end_s, watts, since_j / 3.0, since_j)


def rows(head: str, *columns: Any) -> bytes:
    """Return a CSV with one header line."""
    lines = [",".join(f"{x:.9g}" for x in row) for row in zip(*columns, strict=True)]
    return "\n".join([head, *lines, ""]).encode()


def _energyrunner(watts: Floats) -> Files:
    energy = struct.pack("<Bf", 0xF1, 1000.0) + (watts * 1e3).astype("<f4").tobytes()
    log = (
        '00001.000 parser: Command "emon trace on trace1"\n00001.060 io: [dut]: m-infer-start-10\n'
        "00001.100 io: [dut]: m-infer-done\n00001.110 io: [dut]: m-infer-start-10\n00001.150 io: [dut]: m-infer-done\n"
        '00001.151 parser: Command "echo tail 1000"\n'
        "00002.151 parser: m-echo-message[tail]\n00002.200 emon: m-trace[off]\n"
    )
    script = "[{cmd: 'emon trace on trace1'},\n{cmd: 'io dut infer 10 1'},\n{cmd: 'io dut infer 10 1', ms: -1}]"
    return {
        "r/trace1-energy.bin": energy, "r/trace1-timestamps.json": b"[0.001, 0.06, 0.1, 0.11, 0.15]",
        "r/log.txt": log.encode(), "r/script.async": script.encode(),
        "r/results.txt": b"00001.1 ulp-ml:   # Inferences :         10\n" * 2,
    }  # fmt: skip


def _mlperf() -> Files:
    files: Files = {}
    for folder, hour in (("ranging", 8), ("run_1", 9)):
        level = [100.0 + 50.0 * (20 <= k < 80) + 0.1 * (k % 3) for k in range(100)]
        files[f"{folder}/spl.txt"] = "".join(
            f"Time,07-12-2024 {hour:02}:{k // 60:02}:{k % 60:02}.500,Watts,{w:.3f},Volts,230.0,Amps,1.0,PF,0.9,Mark,m,"
            f"Ch1,Watts,{w:.3f},Volts,230.0,Amps,1.0,PF,0.9\n"
            for k, w in enumerate(level)
        ).encode()
        said = {
            "power_begin": f"07-12-2024 {hour:02}:00:20.100", "power_end": f"07-12-2024 {hour:02}:01:20.100",
            "result_query_count": 60, "effective_samples_per_query": 1, "effective_scenario": "SingleStream",
        }  # fmt: skip
        lines = [f":::MLLOG {json.dumps({'key': k, 'value': v})}\n" for k, v in said.items()]
        files[f"{folder}/mlperf_log_detail.txt"] = "".join(lines).encode()
    return files


def _jls(rng: np.random.Generator | None = None) -> bytes:
    """Return a JLS file; with ``rng``, one with strange definitions and valid checksums."""
    from pyjls import DataType, Writer

    rate = 1000 if rng is None else int(rng.choice([1, 7, 1000, 1001, 2**31 - 1, 2**32 - 1]))
    names = ["current", "voltage", "power"]
    units = {"current": "A", "voltage": "V", "power": "W"}
    t = np.arange(N) * 1e-3
    values = (1e-3 + 2e-3 * ((t >= 0.06) & (t < 0.15))).astype(np.float32)
    if rng is not None:
        names = [str(n) for n in rng.choice([*names, "x"], size=rng.integers(0, 4))]
        values = values[: rng.choice([0, 1, 2, 50, N])]
        values = np.where(rng.random(len(values)) < 0.1, rng.choice([np.nan, np.inf, 3e38, -1.0]), values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jls"
        with Writer(str(path)) as out:
            out.source_def(source_id=1, name="js", vendor="v", model="m", version="1", serial_number="1")
            for k, name in enumerate(names, start=1):
                unit = units.get(name, "") if rng is None or rng.random() < 0.9 else "mW"
                out.signal_def(k, source_id=1, sample_rate=rate, name=name, units=unit, data_type=DataType.F32)
                own = {"current": values / 3.0, "voltage": 0.0 * values + 3.0} if rng is None else {}
                if len(values):
                    start = 0 if rng is None else int(rng.choice([0, 5]))
                    out.fsr_f32(k, start, own.get(name, values).astype(np.float32))
        return path.read_bytes()
