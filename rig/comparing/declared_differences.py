"""Differences between the declarations of two recordings: options, versions, bench, firmware, host."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from rig.recording.events import Start

_STATED = ("workload", "scenario", "device")
"""Parts whose options are recorded with their defaults; for a device, only if it is the user's own."""
_HOST = ("python", "platform", "processor", "cpus")
_VERSION = ("packages", "commit", "dirty", "local_code")
_BENCH = ("configuration", "lab", "operator", "ambient_temperature_c", "imported")


def differing(a: Start, b: Start) -> dict[str, tuple[Any, Any]]:
    """Return what the start lines of two recordings declare differently, by its place, such as ``host.cpus``.

    None means that a recording does not declare it.
    """
    one, other = _declared(a), _declared(b)
    found: dict[str, tuple[Any, Any]] = {}
    for root in one:
        x, y = dict(_leaves(root, one[root])), dict(_leaves(root, other[root]))
        found |= {place: (x.get(place), y.get(place)) for place in x | y if x.get(place) != y.get(place)}
    return found


def _declared(start: Start) -> dict[str, Any]:
    line = start.as_recorded
    environment, argv = line.get("environment") or {}, line.get("argv") or ()
    options = (text.partition("=") for flag, text in pairwise(argv) if flag == "--option")
    stated = [(who, key) for who in _STATED for key in (line.get(who) or {}).get("options", ())]
    with_defaults = {name for who, key in stated for name in (key, f"{who}.{key}")}
    return {
        "option": {key: value for key, _, value in options if key not in with_defaults},
        "rules": (line.get("rules") or {}).get("name"),
        "device": line.get("device"), "meter": line.get("meters"),  # before what every upgrade changes
        "bench": {key: line.get(key) for key in _BENCH},
        "version": {key: environment.get(key) for key in _VERSION},
        "host": {key: environment.get(key) for key in _HOST},
        "scenario": line.get("scenario"), "workload": line.get("workload"),
    }  # fmt: skip


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value of nested JSON with the path to it; several items with names are placed by name."""
    if isinstance(value, list) and value and all(isinstance(x, Mapping) and "name" in x for x in value):
        value = {x["name"]: x for x in value} if len(value) > 1 else value[0]
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{place}.{key}", part)
    elif value not in (None, "", []):
        yield place, value
