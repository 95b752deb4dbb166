"""Figures for solutions of QUBO problems: what the returned vectors cost, whatever the device says they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rig.analysis.solving.gap import THRESHOLDS, gap
from rig.analysis.solving.graph import Graph, from_hex
from rig.errors import DataError
from rig.types import Reply


@dataclass(frozen=True, slots=True)
class Problem:
    """One graph by what it is drawn from, with its target cost where there is one."""

    id: str
    nodes: int
    density: float
    seed: int
    target: int | None


def score_solutions(
    problems: Sequence[Problem], graph_of: Callable[[Problem], Graph], replies: Sequence[Reply]
) -> dict[str, float]:
    """Figures for replies whose output is ``{"cost": c, "solution": rig.analysis.solving.graph.to_hex(x)}``.

    ``n`` is the replies, ``unanswered`` the problems without one, ``independent`` the share of solutions that are
    independent sets, ``misstated`` how many costs are not those of their solution, ``cost_mean`` the mean cost. For
    problems with a target: ``with_target`` the replies, ``gap_mean``, ``gap_best`` and ``gap_worst`` (see ``gap``)
    and ``within_0.1`` and so on, the share whose gap is no larger. All of it from costs computed here. Every reply
    counts, repeated ones too; a figure that nothing supports is left out. Raises DataError for a reply to an
    unknown sample, or an output of any other form.
    """
    known = {problem.id: problem for problem in problems}
    of: dict[str, list[Reply]] = {}
    for reply in replies:
        if reply.sample_id not in known:
            raise _bad(
                "sample_id",
                reply.sample_id,
                f"no sample is called {reply.sample_id!r}",
                "Score with the workload that was run",
            )
        of.setdefault(reply.sample_id, []).append(reply)
    costs: list[int] = []
    gaps: list[float] = []
    independent = misstated = 0
    for key, answers in of.items():  # problem by problem, since each graph is drawn anew
        problem = known[key]
        graph = graph_of(problem)
        for reply in answers:
            claimed, solution = _output(reply)
            x = from_hex(solution, problem.nodes)
            cost = graph.cost(x)
            costs.append(cost)
            misstated += claimed != cost
            independent += cost == -int(x.sum())
            if problem.target is not None:
                gaps.append(gap(cost, problem.target))
    figures = {"n": float(len(costs)), "unanswered": float(len(known) - len(of))}
    if costs:
        figures |= {"independent": independent / len(costs), "misstated": float(misstated)}
        figures["cost_mean"] = sum(costs) / len(costs)
    return figures | _gap_figures(gaps)


def _gap_figures(gaps: Sequence[float]) -> dict[str, float]:
    if not gaps:
        return {}
    return {
        "with_target": float(len(gaps)),
        "gap_mean": sum(gaps) / len(gaps),
        "gap_best": min(gaps),
        "gap_worst": max(gaps),
        **{f"within_{limit}": sum(g <= limit for g in gaps) / len(gaps) for limit in THRESHOLDS},
    }


def _output(reply: Reply) -> tuple[float, str]:
    output = reply.output
    if isinstance(output, Mapping):
        cost, solution = output.get("cost"), output.get("solution")
        if isinstance(cost, (int, float)) and not isinstance(cost, bool) and isinstance(solution, str):
            return cost, solution
    raise _bad(
        "output",
        str(output)[:80],
        f"the output for {reply.sample_id!r} is no solution",
        "Reply with {'cost': c, 'solution': rig.analysis.solving.graph.to_hex(x)}",
    )


def _bad(field: str, value: object, what: str, remedy: str) -> DataError:
    return DataError(what, field=field, value=value, remedy=remedy)
