"""Rockpool's model of the analog front end as the encoder of the Xylo driver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.devices.xylo.afe_model import AfeModel
from drivers.devices.xylo.device import open_device
from drivers.devices.xylo.networks.encoder import EncoderParams
from fixtures.bench.true_power import open_plant
from rig.errors import DataError, UsageError
from rig.types import Floats, Sample

pytest.importorskip("xylosim")
RATE_HZ = 16_000.0


def tone(hz: float, seconds: float = 0.1) -> Floats:
    return np.asarray(0.5 * np.sin(2.0 * np.pi * hz * np.arange(round(seconds * RATE_HZ)) / RATE_HZ))


@pytest.fixture(scope="module", name="afe")
def _afe() -> AfeModel:
    return AfeModel(EncoderParams(), 1)


def test_a_higher_tone_reaches_a_higher_channel(afe: AfeModel) -> None:
    low, high = (int(np.argmax(afe.encode(tone(hz), RATE_HZ).sum(axis=0))) for hz in (300.0, 2000.0))

    assert low < high


def test_events_are_those_of_the_clip_whatever_came_before_and_numpys_generator_stays(afe: AfeModel) -> None:
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)

    first = afe.encode(tone(500.0), RATE_HZ)
    fresh = AfeModel(EncoderParams(), 1)
    fresh.encode(tone(900.0), RATE_HZ)

    assert np.array_equal(np.random.random(3), expected)
    assert np.array_equal(fresh.encode(tone(500.0), RATE_HZ), first)
    assert (first.shape, first.dtype) == ((10, 16), np.int64)
    assert 0 < first.max() <= 15
    assert not np.array_equal(AfeModel(EncoderParams(), 2).encode(tone(500.0), RATE_HZ), first)


def test_a_network_of_another_width_is_refused() -> None:
    with pytest.raises(DataError, match="16 channels, and the network has 12"):
        AfeModel(replace(EncoderParams(), channels=12), 1)


def test_the_device_takes_it_as_an_option_and_says_so() -> None:
    plant = open_plant()
    device = open_device(plant, simulate=True, afe_model="rockpool")
    device.submit([Sample("tone", tone(500.0), "bus", rate_hz=RATE_HZ, duration_s=0.1)], None)
    (reply,) = device.poll(10.0)

    assert reply.spans[0].phase == "preprocess"
    assert device.info().details["afe_model"]["name"] == "Rockpool AFESim"
    with pytest.raises(UsageError, match="filter-bank, rockpool"):
        open_device(plant, simulate=True, afe_model="none")
