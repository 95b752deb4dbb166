"""The ``Backend`` on a Xylo board in real time: the chip hears its microphone, and processes each time step.

Rockpool's ``XyloMonitor`` takes no events, because in real-time mode the chip only listens to a microphone. The chip
cannot be stopped or put at rest, so it works from open to close, in idle windows too. A sample is what the chip hears
from the time the sample is issued until its duration is over. A command of this computer such as ``aplay -q`` plays it.
"""

from __future__ import annotations

import contextlib
import io
import math
import shlex
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from drivers.devices.xylo.backend import Done, Job, Raster
from drivers.devices.xylo.board import TICK_HZ, Board, StopWatch, default_rate_hz
from drivers.devices.xylo.chip import SPAN_TICKS, ChipOptions, no_network
from drivers.devices.xylo.kit import AUDIO_2, Kit, configuration_of
from drivers.devices.xylo.networks.network import Network
from drivers.failures import raising
from rig.errors import DeviceError, DeviceTimeoutError, UsageError, refused
from rig.types import Sample, Span

SLACK_S = 0.15
"""The command that plays a sample may take this much longer than the sound. If the command starts late, the end of the
sound is not heard."""
PENDING = 2
"""The next sample may be issued while the last time steps of the previous one are still processed."""
LOST = 0.02
"""This share of the time steps, plus one, may be missing or doubled, because the clocks differ."""
STARTED_S = 0.2


class Playing(Protocol):
    """A sample that is being played."""

    def ended(self, timeout_s: float) -> bool:
        """Wait for the end, for ``timeout_s`` at most; return whether the sample ended. Raises ``DeviceError``."""

    def stop(self) -> None:
        """Stop playing. May be called twice, and after the end."""


Play = Callable[[Sample, int], Playing]
"""Begin to play a sample a number of times, and return at once."""


def player_of(command: str) -> Play:
    """Return a player that runs ``command``, which reads a WAV file from standard input. Raises ``UsageError``."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark without its partner
        words = []
    if not words or shutil.which(words[0]) is None:
        remedy = "Give a command of this computer that plays a WAV file from its standard input, such as 'aplay -q'"
        raise refused("play", command, remedy)
    return lambda sample, times: Command(words, sample, times)


class Command:
    """A process that plays one sample. An error is raised if it fails, or takes much longer than its sound."""

    def __init__(self, words: list[str], sample: Sample, times: int) -> None:
        self._id, self._ended_s = sample.id, 0.0
        self._due_s = time.monotonic() + sample.payload.size * times / float(sample.rate_hz or 1.0)
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        self._thread = threading.Thread(target=self._feed, args=(wav_of(sample, times),), daemon=True)
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        """Wait for the end, for ``timeout_s`` at most.

        Raises ``DeviceError`` if the sample was not heard completely.
        """
        self._thread.join(max(0.0, min(timeout_s, self._due_s + SLACK_S - time.monotonic())))
        playing, code = self._thread.is_alive(), self._process.returncode
        over_s = (time.monotonic() if playing else self._ended_s) - self._due_s
        if not playing and code != 0:
            what = f"sample {self._id} was not played: the command ended with {code}"
            raise DeviceError(what, field="play", value=code, remedy="Try the command by hand")
        if over_s > SLACK_S:
            what = f"sample {self._id} was not heard whole: its command took {over_s:.2f} s longer than its sound"
            remedy = "Give a command that starts at once and ends with its sound, such as 'aplay -q'"
            raise DeviceError(what, field="play", value=round(over_s, 3), remedy=remedy)
        return not playing

    def stop(self) -> None:
        """Kill the command."""
        self._process.kill()

    def _feed(self, wav: bytes) -> None:
        self._process.communicate(wav)
        self._ended_s = time.monotonic()


def wav_of(sample: Sample, times: int) -> bytes:
    """Return audio of -1 to 1, repeated ``times`` times, as a WAV file of 16 bits."""
    from scipy.io import wavfile

    file = io.BytesIO()
    scaled = np.clip(np.asarray(sample.payload, dtype=np.float64).ravel(), -1.0, 1.0) * 32767.0
    wavfile.write(file, round(sample.rate_hz or 0.0), np.tile(scaled.astype("<i2"), times))
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class Heard:
    """A sample that is being heard, with the begin and end of hearing in host nanoseconds."""

    job: Job
    begin_ns: int
    end_ns: int


def overlapping(sample_id: str) -> UsageError:
    """Return the error for a sample that is issued before the previous one was heard to its end."""
    what = f"sample {sample_id} was issued while another one was being heard"
    remedy = "Let no frames overlap: give window_s and stride_s the same value"
    return UsageError(what, field="stride_s", value=sample_id, remedy=remedy)


class MicrophoneBackend:
    """One network on one board that listens."""

    def __init__(self, board: Board, module: Any, step_s: float, timeout_s: float) -> None:
        self.board, self._module = board, module
        self._step_s, self._step_ns, self._timeout_s = step_s, round(step_s * 1e9), timeout_s
        self._steps = StopWatch()
        self._rows: deque[tuple[int, Raster]] = deque()
        self._pending: deque[Heard] = deque()
        self._came, self._halt = threading.Condition(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._listen, name="xylo microphone", daemon=True)
        if board.kit.chip is AUDIO_2:  # nothing in Rockpool says whether Audio 2's readouts hold spikes
            board.on_readout = lambda event, found_ns: None
            self._thread.start()
        else:
            board.on_readout = self._take

    @classmethod
    def open(cls, kit: Kit, network: Network, options: ChipOptions) -> MicrophoneBackend:
        """Load the network, and start to listen and to monitor power. Raises ``SetupError``, ``DataError``."""
        configuration, rate_hz = configuration_of(kit, network), default_rate_hz(kit)
        step_s, clock_hz = float(network.specification["dt"]), options.core_clock_hz
        clock = round(clock_hz) if kit.chip is AUDIO_2 else clock_hz * 1e-6  # Audio 2 takes hertz, Audio 3 megahertz
        # the front end prints a message while it is calibrated
        with raising(lambda error: no_network(kit, error), Exception), contextlib.redirect_stdout(io.StringIO()):
            module = kit.package.XyloMonitor(
                kit.hdk, configuration, dt=step_s, main_clk_rate=clock, power_frequency=rate_hz
            )
            if kit.chip is not AUDIO_2:  # only ``evolve`` starts to listen
                module.evolve(input_data=np.zeros((math.ceil(STARTED_S / step_s), module.shape[0])))
        return cls(Board.open(kit, rate_hz), module, step_s, options.timeout_s)

    def begin(self, job: Job) -> None:
        """Hear a sample from now on. Raises ``UsageError`` while the previous sample is still heard."""
        now_ns = time.monotonic_ns()
        with self._came:
            if self._pending and self._pending[-1].end_ns - now_ns > LOST * job.listening_s * 1e9:
                raise overlapping(job.sample_id)
            self._pending.append(Heard(job, now_ns, now_ns + round(job.listening_s * job.times * 1e9)))

    def finished(self, timeout_s: float) -> Sequence[Done]:
        """Wait for one answer, for ``timeout_s`` at most.

        Raises ``DeviceError`` for lost time steps and a board that is gone, ``DeviceTimeoutError`` if no steps come.
        """
        until_s = time.monotonic() + timeout_s
        with self._came:
            if not self._pending:
                return ()
            heard = self._pending[0]
            while not (self._rows and self._rows[-1][0] > heard.end_ns + self._step_ns):
                self._check(heard)
                if (left_s := until_s - time.monotonic()) <= 0:
                    return ()
                self._came.wait(min(left_s, 0.1))
            self._pending.popleft()
            own = self._rows_of(heard)
        return (self._done(heard, own),)  # outside of this lock: elsewhere, the board's own lock is taken first

    def timer(self) -> int:
        """Return the stopwatch's time now (ms). Raises ``DeviceError`` if the board is gone."""
        return self.board.tick() // SPAN_TICKS

    def close(self) -> None:
        """Stop hearing samples, and stop the monitor. The chip itself listens until the board is opened again."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self.board.close()

    def _rows_of(self, heard: Heard) -> list[Raster]:
        """Return the output of the time steps that heard a sample. Each is processed one step after it was heard."""
        begin_ns, end_ns = heard.begin_ns + self._step_ns, heard.end_ns + self._step_ns
        while self._rows and self._rows[0][0] <= begin_ns:
            self._rows.popleft()
        return [spikes for sent_ns, spikes in self._rows if sent_ns <= end_ns]

    def _done(self, heard: Heard, own: list[Raster]) -> Done:
        job, steps = heard.job, (heard.end_ns - heard.begin_ns) / self._step_ns
        if not own or abs(len(own) - steps) > 1.0 + LOST * steps:
            what = f"{len(own)} readouts came while sample {job.sample_id} was heard for {steps:.0f} time steps"
            remedy = "Close other programs that use the board or the processor"
            raise DeviceError(what, field="steps", value=len(own), remedy=remedy)
        on_us, off_us = self.board.tick_at(heard.begin_ns), self.board.tick_at(heard.end_ns + self._step_ns)
        first = own[: max(1, round(len(own) / job.times))]
        span = Span("inference", on_us // SPAN_TICKS, off_us // SPAN_TICKS, job.times)
        return Done(job.sample_id, np.sum(first, axis=0).tolist(), (span,), None)

    def _listen(self) -> None:
        """Take one time step after the other. If several have come, Audio 2's ``evolve`` returns only the last."""
        step = np.zeros((1, self._module.shape[0]))
        try:
            while not self._halt.is_set():
                rows, _, _ = self._module.evolve(input_data=step)
                for spikes in rows:
                    self._note(spikes, time.monotonic_ns())
        except Exception as error:
            self._error = error

    def _take(self, readout: Any, found_ns: int) -> None:
        """Estimate when an Audio 3 readout was sent, from the number of its time step.

        The buffer also has other events, which Rockpool ignores.
        """
        if not hasattr(readout, "output_spikes"):
            return
        stamp_us = self._steps.heard(round(readout.timestep * self._step_s * TICK_HZ), found_ns)
        self._note(readout.output_spikes, found_ns + (stamp_us - self._steps.tick(found_ns)) * 1000)

    def _note(self, spikes: Any, sent_ns: int) -> None:
        with self._came:
            if not self._pending:
                self._rows.clear()
            self._rows.append((sent_ns, np.asarray(spikes, dtype=np.int64)))
            self._came.notify_all()

    def _check(self, heard: Heard) -> None:
        self.board.check()
        if self._error is not None:
            what = f"the chip stopped listening: {self._error!r}"
            raise DeviceError(what, field="device", value="xylo", remedy="Check its cable") from self._error
        if time.monotonic_ns() > heard.end_ns + round(self._timeout_s * 1e9):
            what = f"the last time step of sample {heard.job.sample_id} did not come"
            raise DeviceTimeoutError(what, field="sample", value=heard.job.sample_id, remedy="Check its cable")
