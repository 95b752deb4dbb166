"""What all meters have in common, on simulated instruments in real time: rules, times, energy, loss, options."""

import inspect
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.instruments.front_end import Wiring
from fixtures.instruments.powercap_tree import RANGE_UJ, TreeZone
from fixtures.instruments.text_board import Sketch
from fixtures.worlds.random_draw import truth
from rig.conformance.device import check_meter
from rig.errors import MeterError, MeterSilentError, UsageError
from tests.support.instruments import live
from tests.support.meters import check_figures, computed, ended, values
from tests.support.raised import raised
from tests.support.scpi_bench import calibration

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("quiet_soon")]

pytest.importorskip("serial", reason="extra serial is not installed")

Options = dict[str, Any]
NAN = float("nan")
COUNTED: Options = {"columns": "n:count, core:mW", "rate_hz": 200.0, "kind": "mean"}
EXACT_33 = Wiring(supply_v=3.3, noise=1e-6, gain_limit=0.0, offset_limit=0.0, resolution=0.0)
WRAPS_SOON = {"intel-rapl:0": TreeZone("package-0", {"core": 1.0}, begin_uj=RANGE_UJ - 5_000_000)}
FINE = Wiring(noise=1e-5, gain_limit=0.0, offset_limit=0.0, resolution=1e-6)


@pytest.mark.parametrize(("name", "how", "options", "rule"), [
    ("ppk2", {}, {}, "read.count"), ("ppk2", {}, {"mark_channel": "D0"}, "edges.order"),
    ("otii", {}, {}, "read.count"), ("otii", {"lacks": ("otii_is_logged_in",)}, {}, "read.count"),
    ("joulescope", {}, {}, "read.count"), ("joulescope", {}, {"mark_input": 0}, "edges.order"),
    ("lpm01a", {}, {"rate_hz": 1e3}, "read.count"), ("lpm01a", {}, {"rate_hz": 1e4}, "read.count"),
    ("scpi-dmm", {}, {"rate_hz": 20_000}, "read.count"), ("scpi-smu", {}, {}, "read.count"),
    ("dmm6500", {}, {"rate_hz": 1e3}, "read.count"), ("dmm6500", {}, {"rate_hz": 2e5}, "read.count"),
    ("rapl", {}, {"rate_hz": 200}, "chunk.grow"), ("nvml", {}, {}, "chunk.grow"),
    ("nvml", {}, {"source": "instant", "rate_hz": 50.0}, "rail.unit"),
    ("serial-text", {}, {}, "chunk.grow"),
    ("serial-text", {"sketch": Sketch("count:count,core:mW")}, COUNTED, "read.count"),
    ("serial-text", {"sketch": Sketch("core:mA")},
     {"columns": "core:mA", "supply_v": "1.8", "rate_hz": 200.0}, "read.count"),
    ("serial-text", {"sketch": Sketch("time:us,v:V,core:mA")},
     {"columns": "time:us, v:V, core:mA", "voltage": "v"}, "chunk.grow"),
    ("serial-text", {"sketch": Sketch("time:us,core:mJ")}, {"columns": "time:us, core:mJ"}, "chunk.grow"),
    ("serial-text", {"sketch": Sketch("core:mJ")}, {"columns": "core:mJ", "rate_hz": 200.0}, "read.count"),
])  # fmt: skip
def test_a_meter_passes(name: str, how: Options, options: Options, rule: str) -> None:
    with live(name, **how) as instrument:
        checked = check_meter(instrument.open(**options), clock=instrument.plant.clock, seconds=0.3)
        language = getattr(instrument.sim, "language", None)
    assert {rule, "start.again"} <= set(checked)
    assert language is None or language.failures == []


@pytest.mark.parametrize(("name", "how", "options", "rel"), [
    ("ppk2", {}, {}, 5e-3), ("otii", {}, {}, 1e-6), ("otii", {}, {"channel": "power"}, 1e-6),
    ("joulescope", {}, {}, 1e-6), ("lpm01a", {"wiring": EXACT_33}, {"rate_hz": 1e4}, 2e-3),
    ("scpi-dmm", {"wiring": FINE}, {"rate_hz": 1e4}, 2e-3),
])  # fmt: skip
def test_readings_match_the_plant_power(name: str, how: Options, options: Options, rel: float) -> None:
    with live(name, **how) as instrument, closing(instrument.open(**options)) as meter:
        rail, plant = meter.info().rails[0], instrument.plant
        bracket = meter.start()
        on_ns = plant.clock.now_ns() + 30_000_000
        plant.occupy("inference", on_ns, on_ns + 50_000_000)
        time.sleep(0.2)
        got = values([*meter.read(), *meter.stop()]) * (rail.conversion.supply_v or 1.0)
        began_ns = instrument.began_ns()

    assert bracket.before_ns <= began_ns <= bracket.after_ns < bracket.before_ns + 1_000_000_000
    at_s = (began_ns - on_ns) * 1e-9 + np.arange(len(got)) / rail.rate_hz
    assert got[(at_s > 1e-3) & (at_s < 0.049)] == pytest.approx(plant.phase_w["inference"]["core"], rel=rel)
    assert got[(at_s < -1e-3) | (at_s > 0.051)] == pytest.approx(plant.idle_w["core"], rel=rel)


@pytest.mark.parametrize(("name", "how", "options", "half_width"), [
    ("scpi-dmm", {"wiring": Wiring(gain_limit=5e-4, offset_limit=1e-4)}, {"rate_hz": 20_000}, 3e-3),
    ("serial-text", {"sketch": Sketch(ready_s=0.05, noise=5e-3)}, {"kind": "mean", "rate_hz": 200.0}, 0.03),
    ("serial-text", {"sketch": Sketch("count:count,core:mW", ready_s=0.05, noise=5e-3)}, COUNTED, 0.03),
    ("rapl", {"zones": WRAPS_SOON}, {"rate_hz": 200}, np.inf),
    ("nvml", {"update_s": 0.01}, {"rate_hz": 500.0}, np.inf),
])  # fmt: skip
def test_the_energy_of_a_computation_is_correct(
    tmp_path: Path, name: str, how: Options, options: Options, half_width: float
) -> None:
    if name == "scpi-dmm":
        options = options | {"calibration": calibration(tmp_path)}
    if name == "serial-text":
        options = options | {"latency_s": 0.12, "simulated": True}
    with live(name, **how) as instrument:
        result = computed(tmp_path / "run", instrument.plant, instrument.open(**options))
        real = truth(instrument.plant, "inference", 6)

    assert result.simulated
    check_figures(result, real, half_width)
    assert result.quantities["dynamic_power_w"].value == pytest.approx(real["dynamic_power_w"], rel=0.15)


@pytest.mark.parametrize(("name", "fault", "kind", "says"), [
    ("ppk2", lambda sim: sim.stall(5.0), MeterSilentError, "sent nothing for 0.2 s"),
    ("ppk2", lambda sim: sim.unplug(), MeterError, "is gone"),
    ("otii", lambda sim: sim.detach(), MeterSilentError, "not grown"),
    ("otii", lambda sim: sim.mute(), MeterSilentError, "not answered"),
    ("otii", lambda sim: sim.close(), MeterError, "gone"),
    ("joulescope", lambda sim: setattr(sim.latest, "mute", True), MeterSilentError, "nothing"),
    ("joulescope", lambda sim: sim.latest.unplug(), MeterError, "unplugged"),
    ("serial-text", lambda sim: sim.hang(), MeterSilentError, "no reading for 0.2 s"),
    ("serial-text", lambda sim: sim.unplug(), MeterError, "is gone"),
    ("lpm01a", lambda sim: sim.garble(6), MeterError, "bytes were lost"),
    ("lpm01a", lambda sim: sim.insert("error"), MeterError, "reports: "),
    ("lpm01a", lambda sim: sim.lose(20), MeterError, "lost 20 of"),
    ("lpm01a", lambda sim: sim.unplug(), MeterError, "is gone"),
    ("scpi-dmm", lambda sim: sim.server.garble(), MeterError, "TCPIP"),
    ("scpi-dmm", lambda sim: sim.server.cut(3), MeterError, "hung up"),
    ("rapl", lambda sim: sim.add("intel-rapl:0", 1000.0), MeterError, "it was reset"),
    ("rapl", lambda sim: (sim.root / "intel-rapl:0" / "energy_uj").unlink(), MeterError, "cannot be read"),
    ("nvml", lambda sim: setattr(sim.gpus[0], "lost", True), MeterError, "GPU is lost"),
    ("nvml", lambda sim: setattr(sim.gpus[0], "begin_mj", 0), MeterError, "fell from"),
])  # fmt: skip
def test_a_fault_is_reported_after_the_readings(
    name: str, fault: Callable[[Any], object], kind: type[MeterError], says: str
) -> None:
    with live(name) as instrument:
        patience = {"timeout_s": 0.2} if "timeout_s" in inspect.signature(instrument.factory).parameters else {}
        with closing(instrument.open(**patience)) as meter:
            meter.start()
            time.sleep(0.15)
            threading.Thread(target=fault, args=(instrument.sim,)).start()
            count, error = ended(meter)
            assert not meter.stop()

    assert isinstance(error, kind) and says in error.message and count > 0
    assert error.remedy.endswith("`rig report` reads it")


UNMEANT: dict[str, list[Options | tuple[str, Options]]] = {
    "ppk2": [
        {"supply_v": 0.0}, {"supply_v": 5.5}, {"mode": "volt"}, {"mark_channel": "D8"}, {"power": "off"}, {"pin": "up"},
        {"pin_lag_s": -1.0}, {"largest_a": 2.0}, {"timeout_s": -1.0},
    ],
    "lpm01a": [
        {"port": ""}, {"rate_hz": 3000.0}, {"rate_hz": 2e4}, {"power": "off"}, {"supply_v": 5.0}, {"largest_a": 0.0},
        {"clock_tolerance": NAN},
    ],
    "otii": [{"supply_v": 0.0}, {"channel": "volts"}, {"power": "maybe"}, {"timeout_s": 0.0}],
    "joulescope": [
        {"rate_hz": 0.5}, {"timeout_s": 0.0}, {"mark_input": 5}, {"pin": "high", "mark_input": 0},
        {"range_mode": "off"},
    ],
    "scpi-dmm": [
        {"supply_v": None}, {"supply_v": 0.0}, {"function": "charge"}, {"rate_hz": -1.0}, {"rate_hz": 60_000.0},
        {"range_max": 11.0}, {"aperture_s": 2e-3}, {"aperture_s": 1e-6}, ("shunt_ohm", {"function": "voltage"}),
        {"temperature_c": 20.0}, {"timeout_s": 0.0},
    ],
    "scpi-smu": [{"rate_hz": 6000.0}, {"rate_hz": 0.0}],
    "dmm6500": [{"rate_hz": 500.0}, {"supply_v": None}, {"readings": 8_000_000}, {"range_max": 0.0}],
    "rapl": [
        {"rate_hz": 1000.0}, {"rate_hz": 0.0}, {"most_w": float("inf")}, {"domains": "gpu"},
        {"domains": "package-0,package-0-core"}, {"domains": "psys,package-0"},
    ],
    "nvml": [{"source": "watts"}, {"rate_hz": -1.0}, {"gpus": "2"}, {"gpus": "0,0"}, {"gpus": "GPU-x"}, {"gpus": ""}],
    "serial-text": [
        {"columns": ""}, {"columns": "time:ms"}, {"columns": "time:ms, core"}, {"columns": "core:mC"},
        {"columns": "a:mW, a:mW"}, {"columns": "a:mW"}, {"columns": "t:ms, u:us, a:mW"}, {"columns": "x:xor8, a:mW"},
        {"separator": "pipe"}, {"ignore": "("}, {"stamp_at": "late"}, {"kind": "cumulative"},
        ("aperture_s", {"kind": "mean"}), {"aperture_s": 0.2, "kind": "mean", "rate_hz": 10.0},
        ("supply_v", {"columns": "t:ms, a:mA"}), {"supply_v": "1.8", "columns": "t:ms, a:mA, v:V", "voltage": "v"},
        {"supply_v": "a=-1", "columns": "t:ms, a:mA"}, {"supply_v": "1.8"}, {"voltage": "bus", "columns": "t:ms, a:mA"},
        {"resolution": "b=1"}, {"bad_share": 0.9}, {"clock_tolerance": 5.0}, {"timer_bits": -1}, {"port": ""},
    ],
}  # fmt: skip
"""Options that each meter refuses. The error names the first option, or the one that stands before the options."""


@pytest.mark.parametrize("name", UNMEANT)
def test_an_impossible_option_is_named(name: str) -> None:
    with live(name) as instrument:
        for case in UNMEANT[name]:
            field, options = case if isinstance(case, tuple) else (next(iter(case)), case)
            error = raised(UsageError, instrument.open, **options)
            assert error.field == field and error.remedy, options
