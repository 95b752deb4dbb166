"""A Xylo board that listens, on simulated boards in real time: what it hears, for how long, and its power."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo import device as xylo
from drivers.devices.xylo import microphone
from drivers.devices.xylo.backend import SimBackend
from drivers.devices.xylo.chip import ChipOptions
from drivers.devices.xylo.device import XyloDevice
from drivers.devices.xylo.microphone import player_of, wav_of
from drivers.devices.xylo.networks.encoder import raster_of
from fixtures.instruments.xylo.bench import Playback, listening, small_network
from fixtures.instruments.xylo.board import SimBoard, Traits
from rig.errors import DataError, DeviceError, DeviceTimeoutError, SetupError, UsageError
from rig.types import Sample
from tests.support.raised import raised, raising
from tests.support.remote_workers import answer
from tests.support.xylo_boards import awaited, hardware, opener

pytest.importorskip("xylosim")
pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("warm_soon")]
CHIPS = ("audio2", "audio3")
RATE_HZ = 16_000.0
STEP_S = 0.04
"""A time step too long for this machine to miss."""
Opened = Callable[..., XyloDevice]


@pytest.fixture(autouse=True)
def _misses_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microphone, "LOST", 0.2)


def network() -> Any:
    small = small_network()
    encoder = replace(small.encoder, bin_s=STEP_S)
    return replace(small, encoder=encoder, specification={**small.specification, "dt": STEP_S})


@pytest.fixture(name="opened")
def _opened() -> Iterator[Opened]:
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
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of time steps that a busy machine misses is not tested."""
    monkeypatch.setattr(microphone, "LOST", 2.0)


# ---- what it hears --------------------------------------------------------------------------


def test_the_answer_is_of_the_sound_that_was_played(chip: str, opened: Opened) -> None:
    device, sample = opened(chip=chip), sound()
    expected = SimBackend.open(network(), 25e6).infer(raster_of(sample, network().encoder)).output.sum()

    quiet, loud = heard_whole(device, replace(sample, payload=0 * sample.payload)), heard_whole(device, sample)

    assert sum(loud.output["spikes"]) == pytest.approx(expected, rel=0.25)
    assert sum(quiet.output["spikes"]) < 0.3 * expected


@pytest.mark.usefixtures("asleep")
def test_a_span_is_as_long_as_the_sound_and_the_last_time_step(chip: str, opened: Opened) -> None:
    device = opened(chip=chip)

    (span,) = answer(device, sound(), times=2).spans

    assert span.executions == 2
    assert (span.off_tick - span.on_tick) * 1e-3 == pytest.approx(1.6 + STEP_S, abs=0.02)


def test_frames_follow_without_gap_or_overlap(chip: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device = opened(chip=chip)
    device.submit([sound(1)], None)
    raised(UsageError, device.submit, [sound(2)], None, says="window_s and stride_s the same")

    monkeypatch.setattr(microphone, "LOST", 2.0)
    time.sleep(0.8)
    device.submit([sound(3)], None)

    replies = [awaited(device), awaited(device)]
    assert [reply.sample_id for reply in replies] == ["sound-1", "sound-3"]


@pytest.mark.usefixtures("asleep")
def test_readouts_in_bunches_are_heard_on_audio_3_and_other_events_passed_over(opened: Opened) -> None:
    device = opened(chip="audio3", flush_s=STEP_S / 2, drift_ppm=100.0)
    for sink in hardware(device).readouts:
        sink.send(0, SimpleNamespace(timestep=1))

    assert len(answer(device, sound()).spans) == 1


def test_a_board_that_listens_works_at_its_clock_and_says_which_rails_are_its_front_ends(opened: Opened) -> None:
    devices = [opened(ChipOptions(core_clock_hz=12.5e6), chip=chip) for chip in CHIPS]
    assert [hardware(device).core_hz for device in devices] == [12.5e6, 12.5e6]
    two, three = (device.info() for device in devices)
    assert two.preprocessing is not None and two.preprocessing.rails == ("IoAfe", "LogicAfe")
    assert three.preprocessing is not None and "same rails" in three.preprocessing.none
    assert two.mode == "simulator"


# ---- what it refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traits", "spin_steps"), [({}, 5), *(({"chip": chip, "lost_readouts": 0.4}, 0) for chip in CHIPS)]
)
def test_time_steps_that_the_program_slept_through_or_the_board_loses_end_the_run(
    traits: dict[str, Any], spin_steps: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spin_steps:
        monkeypatch.setattr("fixtures.instruments.xylo.ear.SPIN_S", spin_steps * STEP_S)
    raised(DeviceError, answer, opened(**traits), sound(), says=r"\d+ readouts came while sample sound-1 was heard")


def test_a_lost_readout_of_a_sample_of_one_step_ends_the_run(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device = opened()
    monkeypatch.setattr(device._backend, "_rows_of", lambda heard: [])
    raised(DeviceError, answer, device, sound(seconds=STEP_S), says="0 readouts came while sample sound-1 was heard")


def test_a_board_that_is_unplugged_ends_the_sample_by_type(chip: str, opened: Opened) -> None:
    device = opened(chip=chip)
    device.submit([sound()], None)

    hardware(device).unplug()

    with pytest.raises(DeviceError, match="Device is not open"):
        for _ in range(40):
            device.poll(0.1)


def test_a_chip_that_falls_silent_is_a_timeout_and_refused_at_the_start(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = opened(ChipOptions(timeout_s=0.2), chip="audio3")
    monkeypatch.setattr("fixtures.instruments.xylo.ear.Ear.advance", lambda self, now_ns: None)
    raised(DeviceTimeoutError, answer, device, sound(), says="the last time step of sample sound-1")
    raised(SetupError, listening, SimBoard(Traits("audio3")), network(), says="No events received")


@pytest.mark.parametrize("asked", [ChipOptions(record_activity=True), ChipOptions(echo=True)])
def test_what_a_listening_chip_cannot_do_is_refused(asked: ChipOptions, opened: Opened) -> None:
    raised(UsageError, opened, asked, says="neither records nor gets known events")
    raised(DataError, opened().stage, [Sample("events", np.ones((20, 16), np.int64), "a")], says="cannot be played")


@pytest.mark.parametrize(("options", "text"), [
    ({"front_end": "microphone"}, "play='aplay -q'"), ({"play": "aplay -q"}, "play='aplay -q'"),
    ({"front_end": "microphone", "play": "no-such-player"}, "plays a WAV file from its standard input"),
    ({"front_end": "microphone", "play": "aplay '"}, "plays a WAV file from its standard input"),
    ({"front_end": "live"}, "microphone"), ({"front_end": "microphone", "simulate": True}, "replay"),
])  # fmt: skip
def test_front_ends_and_players_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    raised(UsageError, xylo.open_device, says=text, **options)


# ---- the player -----------------------------------------------------------------------------


def test_a_player_gets_the_whole_sample_as_often_as_it_is_heard() -> None:
    wav = wav_of(sound(), 2)
    assert (wav[:4], len(wav)) == (b"RIFF", 44 + 2 * 2 * round(0.8 * RATE_HZ))


@pytest.mark.parametrize(("ends", "text"), [
    ("exit 3", "not played: the command ended with 3"), ("sleep 0.3", "not heard whole: .* longer than its sound"),
])  # fmt: skip
def test_a_sample_counts_once_its_command_has_ended_well_and_in_time(ends: str, text: str) -> None:
    playing = player_of(f"sh -c 'cat > /dev/null; {ends}'")(sound(seconds=0.1), 1)
    raised(DeviceError, playing.ended, 10.0, says=f"sample sound-1 was {text}")
    playing.stop()


def played(opened: Opened, playing: Any, monkeypatch: pytest.MonkeyPatch) -> XyloDevice:
    """Return a device whose samples are played by ``playing``."""
    device = opened()
    monkeypatch.setattr(device, "_play", lambda sample, times: playing)
    return device


def test_a_sound_still_played_is_waited_for_before_the_next(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    lag_s = 0.1
    device = played(opened, Playback(lambda timeout_s: time.sleep(lag_s)), monkeypatch)
    begun_s: list[float] = []
    monkeypatch.setattr(device._backend, "begin", lambda job: begun_s.append(time.monotonic()))

    device.submit([sound(1)], None)
    issued_s = time.monotonic()
    device.submit([sound(2)], None)

    assert begun_s[1] - issued_s >= lag_s


def test_the_only_sample_is_not_answered_if_its_player_fails(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = raising(DeviceError("sample sound-1 was not played", field="play", value=3))
    one_step = sound(seconds=STEP_S)
    raised(DeviceError, heard_whole, played(opened, Playback(fails), monkeypatch), one_step, says="was not played")


def test_a_player_does_not_outlive_its_device(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    playback = Playback()
    with closing(played(opened, playback, monkeypatch)) as device:
        device.submit([sound()], None)
    assert playback.stopped
