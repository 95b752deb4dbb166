"""A meter in one file: it declares its rails and returns readings when they are ready.

    rig measure --device mock --meter examples/my_meter.py:open_meter

The instrument is SIMULATED. It is an ammeter between a 1.8 V supply and a resistor, so the power does not depend on
the device. Replace ``_sampled`` by the calls to your instrument, and measure a known resistor with it first.
``ohms`` is an option: --option ohms=470.
"""

from collections.abc import Sequence

import numpy as np

from rig.types import Accuracy, Bracket, Chunk, Clock, ClockInfo, Conversion, Floats, Meter, MeterInfo, Rail

SUPPLY_V, NOISE_A, RESOLUTION_A = 1.8, 2e-6, 1e-7


class MyMeter:
    """A meter whose readings are on a uniform grid that begins at the trigger, on the host's clock."""

    def __init__(self, clock: Clock, rate_hz: float, ohms: float) -> None:
        self._clock, self._rate_hz, self._ohms = clock, rate_hz, ohms
        self._noise = np.random.default_rng(1)
        self._started_ns = 0
        self._taken = 0
        self._running = False

    def info(self) -> MeterInfo:
        """Return what the instrument measures and how well. This goes into the recording and the budget."""
        rail = Rail(
            name="resistor",
            kind="mean",  # each reading is the mean over its aperture
            conversion=Conversion("A", supply_v=SUPPLY_V),  # readings are amperes, and are recorded as amperes
            rate_hz=self._rate_hz,
            aperture_s=1.0 / self._rate_hz,
            resolution=RESOLUTION_A,
            accuracy=Accuracy(of_reading=5e-4, offset=1e-6, source="made up for this example"),
        )
        # an instrument with its own clock declares the name and rate of its clock here, and has a method timer()
        clock = ClockInfo("host", 1e9, tolerance=0.0)
        return MeterInfo(
            name="my-meter", mode="simulator", clock=clock, rails=(rail,), omitted=("everything else",),
            description="SIMULATED ammeter in the supply of a resistor",
        )  # fmt: skip

    def start(self) -> Bracket:
        """Trigger the instrument. The first reading begins at a tick between two stamps of the host's clock."""
        before_ns = self._clock.now_ns()
        self._started_ns, self._taken, self._running = self._clock.now_ns(), 0, True
        return Bracket(before_ns, self._started_ns, self._clock.now_ns())

    def read(self) -> Sequence[Chunk]:
        """Return the readings since the last call, perhaps none. Never wait."""
        if not self._running:
            return ()
        ready = int((self._clock.now_ns() - self._started_ns) * 1e-9 * self._rate_hz)
        amperes = self._sampled(ready - self._taken)
        self._taken = ready
        return [Chunk("resistor", amperes)] if len(amperes) else ()

    def stop(self) -> Sequence[Chunk]:
        """End the measurement and return the last readings."""
        rest = self.read()
        self._running = False
        return rest

    def close(self) -> None:
        """Close the instrument. This may be called twice."""

    def _sampled(self, n: int) -> Floats:
        true = SUPPLY_V / self._ohms
        return np.round((true + self._noise.normal(0.0, NOISE_A, n)) / RESOLUTION_A) * RESOLUTION_A


def open_meter(clock: Clock, *, rate_hz: float = 1000.0, ohms: float = 1000.0) -> Meter:
    """Open an ammeter and a resistor. The rig passes ``clock``: the host's, or a simulated clock."""
    return MyMeter(clock, rate_hz, ohms)
