"""Mel-filterbank energies of one-second slices in whole numbers, bit for bit as ``firmware/core/mfe.c`` computes them.

They follow the MFE block of Edge Impulse (version 3: ``mfe/dsp.py`` of its processing blocks), with its defaults:
pre-emphasis 0.98, frames of 20 ms every 10 ms without a window, the first 256 samples of each into a transform, 40
filters, a noise floor of -52 dB and codes of 0.25 dB. Two things differ. The value before the first sample of a slice
is taken as zero. The filters are triangles in hertz (librosa's ``mel(htk=True, norm=None)``). Their corners are not
moved to whole bins, because some filters would then be empty.

Every acoustic constant comes from ``PARAMETERS``. ``mfe_header`` writes the same tables for the C code.
"""

import hashlib
import math
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of the pre-processing. Code 0 means ``noise_floor_db``; each next code adds ``db_per_code``."""

    rate_hz: int = 16000
    slice_samples: int = 16000
    frame_samples: int = 320
    stride_samples: int = 160
    transform_points: int = 256
    filters: int = 40
    low_hz: float = 0.0
    high_hz: float = 8000.0
    emphasis_over_50: int = 49
    noise_floor_db: float = -52.0
    db_per_code: float = 0.25


PARAMETERS = Parameters()
POINTS = PARAMETERS.transform_points
BINS = POINTS // 2 + 1
FRAMES = (PARAMETERS.slice_samples - PARAMETERS.frame_samples) // PARAMETERS.stride_samples + 1
"""The number of whole frames in a slice."""
FILTERS = PARAMETERS.filters
TURN_BITS, WEIGHT_BITS, LOG_BITS, CODE_BITS = 30, 15, 16, 30
"""Fraction bits of the twiddle factors, the filters' weights, logarithms to base 2, and codes before rounding."""
POWER_SHIFT = 16
"""Bits removed from a power, |2 X|^2 of at most 62 bits, so that the weighted sum has at most 61."""
LOG_STEPS_BITS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The constants in whole numbers: ``cosine`` and ``sine`` (points / 2,), ``weights`` (filters, bins), ``log2``."""

    cosine: Whole
    sine: Whole
    weights: Whole
    log2: Whole
    code_per_log2: int
    code_offset: int


@cache
def tables() -> Tables:
    angle = 2 * np.pi * np.arange(POINTS // 2) / POINTS
    steps = 1 << LOG_STEPS_BITS
    slope = 10 * math.log10(2) / PARAMETERS.db_per_code
    full_scale = 50 * 32768.0
    unit = 2.0 ** (POWER_SHIFT - WEIGHT_BITS) / (4 * POINTS * full_scale**2)
    offset = slope * math.log2(unit) - PARAMETERS.noise_floor_db / PARAMETERS.db_per_code + 0.5
    return Tables(
        _whole(np.cos(angle) * 2**TURN_BITS),
        _whole(-np.sin(angle) * 2**TURN_BITS),
        _whole(triangles() * 2**WEIGHT_BITS),
        _whole(np.log2(1 + np.arange(steps + 1) / steps) * 2**LOG_BITS),
        round(slope * 2 ** (CODE_BITS - LOG_BITS)),
        round(offset * 2**CODE_BITS),
    )


def triangles() -> NDArray[np.float64]:
    """Return the filters' weights in [0, 1], shape (filters, bins): triangles evenly spaced on HTK's mel scale."""
    low, high = (1127 * math.log1p(f / 700) for f in (PARAMETERS.low_hz, PARAMETERS.high_hz))
    corner = 700 * np.expm1(np.linspace(low, high, FILTERS + 2) / 1127)[:, None]
    hertz = np.arange(BINS) * PARAMETERS.rate_hz / POINTS
    rising = (hertz - corner[:-2]) / (corner[1:-1] - corner[:-2])
    falling = (corner[2:] - hertz) / (corner[2:] - corner[1:-1])
    return np.asarray(np.maximum(0, np.minimum(rising, falling)))


def pcm16(payload: NDArray[np.floating]) -> NDArray[np.int16]:
    """Return audio in [-1, 1] as the int16 samples to send. Raises ``DataError`` for another length than a slice's."""
    if payload.shape != (PARAMETERS.slice_samples,):
        what = f"audio of shape {payload.shape} is no slice of {PARAMETERS.slice_samples} samples"
        remedy = "Use slices of one second, at --option audio_hz=16000"
        raise DataError(what, field="payload", value=str(payload.shape), remedy=remedy)
    return np.clip(np.rint(payload.astype(np.float64) * 32768), -32768, 32767).astype(np.int16)


def features(audio: NDArray[np.int16]) -> NDArray[np.int8]:
    """Return features (..., frames, filters) of slices (..., samples): codes from 0 (noise floor) to 255, minus 128."""
    made, samples = tables(), audio.astype(np.int64)
    before = np.concatenate((np.zeros_like(samples[..., :1]), samples[..., :-1]), axis=-1)
    emphasised = 50 * samples - PARAMETERS.emphasis_over_50 * before
    starts = PARAMETERS.stride_samples * np.arange(FRAMES)
    real, imaginary = _transform(emphasised[..., starts[:, None] + np.arange(POINTS)])
    power = (real**2 + imaginary**2) >> POWER_SHIFT
    level = _log2(power @ made.weights.T)
    code = (level * made.code_per_log2 + made.code_offset) >> CODE_BITS
    return np.asarray((np.clip(code, 0, 255) - 128).astype(np.int8))


def digest() -> str:
    """Return the SHA-256 of the parameters and tables, in hex; a network fits only one pre-processing."""
    made = tables()
    values = [asdict(PARAMETERS), *(getattr(made, name) for name in Tables.__slots__)]
    return hashlib.sha256(repr([v.tolist() if isinstance(v, np.ndarray) else v for v in values]).encode()).hexdigest()


def _transform(frames: Whole) -> tuple[Whole, Whole]:
    """Return twice the Fourier transform of real frames (..., frames, points), in whole numbers (..., frames, bins).

    One complex transform takes two frames, as real and imaginary part. If the number of frames is odd, a frame of
    zeros is added.
    """
    if frames.shape[-2] % 2:
        frames = np.concatenate((frames, np.zeros_like(frames[..., :1, :])), axis=-2)
    real, imaginary = _complex_transform(frames[..., 0::2, :], frames[..., 1::2, :])
    at = np.arange(BINS)
    mirror = -at % POINTS
    first = real[..., at] + real[..., mirror], imaginary[..., at] - imaginary[..., mirror]
    second = imaginary[..., at] + imaginary[..., mirror], real[..., mirror] - real[..., at]
    shape = (*frames.shape[:-1], BINS)
    joined = [np.stack(pair, axis=-2).reshape(shape)[..., :FRAMES, :] for pair in zip(first, second, strict=True)]
    return joined[0], joined[1]


def _complex_transform(real: Whole, imaginary: Whole) -> tuple[Whole, Whole]:
    """Transform by radix 2, decimated in time. Each product with a twiddle factor is rounded half up."""
    made, bits = tables(), POINTS.bit_length() - 1
    order = np.array([int(f"{k:0{bits}b}"[::-1], 2) for k in range(POINTS)])
    real, imaginary = real[..., order], imaginary[..., order]
    half, shape = 1, real.shape
    while half < POINTS:
        grouped = (*shape[:-1], POINTS // (2 * half), 2, half)
        (a, b), (c, d) = (np.moveaxis(part.reshape(grouped), -2, 0) for part in (real, imaginary))
        turn = slice(None, None, POINTS // (2 * half))
        cosine, sine, nearest = made.cosine[turn], made.sine[turn], 1 << (TURN_BITS - 1)
        turned_real = (cosine * b - sine * d + nearest) >> TURN_BITS
        turned_imaginary = (cosine * d + sine * b + nearest) >> TURN_BITS
        real = np.stack((a + turned_real, a - turned_real), axis=-2).reshape(shape)
        imaginary = np.stack((c + turned_imaginary, c - turned_imaginary), axis=-2).reshape(shape)
        half *= 2
    return real, imaginary


def _log2(values: Whole) -> Whole:
    """Return logarithms to base 2 with ``LOG_BITS`` fraction bits, interpolated in a table; values below 1 give 0."""
    table, values = tables().log2, np.maximum(values, 1)
    place = np.zeros_like(values)
    for bit in (32, 16, 8, 4, 2, 1):
        place += bit * ((values >> place) >= (1 << bit))
    fraction = ((values >> np.maximum(place - LOG_BITS, 0)) << np.maximum(LOG_BITS - place, 0)) - (1 << LOG_BITS)
    low_bits = LOG_BITS - LOG_STEPS_BITS
    step, rest = fraction >> low_bits, fraction & ((1 << low_bits) - 1)
    rise = ((table[step + 1] - table[step]) * rest + (1 << (low_bits - 1))) >> low_bits
    return np.asarray((place << LOG_BITS) + table[step] + rise)


def _whole(values: NDArray[np.float64]) -> Whole:
    return np.rint(values).astype(np.int64)


def mfe_header() -> str:
    """Return the parameters and tables of the pre-processing as a C header."""
    made = tables()
    reach = [np.flatnonzero(row) for row in made.weights]
    spans = [(int(bins[0]), int(bins[-1]) + 1) for bins in reach]
    packed = np.concatenate([row[a:b] for row, (a, b) in zip(made.weights, spans, strict=True)])
    numbers = {
        "RATE_HZ": PARAMETERS.rate_hz, "SLICE": PARAMETERS.slice_samples, "FRAMES": FRAMES, "FILTERS": FILTERS,
        "STRIDE": PARAMETERS.stride_samples, "POINTS": POINTS, "EMPHASIS_OVER_50": PARAMETERS.emphasis_over_50,
        "TURN_BITS": TURN_BITS, "POWER_SHIFT": POWER_SHIFT, "LOG_BITS": LOG_BITS, "LOG_STEPS_BITS": LOG_STEPS_BITS,
        "CODE_BITS": CODE_BITS, "CODE_PER_LOG2": made.code_per_log2, "CODE_OFFSET": f"INT64_C({made.code_offset})",
    }  # fmt: skip
    lines = ["/* Generated from drivers/devices/arduino/mfe.py. */", "#include <stdint.h>"]
    lines += [f"#define MFE_{name} {value}" for name, value in numbers.items()]
    lines += [
        array("int32_t", "MFE_COSINE", made.cosine),
        array("int32_t", "MFE_SINE", made.sine),
        array("uint8_t", "MFE_FIRST_BIN", np.array([a for a, _ in spans])),
        array("uint8_t", "MFE_END_BIN", np.array([b for _, b in spans])),
        array("uint16_t", "MFE_WEIGHTS", packed),
        array("int32_t", "MFE_LOG2", made.log2),
    ]
    return "\n".join(lines) + "\n"


def array(kind: str, name: str, values: NDArray[np.integer]) -> str:
    """Return a constant array in C."""
    flat = values.ravel().tolist()
    rows = [",".join(map(str, flat[at : at + 24])) for at in range(0, len(flat), 24)]
    return f"static const {kind} {name}[{len(flat)}] = {{\n" + ",\n".join(rows) + "};"
