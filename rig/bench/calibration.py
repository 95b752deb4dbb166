"""Calibration files state the limits of an instrument's error by range; see docs/reference/calibration.md."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from rig.errors import DataError, UsageError
from rig.types import Accuracy, Rail

UNITS = ("W", "A", "J", "V")
PLAUSIBLE_C = (-60.0, 150.0)
"""Degrees Celsius around an instrument; what lies outside is a mistake, or kelvins."""


@dataclass(frozen=True)
class Aperture:
    """What a short aperture adds, in per cent of range; it holds for apertures below ``below_s``."""

    below_s: float
    of_range_percent: float


@dataclass(frozen=True)
class Range:
    """Limits of one range: |error| <= ``of_reading_percent`` of the reading + ``of_range_percent`` of full scale.

    ``unit`` is W, A, J or V, ``full_scale`` in it. The temperature coefficients are in per cent per degree, for each
    degree outside ``temperature_c`` +- ``temperature_span_c`` of the calibration.
    """

    unit: str
    full_scale: float
    of_reading_percent: float
    of_range_percent: float
    of_reading_percent_per_c: float = 0.0
    of_range_percent_per_c: float = 0.0
    apertures: tuple[Aperture, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """One instrument's calibration. ``reference`` names the certificate or datasheet, ``path`` the file read."""

    instrument: str
    reference: str
    valid_from: date
    valid_until: date
    ranges: tuple[Range, ...]
    serial: str = ""
    temperature_c: float = 23.0
    temperature_span_c: float = 5.0
    path: str = ""


def load(path: Path) -> Calibration:
    """Read a calibration file, TOML or (``.json``) JSON.

    Raises ``UsageError`` when it is not there, ``DataError`` naming the line or the field that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(
            f"cannot read the calibration {path}: {error.strerror}",
            field="calibration",
            value=str(path),
            remedy="Name a file as docs/reference/calibration.md describes",
        ) from error
    except (ValueError, RecursionError) as error:  # both parsers' errors, which name the line, and what is no UTF-8
        raise _bad(path, "the file", str(error), "Mend its syntax") from error
    table = _table(path, data, "the file", _FIELDS, "range")
    ranges = data["range"]
    if not isinstance(ranges, list) or not ranges:
        raise _bad(path, "range", ranges, "Give one [[range]] at least")
    found = Calibration(
        **{k: v for k, v in table.items() if k != "range"},
        ranges=tuple(_range(path, item, f"range[{k}]") for k, item in enumerate(ranges)),
        path=path.name,
    )
    if found.valid_until < found.valid_from:
        raise _bad(path, "valid_until", found.valid_until, "It lies before valid_from")
    return found


def accuracy(
    calibration: Calibration,
    unit: str,
    *,
    range_max: float | None = None,
    temperature_c: float | None = None,
    aperture_s: float | None = None,
    on: date | None = None,
) -> Accuracy:
    """The limits of one range under the conditions of a measurement, in the unit of the readings.

    ``range_max`` chooses the range by its full scale; it may be None when there is one of this unit. Without
    ``temperature_c`` the temperature is taken to be that of the calibration, without ``on`` its validity cannot be
    checked, without ``aperture_s`` the largest of the aperture terms counts; the source text says so. Raises
    ``UsageError`` for what must be stated or cannot be meant, ``DataError`` outside validity.
    """
    check_temperature(temperature_c)
    chosen = _chosen(calibration, unit, range_max)
    said = [f"{calibration.instrument} {calibration.serial}".strip(), calibration.reference]
    if on is None:
        said.append("validity not checked, since the recording has no date")
    elif not calibration.valid_from <= on <= calibration.valid_until:
        raise DataError(
            f"the calibration {calibration.path} holds from {calibration.valid_from} to {calibration.valid_until}, "
            f"and the recording is of {on}",
            field="calibration",
            value=str(on),
            remedy="Give the calibration that was valid then",
        )
    of_reading, of_range = chosen.of_reading_percent, chosen.of_range_percent
    if temperature_c is None:
        said.append("temperature not stated, taken as that of the calibration")
    else:
        outside = max(abs(temperature_c - calibration.temperature_c) - calibration.temperature_span_c, 0.0)
        of_reading += outside * chosen.of_reading_percent_per_c
        of_range += outside * chosen.of_range_percent_per_c
    if aperture_s is None and chosen.apertures:
        said.append("aperture not known, taken as the shortest")
    short = [a.of_range_percent for a in chosen.apertures if aperture_s is None or aperture_s < a.below_s]
    of_range += max(short, default=0.0)
    return Accuracy(of_reading / 100.0, of_range / 100.0 * chosen.full_scale, "; ".join(said))


def stated(
    rail: Rail,
    path: str | None,
    *,
    range_max: float | None = None,
    temperature_c: float | None = None,
    on: date | None = None,
    aperture_s: float | None = None,
) -> Rail:
    """A rail with the accuracy of a calibration file; unchanged, not stated, when ``path`` is None.

    Takes the limits in the rail's own unit; the aperture is the rail's, or the whole period, or ``aperture_s`` of a
    rail that has neither.
    """
    if path is None:
        for name, value in (("calibration_range", range_max), ("temperature_c", temperature_c)):
            if value is not None:
                raise UsageError(
                    f"{name} is given and no calibration", field=name, value=value, remedy="Add calibration=FILE"
                )
        return rail
    if rail.aperture_s is not None:
        aperture_s = rail.aperture_s
    elif rail.rate_hz > 0:
        aperture_s = 1.0 / rail.rate_hz
    found = accuracy(
        load(Path(path)),
        rail.conversion.unit,
        range_max=range_max,
        temperature_c=temperature_c,
        aperture_s=aperture_s,
        on=on,
    )
    return replace(rail, accuracy=found)


def check_temperature(temperature_c: float | None) -> None:
    """Raise ``UsageError`` for degrees Celsius at which nobody measures."""
    low, high = PLAUSIBLE_C
    if temperature_c is not None and not low <= temperature_c <= high:
        raise UsageError(
            f"temperature_c is {temperature_c:g}",
            field="temperature_c",
            value=temperature_c,
            remedy=f"Give degrees Celsius, {low:g} to {high:g}",
        )


def _chosen(calibration: Calibration, unit: str, range_max: float | None) -> Range:
    of_unit = [r for r in calibration.ranges if r.unit == unit]
    fitting = [r for r in of_unit if range_max is None or math.isclose(r.full_scale, range_max, rel_tol=1e-6)]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{r.full_scale:g} {r.unit}" for r in calibration.ranges)
    if not of_unit:
        what, remedy = f"has no range in {unit}, the unit of the readings", f"Its ranges: {known}"
    elif range_max is None:
        what, remedy = f"has {len(of_unit)} ranges in {unit}", f"Say which: calibration_range=, one of {known}"
    else:
        what, remedy = f"has no single range of {range_max:g} {unit}", f"Its ranges: {known}"
    raise UsageError(
        f"the calibration {calibration.path} {what}", field="calibration_range", value=range_max, remedy=remedy
    )


def _text(x: Any) -> str | None:
    return x if isinstance(x, str) else None


def _day(x: Any) -> date | None:
    if isinstance(x, str):
        try:
            return date.fromisoformat(x)
        except ValueError:
            return None
    return x if type(x) is date else None


def _number(x: Any) -> float | None:
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e15 else None


def _celsius(x: Any) -> float | None:
    number = _number(x)
    return number if number is not None and PLAUSIBLE_C[0] <= number <= PLAUSIBLE_C[1] else None


def _size(x: Any) -> float | None:
    return _number(x) if _number(x) is not None and x >= 0 else None


def _positive(x: Any) -> float | None:
    return _number(x) if _number(x) is not None and x > 0 else None


_FIELDS = {
    "instrument": (_text, "a text", True),
    "reference": (_text, "a text", True),
    "valid_from": (_day, "a date, YYYY-MM-DD", True),
    "valid_until": (_day, "a date, YYYY-MM-DD", True),
    "serial": (_text, "a text", False),
    "temperature_c": (_celsius, "a number of degrees Celsius", False),
    "temperature_span_c": (_size, "a number, 0 or more", False),
}
_RANGE = {
    "unit": (lambda x: x if x in UNITS else None, "W, A, J or V", True),
    "full_scale": (_positive, "a number above 0", True),
    "of_reading_percent": (_size, "a number, 0 or more", True),
    "of_range_percent": (_size, "a number, 0 or more", True),
    "of_reading_percent_per_c": (_size, "a number, 0 or more", False),
    "of_range_percent_per_c": (_size, "a number, 0 or more", False),
}
_APERTURE = {
    "below_s": (_positive, "a number above 0", True),
    "of_range_percent": (_size, "a number, 0 or more", True),
}


def _range(path: Path, item: Any, where: str) -> Range:
    table = _table(path, item, where, _RANGE, None, "aperture")
    rows: Sequence[Any] = item.get("aperture", [])
    if not isinstance(rows, list):
        raise _bad(path, f"{where}.aperture", rows, "Give [[range.aperture]] tables")
    apertures = [Aperture(**_table(path, a, f"{where}.aperture[{k}]", _APERTURE)) for k, a in enumerate(rows)]
    return Range(**table, apertures=tuple(apertures))


def _table(path: Path, data: Any, where: str, fields: Mapping[str, Any], *inner: str | None) -> dict[str, Any]:
    """The checked values of one table. ``inner`` names tables inside: the first is needed, the others may be there."""
    if not isinstance(data, Mapping):
        raise _bad(path, where, data, "It must be a table")
    prefix = "" if where == "the file" else f"{where}."
    needed = [name for name, (_, _, need) in fields.items() if need] + [n for n in inner[:1] if n]
    if missing := [name for name in needed if name not in data]:
        raise _bad(path, f"{prefix}{missing[0]}", None, "It is missing")
    if strange := [name for name in data if name not in fields and name not in inner]:
        raise _bad(path, f"{prefix}{strange[0]}", data[strange[0]], f"No such field; known: {', '.join(fields)}")
    found = {}
    for name in (n for n in fields if n in data):
        check, what, _ = fields[name]
        found[name] = check(data[name])
        if found[name] is None:
            raise _bad(path, f"{prefix}{name}", data[name], f"Give {what}")
    return found


def _bad(path: Path, field: str, value: object, remedy: str) -> DataError:
    return DataError(
        f"calibration {path.name}: {field} is {value!r}", field=field, value=str(value), remedy=f"{remedy}"
    )
