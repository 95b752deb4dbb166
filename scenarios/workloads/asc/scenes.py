"""Synthetic acoustic scenes of four places, for use without a data set of field recordings.

The same seed gives the same samples. Every scene mixes a background with sound events of its place. A simulated
microphone then changes spectrum and level at random. Scenes of different places therefore overlap in level and in
spectrum, and no single frequency band distinguishes them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

CLASSES = ("airport", "street_traffic", "bus", "park")
RECIPE = "scenes-1"
"""Name of the recipe; it changes whenever the same seed would give other samples."""

_PEAK = 0.89

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Times in seconds, shape (n,), and frequencies in hertz, shape (n // 2 + 1,), of one signal."""

    time_s: Array
    freq_hz: Array
    rate_hz: float


def synthesize(label: str, seed: int, seconds: float = 1.0, rate_hz: float = 16000.0) -> NDArray[np.float32]:
    """Return one scene as float32 samples, shape (round(seconds * rate_hz),), with every |x| < 0.9.

    ``label`` is one of ``CLASSES``; the result depends only on the four arguments.
    """
    count = round(seconds * rate_hz)
    rng = np.random.default_rng([CLASSES.index(label), seed])
    time_s = np.arange(count, dtype=np.float64) / rate_hz
    freq_hz = np.arange(count // 2 + 1, dtype=np.float64) * (rate_hz / count)
    grid = _Grid(time_s, freq_hz, rate_hz)
    return _microphone(rng, grid, _SCENES[label](rng, grid)).astype(np.float32)


def _airport(rng: Generator, grid: _Grid) -> Array:
    hall = _noise(rng, grid, _low_pass(grid, rng.uniform(150, 500), rng.uniform(0.8, 1.3)))
    crowd = np.zeros_like(hall)
    for _ in range(int(rng.integers(2, 4))):
        formants = (rng.uniform(350, 750), rng.uniform(1000, 2000), rng.uniform(2300, 3200))
        shape = sum((_band(grid, f, 0.25) / (1 + i) for i, f in enumerate(formants)), np.zeros(1))
        crowd += rng.uniform(0.3, 1.0) * _noise(rng, grid, shape) * _syllables(rng, grid)
    if rng.random() < 0.35:
        base, start = rng.uniform(450, 1000), rng.uniform(0, 0.7) * grid.time_s[-1]
        for step, ratio in enumerate((1.0, rng.choice([0.75, 0.8, 1.25]))):
            crowd += rng.uniform(0.5, 2.0) * _ring(grid, start + 0.3 * step, base * ratio, 0.25)
    return hall + rng.uniform(0.35, 1.2) * _reverberate(rng, grid, crowd)


def _street_traffic(rng: Generator, grid: _Grid) -> Array:
    rumble = _noise(rng, grid, _low_pass(grid, rng.uniform(70, 220), rng.uniform(0.8, 1.3)))
    tyres = _noise(rng, grid, _band(grid, rng.uniform(600, 1400), rng.uniform(0.5, 0.9)))
    swell = 0.4 + _bump(grid, rng.uniform(-0.3, 1.3), rng.uniform(0.3, 1.2))
    scene = swell * (rumble + rng.uniform(0.1, 0.55) * tyres)
    if rng.random() < 0.15:
        start, base = rng.uniform(0, 0.8), rng.uniform(330, 480)
        gate = (grid.time_s > start) & (grid.time_s < start + rng.uniform(0.15, 0.5))
        scene += gate * rng.uniform(0.2, 0.6) * (_tone(rng, grid, base, 6) + _tone(rng, grid, base * 1.26, 6))
    return scene


def _bus(rng: Generator, grid: _Grid) -> Array:
    drift = rng.uniform(-0.15, 0.15) * grid.time_s + 0.02 * np.sin(2 * math.pi * rng.uniform(0.2, 1) * grid.time_s)
    engine = _tone(rng, grid, rng.uniform(60, 120) * (1 + drift / max(1.0, grid.time_s[-1])), 14)
    cabin = _noise(rng, grid, _low_pass(grid, rng.uniform(150, 450), rng.uniform(0.9, 1.5)))
    rattle = _noise(rng, grid, _band(grid, rng.uniform(900, 2600), 0.4)) * _syllables(rng, grid)
    return rng.uniform(0.65, 1.4) * engine + cabin + rng.uniform(0.0, 0.25) * rattle


def _park(rng: Generator, grid: _Grid) -> Array:
    gusts = 0.5 + _bump(grid, rng.uniform(-0.3, 1.3), rng.uniform(0.3, 1.0))
    scene = gusts * _noise(rng, grid, _low_pass(grid, rng.uniform(90, 400), rng.uniform(0.7, 1.2)))
    scene += rng.uniform(0.05, 0.4) * _noise(rng, grid, _band(grid, rng.uniform(2500, 4500), 0.8))
    for _ in range(int(rng.integers(0, 6))):
        scene += rng.uniform(0.1, 0.9) * _chirp(rng, grid)
    return 0.6 * scene


_SCENES: dict[str, Callable[[Generator, _Grid], Array]] = {
    "airport": _airport,
    "street_traffic": _street_traffic,
    "bus": _bus,
    "park": _park,
}


def _microphone(rng: Generator, grid: _Grid, scene: Array) -> Array:
    """Tilt the spectrum at random, add the microphone's noise, scale by up to +-6 dB, and limit the peak."""
    octaves = np.log2(np.maximum(grid.freq_hz, 20.0) / 1000.0)
    tilt = 10 ** (rng.uniform(-1.0, 1.0) * octaves / 20)
    coloured = np.fft.irfft(np.fft.rfft(scene) * tilt, len(scene))
    noise = rng.standard_normal(len(scene)) * 10 ** (rng.uniform(-40, -28) / 20)
    mixed = (coloured + noise) * 0.08 * 10 ** (rng.uniform(-6, 6) / 20)
    peak = float(np.max(np.abs(mixed)))
    return mixed if peak <= _PEAK else mixed * (_PEAK / peak)


def _noise(rng: Generator, grid: _Grid, shape: Array) -> Array:
    """Return Gaussian noise of unit RMS whose amplitude spectrum follows ``shape``."""
    bins = len(grid.freq_hz)
    spectrum = shape * (rng.standard_normal(bins) + 1j * rng.standard_normal(bins))
    spectrum[0] = 0.0
    signal = np.fft.irfft(spectrum, len(grid.time_s))
    return np.asarray(signal / max(float(np.sqrt(np.mean(signal**2))), 1e-12))


def _low_pass(grid: _Grid, corner_hz: float, order: float) -> Array:
    return np.asarray(1.0 / (1.0 + (grid.freq_hz / corner_hz) ** 2) ** (order / 2))


def _band(grid: _Grid, centre_hz: float, octaves: float) -> Array:
    distance = np.log2(np.maximum(grid.freq_hz, 1.0) / min(centre_hz, 0.4 * grid.rate_hz))
    return np.asarray(np.exp(-0.5 * (distance / octaves) ** 2))


def _bump(grid: _Grid, centre_s: float, width_s: float) -> Array:
    return np.asarray(np.exp(-0.5 * ((grid.time_s - centre_s) / width_s) ** 2))


def _syllables(rng: Generator, grid: _Grid) -> Array:
    phase = 2 * math.pi * (rng.uniform(2.5, 6.0) * grid.time_s + rng.random())
    return np.asarray(np.clip(0.6 + np.sin(phase) + 0.5 * np.sin(0.37 * phase), 0.05, None))


def _ring(grid: _Grid, start_s: float, freq_hz: float, decay_s: float) -> Array:
    since_s = grid.time_s - start_s
    envelope = np.where(since_s >= 0, np.exp(-np.maximum(since_s, 0.0) / decay_s), 0.0)
    return np.asarray(envelope * np.sin(2 * math.pi * min(freq_hz, 0.45 * grid.rate_hz) * since_s))


def _tone(rng: Generator, grid: _Grid, base_hz: float | Array, harmonics: int) -> Array:
    """Return unit-RMS harmonics of ``base_hz`` (a number or one value per sample), none above Nyquist."""
    phase = 2 * math.pi * np.cumsum(np.broadcast_to(base_hz, grid.time_s.shape)) / grid.rate_hz
    slope = rng.uniform(0.6, 1.3)
    turn = np.exp(1j * phase)
    power, total = np.ones_like(turn), np.zeros_like(grid.time_s)
    for k in range(1, harmonics + 1):
        power *= turn
        if k * float(np.max(base_hz)) < 0.5 * grid.rate_hz:
            start = 2 * math.pi * rng.random()
            level = rng.uniform(0.4, 1.0) * k**-slope
            total += level * (math.cos(start) * power.imag + math.sin(start) * power.real)
    return np.asarray(total / max(float(np.sqrt(np.mean(total**2))), 1e-12))


def _chirp(rng: Generator, grid: _Grid) -> Array:
    """Return one bird call: a short sweep inside 3 to 7 kHz (lower if the rate is too low)."""
    low_hz, high_hz = np.minimum(rng.uniform(3000, 7000, 2), 0.45 * grid.rate_hz)
    length_s = rng.uniform(0.04, 0.16)
    since_s = grid.time_s - rng.uniform(0, 1) * max(grid.time_s[-1] - length_s, 0.0)
    part = np.clip(since_s / length_s, 0.0, 1.0)
    sweep = np.sin(2 * math.pi * (low_hz * part + 0.5 * (high_hz - low_hz) * part**2) * length_s)
    return np.asarray(np.sin(math.pi * part) ** 2 * sweep)


def _reverberate(rng: Generator, grid: _Grid, dry: Array) -> Array:
    """Return 0.6 times ``dry`` plus an equally strong decaying tail, whose part after the end is added at the begin."""
    count = len(dry)
    tail = rng.standard_normal(count) * np.exp(-grid.time_s / rng.uniform(0.1, 0.35))
    echo = np.fft.irfft(np.fft.rfft(dry) * np.fft.rfft(tail), count)
    gain = math.sqrt(float(np.mean(dry**2)) / max(float(np.mean(echo**2)), 1e-24))
    return np.asarray(0.6 * dry + 0.6 * gain * echo)
