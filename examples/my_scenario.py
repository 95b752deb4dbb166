"""A scenario in one file: a generator of the steps that the rig plays.

    rig measure --device mock --scenario examples/my_scenario.py:periodic

A sensor delivers one sample every ``period_s`` seconds, whether the device is ready or not. ``period_s`` and
``idle_s`` are options: --option period_s=0.25.
"""

from collections.abc import Iterator

from rig.types import Idle, Issue, Mark, Step, Workload


def periodic(workload: Workload, *, period_s: float = 0.5, idle_s: float = 2.0) -> Iterator[Step]:
    """Yield the whole set once, one sample every ``period_s`` seconds, between two idle windows of ``idle_s``."""
    yield Mark()  # reads every clock, and pulses the power if the device can do so
    yield Issue([workload.samples[0]], warmup=True)  # recorded, but in no figure
    yield Idle(idle_s)  # the idle power before the work
    for number, sample in enumerate(workload.samples):
        yield Issue([sample], due_ns=round(number * period_s * 1e9))  # due times count from the first of these samples
    yield Idle(idle_s)  # the idle power after the work
    yield Mark()
