"""Does a 34465A at 50,000 readings/s lose readings, how much CPU time does reading cost, and is the energy right?

    python -m benchmarks.scpi_stream --seconds 60

The instrument is the simulator of ``fixtures.instruments.scpi_dmm_sim`` in a separate process. Its memory fills in real
time, and it measures a plant on which a simulated device works, also in real time. Four runs pass through engine, disk
and estimators. In the first two, the link is sound; in the second, the instrument has no gain error, so the interval is
narrower. In the last two, the link falls silent for 2 s. The memory then has space for 2,000,000 readings (MEM), or
only for the 50,000 of one second. The first three runs must lose nothing and contain the truth. The last must end with
the error that readings were lost, and the recording up to this point must be readable.

Prints a table and, last, one JSON line. Exits 1 if a goal is missed.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from benchmarks.command_line import concluded, parser_of
from drivers.meters.scpi.truevolt import open_meter
from fixtures.bench.live_plant import LivePlant, RealClock
from fixtures.bench.mock_device import open_device
from fixtures.bench.true_power import SimPlant
from fixtures.instruments.front_end import Wiring
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiServer
from fixtures.worlds.random_draw import blank, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import MeterError, RigError
from rig.recording.reader import open_run
from rig.types import Issue, Step
from scenarios.idle_and_warmup import framed

RATE_HZ, RANGE_A, SUPPLY_V = 50_000.0, 0.1, 1.8
SPAN_S, IDLE_S = 0.1, 1.0
GAIN_LIMIT, OFFSET_LIMIT = 5e-4, 1e-4
WITHIN = {"sound": 1.0, "exact": 1.7, "stall, MEM": 1.0}
"""The largest allowed error in half-widths (95 %). Noise alone exceeds 1.0 in 5 % of runs, and 1.7 in 0.1 %."""
STALL_S = 2.0
FIGURE = FigureKey("dynamic_energy_per_inference_j")
CPU_GOAL = 0.5
"""The allowed CPU use of the whole reading process, in cores: engine, device, meter and recorder."""


class Instrument:
    """The simulated instrument on its plant, in the manager's process."""

    def __init__(self, options: str, seed: int, gain: float) -> None:
        wiring = Wiring(gain_limit=gain, offset_limit=OFFSET_LIMIT, supply_v=SUPPLY_V, ready_s=0.25, seed=seed)
        self._plant = LivePlant()
        self._sim = TruevoltSim(self._plant, wiring, options=options.split(","))
        self._server = ScpiServer(self._sim)
        self.install, self.occupy = self._plant.install, self._plant.occupy
        self.counts, self.stall = self._sim.counts, self._server.stall

    def address(self) -> str:
        return self._server.address


class Simulators(BaseManager):
    """The manager of a separate process for one instrument."""

    instrument: Any


Simulators.register("instrument", Instrument, exposed=("install", "occupy", "counts", "stall", "address"))


class FarPlant(SimPlant):
    """The instrument's plant in the other process, with a copy of the truth in this process."""

    def __init__(self, instrument: Any) -> None:
        super().__init__(RealClock())
        self._far = instrument

    def install(self, idle_w: Mapping[str, float], phase_w: Mapping[str, Mapping[str, float]]) -> None:
        """Declare the rails' watts in this and the other process."""
        super().install(idle_w, phase_w)
        self._far.install(self.idle_w, self.phase_w)

    def occupy(self, phase: str, on_ns: int, off_ns: int) -> None:
        """Simulate a phase's power in this process and the other."""
        super().occupy(phase, on_ns, off_ns)
        self._far.occupy(phase, on_ns, off_ns)


def calibration(folder: Path, gain: float) -> Path:
    """Write a calibration file with the simulator's true limits of error."""
    today = datetime.now(UTC).date()
    path = folder / "calibration.toml"
    path.write_text(
        f'instrument = "34465A"\nserial = "SIM0000001"\nreference = "the simulator\'s own limits"\n'
        f"valid_from = {today - timedelta(days=1)}\nvalid_until = {today + timedelta(days=1)}\n"
        f'[[range]]\nunit = "A"\nfull_scale = {RANGE_A}\n'
        f"of_reading_percent = {gain * 100}\nof_range_percent = {OFFSET_LIMIT * 100}\n"
    )
    return path


def steps(instrument: Any, n: int, stall_s: float) -> Iterator[Step]:
    """Yield a single stream of samples whose link falls silent after half of them."""
    for number, sample in enumerate(blank(n).samples):
        if stall_s and number == n // 2:
            instrument.stall(stall_s)
        yield Issue([sample])


def run(options: str, seconds: float, stall_s: float, seed: int, gain: float = GAIN_LIMIT) -> dict[str, Any]:
    """Make one run; return readings read and lost, the CPU use, and the dynamic energy against the truth."""
    n = max(8, int((seconds - 2.0 * IDLE_S - 0.5) / (SPAN_S + 0.002)))
    row: dict[str, Any] = {"options": options, "stall_s": stall_s, "error": None}
    with tempfile.TemporaryDirectory() as text, Simulators() as manager:
        folder, instrument = Path(text), manager.instrument(options, seed, gain)
        plant = FarPlant(instrument)
        device = open_device(plant, idle_w=0.02, inference_w=0.06, inference_s=SPAN_S)
        meter = open_meter(
            address=instrument.address(),
            rate_hz=RATE_HZ,
            range_max=RANGE_A,
            supply_v=SUPPLY_V,
            calibration=str(calibration(folder, gain)),
        )
        bench, work = Bench(device, (meter,), plant.clock), blank(n)
        played = framed(steps(instrument, n, stall_s), work, IDLE_S, 0)
        began_s, cpu_s = time.monotonic(), time.process_time()
        try:
            record(folder / "run", bench, work, played, scenario={"name": "stream"}, argv=[])
        except RigError as error:
            row |= {"error": type(error).__name__, "said": error.message}
        row |= {"seconds": time.monotonic() - began_s, "cpu": time.process_time() - cpu_s}
        counts = instrument.counts()
        meter.close()
        recording = open_run(folder / "run")
        result = evaluate(recording)
        done = len(recording.replies)
        row |= {"readings": len(recording.traces["core"].value), "dropped": counts["dropped"], "spans": done}
        row["left_behind"] = counts["taken"] - row["readings"]
        if (q := result.quantities.get(FIGURE)) is not None and row["error"] is None:
            real = truth(plant, "inference", n)["dynamic_power_w"] * truth(plant, "inference", n)["execution_time_s"]
            row |= {"energy_j": q.value, "truth_j": real, "off": (q.value - real) / q.half_width()}
            row["half_relative"] = q.half_width() / q.value
    return row


def verdict(rows: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Return each goal, and whether it is met."""
    whole = [rows[name] for name in WITHIN]
    lost = rows["stall, no MEM"]
    return {
        "nothing_lost": all(r["left_behind"] == 0 and r["dropped"] == 0 and r["error"] is None for r in whole),
        "energy_within": all(abs(rows[name].get("off", 9.0)) <= most for name, most in WITHIN.items()),
        "cpu": rows["sound"]["cpu"] / rows["sound"]["seconds"] <= CPU_GOAL,
        "overflow_told": lost["error"] == MeterError.__name__ and "overflowed" in lost["said"] and lost["dropped"] > 0,
        "readable": lost["readings"] > 0 and lost["spans"] > 0,
    }


def main() -> int:
    parser = parser_of(__doc__, seed=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the first run")
    parser.add_argument("--stalled-seconds", type=float, default=12.0, help="length of each other run")
    a = parser.parse_args()
    rows = {
        "sound": run("DIG,MEM", a.seconds, 0.0, a.seed),
        "exact": run("DIG,MEM", a.stalled_seconds, 0.0, a.seed + 3, gain=0.0),
        "stall, MEM": run("DIG,MEM", a.stalled_seconds, STALL_S, a.seed + 1),
        "stall, no MEM": run("DIG", a.stalled_seconds, STALL_S, a.seed + 2),
    }
    heads = ("seconds", "readings", "dropped", "unread", "CPU", "energy, J", "truth, J", "half, ppm", "off/half")
    print(f"{'link':16}" + "".join(f"{h:>12}" for h in heads))
    for name, r in rows.items():
        cells = [f"{r['seconds']:.1f}", f"{r['readings']}", f"{r['dropped']}", f"{r['left_behind']}"]
        cells.append(f"{r['cpu'] / r['seconds']:.1%}")
        if "off" in r:
            cells += [f"{r['energy_j']:.7g}", f"{r['truth_j']:.7g}"]
            cells += [f"{r['half_relative'] * 1e6:.0f}", f"{r['off']:+.2f}"]
        else:
            cells += ["-"] * 4
        print(f"{name:16}" + "".join(f"{c:>12}" for c in cells) + (f"   {r['error']}" if r["error"] else ""))
    if said := rows["stall, no MEM"].get("said"):
        print(f"it said: {said}")
    goals = verdict(rows)
    passed = all(goals.values())
    return concluded({"benchmark": "scpi_stream", "runs": rows, "goals": goals, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
