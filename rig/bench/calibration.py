"""Calibration files state the limits of an instrument's error by range; see docs/reference/calibration.md."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from rig.bench import fields
from rig.bench.fields import Field, check_table
from rig.errors import DataError, refused
from rig.recording.bounded import read_bounded
from rig.types import Accuracy, Rail

UNITS = ("W", "A", "J", "V")
PLAUSIBLE_C = (-60.0, 150.0)
"""Degrees Celsius that an instrument can have around it; others are a mistake, or kelvins."""


@dataclass(frozen=True)
class Aperture:
    """What apertures below ``below_s`` add to the limits, in per cent of range."""

    below_s: float
    of_range_percent: float


@dataclass(frozen=True)
class Range:
    """Limits of one range: |error| <= ``of_reading_percent`` of the reading + ``of_range_percent`` of full scale.

    ``unit`` is W, A, J or V, ``full_scale`` in it. The temperature coefficients are in per cent per degree, for each
    degree outside ``temperature_c`` +- ``temperature_span_c`` of the calibration. ``linearity_of_range_percent`` limits
    what of the error is neither one gain nor one offset; None means not stated.
    """

    unit: str
    full_scale: float
    of_reading_percent: float
    of_range_percent: float
    of_reading_percent_per_c: float = 0.0
    of_range_percent_per_c: float = 0.0
    linearity_of_range_percent: float | None = None
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
        text = read_bounded(path).decode("utf-8-sig")
        data = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        what = f"cannot read the calibration {path}: {error.strerror}"
        remedy = "Name a calibration file; docs/reference/calibration.md describes the format"
        raise refused("calibration", str(path), remedy, what) from error
    except (ValueError, RecursionError) as error:  # both parsers' errors, which name the line, and what is no UTF-8
        raise _bad(path, "the file", f"cannot be read: {error}", error, "Correct its syntax") from error
    values = _values(path, data, "", _FILE)
    ranges = tuple(_range(path, item, f"range[{k}]") for k, item in enumerate(values.pop("range")))
    found = Calibration(**values, ranges=ranges, path=path.name)
    if found.valid_until < found.valid_from:
        raise _bad(path, "valid_until", f"is {found.valid_until}", found.valid_until, "Give a day after valid_from")
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

    ``range_max`` chooses the range by its full scale; it may be None where one range has this unit. Without
    ``temperature_c`` the temperature is that of the calibration; without ``on`` the validity is not checked; without
    ``aperture_s`` the largest aperture term counts. The source text of the limits says so. Raises
    ``UsageError`` for a condition that must be given or cannot be right, ``DataError`` outside validity.
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
    bend = chosen.linearity_of_range_percent
    linearity = None if bend is None else bend / 100.0 * chosen.full_scale
    return Accuracy(of_reading / 100.0, of_range / 100.0 * chosen.full_scale, "; ".join(said), linearity)


def stated(
    rail: Rail,
    path: str | None,
    *,
    range_max: float | None = None,
    temperature_c: float | None = None,
    on: date | None = None,
    aperture_s: float | None = None,
) -> Rail:
    """A rail with the accuracy of a calibration file; the rail unchanged when ``path`` is None.

    The limits are in the rail's own unit. The aperture is the rail's, or its whole period, or ``aperture_s`` of a rail
    that has neither.
    """
    if path is None:
        for name, value in (("calibration_range", range_max), ("temperature_c", temperature_c)):
            if value is not None:
                raise refused(name, value, "Add calibration=FILE", f"{name} is given without a calibration")
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
    """Check that a temperature is plausible. Raises ``UsageError``."""
    low, high = PLAUSIBLE_C
    if temperature_c is not None and not low <= temperature_c <= high:
        what = f"temperature_c is {temperature_c:g}"
        raise refused("temperature_c", temperature_c, f"Give degrees Celsius, {low:g} to {high:g}", what)


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
    raise refused("calibration_range", range_max, remedy, f"the calibration {calibration.path} {what}")


def _day(x: Any) -> date | None:
    if isinstance(x, str):
        try:
            return date.fromisoformat(x)
        except ValueError:
            return None
    return x if type(x) is date else None


def _unit(x: Any) -> str | None:
    return x if x in UNITS else None


_FILE = {
    "instrument": Field(fields.of(str), "a text", needed=True),
    "reference": Field(fields.of(str), "a text", needed=True),
    "valid_from": Field(_day, "a date, YYYY-MM-DD", needed=True),
    "valid_until": Field(_day, "a date, YYYY-MM-DD", needed=True),
    "serial": Field(fields.of(str), "a text"),
    "temperature_c": Field(fields.between(*PLAUSIBLE_C), "a number of degrees Celsius"),
    "temperature_span_c": Field(fields.not_negative, "a number, 0 or more"),
    "range": Field(fields.of(list, empty=False), "one [[range]] at least", needed=True),
}
_PERCENT = Field(fields.not_negative, "a number, 0 or more")
_RANGE = {
    "unit": Field(_unit, "W, A, J or V", needed=True),
    "full_scale": Field(fields.positive, "a number above 0", needed=True),
    "of_reading_percent": _PERCENT._replace(needed=True),
    "of_range_percent": _PERCENT._replace(needed=True),
    "of_reading_percent_per_c": _PERCENT,
    "of_range_percent_per_c": _PERCENT,
    "linearity_of_range_percent": _PERCENT,
    "aperture": Field(fields.of(list), "[[range.aperture]] tables"),
}
_APERTURE = {
    "below_s": Field(fields.positive, "a number above 0", needed=True),
    "of_range_percent": _PERCENT._replace(needed=True),
}


def _range(path: Path, item: Any, where: str) -> Range:
    values = _values(path, item, f"{where}.", _RANGE)
    rows = enumerate(values.pop("aperture", []))
    apertures = [Aperture(**_values(path, row, f"{where}.aperture[{k}].", _APERTURE)) for k, row in rows]
    return Range(**values, apertures=tuple(apertures))


def _values(path: Path, table: Any, prefix: str, known: Mapping[str, Field]) -> dict[str, Any]:
    """The values of one table. Raises ``DataError`` for the first that is wrong."""
    if not isinstance(table, Mapping):
        raise _bad(path, prefix.rstrip(".") or "the file", f"is {table!r}", table, "Write it as a table")
    found = check_table(table, known)
    for name, what, value, remedy in found.problems[:1]:
        raise _bad(path, prefix + name, what, value, remedy)
    return found.values


def _bad(path: Path, field: str, what: str, value: object, remedy: str) -> DataError:
    return DataError(f"calibration {path.name}: {field} {what}", field=field, value=str(value), remedy=remedy)
