"""Intel SoC Watch as a meter: the program runs as long as the recording, and its trace is read when it has ended.

    rig measure --device ... --meter socwatch --option path=/opt/intel/socwatch/socwatch
        --option "rails=Package Power" --option stamp=end

It reads the processor's own counters (package, cores, graphics), which are a model inside the processor and no
instrument in the supply. Nothing is delivered before the end, when the program writes its table.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.cleanup import released_on_error
from drivers.importers.socwatch import chosen_table, rail_of, stamps_of
from drivers.importers.time_axis import PLACES, TimeAxis
from drivers.links.real_time import check_real_time
from drivers.meters.calibrated import calibrated, calibration_details
from drivers.meters.socwatch.program import ProgramRun
from rig.bench.options import one_of, parts_of, positive
from rig.engine.clock import HostClock
from rig.errors import DataError, MeterError, RigError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, ClockInfo, Conversion, Indices, Meter, MeterInfo, Rail

MODES = ("hardware",)

ARGUMENTS = "-f power -m -n {interval_ms} -r int -o {output}"
STARTED = r"(?i)\bcollect\w*\b.*\b(start|begin|began|begun)|\b(start\w*|begin\w*)\b.*\bcollect"
ENERGIES = ("", "interval", "cumulative")


def open_meter(
    clock: Clock | None = None,
    *,
    path: str = "socwatch",
    name: str = "socwatch",
    rails: str = "",
    interval_s: float = 0.1,
    stamp: str = "",
    energy: str = "",
    table: str = "",
    time_unit: str = "",
    arguments: str = ARGUMENTS,
    started: str = STARTED,
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    start_s: float = 30.0,
    stop_s: float = 60.0,
) -> Meter:
    """SoC Watch, the program at ``path``; its columns of power ``rails``, comma between them, as its trace names them.

    ``stamp`` says whether a row is stamped at the ``start``, ``middle`` or ``end`` of its interval of ``interval_s``;
    ``energy``, for columns of energy, whether they count each ``interval`` or are ``cumulative``; ``table`` names the
    table by a part of its title, ``time_unit`` the unit of its time column, where its header does not.
    ``arguments`` is the command line, with {interval_ms} and {output} filled in; ``started`` the pattern of the line
    by which the program says that it collects, awaited for ``start_s``. It is ended by SIGINT and has ``stop_s``
    to write. ``clock_tolerance`` limits its clock's rate (relative). ``calibration`` names a calibration file; without
    one no accuracy is stated.

    Raises ``UsageError`` for what must be stated, ``SetupError`` for a program that is not there or may not be run.
    """
    positive(interval_s=interval_s, clock_tolerance=clock_tolerance, start_s=start_s, stop_s=stop_s)
    names = _names(rails, stamp, energy)
    program = _program(path)
    try:
        pattern = re.compile(started)
        command = [program, *shlex.split(arguments.format(interval_ms=round(interval_s * 1e3), output="{output}"))]
    except (re.error, KeyError, ValueError, IndexError) as error:
        what = f"options arguments or started cannot be read: {error}"
        raise refused("arguments", arguments, f"The default is {ARGUMENTS}", what) from error
    joules = energy == "cumulative"
    described = tuple(
        calibrated(
            Rail(
                each,
                "cumulative" if joules else "mean",
                Conversion("J" if joules else "W"),
                rate_hz=1.0 / interval_s,
                gain_id=name,
            ),
            calibration, "", calibration_range, temperature_c,
        )
        for each in names
    )  # fmt: skip
    info = MeterInfo(
        name=name,
        mode="hardware",
        clock=ClockInfo(name, 1e9, clock_tolerance),
        rails=described,
        omitted=("everything outside the processor's own counters",),
        description=f"Intel SoC Watch, one row every {interval_s:g} s, each the mean over its interval",
        details={
            "command": command, "stamp": stamp, "energy": energy, "interval_s": interval_s,
            "what": "the processor's own energy counters, a model and no measurement of the supply",
            "calibration": calibration_details(calibration),
        },
    )  # fmt: skip
    return SocWatch(info, command, pattern, (energy, stamp, table, time_unit), (start_s, stop_s), clock)


class SocWatch:
    """A meter that runs the program from each ``start`` to ``stop``."""

    def __init__(
        self, info: MeterInfo, command: list[str], started: re.Pattern[str], reading: tuple[str, str, str, str],
        waits_s: tuple[float, float], clock: Clock | None,
    ) -> None:  # fmt: skip
        self._info, self._command, self._started, self._reading = info, command, started, reading
        self._start_s, self._stop_s = waits_s
        self._clock = HostClock() if clock is None else clock
        self._run: ProgramRun | None = None
        self._raised = False
        check_real_time(self._clock, info.name)

    def info(self) -> MeterInfo:
        """The rails that were named, and the command that is run."""
        return self._info

    def start(self) -> Bracket:
        """Run the program until it says that it collects. Its time is zero at some moment in between."""
        if self._run is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        before_ns = self._clock.now_ns()
        run = ProgramRun(self._command, self._started)
        with released_on_error(run.close):
            run.await_start(self._start_s)
        self._run, self._raised = run, False
        return Bracket(before_ns, 0, self._clock.now_ns())

    def read(self) -> Sequence[Chunk]:
        """Nothing until the end. Raises ``MeterError``, once, when the program has ended by itself."""
        if self._run is not None and not self._raised and self._run.ended():
            self._raised = True
            raise self._run.failed("ended in the middle of the recording")
        return ()

    def stop(self) -> Sequence[Chunk]:
        """End the program and deliver its trace, as far as it goes where the program has ended by itself."""
        run, self._run = self._run, None
        if run is None:
            return ()
        try:
            run.finish(self._stop_s, raised=self._raised)
            return self._chunks(run)
        except RigError:
            if self._raised:
                return ()
            raise
        finally:
            run.close()

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _chunks(self, run: ProgramRun) -> list[Chunk]:
        energy, stamp, table, time_unit = self._reading
        names = [rail.name for rail in self._info.rails]
        chosen, _ = chosen_table(run.tables(), table or None, ",".join(names), run.output)
        stamps = stamps_of(chosen, time_unit or None)
        out = []
        for rail in self._info.rails:
            found, axis, value = rail_of(chosen, rail.name, stamps, energy or None, stamp)
            if found.conversion.unit != rail.conversion.unit:
                what = f"the column {rail.name} is in {found.conversion.unit}, and {rail.conversion.unit} was declared"
                remedy = "State energy=interval, energy=cumulative or neither"
                raise DataError(what, field="energy", value=energy, remedy=remedy)
            out.append(Chunk(rail.name, value, *_ticks(axis, len(value))))
        return out


def _ticks(axis: TimeAxis, n: int) -> tuple[Indices, Indices]:
    """Begin and end of each row in ns of the program's clock; a counter's rows are points, where they were read."""
    if axis.start_ns is not None and axis.end_ns is not None:
        return axis.start_ns, axis.end_ns
    edges = axis.t0_ns + np.round(np.arange(n + 1) * (1e9 / axis.rate_hz)).astype(np.int64)
    return edges[:-1], edges[1:]


def _names(rails: str, stamp: str, energy: str) -> list[str]:
    names = parts_of(rails)
    if not names or len(set(names)) < len(names):
        remedy = "Name the columns of its trace, such as rails='Package Power'; a package contains its cores"
        raise refused("rails", rails, remedy)
    one_of(PLACES, stamp=stamp)
    one_of(ENERGIES, energy=energy)
    return names


def _program(path: str) -> str:
    found = shutil.which(path)
    if found is None:
        there = Path(path).exists()
        what = f"{path} {'may not be executed' if there else 'is not there'}"
        remedy = "Make it executable" if there else "Install Intel SoC Watch and give its program: path=.../socwatch"
        raise SetupError(what, field="path", value=path, remedy=remedy)
    return str(Path(found).resolve())
