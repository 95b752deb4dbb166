"""Check whether a run keeps the limits of its benchmark; ``benchmarks.json`` has the limits of known benchmarks."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from reports.audit.folder.reading import Run, column, held, table
from reports.audit.judged import Judged, none

OF_BENCHMARK, OPTION = "benchmark of the workload", "benchmark: option "
DECLARED = "limits as the submitter declares them"


def held_of(name: str) -> dict[str, Any]:
    """Return the limits of the benchmark with this name, or with a name that looks the same to a reader; else none.

    A letter that is not ASCII may look like any other letter.
    """
    known: dict[str, Any] = held("benchmarks.json")  # by name: what is allowed, and the seconds of one inference
    like = re.compile("".join(re.escape(c) if c.isascii() else "." for c in _seen(name)))
    same = (own for other, own in known.items() if like.fullmatch(_seen(other)))
    return next(same, {"allowed": {}, "inference_s": None})


def _seen(name: str) -> str:
    """Return a name without what readers may overlook: kinds of spaces, capitals, letter widths, hidden marks."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Mn")).split())


def benchmark(run: Run) -> Iterator[Judged]:
    """Judge the rules of a benchmark: each parameter of a run must be within the declared and the known limits."""
    declared = run.start["workload"].get("benchmark")
    if not declared:
        yield OF_BENCHMARK, "none", "declared", False
        return
    own_limits = held_of(declared["name"])
    limits = "limits as the auditor holds them" if own_limits["allowed"] else DECLARED
    yield OF_BENCHMARK, f"{declared['name']}, {limits}", "declared", True
    told = {"scenario of the benchmark": ([run.start["scenario"].get("name")], declared["scenarios"]["allowed"])}
    told |= {f"benchmark: {name}": (one["found"], one["allowed"]) for name, one in declared["parameters"].items()}
    options = declared.get("options", {}).items()
    told |= {OPTION + name: ([run.options.get(name)], one["allowed"]) for name, one in options}
    for rule in told | own_limits["allowed"]:
        if rule.startswith(OPTION) and rule.removeprefix(OPTION) not in run.options:
            continue  # an option that the scenario does not have
        found, own = told.get(rule, ([], []))
        allowed = own_limits["allowed"].get(rule, own)
        yield rule, _words(found), _words(allowed), found and set(found) <= {*allowed} & {*own}
    if (each_s := own_limits["inference_s"]) is not None:
        samples = table(run, "samples")
        pairs = list(zip(column(samples, "duration_s"), column(samples, "inferences"), strict=True))
        odd = sum(s is None or abs(s - each_s * (1 if n is None else n)) > 1e-6 * each_s for s, n in pairs)
        yield none(f"samples that are not {each_s:g} s long for each inference", odd, len(pairs))


def _words(values: list[Any]) -> str:
    return ", ".join(map(str, values)) or "none"
