"""The microsecond counter of an MLPerf Tiny board, unwrapped by the host's clock."""

from __future__ import annotations

from typing import Protocol

SLACK_TICKS = 20_000
"""The largest distance of a reading from its expected host time, beyond the tolerance of the rate."""
RATE_SLACK = 0.01


class Unwraps(Protocol):
    """Converts readings of a counter that wraps to ticks."""

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int: ...


class BoardClock:
    """Unwraps the board's microseconds by the host's clock, and notices that they jumped.

    The reference's counter has 32 bits: it wraps every 71.6 minutes, and a gap between two readings may be longer.
    """

    def __init__(self, bits: int) -> None:
        self._modulus = 1 << bits
        self._last: tuple[int, int, int] | None = None

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int:
        """Return the ticks of a reading between two host stamps. Raises ``ValueError`` if the clock cannot show it."""
        if raw >= self._modulus:
            raise ValueError(
                f"its clock reads {raw}, which does not fit the {self._modulus.bit_length() - 1} bits of its counter"
            )
        tick = raw
        if self._last is not None:
            last_tick, last_before_ns, last_after_ns = self._last
            shortest_us = max(before_ns - last_after_ns, 0) * 1e-3 * (1.0 - RATE_SLACK) - SLACK_TICKS
            longest_us = (after_ns - last_before_ns) * 1e-3 * (1.0 + RATE_SLACK) + SLACK_TICKS
            middle = last_tick + 0.5 * (shortest_us + longest_us)
            tick = raw + self._modulus * round((middle - raw) / self._modulus)
            if not last_tick + shortest_us <= tick <= last_tick + longest_us:
                raise ValueError(
                    f"its clock advanced by {(tick - last_tick) * 1e-6:.6f} s while the host measured "
                    f"{shortest_us * 1e-6:.3f} to {longest_us * 1e-6:.3f} s"
                )
        self._last = (tick, before_ns, after_ns)
        return tick
