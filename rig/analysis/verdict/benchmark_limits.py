"""The limits of published benchmarks, which apply whatever limits a recording declares."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import NamedTuple

from rig.analysis.solving.gap_to_target import OFFICIAL, SPECIFIED, THRESHOLDS
from rig.types import Benchmark

Values = tuple[float | str | None, ...]
ASC = "NeuroBench 1.0, acoustic scene classification"
QUBO = "NeuroBench 1.0, QUBO (maximum independent set)"
LARGEST_NAMED = 5000
"""The largest number of nodes that the text of QUBO names; larger sizes follow the same progression."""
PROVEN_BELOW = 50
"""Below this many nodes, the target of QUBO is the optimum; otherwise it is the result of its Tabu search."""


class Limits(NamedTuple):
    """The limits of a benchmark: scenarios, and by name the values of its parameters and of options of the scenario.

    ``inference_s`` is the length of data of one inference, or None if the benchmark does not state it.
    """

    scenarios: Values
    parameters: Mapping[str, Values]
    options: Mapping[str, Values]
    inference_s: float | None = None


def limits_of(benchmark: Benchmark) -> Limits | None:
    """Return the limits of a benchmark by its name, or None if no known name looks the same to a reader.

    A letter beyond ASCII may look like any letter, so it matches any.
    """
    like = re.compile("".join(re.escape(c) if c.isascii() else "." for c in _seen(benchmark.name)))
    return next((held(benchmark) for name, held in _KNOWN.items() if like.fullmatch(_seen(name))), None)


def qubo_sizes(nodes: int) -> tuple[int, ...]:
    """Return the sizes of QUBO, which are 10, 25 and 50 times powers of ten, up to the larger of 5000 and ``nodes``."""
    every = (step * 10**exponent for exponent in count() for step in (10, 25, 50))
    return tuple(takewhile(lambda size: size <= max(nodes, LARGEST_NAMED), every))


def _asc(benchmark: Benchmark) -> Limits:
    return Limits(
        ("single-stream", "real-time"),
        {
            "data set": ("tau-urban-2020-mobile",),
            "split": ("test",),
            "samples": (16240,),
            "classes": ("airport", "street_traffic", "bus", "park"),
        },
        {"window_s": (1.0,)},
        inference_s=1.0,
    )


def _qubo(benchmark: Benchmark) -> Limits:
    found = benchmark.parameters["nodes"].found if "nodes" in benchmark.parameters else ()
    nodes = max((int(n) for n in found if isinstance(n, (int, float)) and abs(n) < 2**63), default=0)
    return Limits(
        ("optimization",),
        {
            "nodes": qubo_sizes(nodes),
            "density": (0.01, 0.05, 0.1, 0.25),
            "kind of seeds": ("evaluation (announced)", "evaluation (drawn)"),
            "number of seeds": (5,),
            "target": ("proven",) if nodes < PROVEN_BELOW else (SPECIFIED, OFFICIAL, "proven"),
        },
        {"timeout_s": (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2), "to_gap": (None, *THRESHOLDS), "solves": (5,)},
    )


def _seen(name: str) -> str:
    """Return a name without what a reader overlooks: repeated spaces, capitals, wide letters, and marks of no width."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Mn")).split())


_KNOWN: Mapping[str, Callable[[Benchmark], Limits]] = {ASC: _asc, QUBO: _qubo}
