"""The caption of each picture of a report, the width of each, and which one is a scenario's main picture."""

from __future__ import annotations

CAPTIONS = {
    "stream": "The probability of each class while the scene changed: inside a grey box it is that of the scene heard. "
    "An answer holds until the next; a bar runs from a change of scene to the first answer that is right and stays so.",
    "power": "Power over time, shaded by what the device did for most of each column.",
    "latency": "Execution time per inference: how often each occurred. Lines are the figures; of several trials they "
    "are the means, and the times are of all.",
    "service": "Time from the request of a sample to its completion at the host: over the run, and the share of the "
    "completed samples that took no longer.",
    "peak": "Each rate that the search tried: the latency that the rules bound, with its 95 % interval.",
    "solver": "How solves approached the target: the best gap that each had claimed so far, down to that of its answer "
    "(circles; costs computed again from the solutions), and the share of solves that had come within each threshold.",
    "clocks": "Each reading of a clock against the map fitted to all; a bar is half the round trip of the reading.",
    "trials": "Each trial against the mean of all.",
    "energy": "Where the energy of an inference goes.",
    "layers": "What the network did: operations by connection, and neurons without output by layer.",
    "budget": "The share of the variance of each key figure by its sources.",
}
"""The caption of each picture."""
HALVES = ("latency", "clocks", "trials", "energy", "layers", "budget")
"""Pictures of half width."""
MAIN = {"optimization": "solver", "real-time": "stream", "server": "service", "offline": "service"}
"""The main picture of each scenario; elsewhere it is the picture of execution times."""
