"""Make the errors for drivers that fail, and for steps of a scenario that a device cannot carry out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rig.errors import KEPT, DeviceError, RigError, SetupError, place, plain, said

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
