"""Decode a line of ``events.jsonl`` to a struct, or raise an error that names the line, the field and the value."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from rig.errors import DataError, StoreError
from rig.recording import events
from rig.recording.disk.size_limits import START_BYTES, check_json, check_texts
from rig.recording.records import DeviceRecord, WorkloadRecord

DECLARE = "Give plain numbers, texts, lists and objects in what a driver or workload declares"


def decode(line: bytes, type_: str, number: int) -> events.Line | None:
    """Decode a line to the struct of its type; return None for an unknown type.

    Raises ``StoreError``, which names the line, the field and the value; for a ``peer`` line it is ``DataError``. Also
    raises ``DataError`` if an interval ends before it begins.
    """
    struct = events.LINES.get(type_)
    if struct is None:
        return None
    try:
        if type_ == "start":
            return start_of(strict(line))
        found: events.Line = msgspec.json.decode(line, type=struct)
    except (ValueError, RecursionError) as error:
        raise _refused(line, type_, number, error) from error
    _check_order(found, type_, number)
    return found


def strict(text: bytes | str) -> Any:
    """Return plain JSON. Raises ``ValueError`` for a repeated key in an object, for NaN and for infinity."""
    return _STRICT.decode(text if isinstance(text, str) else text.decode())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no plain number")


_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)


def start_of(document: Mapping[str, Any]) -> events.Start:
    """Return a start line from plain JSON. Raises ``msgspec.ValidationError``, and ``StoreError`` beyond a bound."""
    check_texts(document)
    moved = dict(document)
    for name, record in (("device", DeviceRecord), ("workload", WorkloadRecord)):
        if isinstance(part := moved.get(name), dict):
            found = declared(part.get("details"), record)
            moved[name] = part | {k: v for k, v in found.items() if part.get(k) in (None, {}, [])}
    return msgspec.convert(moved | {"as_recorded": document}, events.Start)


def declared_start(document: Mapping[str, Any]) -> events.Start:
    """Return a start line with the present time, from the declarations of drivers, workload and rules.

    Raises ``StoreError`` for a value that the line cannot contain.
    """
    for kind in ("device", "meters", "workload"):
        given = document.get(kind)
        for part in given if isinstance(given, Sequence) else [given]:
            _check_declared(kind.removesuffix("s"), part)
    made = {"schema": events.SCHEMA, "created_utc": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        return start_of(msgspec.to_builtins({**made, **document}, enc_hook=events.plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        what = f"the start line cannot be written: {error}"
        raise StoreError(what, field="start", value=str(error), remedy=DECLARE) from error


def _check_declared(kind: str, part: Any) -> None:
    """Raise ``StoreError``, with the name of the driver or workload, for a declaration that readers would refuse."""
    name = part.get("name") if isinstance(part, Mapping) else getattr(part, "name", None)
    where = f"what the {kind} {str(name)[:80]!r} declares"
    try:
        check_texts(msgspec.to_builtins(part, enc_hook=events.plain), where)
        check_json(msgspec.json.encode(part, enc_hook=events.plain), where, START_BYTES)
    except StoreError as error:
        raise StoreError(error.message, field=kind, value=error.value, remedy=DECLARE) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"{where} cannot be written: {error}", field=kind, value=str(error), remedy=DECLARE) from error


def reference_windows(given: Mapping[str, Any]) -> events.ReferenceWindows:
    """Return the windows from which another program computes its figures. Raises ``DataError`` for bad ones."""
    try:
        return msgspec.convert(dict(given), events.ReferenceWindows)
    except ValueError as error:
        raise _refused(msgspec.json.encode(given), "peer", None, error) from error


def declared(details: object, record: type[DeviceRecord | WorkloadRecord]) -> dict[str, Any]:
    """Return the values in ``details`` that have their own field in the record.

    Older recordings and some drivers have such values only in ``details``.
    """
    if not isinstance(details, Mapping):
        return {}
    found: dict[str, Any] = {}
    given = dict(details)
    if record is DeviceRecord:
        given = {"schedule_depends_on_budget": given.get("schedule_depends_on_budget"), "algorithm": given}
    for f in msgspec.structs.fields(record):
        if f.name in events.MOVED and given.get(f.name) is not None:
            try:
                found[f.name] = msgspec.to_builtins(msgspec.convert(given[f.name], f.type))
            except msgspec.ValidationError:
                continue  # this driver or workload uses the name for something else
    return found


def _refused(line: bytes, type_: str, number: int | None, error: Exception) -> StoreError | DataError:
    """Return the error for a line that does not decode: what is missing, or the field and its value."""
    kind = DataError if type_ == "peer" else StoreError
    at = f"the {type_} line" + ("" if number is None else f" (line {number + 1} of events.jsonl)")
    try:
        document = strict(line)
    except (ValueError, RecursionError) as wrong:
        return kind(f"{at} is not JSON: {wrong}", field=type_, value=number, remedy=events.REMEDY)
    required = [f.name for f in msgspec.structs.fields(events.LINES[type_]) if f.required]
    if missing := [name for name in required if name not in document]:
        return kind(f"{at} lacks {', '.join(missing)}", field=type_, value=missing, remedy=events.REMEDY)
    field, what, value = place_of(error, document)
    if len(shown := repr(value)) > 80:
        value = shown = shown[:77] + "..."
    return kind(f"{field or 'a field'} of {at} is {shown}: {what}", field=field, value=value, remedy=events.REMEDY)


def place_of(error: Exception, document: Any) -> tuple[str, str, Any]:
    """Return the field at which a document does not fit its struct, what is wrong, and the field's value."""
    what, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    if named := re.search("(?:missing required|unknown) field `([^`]+)`", what):
        field = f"{field}.{named[1]}".removeprefix(".")
    value = document
    for step in re.findall(r"\w+", field):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
    return field, what, value


def _check_order(found: events.Line, type_: str, number: int) -> None:
    """Raise ``DataError`` for a line with an interval that ends before it begins."""
    pairs: Sequence[Sequence[int]] = ()
    if isinstance(found, events.IdleWindow | events.HostGap):
        pairs = [(found.on_ns, found.off_ns)]
    elif isinstance(found, events.Brackets | events.MarkPulses):
        pairs = found.rows if isinstance(found, events.Brackets) else found.spans
    for row in pairs:
        if row[-1] < row[0]:
            what = f"line {number + 1} ({type_}) ends before it begins"
            raise DataError(what, field=type_, value=row[-1] - row[0], remedy="Check the clock that stamped it")
