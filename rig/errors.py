"""Every error that the rig raises on purpose. Each names what is wrong, its value, and the remedy.

Exit codes are part of the command line's contract; 1 is left to Python itself, 2 to argparse.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

DISTRIBUTION = "neurorig"
KEPT = "What was recorded until now is kept; `rig report` reads it"
LIMITS = "Check the limits of this process (`ulimit -a`), the permissions and the free space"
MOST_NAMES = 8
"""An error lists at most this many names."""
SAID = 10_000
"""At most this many characters of an exception's text are shown."""


class Ended(BaseException):
    """What ends a run or a command: an error, or an interruption.

    ``field`` names what was wrong, ``value`` is its value, ``remedy`` is what to do next.

    With ``example``, a value for the option ``field``, the remedy is to add this option.
    """

    exit_code = 10

    def __init__(
        self, message: str, *, field: str = "", value: object = None, remedy: str = "", example: str = ""
    ) -> None:
        super().__init__(message)
        self.message = str(message)
        self.field = field
        self.value = value
        self.remedy = f"Add --option {field}={example}" if example else remedy
        self.example = example

    def __str__(self) -> str:
        return f"{self.message.removesuffix('.')}. {self.remedy}" if self.remedy else self.message

    def to_json(self) -> dict[str, object]:
        """Return the error as a JSON object, for ``--json``."""
        value = self.value if isinstance(self.value, (str, int, float, bool, type(None))) else str(self.value)
        said = {"error": type(self).__name__, "message": self.message, "field": self.field}
        return {**said, "value": value, "remedy": self.remedy, "exit_code": self.exit_code}


class RigError(Ended, Exception):
    """The base of all errors."""


def said(error: BaseException, where: str = "") -> str:
    """Return the class of an exception, ``where``, and the beginning of its text; its own methods may fail."""
    name = f"{type(error).__name__}{where}"
    try:
        return f"{name}: {str(error)[:SAID]}".removesuffix(": ")
    except Exception as failed:
        return f"{name}, whose text raises {type(failed).__name__}"


def frames(error: BaseException) -> Iterator[tuple[FrameType, str]]:
    """Yield each frame that an exception passed, from the outermost, with its ``FILE, line N``."""
    import traceback  # needed only after a mistake

    return ((f, f"{Path(f.f_code.co_filename).name}, line {n}") for f, n in traceback.walk_tb(error.__traceback__))


def place(error: BaseException) -> str:
    """Return ``FILE, line N`` of the innermost code that raised ``error`` and is no part of ``rig``; "" without one."""
    return "".join([at for f, at in frames(error) if not str(f.f_globals.get("__name__")).startswith("rig.")][-1:])


def reason(error: BaseException) -> str:
    """Return why a file cannot be read or written, without the error's number, and what to name instead."""
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    if isinstance(error, NotADirectoryError):
        return "a part of its path is a file; name one in a folder"
    return getattr(error, "strerror", None) or str(error)


def plain(error: RigError) -> RigError:
    """Return an error of a driver's own class as its base class in this module.

    The driver's class may have another exit code, and methods that fail.
    """
    kind: type[RigError] = next(b for b in type(error).__mro__ if b.__module__ == __name__)
    if kind is type(error):
        return error
    given = vars(error)
    found = kind.__new__(kind)
    found.__dict__ |= {name: value for name, value in given.items() if name != "exit_code"}
    texts = {name: str(given.get(name, "")) for name in ("field", "remedy")}
    RigError.__init__(found, given.get("message") or said(error), value=given.get("value"), **texts)
    found.__cause__, found.__traceback__ = error.__cause__, error.__traceback__
    return found


class UsageError(RigError):
    """An argument or option has a value that is not valid."""

    exit_code = 3


class UnknownNameError(UsageError):
    """A device, meter, scenario, workload or option has a name that is not registered."""

    def __init__(self, kind: str, name: str, known: Sequence[str], where: str = "`rig list` shows every name") -> None:
        super().__init__(f"unknown {kind} {name!r}", field=kind, value=name, remedy=closest(name, known, where))
        self.known = tuple(known)


def closest(name: str, known: Iterable[str], where: str = "") -> str:
    """Return the remedy for an unknown name: similar names, and a list of all.

    A name that lacks its unit (``rate`` for ``rate_hz``) is similar. Instead of a long list, the remedy has ``where``,
    or without it the most similar names.
    """
    import difflib  # needed only after a mistake

    names = sorted(set(known))
    longer = [other for other in names if name and other.startswith(f"{name}_")]
    near = list(dict.fromkeys(longer + difflib.get_close_matches(name, names, 3)))[:3]
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    if where and len(names) > MOST_NAMES:
        return f"{hint}{where}"
    shown = names if len(names) <= MOST_NAMES else difflib.get_close_matches(name, names, MOST_NAMES, 0.0)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{hint}Known: {', '.join(shown) or 'none'}{more}"


def number_wanted(text: str, whole: bool) -> str:
    """Return in words what to give instead of a text that is no number: "a number without its unit" for ``5s``."""
    unit = text[:1].isdigit() and text[-1:].isalpha()
    return f"a {'whole ' if whole else ''}number{' without its unit' if unit else ''}"


class SetupError(RigError):
    """The bench cannot do what is requested: a capability is missing, or hardware is absent."""

    exit_code = 4


class MissingExtraError(SetupError):
    """An optional package is not installed."""

    exit_code = 5


def out_of_memory(error: BaseException) -> bool:
    """Return whether a package failed to be imported because memory is short, whatever the class of the error."""
    return any(text in str(error) for text in ("failed to map segment", "annot allocate memory"))


def missing_extra(
    what: str, error: ImportError | OSError, extra: str, *, field: str = "extra", value: object = None
) -> SetupError:
    """Return the error for ``what``, which needs a package of the optional extra ``extra``.

    If memory is too short for an installed package, the error says so instead.
    """
    if out_of_memory(error):
        return SetupError(f"{what} cannot be loaded: {error}", field=field, remedy="Free some memory, and try again")
    what, value = f"{what} needs {getattr(error, 'name', None) or error}", extra if value is None else value
    remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
    return MissingExtraError(f"{what}, which is not installed", field=field, value=value, remedy=remedy)


class DataError(RigError):
    """Input data cannot be used: it is unreadable, truncated, clipped or miscounted, or contains NaN."""

    exit_code = 6


class StoreError(RigError):
    """A run directory cannot be written or read."""

    exit_code = 7


class IntegrityError(StoreError):
    """A recording, a sweep or a shipped table is not what its hashes or certificates say."""

    exit_code = 8


class DiskTooSlowError(StoreError):
    """The disk takes readings more slowly than the meters give them."""

    exit_code = 9


class DeviceError(RigError):
    """The system under test failed while it was measured."""

    exit_code = 20


class DeviceTimeoutError(DeviceError):
    """The system under test did not answer within its declared timeout."""

    exit_code = 21


class MeterError(RigError):
    """The instrument failed while it measured."""

    exit_code = 22


class MeterSilentError(MeterError):
    """The instrument delivered no reading for longer than is allowed."""

    exit_code = 23


class DriverLeftError(RigError):
    """The process ended while code of a driver ran in it, and the rig did not end it."""

    exit_code = 24


class MeasurementRefusedError(RigError):
    """What was asked for cannot be stated: a report whose power is refused exits with this code.

    It is also raised by a search in which no probe is good, and by an evaluation that gets too little memory.
    """

    exit_code = 30


class InvalidResultError(RigError):
    """The verdict is INVALID: the run or session breaks its rules; a report on it exits with this code."""

    exit_code = 31


class AuditFailedError(RigError):
    """A check of an audit failed; the audit exits with this code."""

    exit_code = 32


class WorseError(RigError):
    """A figure is worse than a gate allows; ``rig compare --fail-if`` exits with this code."""

    exit_code = 34


class NotDecidedError(RigError):
    """Two recordings do not show whether a figure is worse than a gate allows; the gate exits with this code."""

    exit_code = 35


class RuleFailure(NamedTuple):
    """One rule that a driver fails: what was found, and what is required."""

    rule: str
    found: str
    asked: str

    def __str__(self) -> str:
        return f"{self.rule}: found {self.found}; required is {self.asked}"


class ConformanceError(RigError):
    """A driver or workload fails the rules in ``failures``; ``kept`` names the rules that it keeps."""

    exit_code = 33

    def __init__(self, name: str, failures: Sequence[RuleFailure], kept: Sequence[str] = ()) -> None:
        what = f"{name} fails {len(failures)} rule{'s' * (len(failures) > 1)}:\n"
        what += "\n".join(f"  {failure}" for failure in failures)
        remedy = "Correct what is named here; `rig check` with the same options checks every rule"
        super().__init__(what, field="driver", value=name, remedy=remedy)
        self.failures, self.kept = tuple(failures), tuple(kept)


class Interrupted(Ended, KeyboardInterrupt):
    """Ctrl-C: what was recorded is kept.

    It is no ``RigError``. Code that handles errors and continues therefore does not catch it.
    """

    exit_code = 130


def refused(name: str, value: object, remedy: str, message: str = "") -> UsageError:
    """Return the error for an option that cannot be used; ``message`` replaces its name and value."""
    return UsageError(message or f"option {name} is {value!r}", field=name, value=value, remedy=remedy)


def unfit(name: str, value: object, what: str, remedy: str) -> UsageError:
    """Return the error for a value that cannot be used because of ``what``."""
    return refused(name, value, remedy, f"{name} {value!r} {what}")
