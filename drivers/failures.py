"""Errors that end a measurement; each tells that what was recorded before it is kept."""

from __future__ import annotations

from rig.errors import MeterError

KEPT = "The recording up to here is kept; `rig report` reads it"


def meter_failed(
    message: str, field: str, value: object, remedy: str, kind: type[MeterError] = MeterError
) -> MeterError:
    """The error to raise for an instrument that failed while it measured."""
    return kind(message, field=field, value=value, remedy=f"{remedy}. {KEPT}")
