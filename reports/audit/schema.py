"""Checks a document against the generated schemas of the run directory, as far as these use JSON Schema."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import Any

import rig.types
from reports.audit.files import clean, read_json

FOLDER = Path(rig.types.__file__).parent / "recording" / "schemas"
MOST = 20
"""So many faults of a document are enough."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "number": (int, float), "integer": (int,),
}  # fmt: skip


@functools.cache
def _schema(name: str) -> dict[str, Any]:
    return read_json(FOLDER / f"{name}.json")


def faults(value: Any, name: str, part: str = "") -> list[str]:
    """What of a document differs from a schema (start, event, stop), or from one ``part`` of it, in words."""
    if not (FOLDER / f"{name}.json").is_file():
        return []
    whole = _schema(name)
    return [clean(fault) for fault in _faults(value, whole["$defs"][part] if part else whole, whole, "")][:MOST]


def _faults(value: Any, rule: Any, whole: dict[str, Any], where: str) -> list[str]:
    if isinstance(rule, bool):
        return [] if rule else [f"{where} is not allowed"]
    if "$ref" in rule:
        return _faults(value, functools.reduce(dict.__getitem__, rule["$ref"][2:].split("/"), whole), whole, where)
    wrong = _own(value, rule, where)
    parts = [*rule.get("allOf", [])]
    if "if" in rule and not _faults(value, rule["if"], whole, where):
        parts.append(rule.get("then", True))
    wrong += [fault for part in parts for fault in _faults(value, part, whole, where)]
    if "not" in rule and not _faults(value, rule["not"], whole, where):
        wrong.append(f"{where} has a value that is not allowed here")
    ways = [_faults(value, part, whole, where) for part in rule.get("anyOf", [])]
    wrong += sorted(ways, key=len)[0] if ways else []
    inner: list[tuple[Any, Any, str]] = []
    if isinstance(value, dict):
        known, other = rule.get("properties", {}), rule.get("additionalProperties", True)
        inner = [(value[key], known.get(key, other), f"{where}.{key}".lstrip(".")) for key in value]
        inner += [(key, rule["propertyNames"], f"the key {key!r}") for key in value if "propertyNames" in rule]
    if isinstance(value, list):
        first = rule.get("prefixItems", [])
        rules = itertools.chain(first, itertools.repeat(rule.get("items", True)))
        inner = [(part, own, f"{where}[{k}]") for k, (part, own) in enumerate(zip(value, rules, strict=False))]
    for part, own, place in inner:
        wrong += _faults(part, own, whole, place)
        if len(wrong) > MOST:
            break
    return wrong


def _own(value: Any, rule: dict[str, Any], where: str) -> list[str]:
    """What the keywords about the value itself refuse."""
    if kinds := rule.get("type"):
        allowed = [t for kind in ([kinds] if isinstance(kinds, str) else kinds) for t in _TYPES[kind]]
        if not isinstance(value, tuple(allowed)) or (isinstance(value, bool) and bool not in allowed):
            return [f"{where} is {value!r}, not of type {kinds}"]
    wrong = []
    if ("enum" in rule and value not in rule["enum"]) or ("const" in rule and value != rule["const"]):
        wrong.append(f"{where} is {value!r}, not {rule.get('enum', rule.get('const'))!r}")
    if isinstance(value, str) and "pattern" in rule and not re.search(rule["pattern"], value):
        wrong.append(f"{where} is {value!r}, which does not fit {rule['pattern']}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = rule.get("minimum", rule.get("exclusiveMinimum")), rule.get("maximum", rule.get("exclusiveMaximum"))
        if (low is not None and value < low) or (high is not None and value > high):
            wrong.append(f"{where} is {value!r}, outside of {low} to {high}")
    if isinstance(value, dict):
        wrong += [f"{where} has no {key}".strip() for key in rule.get("required", []) if key not in value]
    if isinstance(value, (list, str)):
        least, most = rule.get("minItems", rule.get("minLength", 0)), rule.get("maxItems", rule.get("maxLength", 1e18))
        wrong += [f"{where} has {len(value)} parts"] if not least <= len(value) <= most else []
    return wrong
