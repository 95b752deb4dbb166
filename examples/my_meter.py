"""A meter in one file: declare the rails, hand over readings as they become ready.

    rig measure --device mock --meter examples/my_meter.py:open_meter

The instrument is SIMULATED: an ammeter between a 1.8 V supply and a resistor, which draws the same
whatever the device does. Put the calls to your instrument in place of ``_sampled``; a known resistor is
also the first thing to measure with a real one. ``ohms`` is an option: --option ohms=470.
"""

from collections.abc import Sequence

import numpy as np

from rig.types import Accuracy, Bracket, Chunk, Clock, ClockInfo, Conversion, Floats, Meter, MeterInfo, Rail

SUPPLY_V, NOISE_A, RESOLUTION_A = 1.8, 2e-6, 1e-7


class MyMeter:
    """Readings on a uniform grid from the trigger on, stamped by the host's clock."""

    def __init__(self, clock: Clock, rate_hz: float, ohms: float) -> None:
        self._clock, self._rate_hz, self._ohms = clock, rate_hz, ohms
        self._noise = np.random.default_rng(1)
        self._started_ns = 0
        self._taken = 0
        self._running = False

    def info(self) -> MeterInfo:
        """What the instrument sees, how, and how well: this goes into the recording and the budget."""
        rail = Rail(
            name="resistor",
            kind="mean",  # each reading is a mean over its aperture
            conversion=Conversion("A", supply_v=SUPPLY_V),  # raw readings are amperes; the rig keeps them raw
            rate_hz=self._rate_hz,
            aperture_s=1.0 / self._rate_hz,
            resolution=RESOLUTION_A,
            accuracy=Accuracy(of_reading=5e-4, offset=1e-6, source="made up for this example"),
        )
        # a clock of the instrument's own would have a name and a rate of its own, and a method timer()
        clock = ClockInfo("host", 1e9, tolerance=0.0)
        return MeterInfo(name="my-meter", mode="simulator", clock=clock, rails=(rail,), omitted=("everything else",))

    def start(self) -> Bracket:
        """Trigger. The first reading begins at the tick that lies between two stamps of the host's clock."""
        before_ns = self._clock.now_ns()
        self._started_ns, self._taken, self._running = self._clock.now_ns(), 0, True
        return Bracket(before_ns, self._started_ns, self._clock.now_ns())

    def read(self) -> Sequence[Chunk]:
        """What has become ready since the last call, perhaps nothing; never waits."""
        if not self._running:
            return ()
        ready = int((self._clock.now_ns() - self._started_ns) * 1e-9 * self._rate_hz)
        amperes = self._sampled(ready - self._taken)
        self._taken = ready
        return [Chunk("resistor", amperes)] if len(amperes) else ()

    def stop(self) -> Sequence[Chunk]:
        """The rest."""
        rest = self.read()
        self._running = False
        return rest

    def close(self) -> None:
        """Nothing is open. May be called twice."""

    def _sampled(self, n: int) -> Floats:
        true = SUPPLY_V / self._ohms
        return np.round((true + self._noise.normal(0.0, NOISE_A, n)) / RESOLUTION_A) * RESOLUTION_A


def open_meter(clock: Clock, *, rate_hz: float = 1000.0, ohms: float = 1000.0) -> Meter:
    """An ammeter and a resistor. ``clock`` is handed in: the host's, or the one a simulation lives by."""
    return MyMeter(clock, rate_hz, ohms)
