"""A PPK2 on its serial port: words, counters, ranges, and what happens when the cable is bad."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.meters import ppk2
from drivers.meters.ppk2_stream import HELD, SURE, Aligner, modifiers_of
from fixtures.live_plant import LivePlant, live_plant
from fixtures.ppk2_sim import Ppk2Sim
from rig.conformance import check_meter
from rig.errors import MeterError, SetupError, UsageError
from rig.types import Chunk

IDLE_W, RUN_W, SUPPLY_V = 0.0018, 0.09, 1.8


def words(first: int, n: int) -> bytes:
    k = np.arange(first, first + n, dtype=np.uint32)
    return bytes(((k * 7 % 16384) | (k % 5) << 14 | (k % 64) << 18 | (k % 2) << 24).astype("<u4").tobytes())


def taken(aligner: Aligner, pieces: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """ADC values, and the words told as lost before each."""
    got = [aligner.feed(piece) for piece in pieces]
    return [int(w) & 0x3FFF for g in got for w in g.word], [int(n) for g in got for n in g.lost]


# ---- words ------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 37), min_size=1, max_size=60))
@settings(deadline=None)
def test_fragments_of_any_length_are_the_same_words(cuts: list[int]) -> None:
    stream = words(0, 300)
    at = np.minimum(np.cumsum([0, *cuts]), len(stream))
    pieces = [stream[a:b] for a, b in zip(at, [*at[1:], len(stream)], strict=True)]
    values, lost = taken(Aligner(), pieces)
    assert values == [k * 7 % 16384 for k in range(300 - HELD)]
    assert sum(lost) == 0


@given(st.integers(9, 150), st.integers(1, 55 * 4), st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_bytes_lost_anywhere_cost_the_words_they_were_in_and_put_no_other_in_its_place(
    byte: int, count: int, piece: int
) -> None:
    stream = words(0, 300)
    torn = stream[: byte * 4 + count % 4] + stream[byte * 4 + count % 4 + count :]
    values, lost = taken(Aligner(), [torn[k : k + piece] for k in range(0, len(torn), piece)])
    place = np.arange(len(values)) + np.cumsum(lost)
    assert values == [int(k) * 7 % 16384 for k in place]
    assert place[-1] == 299 - HELD
    assert sum(lost) <= -(-count // 4) + 2 + HELD


def test_a_damaged_word_costs_itself_and_its_neighbours() -> None:
    stream = bytearray(words(0, 100))
    stream[50 * 4 + 2] ^= 0x80
    values, lost = taken(Aligner(), [bytes(stream)])
    assert sum(lost) == 2 + HELD
    assert len(values) == 100 - HELD - sum(lost)


def test_what_is_no_ppk2_stream_is_refused() -> None:
    with pytest.raises(MeterError, match="no readings of a PPK2"):
        Aligner().feed(b"\x55" * 40_000)


# ---- its calibration --------------------------------------------------------------------------


def test_a_modifier_that_is_no_number_is_named(sim: Ppk2Sim) -> None:
    text = "\n".join("GI3: -nan" if line.startswith("GI3") else line for line in sim._metadata.split("\n"))
    with pytest.raises(SetupError, match="GI3"):
        modifiers_of(text)


def test_old_firmware_without_user_gains_is_read(sim: Ppk2Sim) -> None:
    text = "\n".join(line for line in sim._metadata.split("\n") if not line.startswith(("UG", "S", "I")))
    assert list(modifiers_of(text).ug) == [1.0] * 5


# ---- live -------------------------------------------------------------------------------------


@pytest.fixture
def plant() -> LivePlant:
    plant = live_plant()
    plant.install({"core": IDLE_W}, {"inference": {"core": RUN_W}})
    return plant


@pytest.fixture
def sim(plant: LivePlant) -> Iterator[Ppk2Sim]:
    with Ppk2Sim(plant) as sim:
        yield sim


def opened(sim: Ppk2Sim, **options: object) -> ppk2.Ppk2Meter:
    meter = ppk2.open_meter(port=sim.port, **({"supply_v": SUPPLY_V} | options))  # type: ignore[arg-type]
    assert isinstance(meter, ppk2.Ppk2Meter)
    return meter


def values(chunks: Sequence[Chunk]) -> np.ndarray:
    return np.concatenate([chunk.value for chunk in chunks])


def test_it_keeps_the_rules_of_a_meter(sim: Ppk2Sim) -> None:
    check_meter(opened(sim), seconds=0.3)


def test_its_readings_are_the_plants_current_where_it_was(plant: LivePlant, sim: Ppk2Sim) -> None:
    meter = opened(sim)
    bracket = meter.start()
    on_ns = plant.clock.now_ns() + 20_000_000
    plant.occupy("inference", on_ns, on_ns + 40_000_000)
    time.sleep(0.15)
    got = values([*meter.read(), *meter.stop()])
    meter.close()
    assert bracket.before_ns <= sim.began_ns() <= bracket.after_ns
    at_s = (sim.began_ns() - on_ns) * 1e-9 + np.arange(len(got)) * 1e-5
    busy = (at_s > 0.0) & (at_s < 0.04 - 1e-5)
    edge = (np.abs(at_s) < 2e-5) | (np.abs(at_s - 0.04) < 2e-5)
    step_a = meter.info().details["step_a_by_range"]
    assert np.max(np.abs(got[busy & ~edge] - RUN_W / SUPPLY_V)) <= step_a[3]
    assert np.max(np.abs(got[~busy & ~edge] - IDLE_W / SUPPLY_V)) <= step_a[2]


def test_it_sets_mode_voltage_and_output(sim: Ppk2Sim) -> None:
    meter = opened(sim, power="off-at-close")
    time.sleep(0.02)
    assert (sim.mode, sim.vdd, sim.running) == (2, 1800, True)
    meter.close()
    time.sleep(0.02)
    assert not sim.running


def test_kept_means_that_nothing_is_switched(sim: Ppk2Sim) -> None:
    opened(sim, power="keep", mode="ampere").close()
    assert (sim.mode, sim.vdd, sim.running) == (0, 0, False)


def test_lost_words_and_torn_ones_are_nan_and_counted(sim: Ppk2Sim) -> None:
    meter = opened(sim)
    meter.start()
    sim.lose_words(30)
    time.sleep(0.1)
    sim.lose_bytes(6)
    time.sleep(0.1)
    got = values([*meter.read(), *meter.stop()])
    assert np.count_nonzero(np.isnan(got)) == meter.lost()
    assert 32 <= meter.lost() <= 34 + 2 * HELD + SURE  # the two may fall together
    assert len(got) == sim.streamed - HELD
    assert np.nanmax(np.abs(got - IDLE_W / SUPPLY_V)) < 1e-5
    meter.close()


def test_edges_of_the_mark_channel_are_in_ticks_of_the_trace(sim: Ppk2Sim) -> None:
    meter = opened(sim, mark_channel="D3")
    meter.start()
    sim.logic = 0b1000
    time.sleep(0.05)
    sim.logic = 0b0111
    time.sleep(0.1)
    n = len(values([*meter.read(), *meter.stop()]))
    edges = meter.edges()
    meter.close()
    assert list(edges.level) in ([True, False], [False])  # it may have been high before the first reading
    assert 0 < edges.tick[-1] < n


def test_unplugged_in_the_middle_it_gives_what_it_had_and_then_an_error(sim: Ppk2Sim) -> None:
    meter = opened(sim)
    meter.start()
    time.sleep(0.15)
    sim.unplug()
    began_s = time.monotonic()
    count = 0
    with pytest.raises(MeterError, match=r"is gone|sent nothing") as caught:
        while time.monotonic() - began_s < 2.0:
            count += sum(len(chunk.value) for chunk in meter.read())
            time.sleep(0.01)
    assert time.monotonic() - began_s < 1.2  # its timeout is 1 s
    assert caught.value.remedy
    assert count > 1000
    assert not meter.stop()
    meter.close()


def test_one_that_falls_silent_is_told_within_its_timeout(sim: Ppk2Sim) -> None:
    meter = opened(sim, timeout_s=0.2)
    meter.start()
    sim.stall(5.0)
    began_s = time.monotonic()
    with pytest.raises(MeterError, match=r"sent nothing for 0\.2 s"):
        while time.monotonic() - began_s < 2.0:
            meter.read()
            time.sleep(0.01)
    assert time.monotonic() - began_s < 0.5
    meter.close()


def test_readings_that_nobody_reads_are_bounded(sim: Ppk2Sim) -> None:
    meter = opened(sim, hold_s=0.05)
    meter.start()
    time.sleep(0.25)
    held = values(meter.read())
    assert len(held) <= 5000
    with pytest.raises(MeterError, match="waiting to be read"):
        meter.read()
    meter.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"supply_v": 0.0}, "supply_v"),
        ({"supply_v": 5.5}, "supply_v"),
        ({"mode": "volt"}, "mode"),
        ({"mark_channel": "D8"}, "mark_channel"),
        ({"power": "off"}, "power"),
        ({"timeout_s": -1.0}, "timeout_s"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        ppk2.open_meter(port="none", **({"supply_v": 3.0} | options))  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_port_that_is_no_ppk2_is_refused(plant: LivePlant) -> None:
    with Ppk2Sim(plant, metadata="hello\n") as other, pytest.raises(SetupError, match="calibration"):
        ppk2.open_meter(port=other.port, supply_v=3.0, timeout_s=0.2)


def test_a_port_that_is_not_there_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match="cannot be opened"):
        ppk2.open_meter(port="/dev/does-not-exist", supply_v=3.0)
