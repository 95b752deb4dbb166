"""How close do Lava's CPU backend and D-Wave's tabu search come to the official targets in a given time?

    python -m benchmarks.loihi2_sim --nodes 10,25,50,100,250,1000 --budgets 0.1,1,10

Prints one row for each size and budget, over the tuning seeds. For Lava: mean cost, mean gap to the official target,
time steps per second, mean and largest overrun of the budget, and mean time of loading (not part of a solve). For tabu
search: mean cost and mean gap. Last comes Lava's mean gap divided by that of tabu search. Needs an interpreter with
Lava (``rig doctor loihi2``), and the extra qubo for tabu search.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.command_line import parser_of
from drivers.devices.cpu import cpu_tabu
from drivers.devices.loihi2 import device as loihi2
from rig.analysis.solving.gap_to_target import gap
from rig.errors import MissingExtraError
from rig.types import Budget, Device, Sample
from scenarios.workloads.qubo_mis.workload import open_workload

HEAD = (
    f"{'nodes':>6}{'budget':>8}{'cost':>8}{'gap':>8}{'steps/s':>9}{'overrun':>10}{'largest':>10}{'load':>7}"
    f"{'tabu':>9}{'gap':>8}{'ratio':>7}"
)


@dataclass(frozen=True)
class Outcome:
    """One solve; times in seconds."""

    cost: int
    gap: float
    steps_hz: float
    over_s: float
    load_s: float


def solve(device: Device, sample: Sample, budget_s: float) -> Outcome:
    """Load and solve once."""
    began_s = time.monotonic()
    device.stage([sample])
    load_s = time.monotonic() - began_s
    device.submit([sample], Budget(budget_s))
    while not (replies := device.poll(10.0)):
        pass
    (reply,) = replies
    (span,) = reply.spans
    over_s = max(0.0, (span.off_tick - span.on_tick) * 1e-9 - budget_s)
    cost = int(reply.output["cost"])
    return Outcome(cost, gap(cost, sample.target_cost or -1.0), float(reply.output.get("steps_hz", 0)), over_s, load_s)


def mean(values: Sequence[float]) -> float:
    """Return the mean of one or more values."""
    return sum(values) / len(values)


def peer() -> Device | None:
    """Return D-Wave's tabu search, if it is installed."""
    try:
        return cpu_tabu.open_device()
    except MissingExtraError as error:
        print(error)
        return None


def main() -> None:
    given = parser_of(
        __doc__, nodes="10,25,50,100,250,1000", budgets="0.1,1,10", density=0.05, seeds="0-4", interpreter=""
    ).parse_args()
    budgets_s = [float(text) for text in given.budgets.split(",")]
    device, other = loihi2.open_device(simulate=True, interpreter=given.interpreter), peer()
    print(HEAD)
    for nodes in map(int, given.nodes.split(",")):
        samples = open_workload(nodes=nodes, density=given.density, seeds=given.seeds).samples
        for budget_s in budgets_s:
            print(row(nodes, budget_s, samples, device, other), flush=True)
    device.close()
    if other is not None:
        other.close()


def row(nodes: int, budget_s: float, samples: Sequence[Sample], device: Device, other: Device | None) -> str:
    """Return the row of one size and one budget."""
    ours = [solve(device, sample, budget_s) for sample in samples]
    gap_ = mean([one.gap for one in ours])
    text = (
        f"{nodes:>6}{budget_s:>8g}{mean([one.cost for one in ours]):>8.1f}{gap_:>8.3f}"
        f"{mean([one.steps_hz for one in ours]):>9.0f}{mean([one.over_s for one in ours]):>10.4f}"
        f"{max(one.over_s for one in ours):>10.4f}{mean([one.load_s for one in ours]):>7.2f}"
    )
    if other is None:
        return text
    theirs = [solve(other, sample, budget_s) for sample in samples]
    their_gap = mean([one.gap for one in theirs])
    ratio = f"{gap_ / their_gap:.2f}" if their_gap > 0 else "-"
    return f"{text}{mean([one.cost for one in theirs]):>9.1f}{their_gap:>8.3f}{ratio:>7}"


if __name__ == "__main__":
    main()
