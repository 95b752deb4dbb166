"""Checks of what a driver returns, and the errors for drivers that fail or return something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rig.errors import DeviceError, DeviceTimeoutError, RigError, SetupError, plain, said
from rig.types import Reply, Span

T = TypeVar("T")


def guard(call: Callable[[], T], kind: type[RigError], what: str) -> T:
    """Run a driver's call.

    An exception that is not a ``RigError`` is raised as ``kind``, with ``what`` before its text. This includes
    ``SystemExit``, with which a driver would otherwise end the process, but not Ctrl-C.
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
    return kind(
        f"{what}: {said(error)}",
        value=said(error),
        remedy="The recording up to here is kept; `rig report` reads it",
    )


def failed_on(sample_id: str, error: BaseException) -> RigError:
    """Return the error for a device that raised ``error`` while it held a sample."""
    return failed(f"the device failed on sample {sample_id}", error)


def check_reply(reply: object, sample_id: str) -> None:
    """Check that a reply to ``sample_id`` is a Reply with spans.

    Raises ``DeviceError``.
    """
    if type(reply) is not Reply:
        raise failed_on(sample_id, TypeError(f"poll() gave a {type(reply).__name__}, not a Reply"))
    for span in reply.spans:
        if type(span) is not Span:
            raise failed_on(sample_id, TypeError(f"a reply's spans hold a {type(span).__name__}, not a Span"))


def silent(device: str, sample_id: str, allowed_s: float) -> DeviceTimeoutError:
    """Return the error for a device that gave no reply in the time that it declares."""
    what = f"device {device} gave no answer to {sample_id} within {allowed_s:g} s"
    remedy = "Check its power and link; the recording up to here is kept (`rig report`)"
    return DeviceTimeoutError(what, field="timeout_s", value=allowed_s, remedy=remedy)


def not_issued(sample_id: str) -> DeviceError:
    """Return the error for a device that replied to a sample that it was not given."""
    what = f"the device replied to {sample_id!r}, which was not issued"
    remedy = "Its driver must reply once to each submitted sample"
    return DeviceError(what, field="sample_id", value=sample_id, remedy=remedy)


def bad_step(field: str, value: object, why: str) -> SetupError:
    """Return the error for a step that the device cannot play."""
    what = f"the scenario yielded a step with {field} {value!r}: {why}"
    return SetupError(what, field=field, value=repr(value), remedy="Correct the scenario; due times do not decrease")


def no_phase(device: str, phase: str) -> SetupError:
    """Return the error for a phase that must run alone, on a device that cannot separate its phases."""
    what = f"device {device} cannot run the phase {phase!r} alone"
    remedy = "Measure the phases together, or implement submit_repeated in its driver"
    return SetupError(what, field="phase", value=phase, remedy=remedy)


def no_loop(device: str, repeat: int) -> SetupError:
    """Return the error for a scheduled sample that must loop, on a device that cannot loop by itself."""
    remedy = "Leave repeat out when samples have due times, or implement submit_repeated in its driver"
    return SetupError(f"device {device} cannot loop a sample by itself", field="repeat", value=repeat, remedy=remedy)
