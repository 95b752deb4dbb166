"""Audio to events: a bank of 16 filters instead of Xylo Audio 2's analog front end.

The chip's front end is analog, and simulating it takes seconds per second of audio. This encoder is a fast,
deterministic substitute with the same shape of output. It is not bit-exact to the chip.

For every bin it takes the power spectrum of the ``window_s`` that end with the bin, and sums it into log-spaced bands.
It divides each band by the mean total power in the last ``level_s``. So loud and quiet microphones give the same
events. A power law compresses the result. Whole events are sent, and the remainder is carried to the next bin, as in an
integrate-and-fire encoder. A bin's events never depend on later audio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.types import Floats, Sample

MIN_RATE_HZ = 8000.0
_TOP_OF_RATE = 0.45
_BLOCK_BINS = 512
_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class EncoderParams:
    """The encoder's parameters. They are in the network file, because the weights were trained on its events.

    The bands are fixed in hertz, because the weights were trained on them. At a low sampling rate, bands above 0.45 of
    the rate stay silent.
    """

    channels: int = 16
    low_hz: float = 100.0
    high_hz: float = 7000.0
    bin_s: float = 0.01
    window_s: float = 0.032
    level_s: float = 0.5
    gain: float = 4.0
    exponent: float = 0.35
    max_events: int = 15

    def __post_init__(self) -> None:
        good = (
            all(math.isfinite(value) and value > 0 for value in asdict(self).values())
            and self.low_hz < self.high_hz
            and self.max_events <= 15
            and self.channels <= 16
        )
        if not good:
            raise DataError(f"encoder values out of range: {asdict(self)}", field="encoder", value=str(asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EncoderParams:
        """Return the parameters from a network file. Raises DataError if names are missing or unknown."""
        names = {field.name for field in fields(cls)}
        if set(content) != names:
            odd = ", ".join(sorted(set(content) ^ names))
            raise DataError(f"encoder parameters missing or unknown: {odd}", field="encoder", value=odd)
        return cls(**content)


def check_audio(payload: NDArray[Any], rate_hz: float | None, duration_s: float = 0.0) -> Floats:
    """Return the payload as float64, shape (n,). ``duration_s`` of 0 means not stated.

    Raises DataError if it is empty or no one-dimensional array of finite floats, if the rate is missing or below 8 kHz,
    or if the length is not ``duration_s`` at that rate, to within 2 ms or two samples.
    """
    if rate_hz is None or not math.isfinite(rate_hz) or rate_hz < MIN_RATE_HZ:
        what = f"a sample is no audio of at least {MIN_RATE_HZ:g} Hz: its rate is {rate_hz or 'not stated'}"
        raise DataError(what, field="rate_hz", value=rate_hz, remedy="Use a workload of audio, such as asc")
    audio = np.asarray(payload)
    if audio.ndim != 1 or audio.size == 0 or not np.issubdtype(audio.dtype, np.floating):
        what = f"audio must be floats of shape (n,), not {audio.dtype} of shape {audio.shape}"
        raise DataError(what, field="payload", value=str(audio.shape))
    if not bool(np.all(np.isfinite(audio))):
        raise DataError("audio holds NaN or infinity", field="payload", value="not finite")
    length_s = audio.size / rate_hz
    if duration_s and abs(length_s - duration_s) > max(2e-3, 2 / rate_hz):
        what = f"{audio.size} samples at {rate_hz:g} Hz last {length_s:g} s, not {duration_s:g} s"
        raise DataError(what, field="rate_hz", value=rate_hz, remedy="State the rate that the audio was recorded at")
    return audio.astype(np.float64)


def check_raster(payload: NDArray[Any], params: EncoderParams) -> NDArray[np.int64]:
    """Return events that were encoded elsewhere, shape (bins, channels), as int64.

    Raises DataError unless they are integers from 0 to ``params.max_events`` in the channels of the network.
    """
    raster = np.asarray(payload)
    if raster.ndim != 2 or not np.issubdtype(raster.dtype, np.integer) or not len(raster):
        what = f"events must be integers of shape (bins, channels), not {raster.dtype} of shape {raster.shape}"
        raise DataError(what, field="payload", value=str(raster.shape))
    if raster.shape[1] != params.channels:
        what = f"the events have {raster.shape[1]} channels, and the network has {params.channels}"
        raise DataError(what, field="payload", value=raster.shape[1], remedy="Give one column for each input")
    if raster.min() < 0 or raster.max() > params.max_events:
        what = f"the events lie between {raster.min()} and {raster.max()}"
        remedy = f"The chip takes 0 to {params.max_events} events of a channel in one bin"
        raise DataError(what, field="payload", value=int(raster.max()), remedy=remedy)
    return raster.astype(np.int64)


def raster_of(sample: Sample, params: EncoderParams) -> NDArray[np.int64]:
    """Return the events of a sample, int64, shape (bins, channels): its encoded audio, or the events in it."""
    if sample.payload.ndim == 2:
        return check_raster(sample.payload, params)
    return encode(sample.payload, sample.rate_hz or 0.0, params)


def encode(audio: NDArray[Any], rate_hz: float, params: EncoderParams) -> NDArray[np.int64]:
    """Return events per bin and channel, int64, shape (bins, channels), each 0 to ``params.max_events``.

    ``audio`` is float, shape (n,), at ``rate_hz``. There are round(n / (rate_hz * bin_s)) bins, at least one. Silence
    makes no events. Raises DataError as ``check_audio`` does.
    """
    energy = _band_energy(check_audio(audio, rate_hz), rate_hz, params)
    relative = energy / _level(energy.sum(axis=1), round(params.level_s / params.bin_s))[:, None]
    rate = np.minimum(params.gain * relative**params.exponent, params.max_events)
    return np.diff(np.floor(np.cumsum(rate, axis=0)), axis=0, prepend=0.0).astype(np.int64)


def _band_energy(audio: Floats, rate_hz: float, params: EncoderParams) -> Floats:
    """Return power per bin and band, shape (bins, channels), each from the window that ends with its bin."""
    width = round(params.window_s * rate_hz)
    bins = max(1, round(audio.size / (rate_hz * params.bin_s)))
    ends = np.rint(np.arange(1, bins + 1) * (rate_hz * params.bin_s)).astype(np.int64)
    padded = np.zeros(width + max(audio.size, int(ends[-1])))
    padded[width : width + audio.size] = audio
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    taper = np.hanning(width + 2)[1:-1]
    weights = _band_weights(width, rate_hz, params)
    energy = np.empty((bins, params.channels))
    for first in range(0, bins, _BLOCK_BINS):
        part = slice(first, first + _BLOCK_BINS)
        spectrum = np.fft.rfft(windows[ends[part]] * taper, axis=1)
        energy[part] = (spectrum.real**2 + spectrum.imag**2) @ weights
    return energy


def _band_weights(width: int, rate_hz: float, params: EncoderParams) -> Floats:
    """Return the share of each spectral line in each band, shape (width // 2 + 1, channels)."""
    edges = np.geomspace(params.low_hz, params.high_hz, params.channels + 1)
    edges = np.minimum(edges, _TOP_OF_RATE * rate_hz)
    line_hz = rate_hz / width
    centres = np.arange(width // 2 + 1)[:, None] * line_hz
    upper = np.minimum(edges[1:], centres + line_hz / 2)
    lower = np.maximum(edges[:-1], centres - line_hz / 2)
    return np.asarray(np.maximum(upper - lower, 0.0) / line_hz)


def _level(power: Floats, bins: int) -> Floats:
    """Return for every bin the mean power of the last ``bins`` bins (fewer at the start), always above zero."""
    total = np.concatenate(([0.0], np.cumsum(power)))
    last = np.arange(1, power.size + 1)
    first = np.maximum(last - bins, 0)
    mean = (total[last] - total[first]) / (last - first)
    # rounding in the difference of sums can lose a quiet sound after a loud one; the bin itself is a lower bound
    return np.asarray(np.maximum(np.maximum(mean, power / (last - first)), _TINY))
