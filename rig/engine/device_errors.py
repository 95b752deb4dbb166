"""What a device may answer, and what is said of it when it answers otherwise."""

from __future__ import annotations

from rig.errors import DeviceError, DeviceTimeoutError, SetupError
from rig.types import Reply, Span


def checked(reply: object, asked: str) -> None:
    """Raise ``DeviceError`` where an answer to sample ``asked`` is no Reply with spans."""
    if type(reply) is not Reply:
        raise failed(asked, TypeError(f"poll() gave a {type(reply).__name__}, not a Reply"))
    for span in reply.spans:
        if type(span) is not Span:
            raise failed(asked, TypeError(f"a reply's spans hold a {type(span).__name__}, not a Span"))


def failed(sample_id: str, error: BaseException) -> DeviceError:
    """A driver threw something while it had a sample in hand."""
    return _kept(f"the device failed on sample {sample_id}", error)


def not_loaded(error: BaseException) -> DeviceError:
    """A driver threw something while it loaded samples."""
    return _kept("the device failed to load samples", error)


def _kept(what: str, error: BaseException) -> DeviceError:
    return DeviceError(
        f"{what}: {type(error).__name__}: {error}",
        value=repr(error),
        remedy="The recording up to here is kept; `rig report` reads it",
    )


def silent(device: str, sample_id: str, allowed_s: float) -> DeviceTimeoutError:
    """No answer in the time that the device declares."""
    return DeviceTimeoutError(
        f"device {device} gave no answer to {sample_id} within {allowed_s:g} s",
        field="timeout_s",
        value=allowed_s,
        remedy="Check its power and link; the recording up to here is kept (`rig report`)",
    )


def not_asked(sample_id: str) -> DeviceError:
    """An answer to nothing."""
    return DeviceError(
        f"the device answered {sample_id!r}, which was not asked",
        field="sample_id",
        value=sample_id,
        remedy="Its driver must answer each submitted sample once",
    )


def no_phase(device: str, phase: str) -> SetupError:
    """A phase was asked for by itself, and the device has no parts."""
    return SetupError(
        f"device {device} cannot run the phase {phase!r} alone",
        field="phase",
        value=phase,
        remedy="Measure the phases together, or implement submit_repeated in its driver",
    )


def no_loop(device: str, repeat: int) -> SetupError:
    """A loop on a schedule, by a device that the host must loop."""
    return SetupError(
        f"device {device} cannot loop a sample by itself",
        field="repeat",
        value=repeat,
        remedy="Leave repeat out on a schedule, or implement submit_repeated in its driver",
    )
