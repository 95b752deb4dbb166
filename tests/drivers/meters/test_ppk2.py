"""A PPK2 on its serial port: ranges, losses, its clock, and the effects of a bad cable."""

import time
from contextlib import closing

import numpy as np
import pytest

from drivers.meters.ppk2.losses_by_arrival_time import UNSEEN
from drivers.meters.ppk2.words import HELD, SURE, modifiers_of
from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.ppk2_sim import Ppk2Sim
from rig.errors import MeterError, SetupError
from rig.types import Chunk
from tests.support.instruments import StandIn, live
from tests.support.meters import RUN_W, SUPPLY_V, column, or_the_machine_was_busy, values
from tests.support.raised import raised
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

INSTRUMENT = "ppk2"

# ---- its calibration --------------------------------------------------------------------------


THREAD = {"R0": "3095044895830869060112875520.0000", **dict.fromkeys(("R1", "R2", "R3", "R4"), "0.0000")}
"""The values of a kit in Nordic's thread 92921."""


def damaged(it: StandIn, **stated: str) -> str:
    lines = (line.partition(": ") for line in it.sim._metadata.split("\n"))
    return "\n".join(f"{key}{sep}{stated.get(key, text)}" for key, sep, text in lines)


@pytest.mark.parametrize("stated", [{"GI3": "-nan"}, {"R2": "0.0000"}, THREAD, {"O1": "-2814926129201152.0000"}])
def test_an_impossible_modifier_is_refused(it: StandIn, stated: dict[str, str]) -> None:
    error = raised(SetupError, modifiers_of, damaged(it, **stated), says=next(iter(stated)))
    assert "devzone.nordicsemi.com/f/nordic-q-a/92921" in error.remedy


def test_published_modifiers_are_accepted() -> None:
    stated = {
        "R": (1008.1857, 102.3791, 10.4143, 0.9783, 0.0574), "GS": (-12.8288, 172.3044, 27.2495, 3.7972, 0.1114),
        "GI": (1.0, 0.9614, 0.9534, 0.9415, 0.9521), "O": (175.1972, 122.1979, 104.6693, 79.9834, 140.348),
        "S": (-9e-9, -6.4e-8, -5.12e-7, -4.891e-6, 0.002447326), "UG": (1.0,) * 5,
        "I": (4.4e-8, 3.64e-7, 6.1116e-5, -0.000254856, -0.007713722),
    }  # fmt: skip
    text = "\n".join(f"{key}{k}: {value:.12g}" for key, row in stated.items() for k, value in enumerate(row))
    assert list(modifiers_of(text).r) == list(stated["R"])


def test_old_firmware_without_user_gains_is_read(it: StandIn) -> None:
    text = "\n".join(line for line in it.sim._metadata.split("\n") if not line.startswith(("UG", "S", "I")))
    assert list(modifiers_of(text).ug) == [1.0] * 5


# ---- live -------------------------------------------------------------------------------------


def misplaced(got: np.ndarray, sim: Ppk2Sim, edge_ns: int) -> float:
    """Return how many readings lie between the last fall of the current in the trace and the real fall."""
    last = int(np.flatnonzero(np.nan_to_num(got) > 0.5 * RUN_W / SUPPLY_V)[-1]) + 1
    return abs(sim.began_ns(last) - edge_ns) * 1e-9 * 1e5


def test_it_sets_mode_voltage_and_output_unless_they_are_kept(it: StandIn) -> None:
    it.open(power="keep", mode="ampere").close()
    assert (it.sim.mode, it.sim.vdd, it.sim.running) == (0, 0, False)
    it.open().close()
    until(lambda: (it.sim.mode, it.sim.vdd, it.sim.running) == (2, 1800, True))


def test_lost_and_torn_words_become_nan(it: StandIn) -> None:
    meter = it.open()
    meter.start()
    it.sim.lose_words(30)
    time.sleep(0.1)
    it.sim.lose_bytes(6)
    time.sleep(0.05)
    off_ns = pulsed(it.plant)
    with closing(meter), or_the_machine_was_busy("this machine was too busy to receive them in time"):
        got = values([*meter.read(), *meter.stop()])
        assert 32 <= np.count_nonzero(np.isnan(got)) <= 34 + 2 * HELD + SURE  # both losses may coincide
        assert misplaced(got, it.sim, off_ns) <= 1.1


def test_readings_after_an_uncountable_loss_are_withheld(it: StandIn) -> None:
    meter = it.open()
    meter.start()
    time.sleep(0.5)  # an earlier loss is not seen, because there is no floor of lags yet
    before = it.sim.streamed
    it.sim.lose_words(UNSEEN)
    got: list[Chunk] = []
    with closing(meter), pytest.raises(MeterError, match="readings were lost"):
        while it.sim.streamed < 1_000_000:
            got += meter.read()
            time.sleep(0.01)
    assert len(values(got)) <= before + 5_000


def pulsed(plant: LivePlant) -> int:
    """Let the device work for 20 ms; return the time (ns) at which this ends."""
    on_ns = plant.clock.now_ns() + 20_000_000
    plant.occupy("inference", on_ns, on_ns + 20_000_000)
    plant.clock.sleep_until(on_ns + 40_000_000)
    return on_ns + 20_000_000


def test_edges_of_the_mark_channel_are_a_rail(it: StandIn) -> None:
    meter = it.open(mark_channel="D3", pin="level")
    meter.start()
    chunks = list(meter.read())
    it.sim.logic = 0b1000
    time.sleep(0.05)
    it.sim.logic = 0b0111
    time.sleep(0.1)
    chunks += [*meter.read(), *meter.stop()]
    rail, n, tick = meter.info().rails[1], len(column(chunks, "value", "supply")), column(chunks, "start_tick", "D3")
    meter.close()
    assert (rail.name, rail.kind, rail.pin) == ("D3", "edges", "level")
    assert column(chunks, "value", "D3").tolist() == [1, 0]
    assert 0 < tick[0] < tick[1] < n
    assert (tick[1] - tick[0]) * 1e-5 > 0.02


def test_a_range_coarser_than_declared_is_flagged(it: StandIn) -> None:
    meter = it.open(largest_a=5e-3)
    meter.start()
    pulsed(it.plant)
    chunks = [*meter.read(), *meter.stop()]
    resolution, steps_a = meter.info().rails[0].resolution, meter.info().details["step_a_by_range"]
    meter.close()
    flagged = column(chunks, "flags") == 1
    assert resolution == steps_a[2]
    assert np.array_equal(flagged, values(chunks) > 5e-3)
    assert np.count_nonzero(flagged) == pytest.approx(2000, abs=2)


def test_a_port_without_a_ppk2_is_refused() -> None:
    with live("ppk2", metadata="hello\n") as it:
        raised(SetupError, it.open, timeout_s=0.2, says="calibration")
