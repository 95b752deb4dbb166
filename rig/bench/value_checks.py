"""Check a bench file without opening instruments: impossible values, and instruments named twice."""

import math
from collections.abc import Mapping

from rig.bench.bench_file_fields import PLAUSIBLE_C, DeviceEntry, MeterEntry, Value, where_of
from rig.factories import Option

WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
WHERE = ("address", "port")
"""Options that say where an instrument is connected; an empty option says nothing."""
APART = ("host", "channel", "instrument", "serial", "serial_number", "device_id", "index", "board")
"""Options that distinguish instruments at one place: outputs of a supply, instruments of a server."""
POSITIVE = ("rate_hz", "range_max", "voltage_range_max", "timeout_s", "aperture_s", "baud", "calibration_range")
"""Options that must be above zero unless they have their default value."""


def wrong_value(option: Option, value: object) -> str:
    """Return what the option should be instead of ``value``; empty for a good value."""
    if option.optional and value == "none":
        return ""
    allowed = {float: (int, float), int: (int,), bool: (bool,)}.get(option.kind, (str,))
    fits = isinstance(value, allowed) and isinstance(value, bool) == (option.kind is bool)
    if not fits:
        return WANTED.get(option.kind, "a text")
    if isinstance(value, (int, float)):
        return _wrong_number(option, value)
    if option.name in WHERE and isinstance(value, str) and not value.strip():
        return f"the {option.name.replace('_', ' ')}, or leave it out where it is not needed"
    return ""


def _wrong_number(option: Option, value: float) -> str:
    if not math.isfinite(value):
        return "a finite number"
    if option.name in POSITIVE and value <= 0 and value != option.default:
        return "a number above zero"
    low, high = PLAUSIBLE_C
    if option.name == "temperature_c" and not low <= value <= high:
        return f"degrees Celsius, {low:g} to {high:g}"
    return ""


def clashes(
    entries: Mapping[str, DeviceEntry | MeterEntry], declared: Mapping[str, Mapping[str, Option]]
) -> list[tuple[str, str, str, str]]:
    """Return pairs of entries that name one instrument, as (first, second, option of second, place).

    Each pair has a meter: two devices may be one board with different options.
    """
    found, seen = [], list[tuple[str, str, str, dict[str, Value]]]()
    for name, entry in entries.items():
        values = {k: o.default for k, o in declared[name].items()} | dict(entry.options)
        apart = {k: values[k] for k in APART if values.get(k) not in (None, "")}
        for option, place in _places(values):
            for other, theirs, kind, them in seen:
                same = theirs == place and all(them[k] == apart[k] for k in set(them) & set(apart))
                if same and other != name and "meters" in (kind, where_of(entry)[0]):
                    found.append((other, name, option, place))
                    break
            seen.append((name, place, where_of(entry)[0], apart))
    return found


def _places(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the places of an entry's instrument, as (option, place). A network port includes its host."""
    found = []
    for option in WHERE:
        value = values.get(option)
        if isinstance(value, str) and value.strip():
            found.append((option, value.strip().casefold() if "address" in option else value.strip()))
        elif isinstance(value, int) and not isinstance(value, bool) and "host" in values:
            found.append((option, f"{values['host']}:{value}"))
    return found
