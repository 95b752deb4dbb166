"""The Meter that a Nordic PPK2 is: its stream cut into words, proved whole by the times of arrival, in amperes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drivers.links.real_time import check_real_time
from drivers.links.serial_line import SerialLine
from drivers.meters.ppk2 import link
from drivers.meters.ppk2.follow import NEAR_S, Follower
from drivers.meters.ppk2.grid import Grid, Stretch
from drivers.meters.ppk2.stream import ADC_FULL, RATE_HZ, WORD, Aligner, Modifiers
from drivers.meters.usb_stream import KEPT, first_reading
from rig.errors import MeterError, RigError
from rig.types import Bracket, Chunk, Clock, MeterInfo, Rail

FIRST_S = 0.1
"""What the arrivals of so long say about the beginning of the first reading."""
MOST_PER_READ = 1_000_000
"""Edges between two looks; more is a clock or an open input."""


@dataclass
class _Session:
    """One stretch from start to stop, asked for at ``begun_ns``.

    ``width_ns`` is how late the floor may be: as the first reading is uncertain, and as an arrival near it may be.
    """

    tap: link.Tap
    begun_ns: int
    follower: Follower
    aligner: Aligner
    grid: Grid
    width_ns: int = 0
    high: bool | None = None
    error: RigError | None = None
    told: bool = False
    spare: bool = False
    """It runs only because somebody asked for the clock, and its readings are nobody's."""


class Ppk2Meter:
    """A PPK2. ``timer`` gives its count of readings, as its arrivals tell it."""

    def __init__(
        self, line: SerialLine, info: MeterInfo, clock: Clock, modifiers: Modifiers, range_: int, timeout_s: float
    ) -> None:
        check_real_time(clock, info.name)
        self._line, self._info, self._clock, self._modifiers = line, info, clock, modifiers
        self._range, self._timeout_s = range_, timeout_s
        self._session: _Session | None = None
        self._losses = (0, 0)

    def info(self) -> MeterInfo:
        """What it was set to, and what it said of itself."""
        return self._info

    def lost(self) -> tuple[int, int]:
        """Readings lost since ``start``: as the counter told, and in multiples of 64 as the times of arrival did."""
        return self._losses

    def start(self) -> Bracket:
        """Start the stream; its first reading begins at tick 0, in the bracket."""
        if self._session is not None and not self._session.spare:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        self._end()
        link.silence(self._line, self._timeout_s)
        tolerance, most = self._info.clock.tolerance, round((self._info.buffer_s or 0.0) * RATE_HZ) * WORD
        begun_ns = self._clock.now_ns()
        link.begin(self._line)
        tap = link.Tap(self._line, self._clock, most, self._info.name, self._timeout_s)
        s = _Session(tap, begun_ns, Follower(self._info.name, RATE_HZ, tolerance), Aligner(), Grid())
        try:
            bracket = self._first(s)
        except BaseException:
            tap.close()
            raise
        s.width_ns = bracket.after_ns - bracket.before_ns + round(NEAR_S * 1e9)
        self._session = s
        return bracket

    def _first(self, s: _Session) -> Bracket:
        """The bracket of tick 0, of what arrives in the first tenth of a second."""
        found: Bracket | None = None
        until_ns = 0
        while found is None or self._clock.now_ns() < until_ns:
            for piece in s.tap.take():
                self._accept(s, piece)
                if s.grid.count:
                    own = first_reading(s.begun_ns, piece.at_ns, s.grid.count, RATE_HZ, self._info.clock.tolerance)
                    until_ns = until_ns or piece.at_ns + round(FIRST_S * 1e9)
                    found = own if found is None or own.after_ns < found.after_ns else found
            time.sleep(link.TAP_S)
        return found

    def timer(self) -> int:
        """The tick that it shows at some moment of this call, which takes as long as its first reading is uncertain.

        An arrival follows its reading by no less than nothing, and by no more than that uncertainty. The clock runs
        only while it streams: stopped, it streams for the clock alone, from tick 0, until it is started or closed.
        """
        if self._session is None:
            self.start()
            assert self._session is not None
            self._session.spare = True
        s = self._session
        self._clock.sleep_until(self._clock.now_ns() + s.width_ns)
        self._take(s)
        if s.spare:
            s.grid.release(s.follower.proved)
        return int(s.follower.tick_at((self._clock.now_ns() - s.begun_ns) * 1e-9))

    def read(self) -> Sequence[Chunk]:
        """What is proved so far, perhaps nothing; after it, the error that ended the stream."""
        s = self._session
        if s is None or s.spare:
            return ()
        self._take(s)
        chunks = self._proved(s)
        if not chunks and s.error is not None:
            s.told = True
            raise s.error
        return chunks

    def stop(self) -> Sequence[Chunk]:
        """Let it run until all readings up to now are proved, stop it, and deliver the rest."""
        s = self._session
        if s is None or s.spare:
            return ()
        now_s = (self._clock.now_ns() + s.width_ns - s.begun_ns) * 1e-9  # by when one taken now has arrived
        while s.error is None and s.follower.proved_s < now_s:
            time.sleep(link.TAP_S)
            self._take(s)
        self._end()
        if s.error is not None and not s.told:
            raise s.error
        return self._proved(s)

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        self._end()
        if self._info.details["power"] == "off-at-close":
            with contextlib.suppress(MeterError):
                link.switch_off(self._line)
        self._line.close()

    def _end(self) -> None:
        s, self._session = self._session, None
        if s is not None:
            with contextlib.suppress(MeterError):
                link.end(self._line)
            s.tap.close()

    def _take(self, s: _Session) -> None:
        """Take what has come; an error is kept, for ``read`` to tell after what came before it."""
        if s.error is None:
            try:
                for piece in s.tap.take():
                    self._accept(s, piece)
            except RigError as error:
                s.error = error

    def _accept(self, s: _Session, piece: link.Piece) -> None:
        s.grid.add(s.aligner.feed(piece.data))
        at_s = (piece.at_ns - s.begun_ns) * 1e-9
        if not s.grid.count:
            return
        due = at_s * (1.0 + self._info.clock.tolerance) * RATE_HZ + 2.0
        if s.grid.count + s.follower.missing > due:
            raise MeterError(
                f"meter {self._info.name} sent {s.grid.count} readings in {at_s:.3f} s, and {due:.0f} are due at most",
                field="clock_tolerance",
                value=s.grid.count,
                remedy=f"Its timer is not what it says; see clock_tolerance. {KEPT}",
            )
        loss = s.follower.add(s.grid.count, at_s)
        if loss is not None:
            s.grid.lose(loss)
        self._losses = s.aligner.lost, s.follower.missing

    def _proved(self, s: _Session) -> list[Chunk]:
        """Amperes, NaN where there is no reading; one at the ADC's end, or on too coarse a range, is flagged."""
        got = s.grid.release(s.follower.proved)
        if not len(got.word):
            return []
        range_, adc = ((got.word >> 14) & 7).astype(np.intp), (got.word & ADC_FULL).astype(np.float64)
        amperes = self._modifiers.amperes(range_, adc, float(self._info.details["supply_v"]))
        over = got.known & ((adc == ADC_FULL) | (range_ > self._range))
        supply, *inputs = self._info.rails
        chunks = [Chunk(supply.name, np.where(got.known, amperes, np.nan), flags=over.astype(np.uint8))]
        return chunks + [self._edges(s, got, rail) for rail in inputs]

    def _edges(self, s: _Session, got: Stretch, rail: Rail) -> Chunk:
        """Where the level differs from the reading before, on either side of what was lost too."""
        at = np.flatnonzero(got.known)
        high = (got.word[at] >> (24 + int(rail.name[1:]))) & 1 == 1
        if len(high):
            before = np.concatenate([[high[0] if s.high is None else s.high], high[:-1]])
            s.high = bool(high[-1])
            at, high = at[high != before], high[high != before]
        if len(at) > MOST_PER_READ:
            raise MeterError(
                f"the logic input {rail.name} changed {len(at)} times between two looks",
                field="mark_channel",
                value=rail.name,
                remedy=f"Choose another, or tie it to ground. {KEPT}",
            )
        tick = (got.first + at).astype(np.int64)
        return Chunk(rail.name, high.astype(np.uint8), tick, tick)
