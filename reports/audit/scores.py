"""Score recorded outputs as NeuroBench defines it: accuracy, sMAPE and R2, and costs of independent sets."""

import functools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pandas as pd

from reports.audit.figures import Figures, Plain, alone, answer_in, counted, issues, mean_of, parsed
from reports.audit.folder.reading import Run, by_sample, clean, refuse
from reports.audit.tolerances import EXACT
from rig.types import Floats

NODES_MOST, EDGES_DRAWN = 10_000, 400_000
Score = Callable[[Floats, Floats], float]


def outputs(run: Run) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each counted issue with an output, and the fields of the output; empty if it is no JSON object."""
    every = counted(run)
    for issue in every[[output is not None for output in every.output]]:
        value = parsed(issue.output)
        yield issue, value if isinstance(value, dict) else {}


def answers(run: Run, *, silent: bool = False) -> list[tuple[str, Any]]:
    """Return the sample and the answer of each counted output, as ``decided`` and ``answer_in`` find them."""
    return [(sample, answer_in(value)) for sample, value in decided(run, silent=silent)]


def decided(run: Run, *, silent: bool = False) -> list[tuple[str, Any]]:
    """Return the sample and the value of each counted output.

    If phases were issued alone, an output of only earlier phases is no answer. With ``silent``, samples that were
    completed without an output are included, with the answer None.
    """
    every, phases = cast(Any, issues(run)), run.start["device"].get("phases") or []
    if len(phases) > 1 and (run.options.get("apart") or alone(run)):
        every = every[[not ran or phases[-1] in ran for ran in every.phases]]
    told = np.array([output is not None for output in every.output], dtype=bool)
    done = every[~every.warmup & (told | (silent & ~np.isnan(every.answered_s)))]
    return [(sample, parsed(output)) for sample, output in zip(done.sample, done.output, strict=True)]


def accuracy(run: Run) -> Figures:
    """Return the accuracy of the recorded outputs: over samples, each counted once, and as the mean over classes."""
    label, right = by_sample(run, "label"), defaultdict[str, list[bool]](list)
    for sample, answer in answers(run):
        if label.get(sample) is not None:
            right[sample].append(answer == label[sample])
    if not right:
        return {}
    share = pd.Series({sample: mean_of(found) for sample, found in right.items()})
    return {
        "accuracy": Plain(mean_of(share), EXACT, "outputs equal to labels"),
        "balanced_accuracy": Plain(mean_of(share.groupby(label.get).agg(mean_of)), EXACT, "mean over classes"),
    }


def predictions(run: Run) -> Figures:
    """Return the summary of the scores of the samples, each counted once, and for a regression each score.

    There is no summary if a sample has no score, and no figure at all if the workload has nothing to predict.
    """
    details = run.details
    if "forecast_from" in details:
        each = _scores(run, "forecast", lambda _: (None, details["forecast_from"]), smape)
        found = {f"smape_p{p}": float(np.percentile([*each.values()], p)) for p in (25, 50, 75)} if each else {}
        mean = "smape_mean"
    elif "regress" in details:
        begin = details.get("regress_from") or {}
        each = _scores(run, "prediction", lambda name: (details["regress"], begin.get(name)), r2)
        found = {f"sample.{name}.r2": value for name, value in each.items()}
        mean = "r2"
    else:
        return {}
    if each:
        found[mean] = mean_of(each.values())
    stated = ((key, value) for key, value in found.items() if math.isfinite(value))
    return {key: Plain(value, EXACT * max(1.0, abs(value)), "outputs beside payloads") for key, value in stated}


def smape(wanted: Floats, found: Floats) -> float:
    """Return 200 times the mean ratio of error to sum of magnitudes; the ratio is 1 where a forecast is not finite."""
    both = np.abs(wanted) + np.abs(found)
    share = np.abs(wanted - found) / np.where(both > 0, both, 1.0)
    return 200.0 * float(np.mean(np.where(np.isfinite(both), share, 1.0)))


def r2(wanted: Floats, found: Floats) -> float:
    """Return 1 minus squared error over squared deviation, averaged over columns; NaN if it is undefined."""
    around = np.sum((wanted - wanted.mean(axis=0)) ** 2, axis=0)
    if np.any(around == 0) or not np.isfinite(found).all():
        return math.nan
    return float(np.mean(1.0 - np.sum((wanted - found) ** 2, axis=0) / around))


def _scores(run: Run, key: str, part: Callable[[str], tuple[str | None, Any]], score: Score) -> dict[str, float]:
    """Return the score of each sample; NaN if an answer cannot be judged. An answer that is no list counts as nulls."""
    each = defaultdict[str, list[float]](list)
    truth = functools.cache(lambda sample: truth_of(run, sample, *part(sample)))
    for sample, value in decided(run):
        wanted, guess = truth(sample), value.get(key) if isinstance(value, dict) else None
        try:  # null becomes NaN
            found = np.array(guess, np.float64) if isinstance(guess, list) else np.full_like(wanted, math.nan)
            each[sample] += [score(wanted, found) if len(wanted) and wanted.shape == found.shape else math.nan]
        except (TypeError, ValueError, OverflowError):  # texts, or lists of different lengths
            each[sample] += [math.nan]
    return {name: mean_of(values) for name, values in each.items()}


def truth_of(run: Run, sample: str, field: str | None, begin: Any) -> Any:
    """Return what was to be predicted: the stored payload from ``begin`` on, float64; empty if it is not stored."""
    stored = run.whole.payload(sample) if type(begin) is int and begin >= 0 else None
    try:
        return np.zeros(0) if stored is None else np.asarray(stored[field] if field else stored, np.float64)[begin:]
    except (ValueError, IndexError, TypeError):
        refuse(f"the payload of {sample!r}", "is no array of what was to be predicted")


def is_solving(run: Run) -> bool:
    """Return whether the workload consists of independent-set problems or other QUBOs."""
    return run.start["workload"].get("task") in ("qubo-mis", "qubo")


def problem(run: Run, sample: str) -> tuple[int, Any] | None:
    """Return the number of nodes and the edges, int32 of shape (m, 2), of a stored problem; None if it is not stored.

    For another QUBO, return the number of bits, and rows (u, v, weight): the constant, then a row for each term.
    """
    body = run.whole.payload(sample)
    if body is None:
        return None
    if body.dtype.names == ("u", "v", "weight"):
        bits = int(body["u"][0]) if body.ndim == 1 and len(body) else 0
        ends = [body[1:][name] for name in ("u", "v")] if bits else []
        if not 0 < bits <= NODES_MOST or any(len(end) and (end.min() < 0 or end.max() >= bits) for end in ends):
            refuse(f"the problem {sample!r}", f"uses a bit that it lacks, or more than {NODES_MOST} bits")
        return bits, body
    if body.dtype != "<i4" or body.ndim != 1 or len(body) < 2 or len(body) != 2 + 2 * body[1]:
        refuse(f"the problem {sample!r}", "must hold its numbers of nodes and edges, then the edges")
    nodes, edges = int(body[0]), body[2:].reshape(-1, 2)
    if not 0 < nodes <= NODES_MOST or (len(edges) and (edges.min() < 0 or edges.max() >= nodes)):
        refuse(f"the problem {sample!r}", f"uses a node that it lacks, or more than {NODES_MOST} nodes")
    return nodes, edges


def cost_of(graph: tuple[int, Any], text: str) -> float | None:
    """Return x^T Q x; Q of a graph has -1 on the diagonal and 4 per ordered pair. None if ``text`` is no solution."""
    nodes, edges = graph
    try:
        packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    except ValueError:
        return None
    if len(packed) != (nodes + 7) // 8:
        return None
    chosen = np.unpackbits(packed)[:nodes].astype(np.int64)
    if edges.dtype.names:
        terms = edges[1:]
        return float(edges["weight"][0] + np.sum(terms["weight"] * chosen[terms["u"]] * chosen[terms["v"]]))
    return float(-chosen.sum() + 8 * np.sum(chosen[edges[:, 0]] * chosen[edges[:, 1]]))


def solving(run: Run) -> tuple[Figures, list[str]]:
    """Return costs and gaps of recorded solutions of problems, and the faults in what was recorded."""
    wrong, costs = list[str](), list[tuple[str, float]]()
    for issue, fields in outputs(run) if is_solving(run) else ():
        text, graph = fields.get("solution"), problem(run, issue.sample)
        if graph is None or not isinstance(text, str):
            wrong.append(f"issue {issue.number}: no solution of a recorded problem")
            continue
        cost, told = cost_of(graph, text), fields.get("cost")
        if cost is None or not (told is None or math.isclose(told, cost, rel_tol=1e-9, abs_tol=1e-12)):
            wrong.append(clean(f"issue {issue.number}: the cost is {cost}, not {told}"))
        costs += [(issue.sample, cost)] if cost is not None else []
    if not costs:
        return {}, wrong
    each = [cost for _, cost in costs]
    found = {"cost_mean": (mean_of(each), "x^T Q x of each solution"), "cost_best": (min(each), "x^T Q x of the best")}
    targets = {"official": by_sample(run, "target_cost")} | (run.start["workload"].get("targets") or {})
    for name, target in targets.items():
        if gaps := [(cost - t) / abs(t) for sample, cost in costs if (t := target.get(sample))]:
            found[f"gap_{name}_mean"] = (mean_of(gaps), "(c - c_target) / |c_target|")
    return {key: Plain(value, EXACT, method) for key, (value, method) in found.items()}, wrong


def redrawn(run: Run) -> dict[str, bool]:
    """Return for each stored problem that can be drawn again whether it equals a graph that its seed draws."""
    densities, found = run.details.get("densities") or [], {}
    for name, seed in by_sample(run, "seed").items() if is_solving(run) and densities else ():
        if seed is not None and (graph := problem(run, name)) is not None:
            drawings = [drawn(graph[0], float(density), int(seed)) for density in densities]
            if None not in drawings:
                found[name] = {(int(min(edge)), int(max(edge))) for edge in graph[1]} in drawings
    return found


def drawn(nodes: int, density: float, seed: int) -> set[tuple[int, int]] | None:
    """Return the edges that NeuroBench draws for a seed, as ``networkx.gnm_random_graph``; None if too many."""
    most, wanted = nodes * (nodes - 1) // 2, int(0.5 * density * nodes**2)
    if wanted > EDGES_DRAWN or wanted >= most:
        return None
    source, edges, names = random.Random(seed), set[tuple[int, int]](), range(nodes)
    while len(edges) < wanted:
        u, v = sorted((source.choice(names), source.choice(names)))
        if u != v:
            edges.add((u, v))
    return edges
