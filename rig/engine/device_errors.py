"""Make the errors for drivers that fail, for steps of a scenario that a device cannot carry out, and for a run's end.

An exception that ends a run came from the scenario, the workload or a driver; the error says from which.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rig.errors import KEPT, DeviceError, Ended, Interrupted, RigError, SetupError, frames, place, plain, said
from rig.types import Step

T = TypeVar("T")


def guard(call: Callable[[], T], kind: type[RigError], what: str) -> T:
    """Run a driver's call.

    If it raises anything but a ``RigError``, ``kind`` is raised, with ``what`` before the text of the exception. This
    includes ``SystemExit``, which would otherwise end the process, but not Ctrl-C.
    """
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except RigError as error:
        raise plain(error) from error.__cause__
    except BaseException as error:
        raise failed(what, error, kind) from error


def failed(what: str, error: BaseException, kind: type[RigError] = DeviceError) -> RigError:
    """Return the error for a driver that raised ``error`` during ``what``."""
    where = place(error)
    return kind(f"{what}: {said(error)}", value=said(error), remedy=f"See {where}. {KEPT}" if where else KEPT)


def failed_on(sample_id: str, error: BaseException) -> RigError:
    """Return the error for a device that raised ``error`` while it held a sample."""
    return failed(f"the device failed on sample {sample_id}", error)


def bad_step(field: str, value: object, why: str) -> SetupError:
    """Return the error for a step of a scenario that the device cannot carry out."""
    what = f"the scenario yielded a step with {field} {value!r}: {why}"
    return SetupError(what, field=field, value=repr(value), remedy="Correct the scenario; due times may not decrease")


class Owners:
    """The parts of a run that are not the rig's own code.

    A frame of a method belongs to the method's object; a frame of the scenario's generator belongs to the scenario.
    """

    def __init__(self, steps: Iterable[Step], workload: Any, drivers: Iterable[object]) -> None:
        self._code = getattr(steps, "gi_code", None)
        workloads = (workload, getattr(workload, "samples", None))
        self._owned = [*((part, "workload") for part in workloads), *((part, "driver") for part in drivers)]

    def of(self, error: BaseException) -> tuple[str, str]:
        """Return whose code raised ``error`` ("" if unknown), and the file and line in that code."""
        who, where = "", "an unknown place"
        for frame, at in frames(error):
            this = frame.f_locals.get("self")
            owner = "scenario" if frame.f_code is self._code else ""
            owner = owner or next((name for part, name in self._owned if part is this and this is not None), "")
            who, where = (owner, at) if owner else (who, where if who else at)
        return who, where


def ended_by(error: BaseException, owners: Owners) -> Ended:
    """Return the error that the stop line records, for an exception that ended a run."""
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted", remedy=KEPT)
    if isinstance(error, RigError) and error.__cause__ is None:
        return plain(error)
    cause = error.__cause__ if isinstance(error, RigError) and error.__cause__ is not None else error
    who, where = owners.of(cause)
    if isinstance(error, RigError) and who not in ("scenario", "workload"):
        return plain(error)
    if isinstance(error, MemoryError):
        what = f"the run needs more memory than is free: {error!r}"
        return SetupError(what, remedy=f"Use a smaller problem, or fewer samples. {KEPT}")
    what = f"the {who or 'scenario or its workload'} failed at {where}: {said(cause)}"
    found = SetupError(what, field=who, value=said(cause), remedy=f"Correct it there. {KEPT}")
    found.__cause__ = cause
    return found
