"""Rockpool's model of the analog front end of Xylo Audio 2, in place of the quick filter bank.

It takes seconds for each second of audio, and about 0.1 GB of memory. It does not need samna. The mismatch of the
filters is drawn from ``seed``. The noise is drawn from ``seed`` and the clip, so a clip's events do not depend on
earlier clips. A network is trained on the events of one front end; the other front end makes different events.
"""

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.backend import Raster
from drivers.devices.xylo.networks.encoder import EncoderParams, check_audio
from rig.errors import DataError
from rig.types import Floats

MODEL_HZ = 110_000
"""The model needs 101.6 kHz or more; at this rate a bin of 10 ms is a whole number of its steps."""
FULL_SCALE_V = 0.2
"""The voltage at the microphone for audio of amplitude 1. Above it, the model's microphone distorts by over 1 %."""
CHANNELS = 16


class AfeModel:
    """Encodes audio like ``encoder.encode``, by Rockpool's ``AFESim``."""

    def __init__(self, params: EncoderParams, seed: int) -> None:
        """Import Rockpool and draw the mismatch.

        Raises ``MissingExtraError`` without Rockpool, ``DataError`` if the network does not have 16 inputs.
        """
        if params.channels != CHANNELS:
            what = f"the front end has {CHANNELS} channels, and the network has {params.channels} inputs"
            raise DataError(what, field="afe_model", value="rockpool", remedy="Leave afe_model out")
        model = rockpool_import.load_xylo_audio2().front_end
        self._params, self._seed = params, seed
        with _own_random(seed):
            self._model: Any = model(MODEL_HZ, params.bin_s, params.max_events, seed=seed)
        self._rest = copy.deepcopy(self._model.lif_state)
        self._known: dict[bytes, Raster] = {}

    def details(self) -> dict[str, Any]:
        """Return the facts about the model for a recording."""
        return {"name": "Rockpool AFESim", "seed": self._seed, "rate_hz": MODEL_HZ, "full_scale_v": FULL_SCALE_V}

    def encode(self, audio: NDArray[Any], rate_hz: float) -> Raster:
        """Return events per bin and channel, int64, shape (bins, 16). Raises ``DataError`` as ``check_audio`` does."""
        volts = check_audio(audio, rate_hz) * FULL_SCALE_V
        key = hashlib.sha256(volts.tobytes() + str(rate_hz).encode()).digest()
        if key not in self._known:  # trials repeat clips, and each takes seconds
            self._known[key] = self._encoded(volts, rate_hz, int.from_bytes(key[:4], "big"))
        return self._known[key]

    def _encoded(self, volts: Floats, rate_hz: float, noise_seed: int) -> Raster:
        from scipy.signal import resample_poly

        ratio = Fraction(MODEL_HZ, round(rate_hz))
        faster = resample_poly(volts, ratio.numerator, ratio.denominator)
        self._model.lif_state = copy.deepcopy(self._rest)
        with _own_random(self._seed, noise_seed):
            events = self._model.raster(self._model.evolve(faster)[0])
        bins = max(1, round(len(volts) / (rate_hz * self._params.bin_s)))
        found = np.zeros((bins, CHANNELS), np.int64)
        found[: len(events)] = events[:bins]
        return found


@contextmanager
def _own_random(*seeds: int) -> Iterator[None]:
    """Seed numpy's global generator, from which the model draws, and restore the generator's state afterwards."""
    before = np.random.get_state()
    np.random.seed(list(seeds))
    try:
        yield
    finally:
        np.random.set_state(before)
