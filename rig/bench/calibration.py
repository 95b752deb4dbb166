"""Calibration files state the error limits of an instrument by range; see docs/reference/calibration.md."""

import json
import math
import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rig.bench.bench_file_fields import PLAUSIBLE_C, Celsius, NotNegative, Positive
from rig.errors import DataError, reason, refused
from rig.recording.disk.decoding import place_of
from rig.recording.disk.size_limits import read_bounded
from rig.types import Accuracy, Calibration as Certificate, Rail

OVER_RANGE = 1.2
"""Instruments read up to this multiple of a range's full scale."""


class Aperture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An addition to the limits for apertures below ``below_s``, in per cent of range."""

    below_s: Positive
    of_range_percent: NotNegative


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one range: |error| <= ``of_reading_percent`` of the reading + ``of_range_percent`` of full scale.

    ``unit`` (W, A, J or V) is the unit of the readings and of ``full_scale``, which is in W for J. The temperature
    coefficients are in per cent per degree, for each degree outside ``temperature_c`` +- ``temperature_span_c`` of the
    calibration. ``linearity_of_range_percent`` limits the part of the error that is neither gain nor offset; None means
    not stated.
    """

    unit: Literal["W", "A", "J", "V"]
    full_scale: Positive
    of_reading_percent: NotNegative
    of_range_percent: NotNegative
    of_reading_percent_per_c: NotNegative = 0.0
    of_range_percent_per_c: NotNegative = 0.0
    linearity_of_range_percent: NotNegative | None = None
    apertures: tuple[Aperture, ...] = msgspec.field(default=(), name="aperture")


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One instrument's calibration. ``reference`` names the certificate or datasheet, ``path`` the file."""

    instrument: str
    reference: str
    valid_from: date
    valid_until: date
    ranges: Annotated[tuple[Range, ...], Meta(min_length=1)] = msgspec.field(name="range")
    serial: str = ""
    temperature_c: Celsius = 23.0
    temperature_span_c: NotNegative = 5.0
    path: str = ""


def load(path: Path) -> Calibration:
    """Read a calibration file, TOML or (``.json``) JSON.

    Raises ``UsageError`` if it cannot be read, and ``DataError`` that names the bad line or field.
    """
    try:
        text = read_bounded(path).decode("utf-8-sig")
        data = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        what = f"cannot read the calibration {path}: {reason(error)}"
        remedy = "Name a calibration file; docs/reference/calibration.md describes the format"
        raise refused("calibration", str(path), remedy, what) from error
    except (ValueError, RecursionError) as error:  # parser errors, which name the line, and text that is not UTF-8
        raise _bad(path, "the file", f"cannot be read: {error}", error, "Correct its syntax") from error
    try:
        found = msgspec.structs.replace(msgspec.convert(data, Calibration), path=path.name)
    except msgspec.ValidationError as error:
        field, what, value = place_of(error, data)
        remedy = "docs/reference/calibration.md describes the fields"
        raise _bad(path, field or "the file", f"is {value!r:.80}: {what}", value, remedy) from error
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
    """Return the limits of one range under the conditions of a measurement, in the unit of the readings.

    ``range_max`` chooses the range by its full scale; it may be None if only one range has this unit. Without
    ``temperature_c``, the temperature of the calibration is used. Without ``on``, the validity is not checked. Without
    ``aperture_s``, the largest aperture term is used. ``Accuracy.source`` states these assumptions. Raises
    ``UsageError`` for a condition that is missing or impossible, ``DataError`` outside validity.
    """
    low, high = PLAUSIBLE_C
    if temperature_c is not None and not low <= temperature_c <= high:
        what = f"temperature_c is {temperature_c:g}"
        raise refused("temperature_c", temperature_c, f"Give degrees Celsius, {low:g} to {high:g}", what)
    chosen = _chosen(calibration, unit, range_max)
    said = [f"{calibration.instrument} {calibration.serial}".strip(), calibration.reference]
    if on is None:
        said.append("validity not checked, since the recording has no date")
    elif not calibration.valid_from <= on <= calibration.valid_until:
        span = f"from {calibration.valid_from} to {calibration.valid_until}"
        what = f"the calibration {calibration.path} is valid {span}, and in UTC the recording is of {on}"
        remedy = "Give the calibration that was valid then"
        raise DataError(what, field="calibration", value=str(on), remedy=remedy)
    of_reading, of_range = chosen.of_reading_percent, chosen.of_range_percent
    if temperature_c is None:
        said.append("temperature_c not stated, taken as that of the calibration")
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
    """Return a rail with the accuracy of a calibration file, or the unchanged rail if ``path`` is None.

    The limits are in the rail's own unit. Readings of ``OVER_RANGE`` times the full scale or more are overload; a
    counter has no full scale. Rails without a ``gain_id`` share one for the instrument. The aperture is the rail's,
    else its whole period, else ``aperture_s``.
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
    found, unit, most = load(Path(path)), rail.conversion.unit, rail.range_max
    limits = accuracy(found, unit, range_max=range_max, temperature_c=temperature_c, aperture_s=aperture_s, on=on)
    if rail.kind != "cumulative":
        most = min(most or math.inf, OVER_RANGE * _chosen(found, unit, range_max).full_scale)
    gain_id = rail.gain_id or f"{found.instrument} {found.serial} {unit}"  # rails of one instrument may err alike
    return replace(rail, accuracy=limits, range_max=most, gain_id=gain_id)


def certificate(path: str | None) -> Certificate | None:
    """Return the certificate that a calibration file names, dated by its first day of validity; None without a file."""
    if path is None:
        return None
    found = load(Path(path))
    return Certificate(found.reference, found.valid_from.isoformat())


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


def _bad(path: Path, field: str, what: str, value: object, remedy: str) -> DataError:
    return DataError(f"calibration {path.name}: {field} {what}", field=field, value=str(value), remedy=remedy)
