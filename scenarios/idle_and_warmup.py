"""Common parts of the scenarios: idle windows around the work, and the test that ends the rounds through a set."""

from collections.abc import Iterator, Sequence

from rig.bench.settings import within
from rig.errors import refused
from rig.types import Clock, Idle, Issue, Mark, Rules, Sample, Step, Workload

LONGEST_IDLE_S, LONGEST_S = 86400.0, 30 * 86400.0
"""The longest idle window and the longest run (s). They limit what `rig measure --like` takes from files of others."""

MOST_WARMUP = 1_000_000
MOST_REPEAT = 10**9


def framed(work: Iterator[Step], workload: Workload, idle_s: float, warmup: int) -> Iterator[Step]:
    """Yield the work with an idle window before and after it: mark, warm-up, idle, work, idle, mark."""
    yield Mark()
    for k in range(warmup):
        yield Issue([workload.samples[k % len(workload.samples)]], warmup=True)
    yield Idle(idle_s)
    yield from work
    yield Idle(idle_s)
    yield Mark()


def check_order(workload: Workload, scenario: str) -> None:
    """Raise ``UsageError`` for a workload whose samples teach the device, because ``scenario`` changes their order."""
    if (workload.details or {}).get("incremental") and any(sample.learn for sample in workload.samples):
        remedy = "Use the scenario single-stream without --per-phase"
        what = f"workload {workload.name} teaches in sessions, and {scenario} does not play its samples in their order"
        raise refused("workload", workload.name, remedy, what)


def once(samples: Sequence[Sample]) -> Iterator[Step]:
    """Yield every sample once, in order, for an accuracy run."""
    return (Issue([sample]) for sample in samples)


class Enough:
    """True once the issued samples and the time on the run's clock reach the rules' minimum count and duration."""

    def __init__(self, rules: Rules, clock: Clock | None, slack: float = 1.0) -> None:
        self._least = rules.min_queries
        self._wait_ns = round(slack * rules.min_duration_s * 1e9)
        self._clock = clock
        self._count = 0
        self._until_ns = 0

    def start(self) -> None:
        """Begin to count time."""
        self._until_ns = self._now_ns() + self._wait_ns

    def add(self, samples: int) -> None:
        """Add the number of samples just issued."""
        self._count += samples

    def __bool__(self) -> bool:
        return self._count >= self._least and self._now_ns() >= self._until_ns

    def _now_ns(self) -> int:
        return self._clock.now_ns() if self._clock is not None else 0


def idle_and_warmup(rules: Rules, idle_s: float | None, warmup: int | None) -> tuple[float, int]:
    """Return the seconds of an idle window and the samples of warm-up: the options, or else the values of the rules.

    Rules without a limit for the warm-up give one sample. Raises ``UsageError`` for an option out of range.
    """
    idle, warm = chosen(idle_s, rules.idle_s), int(chosen(warmup, 1 if rules.warmup is None else rules.warmup))
    within(0, LONGEST_IDLE_S, idle_s=idle)
    within(0, MOST_WARMUP, warmup=warm)
    return idle, warm


def chosen(value: float | None, default: float | None) -> float:
    """Return an option as a number: its value if it is given, else the default, else 0."""
    return float(value if value is not None else default or 0)
