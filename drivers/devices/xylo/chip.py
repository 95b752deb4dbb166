"""The ``Backend`` on a Xylo board: events from the host, as fast as the core works, through Rockpool's ``XyloSamna``.

A thread calls the board, because Rockpool's calls block. Samples are encoded on the host and written before the core is
timed. Repetitions of a sample are one stream, and only the first repetition begins at rest. The spans come from
``Board``, and never from ``inf_duration``, which is the host's time in steps of 0.1 s. ``XyloSamna`` is not asked to
record power, because it drops the stamps, keeps another program's rate (Audio 2), and stops the monitor (Audio 3).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from drivers.devices.xylo.backend import Done, Job, Raster, SimBackend
from drivers.devices.xylo.board import TICK_HZ, Board, HeldUpError, default_rate_hz
from drivers.devices.xylo.kit import AUDIO_2, Kit, configuration_of, unusable
from drivers.devices.xylo.networks.network import Network
from drivers.failures import raising
from rig.bench.settings import Positive, one_of
from rig.errors import DeviceError, DeviceTimeoutError, SetupError
from rig.network.description import Activity
from rig.types import Span

SPAN_TICK_HZ = 1000.0
"""Spans are stated in milliseconds of the stopwatch, because over USB the end of a readout is not known better."""
SPAN_TICKS = round(TICK_HZ / SPAN_TICK_HZ)
TRIES = 5
"""The most tries until the times of a span are known. The latency includes every try, so retries improve no figure."""
CORE_CLOCKS_HZ = (50e6, 25e6, 12.5e6, 6.25e6)
"""Core clocks that the divider of Audio 2's board makes: 100 / (2 (wait + 1)) MHz, for a whole number ``wait``."""
_CLOSE = None


@dataclass(frozen=True, slots=True)
class ChipOptions:
    """How a chip is run.

    With ``record_activity`` its activity is recorded, which costs time and power. With ``echo`` each answer must equal
    the simulator's, spike by spike.
    """

    core_clock_hz: Annotated[float, partial(one_of, CORE_CLOCKS_HZ)] = 25e6
    record_activity: bool = False
    echo: bool = False
    timeout_s: Positive = 60.0


def no_network(kit: Kit, error: Exception) -> SetupError:
    """Return the error for a board that does not accept its network."""
    remedy = "Unplug the board, plug it in again, and close other programs that use it"
    return unusable(f"{kit.chip.name} does not take the network: {error}", remedy)


class ChipBackend:
    """One network on one board; ``reference`` is the simulated chip with the same network."""

    def __init__(self, board: Board, module: Any, reference: SimBackend, options: ChipOptions) -> None:
        self.board, self.reference = board, reference
        self._module, self._options = module, options
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Done | DeviceError] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="xylo chip", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, kit: Kit, network: Network, options: ChipOptions) -> ChipBackend:
        """Set the clock, load the network, start the power monitor. Raises ``SetupError``, ``DataError``."""
        core_clock_hz, rate_hz = options.core_clock_hz, default_rate_hz(kit)
        configuration = configuration_of(kit, network)
        with raising(lambda error: no_network(kit, error), Exception):
            made_mhz = kit.utils.set_xylo_core_clock_freq(kit.hdk, core_clock_hz * 1e-6)  # this call resets an Audio 3
            dt_s = float(network.specification["dt"])
            module = kit.package.XyloSamna(kit.hdk, configuration, dt=dt_s, power_frequency=rate_hz)
        made_hz = core_clock_hz if made_mhz is None else 1e6 * float(made_mhz)  # None: not stated
        if abs(made_hz / core_clock_hz - 1.0) > 1e-6:
            what = f"the core clock of {kit.chip.name} is {made_hz:g} Hz, and {core_clock_hz:g} Hz was asked for"
            raise SetupError(what, field="core_clock_hz", value=made_hz, remedy="Ask for a clock that it makes")
        reference = SimBackend.open(network, core_clock_hz)
        return cls(Board.open(kit, rate_hz), module, reference, options)

    def begin(self, job: Job) -> None:
        """Hand the job to the thread."""
        self._jobs.put(job)

    def finished(self, timeout_s: float) -> Sequence[Done]:
        """Wait for one answer, for ``timeout_s`` at most. Raises ``DeviceError`` for a job that failed."""
        try:
            found = self._done.get(timeout=max(timeout_s, 1e-6))
        except queue.Empty:
            return ()
        if isinstance(found, DeviceError):
            raise found
        return (found,)

    def timer(self) -> int:
        """Return the stopwatch's time now (ms). Raises ``DeviceError`` if the board is gone."""
        return self.board.tick() // SPAN_TICKS

    def close(self) -> None:
        """Let the thread end after the jobs it has, wait 2 s at most for it, and stop the monitor."""
        self._jobs.put(_CLOSE)
        self._thread.join(2.0)
        self.board.close()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not _CLOSE:
            try:
                self._done.put(self._timed(job))
            except DeviceError as error:
                self._done.put(error)
            except TimeoutError as error:
                remedy = "Give shorter samples, or a longer timeout_s"
                text = f"sample {job.sample_id} was not processed within {self._options.timeout_s:g} s: {error}"
                self._done.put(DeviceTimeoutError(text, field="sample", value=job.sample_id, remedy=remedy))
            except Exception as error:
                text = f"the chip failed on sample {job.sample_id}: {error!r}"
                self._done.put(DeviceError(text, field="sample", value=job.sample_id, remedy="Check its cable"))

    def _timed(self, job: Job) -> Done:
        """Process the job until the times of its span are known. A busy computer may cause several tries.

        While power is recorded there is only one try, because the power of a failed try would count for the span.
        """
        most = 1 if self.board.collecting else TRIES
        for tries in range(1, most):
            with contextlib.suppress(HeldUpError):
                return replace(self._processed(job), tries=tries)
        return replace(self._processed(job), tries=most)

    def _processed(self, job: Job) -> Done:
        self._reset()
        own, bins = self._options, len(job.raster)
        stream = np.tile(job.raster, (job.times, 1))

        def evolve() -> Any:
            return self._module.evolve(input=stream, record=own.record_activity, read_timeout=own.timeout_s)

        (out, _, recorded), on_us, off_us = self.board.timed(evolve, len(stream))
        output = np.asarray(out, dtype=np.int64)
        if len(output) != len(stream):
            what = f"sample {job.sample_id} has {len(stream)} time steps, and the chip answered {len(output)}"
            raise DeviceError(what, field="sample", value=job.sample_id, remedy="Give shorter samples")
        span = Span("inference", on_us // SPAN_TICKS, off_us // SPAN_TICKS, job.times)
        first = output[:bins]
        if self._options.echo:
            self._check_echo(job, first)
        return Done(job.sample_id, first.sum(axis=0).tolist(), (span,), self._activity(job.raster, recorded, first))

    def _activity(self, raster: Raster, recorded: dict[str, Any], output: Raster) -> Activity | None:
        if not self._options.record_activity:
            return None
        own = {name: np.asarray(recorded[name])[: len(raster)] for name in ("Spikes", "Vmem", "Vmem_out")}
        return self.reference.inspection.activity(raster, own, output)

    def _check_echo(self, job: Job, output: Raster) -> None:
        expected = self.reference.infer(job.raster).output
        if (wrong := np.argwhere(output != expected)).size:
            step, neuron = wrong[0].tolist()
            what = (
                f"sample {job.sample_id}: output neuron {neuron} gives {output[step, neuron]} spikes in time step "
                f"{step}, and {expected[step, neuron]} in the simulator; {len(wrong)} values differ"
            )
            remedy = "Either the chip was not at rest, or its configuration is not that of the network file"
            raise DeviceError(what, field="echo", value=job.sample_id, remedy=remedy)

    def _reset(self) -> None:
        """Put the network at rest. The reset call of Audio 3 does not work, but a change of its mode resets it."""
        module, kit = self._module, self.board.kit
        if kit.chip is AUDIO_2:
            module.reset_state()
            return
        module.config = kit.utils.configure_single_step_time_mode(module.config)
        _, hidden, outputs = module.shape
        module.config = kit.utils.configure_accel_time_mode(
            module.config, outputs, hidden, readout="Spike", record=self._options.record_activity
        )
