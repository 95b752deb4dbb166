"""Convert units in files to SI, codes for overload to infinity, and written dates and time zones to UTC."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np

from rig.errors import DataError, refused
from rig.types import Floats

PREFIX = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
BASES = ("A", "V", "W", "J", "s", "C", "Ah", "Wh")
ALIASES = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "usec": "us", "nsec": "ns",
    "watts": "W", "watt": "W", "volts": "V", "volt": "V", "amps": "A", "amp": "A", "amperes": "A", "ampere": "A",
    "joules": "J", "joule": "J",
}  # fmt: skip
_SMALL = {f"{prefix}{base}".lower(): f"{prefix}{base}" for base in "AVWJ" for prefix in ("n", "u", "m", "")}
"""Units as programs write them at the end of a name: ``current_ma``."""
NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FARTHEST_NS = 2**62
LONGEST_NAME = 500
"""In a longer header (characters), no unit in brackets is searched for."""
_IN_HEADER = re.compile(r"^(?P<name>.*?)\s*[(\[](?P<unit>[^)\]]*)[)\]]\s*$")
_IN_BRACKETS = re.compile(r"[(\[]([^)\]]*)[)\]]")
_AT_THE_END = re.compile(r"\S\s*[/_ ]\s*([^\W\d_]{1,4})\s*$")


def unit_of(text: str) -> tuple[str, float] | None:
    """Convert ``mW`` to ("W", 1e-3), the SI unit and the factor to it; any unknown unit to None."""
    text = ALIASES.get(text.strip().lower(), text.strip())
    for base in sorted(BASES, key=len, reverse=True):
        if text.endswith(base) and text[: len(text) - len(base)] in PREFIX:
            factor = PREFIX[text[: len(text) - len(base)]]
            return ("J", 3600.0 * factor) if base == "Wh" else (base, factor)
    return None


def expect(unit: str, allowed: Sequence[str], option: str, where: str, remedy: str = "") -> tuple[str, float]:
    """Return the SI unit, one of ``allowed``, and the factor. Raises ``UsageError``, which names the option."""
    found = unit_of(unit)
    if found is None or found[0] not in allowed:
        what = f"{where} is in {unit or 'no unit'!r}, which is not {' or '.join(allowed)}"
        raise refused(option, unit, remedy or f"State it: {option}=COLUMN:UNIT, such as m{allowed[0]}", what)
    return found


def with_overloads(values: Floats) -> Floats:
    """Return readings in which a multimeter's codes for overload are infinity, shape (n,).

    SCPI-99 has 9.9E37 for infinity and 9.91E37 for no number; instruments send either for an overload.
    """
    over = np.abs(np.abs(values) - 9.9e37) < 2e35
    return np.where(over, np.copysign(np.inf, values), values) if over.any() else values


def named_unit(header: str) -> tuple[str, str]:
    """Split the header ``Power (mW)`` into ("Power", "mW"); without brackets the unit is empty."""
    text = header.strip()
    found = _IN_HEADER.match(text) if text[-1:] in (")", "]") and len(text) <= LONGEST_NAME else None
    return (found["name"].strip(), found["unit"].strip()) if found else (text, "")


def agree(header: str, below: str, declared: str, option: str) -> None:
    """Refuse a declared unit that a column's own header, or the row of units ``below`` it, contradicts.

    A header states its unit in brackets, after a slash or at its end: ``I (mA)``, ``I / mA``, ``I_mA``. A single letter
    at the end may also be a name, such as ``Channel A``. It counts only if it is a unit of the declared kind, and if no
    other place states a unit. An unknown unit in brackets also contradicts the declaration, unless another place states
    the declared unit. A declared form of dates is no unit, so nothing is checked. Raises ``UsageError``, which names
    both units and how to overrule the header.
    """
    if (wanted := unit_of(declared)) is None:
        return
    said = [*_IN_BRACKETS.findall(header), below.strip().strip("()[]")]
    if at_end := _AT_THE_END.search(header):
        text = at_end[1] if unit_of(at_end[1]) else _SMALL.get(at_end[1].lower(), "")
        found = unit_of(text)
        if found is not None and (len(text) > 1 or (found[0] == wanted[0] and not any(map(unit_of, said)))):
            said.append(text)
    known = {text: [word for word in text.split() if unit_of(word)] for text in said if text.strip()}
    agreed = {text for text, words in known.items() if wanted in map(unit_of, words)}
    for text, words in known.items():
        if text not in agreed and (words or not agreed):
            what = f"the column {header!r} states {text} and {option} declares {declared}"
            how = f"Declare {words[0]}" if words else "Convert the column"
            raise refused(option, declared, f"{how}. If {text} is not its unit, add overrule_header=true", what)


def zone(text: str) -> tzinfo:
    """Parse a time zone: ``Europe/Berlin``, ``UTC`` or ``+02:00``. Raises ``UsageError``."""
    offset = re.fullmatch(r"(?:UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", text.strip())
    try:
        if offset:
            by = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
            return timezone(by if offset[1] == "+" else -by)
        return UTC if text.strip().upper() in ("UTC", "Z") else ZoneInfo(text.strip())
    except (ValueError, LookupError, OSError) as error:
        remedy = "Give an IANA name such as Europe/Berlin, or an offset such as +02:00"
        raise refused("timezone", text, remedy, f"timezone is {text!r}") from error


def utc_ns(moment: datetime) -> int:
    """Return ns since 1970 of a date with a time zone, exact to the microsecond.

    Raises ``DataError`` for a date more than 146 years from 1970, and for a local time that a change to or from summer
    time repeats or skips.
    """
    if moment.utcoffset() != moment.replace(fold=1 - moment.fold).utcoffset():
        what = f"{moment:%Y-%m-%d %H:%M:%S} is no single moment, because clocks change then in {moment.tzinfo}"
        remedy = "Give an offset, such as timezone=+02:00, and import the records before and after the change apart"
        raise DataError(what, field="timezone", value=str(moment), remedy=remedy)
    try:
        ns = ((moment - EPOCH) // timedelta(microseconds=1)) * 1000
    except OverflowError:
        ns = FARTHEST_NS
    if abs(ns) >= FARTHEST_NS:
        what = f"{moment} is outside the range of dates that can be recorded"
        raise DataError(what, field="time", value=str(moment), remedy="Check the year")
    return ns


def stamp_ns(text: str, timezone_: str | None, form: str = "iso") -> int:
    """Convert a stamp in ISO 8601, or in a form of ``strptime``, to UTC nanoseconds.

    Raises ``UsageError`` for a stamp without an offset if ``timezone_`` is None, ``DataError`` for any other text.
    """
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text) if form == "iso" else datetime.strptime(text, form)
    except ValueError as error:
        what, remedy = f"{text[:60]!r} is not a time stamp ({form})", "Write ISO 8601, or seconds"
        if form != "iso":
            remedy = "State the form that it has, such as %d.%m.%Y %H:%M:%S,%f"
        raise DataError(what, field="time", value=text[:60], remedy=remedy) from error
    if moment.tzinfo is None:
        if timezone_ is None:
            what = f"the stamp {text!r} does not say its time zone"
            raise refused("timezone", text, "State it: timezone=UTC, Europe/Berlin or +02:00", what)
        moment = moment.replace(tzinfo=zone(timezone_))
    return utc_ns(moment)
