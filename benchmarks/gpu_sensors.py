"""How much of the time do an NVIDIA GPU's energy counter and power sensor measure, and how late are they?

    python -m benchmarks.gpu_sensors --seconds 40

A GPU works in bursts of random lengths. The host stamps the bursts, while NVML is read as fast as it answers. Each
new value of the counter or the sensor is then explained by the share of a window in which the GPU worked. The window
that explains the values best is the time that the sensor measures. It ends ``lag`` before the new value is first read,
and its length is ``window``. Both have the limits of their 95 % region. For a counter that measures all of the time,
the window is as long as the time between two new values.

Needs torch and a GPU. Prints a table and, last, one JSON line.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from drivers.meters.nvml.meter import SOURCES, gpus_of, open_nvml

BURSTS_S = (0.003, 0.04)
"""The lengths of the shortest and the longest burst, and of pauses (s)."""
SIZE = 1024
"""The side of the matrices that a burst multiplies.

With matrices this small, the GPU stays far below its power limit, so its clock is not throttled.
"""
LAGS_S = 1e-3 * np.arange(-20, 122, 2)
WINDOWS_S = 1e-3 * np.arange(5, 155, 5)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """The best fit for a sensor: lag and window in seconds, and the limits of their 95 % region."""

    renewals: int
    every_s: float
    lag_s: float
    lag_within_s: tuple[float, float]
    window_s: float
    window_within_s: tuple[float, float]


def seen(bursts_s: Array, renewed_s: Array, watts: Array) -> Seen:
    """Return the window before each renewal that explains a sensor's values best.

    ``bursts_s``: begins and ends of bursts, shape (n, 2); ``renewed_s`` and ``watts``: shape (m,). The fit assumes
    Gaussian noise, and one power without work and one with work. The region follows from the likelihood ratio.
    """
    edges = bursts_s.ravel()
    worked_s = np.concatenate(([0.0], np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))))
    grid = [(lag, window) for lag in LAGS_S for window in WINDOWS_S]
    left = []
    for lag, window in grid:
        to = renewed_s - lag
        part = (np.interp(to, edges, worked_s) - np.interp(to - window, edges, worked_s)) / window
        design = np.stack([np.ones_like(part), part], axis=1)
        left.append(float(np.sum((watts - design @ np.linalg.lstsq(design, watts)[0]) ** 2)))
    worse = len(watts) * np.log(np.array(left) / min(left))
    lags, windows = np.array(grid)[worse < chi2.ppf(0.95, 2)].T
    lag, window = grid[int(np.argmin(left))]
    return Seen(
        len(watts), float(np.median(np.diff(renewed_s))), float(lag), (float(lags.min()), float(lags.max())),
        float(window), (float(windows.min()), float(windows.max())),
    )  # fmt: skip


def work(to: Connection, seconds: float, seed: int) -> None:
    """Let the first GPU work in bursts, and send the stamps of the bursts in seconds, shape (n, 2)."""
    import torch

    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rng, stamps = Random(seed), list[tuple[float, float]]()
    for _ in range(200):
        a @ b
    torch.cuda.synchronize()
    until_s = time.monotonic() + seconds
    while (on_s := time.monotonic()) < until_s:
        off_s, rest_s = on_s + rng.uniform(*BURSTS_S), rng.uniform(*BURSTS_S)
        while time.monotonic() < off_s:
            for _ in range(4):
                a @ b
            torch.cuda.synchronize()
        stamps.append((on_s, time.monotonic()))
        while time.monotonic() < stamps[-1][1] + rest_s:
            pass
    to.send(stamps)


def measured(
    seconds: float, gpu: str, seed: int, work: Callable[[Connection, float, int], None] = work
) -> tuple[str, dict[str, Seen]]:
    """Return the GPU's name, and the best fit for each of its sources while another process does ``work``."""
    nvml = open_nvml()
    (opened,) = gpus_of(nvml, gpu)
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs, seconds, seed))
    process.start()
    looks: dict[str, list[tuple[float, float]]] = {source: [] for source in SOURCES}
    while process.is_alive() and not mine.poll():
        for source, found in looks.items():
            now_s, value = time.monotonic(), opened.read(source)
            if not found or value != found[-1][1]:
                found.append((now_s, value))
    bursts_s = np.array(mine.recv())
    process.join()
    nvml.nvmlShutdown()
    return opened.name, {source: seen(bursts_s, *_powers(source, bursts_s, found)) for source, found in looks.items()}


def _powers(source: str, bursts_s: Array, looks: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """Return the times at which power was renewed, from 0.5 s after the first burst to the last, and the watts."""
    at_s, value = np.array(looks).T
    watts = np.diff(value) / np.diff(at_s) if source == "energy" else value[1:]
    inside = (at_s[1:] > bursts_s[0, 0] + 0.5) & (at_s[1:] < bursts_s[-1, 1])
    return at_s[1:][inside], watts[inside]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    name, found = measured(options.seconds, options.gpu, options.seed)
    print(f"{name}, {options.seconds:g} s of bursts\nsource    renewed   lag               window            renewals")
    for source, s in found.items():
        lag, window = (
            f"{1e3 * best:.0f} ({1e3 * low:.0f} to {1e3 * high:.0f}) ms"
            for best, (low, high) in ((s.lag_s, s.lag_within_s), (s.window_s, s.window_within_s))
        )
        print(f"{source:9} {1e3 * s.every_s:5.1f} ms  {lag:17} {window:17} {s.renewals:8}")
    print(json.dumps({"gpu": name} | {source: asdict(s) for source, s in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
