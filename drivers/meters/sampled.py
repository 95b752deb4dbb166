"""Meters over instruments that fill a memory by their own sample timer; readings have no time stamps.

Such a trace is only as good as its count, and an instrument may lose readings silently. So the count of readings is
compared with the host's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from drivers.failures import meter_failed
from drivers.meters.threaded import Batch, Source, ThreadedMeter
from rig.types import Bracket, Clock, MeterInfo

POLL_S = 0.05
LAG_S = 0.5
"""Readings that become ready at most this late are not missing."""


def sampled_meter(
    info: MeterInfo, source: Source, clock: Clock | None = None, patience_s: float = 5.0, most: int | None = None
) -> ThreadedMeter:
    """Return a meter over a source whose first rail is a grid of ``rate_hz`` from tick 0. See ``ThreadedMeter``."""
    every_s = min(POLL_S, 0.1 * (info.buffer_s or math.inf))
    return ThreadedMeter(info, _Counted(info, source), clock, every_s=every_s, most=most, patience_s=patience_s)


class _Counted:
    """A source whose count of readings fits the time since its start. Raises ``MeterError`` if it does not."""

    def __init__(self, info: MeterInfo, source: Source) -> None:
        self._info, self._source = info, source

    def begin(self, clock: Clock) -> Bracket:
        self._clock, self._count = clock, 0
        self._bracket = self._source.begin(clock)
        return self._bracket

    def fetch(self) -> Iterator[Batch]:
        before_ns = asked_ns = self._clock.now_ns()
        for batch in self._counted(self._source.fetch()):
            before_ns, asked_ns = asked_ns, self._clock.now_ns()
            yield batch
        self._check(before_ns, self._clock.now_ns())

    def finish(self) -> Iterator[Batch]:
        before_ns = self._clock.now_ns()  # no readings are due after the sampling has stopped
        yield from self._counted(self._source.finish())
        self._check(before_ns, self._clock.now_ns())

    def close(self) -> None:
        self._source.close()

    def _counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._count += len(batch[0].value)
            self._check(self._bracket.after_ns, self._clock.now_ns())
            yield batch

    def _check(self, before_ns: int, after_ns: int) -> None:
        """Refuse fewer readings than due at ``before_ns`` (a loss) or more than due at ``after_ns`` (another timer)."""
        rate_hz, tolerance = self._info.rails[0].rate_hz, self._info.clock.tolerance
        least = max(0.0, ((before_ns - self._bracket.after_ns) * 1e-9 * (1.0 - tolerance) - LAG_S) * rate_hz - 2.0)
        most = ((after_ns - self._bracket.before_ns) * 1e-9 * (1.0 + tolerance)) * rate_hz + 2.0
        if not least <= self._count <= most:
            elapsed_s = (after_ns - self._bracket.after_ns) * 1e-9
            raise meter_failed(
                f"meter {self._info.name} delivered {self._count} readings in {elapsed_s:.3f} s at {rate_hz:g} Hz, "
                f"where {least:.0f} to {most:.0f} are expected: readings were lost, or its timer runs at another rate",
                "rate_hz",
                self._count,
                "Lower rate_hz, or use a faster link",
            )


def first_reading(before_ns: int, arrived_ns: int, count: int, rate_hz: float, tolerance: float) -> Bracket:
    """Return the bracket of tick 0 if ``count`` readings came by ``arrived_ns`` from a stream started at ``before_ns``.

    The last reading was complete by then, so the first began at least ``count`` periods earlier.
    """
    latest_ns = arrived_ns - round(count * 1e9 / rate_hz * (1.0 - tolerance))
    return Bracket(before_ns, 0, max(before_ns, latest_ns))
