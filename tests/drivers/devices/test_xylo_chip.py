"""The Xylo driver on simulated boards in real time.

In chip mode: answers, times and refusals. On a board that listens: the sound heard, its duration, and the power."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.devices.xylo import board as board_module, device as xylo, microphone
from drivers.devices.xylo.backend import SimBackend
from drivers.devices.xylo.board import COUNTER, HeldUpError, StopWatch, span_of
from drivers.devices.xylo.chip import TRIES, ChipOptions
from drivers.devices.xylo.device import XyloDevice
from drivers.devices.xylo.microphone import player_of, wav_of
from drivers.devices.xylo.networks.encoder import encode, raster_of
from drivers.devices.xylo.networks.network import load_network
from drivers.meters.xylo_monitor import open_meter
from fixtures.instruments.xylo.bench import Playback, events, listening, on_board, small_network
from fixtures.instruments.xylo.board import SimBoard, Traits
from fixtures.instruments.xylo.vendor import XyloSamna2
from rig import check_device
from rig.errors import DataError, DeviceError, DeviceTimeoutError, SetupError, UsageError
from rig.types import Sample
from scenarios.workloads.asc.workload import open_workload
from tests.support.raised import Patch, raised, raising
from tests.support.remote_workers import answer, awaited
from tests.support.xylo_boards import hardware, opener

pytest.importorskip("xylosim")
pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("warm_soon")]
STEP_S = 6e-3
Opened = Callable[..., XyloDevice]


@pytest.fixture(name="opened")
def _opened(monkeypatch: Patch) -> Iterator[Opened]:
    """Open devices that tolerate delays of this machine; only tests of time do not use them."""
    monkeypatch.setattr(board_module, "LOOK_NS", 10**12)

    def open_it(network: Any = None, options: ChipOptions | None = None, **traits: Any) -> XyloDevice:
        return on_board(SimBoard(Traits(**{"step_s": STEP_S, **traits})), network, options)

    yield from opener(open_it)


# ---- what it answers ------------------------------------------------------------------------


def test_labels_and_spikes_match_the_simulator(chip: str, opened: Opened) -> None:
    network = load_network()
    device, simulator = opened(network, chip=chip), SimBackend.open(network, 25e6)
    samples = list(open_workload(samples=2).samples)

    for sample, times in zip((*samples, samples[0]), (1, 1, 2), strict=True):
        expected = simulator.infer(encode(sample.payload, float(sample.rate_hz or 0.0), network.encoder)).output
        reply = answer(device, sample, times=times)
        assert reply.output["spikes"] == expected.sum(axis=0).tolist(), "of the first execution"
        assert reply.output["label"] == network.classes[int(expected.sum(axis=0).argmax())]


def test_activity_matches_the_simulator_without_a_power_meter(opened: Opened) -> None:
    network = small_network()
    device = opened(network, ChipOptions(record_activity=True, core_clock_hz=12.5e6), step_s=1e-3)
    assert hardware(device).core_hz == 12.5e6
    sample = events(2)
    reply = answer(device, sample)
    expected = SimBackend.open(network, 25e6).infer(sample.payload).activity
    for layer, counters in expected.items():
        for name, steps in counters.items():
            assert np.array_equal(reply.activity[layer][name], steps), (layer, name)
    raised(SetupError, open_meter, device, says="records its activity")


def test_an_echo_error_names_neuron_and_time_step(chip: str, opened: Opened) -> None:
    good, bad = (opened(None, ChipOptions(echo=True), chip=chip, resets=resets) for resets in (True, False))

    assert [answer(good, events(8)).output["label"] for _ in range(2)]
    answer(bad, events(8))
    raised(DeviceError, answer, bad, events(8), says=r"events-8: output neuron \d gives \d+ .* step \d+")


# ---- when it does it ------------------------------------------------------------------------


def test_a_span_is_exact_even_if_rarely_polled(chip: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(board_module, "LOOK_NS", 30_000_000)  # a hundredth of the span, as this machine may be late
    with closing(on_board(SimBoard(Traits(chip, step_s=3e-2)))) as device:
        (span,) = answer(device, events(3)).spans
    _, on_ns, off_ns = hardware(device).spans[-1]
    assert (span.off_tick - span.on_tick) * 1e6 == pytest.approx(off_ns - on_ns, rel=0.02)


def held_up(times: int, monkeypatch: Patch) -> None:
    """Let the timing of the first ``times`` spans fail, as if this program had been held up."""
    looks = iter(range(times))

    def span(arrived: Any) -> tuple[int, int]:
        if next(looks, None) is not None:
            raise HeldUpError("this program was held up", field="span", value=0)
        return span_of(arrived)

    monkeypatch.setattr(board_module, "span_of", span)


def test_a_sample_with_an_unseen_span_is_repeated(opened: Opened, monkeypatch: Patch) -> None:
    device, sample = opened(step_s=1e-3), events(1)
    at_once = answer(device, sample)
    held_up(1, monkeypatch)
    again = answer(device, sample)
    assert again.output == {**at_once.output, "tries": 2}
    assert (len(again.spans), len(hardware(device).spans)) == (1, 3)


@pytest.mark.parametrize(("metered", "tries"), [(False, TRIES), (True, 1)])
def test_a_program_always_held_up_ends_the_run(metered: bool, tries: int, opened: Opened, monkeypatch: Patch) -> None:
    held_up(tries, monkeypatch)
    device = opened(step_s=1e-3)
    with closing(open_meter(device)) as meter:
        if metered:
            meter.start()
        raised(DeviceError, answer, device, events(1), says="held up")
    assert len(hardware(device).spans) == tries


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=50), st.integers(0, 2 * COUNTER))
def test_the_stopwatch_follows_its_quickest_stamp(delays_ns: list[int], start_us: int) -> None:
    watch = StopWatch()
    for k, delay_ns in enumerate(delays_ns):
        sent_us = start_us + 1000 * k
        assert (watch.heard(sent_us % COUNTER, sent_us * 1000 + delay_ns) - sent_us) % COUNTER == 0

    now_us = start_us + 1000 * len(delays_ns)
    slow_us = (now_us * 1000 - min(delays_ns)) // 1000
    assert (watch.tick(now_us * 1000) - slow_us) % COUNTER == 0


@pytest.mark.parametrize("reached_us", [10**6, 10**9, 3 * 10**9, COUNTER - 10**8, COUNTER + 10**7, 2 * COUNTER - 10**8])
def test_a_restarted_stopwatch_is_noticed(reached_us: int) -> None:
    watch = StopWatch()
    for k in range(100):
        watch.heard((reached_us + 1000 * k) % COUNTER, 10**12 + 10**6 * k)
    raised(ValueError, watch.heard, 500, 10**12 + 10**8, says="its stopwatch went back")


def looks(arrivals_ns: Any, held: slice = slice(0), every_ns: int = 250_000) -> Any:
    """Return, for each readout, the times of the first check after it arrived and of the check before, shape (k, 2).

    There is a check every ``every_ns``, but none while the readouts ``held`` arrive.
    """
    grid = np.arange(arrivals_ns[0] - 10 * every_ns, arrivals_ns[-1] + 10 * every_ns, every_ns)
    missed = arrivals_ns[held]
    if len(missed):
        grid = grid[(grid < missed[0]) | (grid > missed[-1])]
    after = np.searchsorted(grid, arrivals_ns)
    return np.stack([grid[after], grid[after - 1]], axis=1)


@pytest.mark.parametrize("held", [slice(0), slice(0, 20), slice(85, 100), slice(30, 60)])
def test_a_delayed_program_finds_the_span_by_other_readouts(held: slice) -> None:
    arrivals_ns = 5_000_000_000 + np.arange(1, 101) * 1_000_000

    on_ns, off_ns = span_of(looks(arrivals_ns, held))

    assert on_ns == pytest.approx(5_000_000_000, abs=300_000)
    assert off_ns == pytest.approx(5_100_000_000, abs=300_000)


@pytest.mark.parametrize(("step_ns", "held", "every_ns"), [
    (10**6, slice(0, 40), 250_000), (10**6, slice(60, 100), 250_000), (2 * 10**7, slice(0), 10**7),
])  # fmt: skip
def test_a_span_with_an_unseen_end_is_refused(step_ns: int, held: slice, every_ns: int) -> None:
    raised(DeviceError, span_of, looks(np.arange(1, 101) * step_ns, held, every_ns), says=r"held up for \d+")


# ---- what it refuses ------------------------------------------------------------------------


def test_an_unusable_clock_is_refused_at_start(opened: Opened, monkeypatch: Patch) -> None:
    raised(SetupError, opened, says=r"core clock .* is 2\.5025e\+07 Hz, and 2\.5e\+07", made_clock=1.001)
    monkeypatch.setattr(board_module, "PATIENCE_S", 0.1)
    raised(SetupError, opened, says="the power monitor of Xylo Audio 2 does not run: 0 readings", lost=1.0)
    monkeypatch.setattr("fixtures.instruments.xylo.board.SimStopWatch.set_enable_value", lambda self, value: None)
    raised(SetupError, opened, says="its stopwatch stands still")


def test_a_row_of_readouts_with_a_gap_is_refused(opened: Opened, monkeypatch: Patch) -> None:
    send = SimBoard.send_readouts

    def without_one(board: SimBoard, steps: Any, at_ns: Any, **values: Any) -> int:
        kept = [k for k in range(len(steps)) if k != 2]
        return send(board, [steps[k] for k in kept], at_ns[kept], **values)

    monkeypatch.setattr(SimBoard, "send_readouts", without_one)
    told = r"\d+ readouts of the core came, but not \d+ in a row"
    raised(DeviceError, answer, opened(step_s=1e-3), events(1), says=told)


def test_an_unplugged_board_is_a_device_error(chip: str, opened: Opened) -> None:
    device = opened(chip=chip)
    device.submit([events(4)], None)
    assert device.poll(0.3) == ()

    hardware(device).unplug()

    raised(DeviceError, awaited, device, says="Device is not open")
    with pytest.raises(DeviceError, match="cannot be read any more"):
        for _ in range(200):
            device.timer()
            time.sleep(0.01)


def test_a_sample_that_takes_too_long_is_a_timeout(opened: Opened) -> None:
    with pytest.raises(DeviceTimeoutError, match="not processed within 1 s"):
        answer(opened(None, ChipOptions(timeout_s=1.0), step_s=2e-2), events(5))


def test_the_vendor_driver_records_no_power(opened: Opened, monkeypatch: Patch) -> None:
    def evolve(self: Any, *, input: Any, record: bool, read_timeout: float) -> Any:
        raise RuntimeError(f"enough, {record}")

    monkeypatch.setattr(XyloSamna2, "evolve", evolve)
    raised(DeviceError, answer, opened(), events(6), says="enough, False")


def test_the_driver_keeps_every_rule(chip: str, opened: Opened) -> None:
    device = opened(chip=chip, step_s=1e-2)

    assert "repeat.length" in check_device(device, [events(1, bins=50), events(2, bins=50)], prompt_s=5.0)


# ---- a board that listens ----------------------------------------------------------------------

CHIPS = ("audio2", "audio3")
RATE_HZ = 16_000.0
LONG_STEP_S = 0.04
"""A time step too long for this machine to miss."""


def network() -> Any:
    small = small_network()
    encoder = replace(small.encoder, bin_s=LONG_STEP_S)
    return replace(small, encoder=encoder, specification={**small.specification, "dt": LONG_STEP_S})


@pytest.fixture(name="listener")
def _listener(monkeypatch: Patch) -> Iterator[Opened]:
    """Open devices that listen; a busy machine may miss a few time steps."""
    monkeypatch.setattr(microphone, "LOST", 0.2)
    yield from opener(lambda options=None, **traits: listening(SimBoard(Traits(**traits)), network(), options))


def sound(seed: int = 1, seconds: float = 0.8) -> Sample:
    audio = np.random.default_rng(seed).normal(0.0, 0.2, round(seconds * RATE_HZ)).astype(np.float32)
    return Sample(f"sound-{seed}", audio, "a", rate_hz=RATE_HZ, duration_s=seconds)


def heard_whole(device: XyloDevice, sample: Sample) -> Any:
    """Return the device's answer to a sample.

    If the machine missed time steps, which the driver reports, play the sample again.
    """
    for _ in range(20):
        try:
            return answer(device, sample)
        except DeviceError as error:
            if error.field != "steps":
                raise
    raise AssertionError("this machine sleeps through every sound")


@pytest.fixture
def asleep(listener: Opened, monkeypatch: Patch) -> None:
    """The number of time steps that a busy machine misses is not tested."""
    monkeypatch.setattr(microphone, "LOST", 2.0)


# ---- what it hears --------------------------------------------------------------------------


def test_the_answer_matches_the_played_sound(chip: str, listener: Opened) -> None:
    device, sample = listener(chip=chip), sound()
    expected = SimBackend.open(network(), 25e6).infer(raster_of(sample, network().encoder)).output.sum()

    quiet, loud = heard_whole(device, replace(sample, payload=0 * sample.payload)), heard_whole(device, sample)

    assert sum(loud.output["spikes"]) == pytest.approx(expected, rel=0.25)
    assert sum(quiet.output["spikes"]) < 0.3 * expected


@pytest.mark.usefixtures("asleep")
def test_a_span_lasts_for_the_sound_and_the_last_step(chip: str, listener: Opened) -> None:
    device = listener(chip=chip)

    (span,) = answer(device, sound(), times=2).spans

    assert span.executions == 2
    assert (span.off_tick - span.on_tick) * 1e-3 == pytest.approx(1.6 + LONG_STEP_S, abs=0.02)


def test_frames_follow_without_gap_or_overlap(chip: str, listener: Opened, monkeypatch: Patch) -> None:
    device = listener(chip=chip)
    device.submit([sound(1)], None)
    raised(UsageError, device.submit, [sound(2)], None, says="window_s and stride_s the same")

    monkeypatch.setattr(microphone, "LOST", 2.0)
    time.sleep(0.8)
    device.submit([sound(3)], None)

    replies = [awaited(device), awaited(device)]
    assert [reply.sample_id for reply in replies] == ["sound-1", "sound-3"]


@pytest.mark.usefixtures("asleep")
def test_readouts_in_bunches_are_heard_on_audio_3(listener: Opened) -> None:
    device = listener(chip="audio3", flush_s=LONG_STEP_S / 2, drift_ppm=100.0)
    for sink in hardware(device).readouts:
        sink.send(0, SimpleNamespace(timestep=1))

    assert len(answer(device, sound()).spans) == 1


def test_a_listening_board_states_clock_and_front_end(listener: Opened) -> None:
    devices = [listener(ChipOptions(core_clock_hz=12.5e6), chip=chip) for chip in CHIPS]
    assert [hardware(device).core_hz for device in devices] == [12.5e6, 12.5e6]
    two, three = (device.info() for device in devices)
    assert two.preprocessing is not None and two.preprocessing.rails == ("IoAfe", "LogicAfe")
    assert three.preprocessing is not None and "same rails" in three.preprocessing.none
    assert two.mode == "simulator"


# ---- what it refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traits", "spin_steps"), [({}, 5), *(({"chip": chip, "lost_readouts": 0.4}, 0) for chip in CHIPS)]
)
def test_lost_steps_end_the_run(traits: dict[str, Any], spin_steps: int, listener: Opened, monkeypatch: Patch) -> None:
    if spin_steps:
        monkeypatch.setattr("fixtures.instruments.xylo.ear.SPIN_S", spin_steps * LONG_STEP_S)
    raised(DeviceError, answer, listener(**traits), sound(), says=r"\d+ readouts came while sample sound-1 was heard")


def test_a_lost_single_readout_ends_the_run(listener: Opened, monkeypatch: Patch) -> None:
    device = listener()
    monkeypatch.setattr(device._backend, "_rows_of", lambda heard: [])
    one_step = sound(seconds=LONG_STEP_S)
    raised(DeviceError, answer, device, one_step, says="0 readouts came while sample sound-1 was heard")


def test_a_listening_board_unplugged_is_an_error(chip: str, listener: Opened) -> None:
    device = listener(chip=chip)
    device.submit([sound()], None)

    hardware(device).unplug()

    with pytest.raises(DeviceError, match="Device is not open"):
        for _ in range(40):
            device.poll(0.1)


def test_a_silent_chip_is_a_timeout(listener: Opened, monkeypatch: Patch) -> None:
    device = listener(ChipOptions(timeout_s=0.2), chip="audio3")
    monkeypatch.setattr("fixtures.instruments.xylo.ear.Ear.advance", lambda self, now_ns: None)
    raised(DeviceTimeoutError, answer, device, sound(), says="the last time step of sample sound-1")
    raised(SetupError, listening, SimBoard(Traits("audio3")), network(), says="No events received")


@pytest.mark.parametrize("asked", [ChipOptions(record_activity=True), ChipOptions(echo=True)])
def test_an_impossible_listening_option_is_refused(asked: ChipOptions, listener: Opened) -> None:
    raised(UsageError, listener, asked, says="neither records nor gets known events")
    raised(DataError, listener().stage, [Sample("events", np.ones((20, 16), np.int64), "a")], says="cannot be played")


@pytest.mark.parametrize(("options", "text"), [
    ({"front_end": "microphone"}, "play='aplay -q'"), ({"play": "aplay -q"}, "play='aplay -q'"),
    ({"front_end": "microphone", "play": "no-such-player"}, "plays a WAV file from its standard input"),
    ({"front_end": "microphone", "play": "aplay '"}, "plays a WAV file from its standard input"),
    ({"front_end": "live"}, "microphone"), ({"front_end": "microphone", "simulate": True}, "replay"),
])  # fmt: skip
def test_unsuitable_front_ends_and_players_are_refused(options: dict[str, Any], text: str) -> None:
    raised(UsageError, xylo.open_device, says=text, **options)


# ---- the player -----------------------------------------------------------------------------


def test_a_player_gets_the_whole_sample() -> None:
    wav = wav_of(sound(), 2)
    assert (wav[:4], len(wav)) == (b"RIFF", 44 + 2 * 2 * round(0.8 * RATE_HZ))


@pytest.mark.parametrize(("ends", "text"), [
    ("exit 3", "not played: the command ended with 3"), ("sleep 0.3", "not heard whole: .* longer than its sound"),
])  # fmt: skip
def test_a_failed_or_late_player_is_refused(ends: str, text: str) -> None:
    playing = player_of(f"sh -c 'cat > /dev/null; {ends}'")(sound(seconds=0.1), 1)
    raised(DeviceError, playing.ended, 10.0, says=f"sample sound-1 was {text}")
    playing.stop()


def played(listener: Opened, playing: Any, monkeypatch: Patch) -> XyloDevice:
    """Return a device whose samples are played by ``playing``."""
    device = listener()
    monkeypatch.setattr(device, "_play", lambda sample, times: playing)
    return device


def test_the_next_sound_waits_for_the_previous_sound(listener: Opened, monkeypatch: Patch) -> None:
    lag_s = 0.1
    device = played(listener, Playback(lambda timeout_s: time.sleep(lag_s)), monkeypatch)
    begun_s: list[float] = []
    monkeypatch.setattr(device._backend, "begin", lambda job: begun_s.append(time.monotonic()))

    device.submit([sound(1)], None)
    issued_s = time.monotonic()
    device.submit([sound(2)], None)

    assert begun_s[1] - issued_s >= lag_s


def test_a_sample_with_a_failed_player_has_no_answer(listener: Opened, monkeypatch: Patch) -> None:
    fails = raising(DeviceError("sample sound-1 was not played", field="play", value=3))
    one_step = sound(seconds=LONG_STEP_S)
    raised(DeviceError, heard_whole, played(listener, Playback(fails), monkeypatch), one_step, says="was not played")


def test_closing_the_device_stops_its_player(listener: Opened, monkeypatch: Patch) -> None:
    playback = Playback()
    with closing(played(listener, playback, monkeypatch)) as device:
        device.submit([sound()], None)
    assert playback.stopped
